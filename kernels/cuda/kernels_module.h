/* kernels_module.h - what kernels ask of the module that they are part of (src/device/cuda), and
 * what they give it. */
#ifndef CDDPI_CUDA_KERNELS_MODULE_H
#define CDDPI_CUDA_KERNELS_MODULE_H

#include "kernels/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- of the device --- */

/** CDDPI_STREAM_COMPUTE and CDDPI_STREAM_COMM of @p device. */
cudaStream_t cddpi_cuda_compute_stream(struct cddpi_device *device);
cudaStream_t cddpi_cuda_comm_stream(struct cddpi_device *device);
/** CDDP_OK if @p error is none, else CDDP_ERR_DEVICE with a text of rank, @p call, the error's name
 *  and sentence, and the source line. */
cddp_status cddpi_cuda_status(struct cddpi_device *device, cudaError_t error, const char *call,
                              const char *file, int line);
/** As cddpi_fail() of libcddp, of which the module uses nothing else. */
cddp_status cddpi_cuda_fail(struct cddpi_device *device, cddp_status status, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));

/** Zeroed memory of the processor, from libcddp; NULL: none. NULL is freed, too. */
void *cddpi_cuda_host_alloc(struct cddpi_device *device, size_t bytes);
void cddpi_cuda_host_free(struct cddpi_device *device, void *memory);

/* What a device keeps for its kernels from call to call: each part makes its own when it first
 * needs it, and the device calls release (if there is one) when it is closed, after its streams
 * have run dry and before its memory goes. */
enum cddpi_cuda_part {
    CDDPI_CUDA_PRODUCTS,
    CDDPI_CUDA_CUDNN,
    CDDPI_CUDA_SCRATCH,
    CDDPI_CUDA_PARTS
};
struct cddpi_cuda_kept {
    void *state;
    void (*release)(struct cddpi_device *device, void *state);
};
struct cddpi_cuda_kept *cddpi_cuda_kept(struct cddpi_device *device, enum cddpi_cuda_part part);

/* --- of the kernels --- */

/** Whether products and convolutions may round factors of float32 to TF32: $CDDP_TF32. */
bool cddpi_cuda_tf32(void);

/** Fill all rows of @p out. Called once a device; the table needs no release. */
void cddpi_cuda_kernels_fill(struct cddpi_cuda_kernels *out);

/* Its parts, each in the file that defines the kernels of the rows that it fills. */
void cddpi_cuda_fill_layer_norm(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_layer_norm_grad(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_embedding(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_embedding_grad(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_elementwise(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_dropout(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_column_sums(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_pool(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_cross_entropy(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_loss(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_layout(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_product(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_attention(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_conv(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_batch_norm(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_update(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_squares(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_cast(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_reduce(struct cddpi_cuda_kernels *out);

#ifdef __cplusplus
}
#endif
#endif
