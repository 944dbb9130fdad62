/* conv2d_cuda.h - grouped convolutions on a device, for conv2d_cuda.c; conv2d_groups_cuda.c
 * implements them. With one group, each is a plain convolution. */
#ifndef CDDPI_NN_OPS_CONV2D_CUDA_H
#define CDDPI_NN_OPS_CONV2D_CUDA_H

#include "nn/cuda/model_cuda.h"

struct cddpi_cuda_groups {
    struct cddpi_cuda_conv part; /* one group's convolution */
    int count;
    size_t in_pixels, out_pixels; /* of all images */
    size_t filters;               /* elements of one group's filters */
    /* buffers, if there are several groups: one group's channels of input and output (or of their
     * gradients); its filters, if they are not aligned as kernels need; their gradient */
    int x, y, weight, grad;
    bool moves_weight;
};

/** Whether the plain layout of the filters equals the channels-last layout in memory. */
bool cddpi_cuda_filters_are_plain(const struct cddpi_op *op);

void cddpi_cuda_groups_plan(struct cddpi_plan *plan, int index, struct cddpi_cuda_groups *out);
/** The gradient of plain filters by the kernel conv_weight.
 *  @param made  Memory for channels-last filters; NULL: the plain layout equals it. */
CDDP_CHECKED cddp_status cddpi_cuda_filter_gradient(const struct cddpi_exec *exec,
                                                    const struct cddpi_cuda_conv *shape,
                                                    const void *dy, const void *x, float *made,
                                                    bool add, float *dweight);
/* As the kernels conv, conv_input and conv_weight. Filters are outputs x kernel x kernel x a
 * group's channels, but the result of conv_weight is the gradient of the plain parameter. */
CDDP_CHECKED cddp_status cddpi_cuda_groups_conv(const struct cddpi_exec *exec,
                                                const struct cddpi_cuda_groups *groups,
                                                const void *x, const void *weight, void *y);
CDDP_CHECKED cddp_status cddpi_cuda_groups_input(const struct cddpi_exec *exec,
                                                 const struct cddpi_cuda_groups *groups,
                                                 const void *dy, const void *weight, void *dx);
CDDP_CHECKED cddp_status cddpi_cuda_groups_weight(const struct cddpi_exec *exec,
                                                  const struct cddpi_cuda_groups *groups,
                                                  const void *dy, const void *x, bool add,
                                                  float *dweight);

#endif
