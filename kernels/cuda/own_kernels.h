/* own_kernels.h - kernels that other files of kernels/cuda start, beside the table's: attention
 * where cuDNN has none, windows and few channels of convolutions, and what products need beside
 * cuBLASLt. */
#ifndef CDDPI_KERNELS_CUDA_OWN_KERNELS_H
#define CDDPI_KERNELS_CUDA_OWN_KERNELS_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- causal attention. Shapes must not be empty. --- */

/** Implements cddpi_cuda_kernels.attention. CDDP_ERR_UNAVAILABLE: heads wider than 256. */
cddp_status cddpi_cuda_own_attention(struct cddpi_device *device,
                                     const struct cddpi_cuda_attention *shape, const void *qkv,
                                     void *out, float *stats);
/** @p scratch: cddpi_cuda_own_attention_scratch() bytes. */
cddp_status cddpi_cuda_own_attention_grad(struct cddpi_device *device,
                                          const struct cddpi_cuda_attention *shape, const void *qkv,
                                          const void *out, const float *stats, const void *dout,
                                          void *dqkv, float *scratch);
size_t cddpi_cuda_own_attention_scratch(const struct cddpi_cuda_attention *shape);

/* --- windows of images as the rows of a matrix, so that convolutions become products --- */

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

/* --- images with fewer channels than a 16-byte vector: padded to whole vectors, and their filters'
 * gradients copied back --- */

/** Elements of 16 bits in 16 bytes. */
enum { CDDPI_WHOLE_CHANNELS = 8 };

/** See pad_channels and add_channels of struct cddpi_cuda_kernels. */
cddp_status cddpi_cuda_pad_channels(struct cddpi_device *device, cddp_type type, const void *x,
                                    size_t rows, int channels, void *out);
cddp_status cddpi_cuda_add_channels(struct cddpi_device *device, cddp_type type, const void *x,
                                    size_t rows, int channels, bool add, float *out);

/* --- products (matmul/): replacements for missing epilogues, and a fingerprint that tells whether
 * two algorithms give the same bits. Both run in the given stream. --- */

/** y (rows x columns) += bias, then optionally the relu; bias NULL: only the relu. */
cudaError_t cddpi_cuda_add_bias(cudaStream_t stream, cddp_type type, const void *bias, bool relu,
                                size_t rows, size_t columns, void *y);

/** Add a fingerprint of @p bytes (a multiple of 2) to out[0], and the number of nonzero 2-byte
 *  words to out[1]. */
cudaError_t cddpi_cuda_fingerprint(cudaStream_t stream, const void *memory, size_t bytes,
                                   uint64_t salt, uint64_t out[2]);

#ifdef __cplusplus
}
#endif
#endif
