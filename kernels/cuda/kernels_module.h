/* kernels_module.h - the services that kernels need from their device, and what kernels provide to
 * their module. Kernels know the device only through these services. */
#ifndef CDDPI_CUDA_KERNELS_MODULE_H
#define CDDPI_CUDA_KERNELS_MODULE_H

#include "kernels/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- from the device --- */

/** CDDPI_STREAM_COMPUTE and CDDPI_STREAM_COMM of @p device. */
cudaStream_t cddpi_cuda_compute_stream(struct cddpi_device *device);
cudaStream_t cddpi_cuda_comm_stream(struct cddpi_device *device);
/** CDDP_OK if @p error is cudaSuccess. Otherwise CDDP_ERR_DEVICE, with a text of rank, @p call, the
 *  error's name and description, and the source line. */
cddp_status cddpi_cuda_status(struct cddpi_device *device, cudaError_t error, const char *call,
                              const char *file, int line);
/** cddpi_fail() with a text that names rank and device. */
cddp_status cddpi_cuda_fail(struct cddpi_device *device, cddp_status status, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));

/** The device's operations of the same names (device/device.h), in the compute stream. */
cddp_status cddpi_cuda_alloc(struct cddpi_device *device, size_t bytes, const char *what,
                             void **out);
void cddpi_cuda_release(struct cddpi_device *device, void *memory);
cddp_status cddpi_cuda_pin(struct cddpi_device *device, size_t bytes, void **out);
void cddpi_cuda_unpin(struct cddpi_device *device, void *memory);
cddp_status cddpi_cuda_copy(struct cddpi_device *device, void *to, const void *from, size_t bytes);
cddp_status cddpi_cuda_clear(struct cddpi_device *device, void *memory, size_t bytes);
/** The table of all kernels of @p device. */
const struct cddpi_cuda_kernels *cddpi_cuda_rows(struct cddpi_device *device);

/** Zeroed CPU memory, from libcddp; NULL: out of memory. Free accepts NULL. */
void *cddpi_cuda_host_alloc(struct cddpi_device *device, size_t bytes);
void cddpi_cuda_host_free(struct cddpi_device *device, void *memory);

/* The device cache: what a device keeps for its kernels between calls. Each kind fills its own
 * entry at the first use. When the device is closed, it calls release (if there is one), after its
 * streams are idle and before its memory is freed. */
enum cddpi_cuda_cache_kind {
    CDDPI_CUDA_CACHE_MATMUL,
    CDDPI_CUDA_CACHE_CUDNN,
    CDDPI_CUDA_CACHE_SCRATCH,
    CDDPI_CUDA_CACHE_KINDS
};
struct cddpi_cuda_cache {
    void *state;
    void (*release)(struct cddpi_device *device, void *state);
};
struct cddpi_cuda_cache *cddpi_cuda_cache(struct cddpi_device *device,
                                          enum cddpi_cuda_cache_kind kind);

/* All services, from the module that opens devices. */
struct cddpi_cuda_services {
    cudaStream_t (*compute_stream)(struct cddpi_device *device);
    cudaStream_t (*comm_stream)(struct cddpi_device *device);
    cddp_status (*status)(struct cddpi_device *device, cudaError_t error, const char *call,
                          const char *file, int line);
    cddp_status (*fail)(struct cddpi_device *device, cddp_status status, const char *text);
    cddp_status (*alloc)(struct cddpi_device *device, size_t bytes, const char *what, void **out);
    void (*release)(struct cddpi_device *device, void *memory);
    cddp_status (*pin)(struct cddpi_device *device, size_t bytes, void **out);
    void (*unpin)(struct cddpi_device *device, void *memory);
    cddp_status (*copy)(struct cddpi_device *device, void *to, const void *from, size_t bytes);
    cddp_status (*clear)(struct cddpi_device *device, void *memory, size_t bytes);
    const struct cddpi_cuda_kernels *(*rows)(struct cddpi_device *device);
    struct cddpi_cuda_cache *(*cache)(struct cddpi_device *device, enum cddpi_cuda_cache_kind kind);
};

/* --- from the kernels --- */

/** Set the services. Call this before any kernel starts; @p services must stay valid, and are the
 *  same for all devices. */
void cddpi_cuda_services_use(const struct cddpi_cuda_services *services);

/** Whether products and convolutions may round float32 factors to TF32: $CDDP_TF32. */
bool cddpi_cuda_tf32(void);

/** Fill all rows of @p out. Called once for each device; the table needs no release. */
void cddpi_cuda_kernels_fill(struct cddpi_cuda_kernels *out);

/* The parts of cddpi_cuda_kernels_fill(), each in the file that defines the kernels of its rows. */
void cddpi_cuda_fill_layer_norm(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_layer_norm_grad(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_embedding(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_embedding_grad(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_elementwise(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_pointwise(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_columns(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_response_norm(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_lstm(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_dropout(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_column_sums(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_pool(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_global_pool(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_cross_entropy(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_loss(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_layout(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_matmul(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_attention(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_conv(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_few_channels(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_batch_norm(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_update(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_squares(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_cast(struct cddpi_cuda_kernels *out);
void cddpi_cuda_fill_reduce(struct cddpi_cuda_kernels *out);

#ifdef __cplusplus
}
#endif
#endif
