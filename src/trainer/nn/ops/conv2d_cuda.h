/* conv2d_cuda.h - convolutions in groups on a device: made by conv2d_groups_cuda.c for
 * conv2d_cuda.c, and no more than a convolution where there is one group. */
#ifndef CDDPI_NN_OPS_CONV2D_CUDA_H
#define CDDPI_NN_OPS_CONV2D_CUDA_H

#include "nn/cuda/model_cuda.h"

struct cddpi_cuda_groups {
    struct cddpi_cuda_conv part; /* a group's */
    int count;
    size_t in_pixels, out_pixels; /* of all images */
    size_t filters;               /* numbers of a group's */
    /* buffers, where there are several groups: a group's channels of input and output, or of their
     * gradients; its filters, if they do not begin where kernels want them; their gradient */
    int x, y, weight, grad;
    bool moves_weight;
};

/** Whether plain filters lie in memory as those with channels last do. */
bool cddpi_cuda_filters_are_plain(const struct cddpi_op *op);

CDDP_CHECKED cddp_status cddpi_cuda_groups_plan(struct cddpi_plan *plan, int index,
                                                struct cddpi_cuda_groups *out);
/** The gradient of plain filters by the kernel conv_weight.
 *  @param made  Where filters with channels last fit; NULL: plain ones lie in memory as those do.
 */
CDDP_CHECKED cddp_status cddpi_cuda_filter_gradient(const struct cddpi_exec *exec,
                                                    const struct cddpi_cuda_conv *shape,
                                                    const void *dy, const void *x, float *made,
                                                    bool add, float *dweight);
/* As the kernels conv, conv_input and conv_weight: with filters outputs x kernel x kernel x a
 * group's channels, but conv_weight's result is the plain parameter's gradient. */
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
