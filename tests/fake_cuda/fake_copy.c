/* fake_copy.c - copies and fills, at the latest moment that CUDA allows. Pageable memory is read
 * during the call and written before it returns. Pinned memory is accessed when the stream gets
 * there. Copies in a graph access both when they are replayed: CUDA captures pageable memory like
 * any other. */
#include "fake_cuda/fake.h"

#include <stdlib.h>
#include <string.h>

struct copy {
    void *to;
    const void *from; /* NULL: the bytes follow this struct */
    size_t bytes;
    int value; /* the byte of a fill */
    bool fill;
};

static void run_copy(void *closure)
{
    const struct copy *copy = closure;

    if (copy->fill) {
        memset(copy->to, copy->value, copy->bytes);
    } else {
        memmove(copy->to, copy->from != NULL ? copy->from : (const void *)(copy + 1), copy->bytes);
    }
}

static bool is_device(enum fake_memory kind)
{
    return kind == FAKE_DEVICE || kind == FAKE_POOL || kind == FAKE_OPENED;
}

/* Whether the requested kind matches the memory. */
static bool fits(enum cudaMemcpyKind kind, enum fake_memory to, enum fake_memory from)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !is_device(to) && !is_device(from);
    case cudaMemcpyHostToDevice:
        return is_device(to) && !is_device(from);
    case cudaMemcpyDeviceToHost:
        return !is_device(to) && is_device(from);
    case cudaMemcpyDeviceToDevice:
        return is_device(to) && is_device(from);
    default:
        return kind == cudaMemcpyDefault;
    }
}

static cudaError_t put_copy(cudaStream_t stream, void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind)
{
    bool whole_to;
    bool whole_from;
    enum fake_memory to_kind = fake_memory_of(to, bytes, &whole_to, NULL);
    enum fake_memory from_kind = fake_memory_of(from, bytes, &whole_from, NULL);
    bool keeps = from_kind == FAKE_NONE && stream->capture == NULL;
    struct copy *copy;
    cudaError_t error;

    if (!whole_to || !whole_from || !fits(kind, to_kind, from_kind)) {
        return cudaErrorInvalidValue;
    }
    copy = fake_zalloc(sizeof *copy + (keeps ? bytes : 0));
    *copy = (struct copy){to, from, bytes, 0, false};
    if (keeps) {
        memcpy(copy + 1, from, bytes);
        copy->from = NULL;
    }
    error = fake_put_closure(stream, run_copy, copy, free);
    return error == cudaSuccess && to_kind == FAKE_NONE && stream->capture == NULL
               ? fake_sync_stream(stream)
               : error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    if (bytes == 0) {
        return fake_leave(cudaSuccess);
    }
    return fake_leave(put_copy(fake_stream_of(stream), to, from, bytes, kind));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = fake_enter_context();
    cudaStream_t stream;

    if (error != cudaSuccess) {
        return error;
    }
    if (fake_capturing_here()) {
        return fake_leave(fake_capture_refuse(fake.capture->origin));
    }
    stream = fake_stream_of(NULL);
    error = bytes > 0 ? put_copy(stream, to, from, bytes, kind) : cudaSuccess;
    return fake_leave(error == cudaSuccess ? fake_sync_stream(stream) : error);
}

static cudaError_t put_fill(cudaStream_t stream, void *memory, int value, size_t bytes)
{
    bool whole;
    enum fake_memory kind = fake_memory_of(memory, bytes, &whole, NULL);
    struct copy *copy;

    if (!whole || kind == FAKE_NONE) {
        return cudaErrorInvalidValue;
    }
    copy = fake_zalloc(sizeof *copy);
    *copy = (struct copy){memory, NULL, bytes, value, true};
    return fake_put_closure(stream, run_copy, copy, free);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    if (bytes == 0) {
        return fake_leave(cudaSuccess);
    }
    return fake_leave(put_fill(fake_stream_of(stream), memory, value, bytes));
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    cudaError_t error = cudaMemsetAsync(memory, value, bytes, NULL);

    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}
