/* stream_flags.h - owns flags in host memory that streams of several processes raise and wait for;
 * neither kernels nor threads spin.
 *
 * A flag has 64 bits and counts up. Streams write the lower half. The upper half starts at 0 and
 * increases by one per 2^32. A host may set it to CDDPI_FLAG_RELEASED, which satisfies every wait,
 * whatever streams still write to the lower half. So streams become empty when a peer is lost. */
#ifndef CDDPI_GROUP_CUDA_STREAM_FLAGS_H
#define CDDPI_GROUP_CUDA_STREAM_FLAGS_H

#include "group/cuda/common.h"

#include <cuda.h>

#include <stdatomic.h>

enum { CDDPI_FLAG_RELEASED = 0x40000000 };

struct cddpi_stream_flags {
    struct cddpi_device *device;
    __typeof__(&cuStreamBatchMemOp) batch;
    unsigned wait_flags;
    /* the registered or pinned memory that the flags are in; set by the caller */
    const void *memory;
    char *memory_device; /* its address for streams */
};

/** CDDP_ERR_UNAVAILABLE: streams of @p device cannot wait for values in memory. */
cddp_status cddpi_flags_find(struct cddpi_device *device, struct cddpi_stream_flags *out);
/** Enqueue into @p stream: set @p flag to @p value (its previous value plus one), once all earlier
 *  writes of the stream are visible to all ranks. */
cddp_status cddpi_flag_raise(const struct cddpi_stream_flags *flags, cudaStream_t stream,
                             const _Atomic uint64_t *flag, uint64_t value);
/** Enqueue into @p stream: wait until @p flag has reached @p value. */
cddp_status cddpi_flag_await(const struct cddpi_stream_flags *flags, cudaStream_t stream,
                             const _Atomic uint64_t *flag, uint64_t value);
/** Fill in the item that waits until @p flag has reached @p value. */
void cddpi_flag_wait_item(const struct cddpi_stream_flags *flags, const _Atomic uint64_t *flag,
                          uint64_t value, CUstreamBatchMemOpParams *out);
/** Enqueue @p count items into @p stream. */
cddp_status cddpi_flag_items(const struct cddpi_stream_flags *flags, cudaStream_t stream,
                             CUstreamBatchMemOpParams *items, unsigned count);

/** The address for streams of @p member of flags->memory. */
static inline CUdeviceptr cddpi_flag_address(const struct cddpi_stream_flags *flags,
                                             const volatile void *member)
{
    return (CUdeviceptr)(uintptr_t)(flags->memory_device +
                                    ((const volatile char *)member - (const char *)flags->memory));
}

/** End all waits for @p flag, present and future ones. Any thread. */
static inline void cddpi_flag_release(_Atomic uint64_t *flag)
{
    /* little endian */
    atomic_store_explicit((_Atomic uint32_t *)flag + 1, CDDPI_FLAG_RELEASED, memory_order_release);
}

#endif
