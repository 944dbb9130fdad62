/* im2col.h - copies windows of images to the rows of a matrix, so that convolutions become
 * products. */
#ifndef CDDPI_CUDA_IM2COL_H
#define CDDPI_CUDA_IM2COL_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Rows (or columns) of a convolution's output, from those of its input. */
int cddpi_cuda_conv_extent(int input, const struct cddpi_cuda_conv *shape);

/** @p columns: a row of kernel x kernel x channels for each position of the output; zeros outside
 *  of the image. */
cddp_status cddpi_cuda_im2col(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                              const void *x, void *columns);
/** @p columns: a row of kernel x kernel x outputs for each position of the input: the outputs that
 *  read this position through each element of the window; zeros where there is no such output. */
cddp_status cddpi_cuda_outputs_of_inputs(struct cddpi_device *device,
                                         const struct cddpi_cuda_conv *shape, const void *dy,
                                         void *columns);
/** outputs x kernel x kernel x channels to channels x kernel x kernel x outputs. */
cddp_status cddpi_cuda_transpose_filters(struct cddpi_device *device,
                                         const struct cddpi_cuda_conv *shape, const void *weight,
                                         void *transposed);
/** to = or += from, element-wise. */
cddp_status cddpi_cuda_add_float(struct cddpi_device *device, cddp_type type, const void *from,
                                 size_t count, bool add, float *to);

#ifdef __cplusplus
}
#endif
#endif
