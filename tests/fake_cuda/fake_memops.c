/* fake_memops.c - more driver calls: several words of memory at once, 64-bit words, fills, and
 * queries of what a device supports. */
#include "fake_cuda/fake.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>

struct store {
    void *where;
    uint64_t value;
    size_t bytes; /* size of a value: 4 or 8 */
    size_t count;
};

static void run_store(void *closure)
{
    const struct store *store = closure;

    for (size_t i = 0; i < store->count; i++) {
        if (store->bytes == 8) {
            __atomic_store_n((uint64_t *)store->where + i, store->value, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n((uint32_t *)store->where + i, (uint32_t)store->value,
                             __ATOMIC_RELEASE);
        }
    }
}

static bool reaches(CUdeviceptr address, size_t bytes, size_t alignment)
{
    bool whole;
    enum fake_memory kind = fake_memory_of((const void *)(uintptr_t)address, bytes, &whole, NULL);

    return kind != FAKE_NONE && whole && address % alignment == 0;
}

static cudaError_t put_store(cudaStream_t stream, CUdeviceptr address, uint64_t value, size_t bytes,
                             size_t count)
{
    struct store *store;

    if (!reaches(address, bytes * count, bytes)) {
        return cudaErrorInvalidValue;
    }
    store = fake_zalloc(sizeof *store);
    *store = (struct store){(void *)(uintptr_t)address, value, bytes, count};
    return fake_put_closure(stream, run_store, store, free);
}

static cudaError_t put_wait64(cudaStream_t stream, CUdeviceptr address, uint64_t value)
{
    struct fake_work work = {.kind = FAKE_WAIT_VALUE,
                             .wide = (volatile uint64_t *)(uintptr_t)address,
                             .wide_value = value};

    return fake_put(stream, &work);
}

void fake_wait_beyond(cudaStream_t stream, volatile uint64_t *word, const uint64_t *base,
                      uint64_t more)
{
    struct fake_work work = {
        .kind = FAKE_WAIT_VALUE, .wide = word, .wide_value = more, .base = base};

    if (fake_enter_context() == cudaSuccess) {
        fake_leave(fake_put(fake_stream_of(stream), &work));
    }
}

static cudaError_t put_item(cudaStream_t stream, const CUstreamBatchMemOpParams *item)
{
    switch (item->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        if (!reaches(item->waitValue.address, 8, 8) || (item->waitValue.flags & 3) != 0) {
            return cudaErrorInvalidValue;
        }
        return put_wait64(stream, item->waitValue.address, item->waitValue.value64);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return put_store(stream, item->writeValue.address, item->writeValue.value, 4, 1);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return put_store(stream, item->writeValue.address, item->writeValue.value64, 8, 1);
    default:
        return cudaErrorNotSupported;
    }
}

static CUresult batch_mem_op(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *items,
                             unsigned int flags)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return (CUresult)error;
    }
    if (count >= 256 || flags != 0) {
        return (CUresult)fake_leave(cudaErrorInvalidValue);
    }
    for (unsigned i = 0; i < count && error == cudaSuccess; i++) {
        error = put_item(fake_stream_of(stream), &items[i]);
    }
    return (CUresult)fake_leave(error);
}

static CUresult memset_d32(CUdeviceptr address, unsigned int value, size_t count, CUstream stream)
{
    cudaError_t error = fake_enter_context();

    return (CUresult)(error != cudaSuccess ? error
                                           : fake_leave(put_store(fake_stream_of(stream), address,
                                                                  value, 4, count)));
}

static CUresult device_get(CUdevice *out, int ordinal)
{
    int count;
    cudaError_t error = cudaGetDeviceCount(&count);

    *out = ordinal;
    return error != cudaSuccess ? (CUresult)error
           : ordinal < count    ? CUDA_SUCCESS
                                : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult device_get_attribute(int *out, CUdevice_attribute what, CUdevice device)
{
    (void)device;
    switch (what) {
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        *out = fake.config.wait_value;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
        *out = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

void (*fake_memops_symbol(const char *name))(void)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } symbols[] = {
        {"cuStreamBatchMemOp", (void (*)(void))batch_mem_op},
        {"cuMemsetD32Async", (void (*)(void))memset_d32},
        {"cuDeviceGet", (void (*)(void))device_get},
        {"cuDeviceGetAttribute", (void (*)(void))device_get_attribute},
    };

    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (strcmp(symbols[i].name, name) == 0) {
            return symbols[i].function;
        }
    }
    return NULL;
}
