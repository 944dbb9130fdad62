/* kernels_module.h - the services that kernels need from their device, what kernels provide to
 * their module, and what all kernels share: scratch memory and a timer. Kernels know the device
 * only through these services. */
#ifndef CDDPI_CUDA_KERNELS_MODULE_H
#define CDDPI_CUDA_KERNELS_MODULE_H

#include "base/tuning.h"
#include "kernels/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- from the device: src/runtime/device/cuda --- */

/** CDDPI_STREAM_COMPUTE and CDDPI_STREAM_COMM of @p device. */
cudaStream_t cddpi_cuda_compute_stream(struct cddpi_device *device);
cudaStream_t cddpi_cuda_comm_stream(struct cddpi_device *device);
/** CDDP_OK if @p error, the result of a runtime call, is cudaSuccess. Otherwise
 *  CDDP_ERR_UNAVAILABLE for a refused capture, CDDP_ERR_NO_MEMORY for lack of memory, and else
 *  CDDP_ERR_DEVICE, with a text of rank, @p call, the error's name and description, and the source
 *  line. */
cddp_status cddpi_cuda_status(const struct cddpi_device *device, cudaError_t error,
                              const char *call, const char *file, int line);
/** Return the result of a runtime call from this function unless it is cudaSuccess. */
#define CDDPI_TRY_CUDA(call)                                                                       \
    do {                                                                                           \
        const cudaError_t tried_ = (call);                                                         \
        if (tried_ != cudaSuccess) {                                                               \
            return tried_;                                                                         \
        }                                                                                          \
    } while (0)
/** Word a failure: "rank 2: cuda:1: <text>". Returns @p status. Any thread. */
cddp_status cuda_fail(const struct cddpi_device *device, cddp_status status, const char *format,
                      ...) __attribute__((format(printf, 3, 4)));

/** The device's operations of the same names (device/device.h), in the compute stream. */
cddp_status cddpi_cuda_alloc(struct cddpi_device *device, size_t bytes, const char *what,
                             void **out);
void cddpi_cuda_release(struct cddpi_device *device, void *memory);
cddp_status cddpi_cuda_pin(struct cddpi_device *device, size_t bytes, void **out);
void cddpi_cuda_unpin(struct cddpi_device *device, void *memory);
cddp_status cddpi_cuda_copy(struct cddpi_device *device, void *to, const void *from, size_t bytes);
cddp_status cddpi_cuda_clear(struct cddpi_device *device, void *memory, size_t bytes);
/** The number of its multiprocessors. */
size_t cddpi_cuda_multiprocessors(const struct cddpi_device *device);
/** The table of all kernels of @p device. */
const struct cddpi_cuda_kernels *cddpi_cuda_rows(struct cddpi_device *device);

/** cddpi_tuning_open() (base/tuning.h) for @p device and the version of @p library: "cuBLASLt
 *  13.1.0". */
struct cddpi_tuning *cddpi_cuda_tuning(struct cddpi_device *device, const char *subject,
                                       const char *library);

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

/* --- from the kernels --- */

/** Whether products and convolutions may round float32 factors to TF32: $CDDP_TF32. */
bool cddpi_cuda_tf32(void);

/** Fill all rows of @p out. Called once for each device; the table needs no release. */
void cddpi_cuda_kernels_fill(struct cddpi_cuda_kernels *out);

/* The parts of cddpi_cuda_kernels_fill(), each in the file that defines the kernels of its rows:
 * cddpi_cuda_fill_NAME(). */
#define CDDPI_CUDA_FILLS(X)                                                                        \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad)                                                                             \
    X(embedding)                                                                                   \
    X(embedding_grad)                                                                              \
    X(elementwise)                                                                                 \
    X(pointwise)                                                                                   \
    X(columns)                                                                                     \
    X(response_norm)                                                                               \
    X(lstm)                                                                                        \
    X(dropout)                                                                                     \
    X(column_sums)                                                                                 \
    X(pool)                                                                                        \
    X(global_pool)                                                                                 \
    X(cross_entropy)                                                                               \
    X(loss)                                                                                        \
    X(layout)                                                                                      \
    X(matmul)                                                                                      \
    X(attention)                                                                                   \
    X(conv)                                                                                        \
    X(few_channels)                                                                                \
    X(batch_norm)                                                                                  \
    X(batch_norm_grad)                                                                             \
    X(update)                                                                                      \
    X(squares)                                                                                     \
    X(cast)                                                                                        \
    X(reduce)                                                                                      \
    X(reduce_hosts)
#define CDDPI_CUDA_DECLARE_FILL(name) void cddpi_cuda_fill_##name(struct cddpi_cuda_kernels *out);
CDDPI_CUDA_FILLS(CDDPI_CUDA_DECLARE_FILL)

/* One kernel of the module's list. Entries are static, so they are in the list before the module's
 * first call.
 *
 * By default CUDA loads a kernel when it is first launched, and loading may wait for all work in
 * flight on the device. If a stream waits for another process, this can deadlock: the work that the
 * other process waits for is enqueued after the load. So all kernels are loaded when a device is
 * opened, when nothing is in flight. */
struct cddpi_cuda_kernel_entry {
    const void *kernel;
    const struct cddpi_cuda_kernel_entry *next;
#ifdef __cplusplus
    explicit cddpi_cuda_kernel_entry(const void *which);
#endif
};

/** The entry that was added last; NULL: the list is empty. */
extern const struct cddpi_cuda_kernel_entry *cddpi_cuda_kernel_list;

/** Load all kernels on @p device, which must be the calling thread's current device. */
cddp_status cddpi_cuda_load_kernels(struct cddpi_device *device);

/* --- shared by kernels --- */

/** Whether the compute stream is being captured, so that nothing can be allocated. */
bool cddpi_cuda_capturing(struct cddpi_device *device);

/** At least @p bytes, 256-byte aligned, for work in the compute stream, valid until the next call.
 *  It grows only outside of captures (in a capture: CDDP_ERR_UNAVAILABLE), so the same work must
 *  have run uncaptured before. */
cddp_status cddpi_cuda_scratch(struct cddpi_device *device, size_t bytes, void **out);

/** The share of scratch in first_use_bytes of struct cddpi_cuda_kernels. */
size_t cddpi_cuda_scratch_first_use_bytes(struct cddpi_device *device);

/* Measures work in the compute stream, for choices by time. It waits for the work, so none of this
 * can be captured. */
struct cddpi_cuda_timer {
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

/** @p out needs cddpi_cuda_timer_close() after success. */
cudaError_t cddpi_cuda_timer_open(struct cddpi_device *device, struct cddpi_cuda_timer *out);
void cddpi_cuda_timer_close(struct cddpi_cuda_timer *timer);

/** The shortest of three runs, in milliseconds. @p run enqueues work in timer->stream. If it
 *  returns false, it cannot; that is not an error, and the time is infinite (FLT_MAX). */
cudaError_t cddpi_cuda_timer_best(const struct cddpi_cuda_timer *timer, bool (*run)(void *argument),
                                  void *argument, float *out_ms);

#ifdef __cplusplus
}

inline cddpi_cuda_kernel_entry::cddpi_cuda_kernel_entry(const void *which)
    : kernel(which), next(cddpi_cuda_kernel_list)
{
    cddpi_cuda_kernel_list = this;
}
#endif
#endif
