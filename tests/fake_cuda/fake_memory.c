/* fake_memory.c - owns the fake's memory: what the runtime allocated or registered. */
#include "fake_cuda/fake_block.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct CUmemPoolHandle_st {
    int device;
};

/* By device: bytes of all pools together that are in use, and that were released but stay taken
 * from the device until a pool is trimmed. */
static size_t pool_used[FAKE_MAX_DEVICES], pool_kept[FAKE_MAX_DEVICES];

struct fake_block *fake_blocks;

struct fake_block *fake_block_find(const void *memory)
{
    for (struct fake_block *block = fake_blocks; block != NULL; block = block->next) {
        if ((const char *)memory >= block->base &&
            (const char *)memory < block->base + block->bytes) {
            return block;
        }
    }
    return NULL;
}

struct fake_block *fake_block_add(void *base, size_t bytes, enum fake_memory kind)
{
    struct fake_block *block = fake_zalloc(sizeof *block);

    *block = (struct fake_block){fake_blocks, base, bytes, kind, fake_device, -1, 1, false, {{0}}};
    fake_blocks = block;
    return block;
}

void fake_block_forget(struct fake_block *block)
{
    for (struct fake_block **at = &fake_blocks; *at != NULL; at = &(*at)->next) {
        if (*at == block) {
            *at = block->next;
            free(block);
            return;
        }
    }
}

enum fake_memory fake_memory_of(const void *memory, size_t bytes, bool *out_whole, int *out_device)
{
    const struct fake_block *block = fake_block_find(memory);

    *out_whole = true;
    if (block == NULL) {
        return FAKE_NONE;
    }
    *out_whole = !block->released &&
                 bytes <= (size_t)(block->base + block->bytes - (const char *)memory);
    if (out_device != NULL) {
        *out_device = block->device;
    }
    return block->kind;
}

/* For watched kernels, which run without the lock. */
bool fake_memory_range(const void *at, const char **out_begin, const char **out_end);
bool fake_memory_range(const void *at, const char **out_begin, const char **out_end)
{
    const struct fake_block *block;

    pthread_mutex_lock(&fake.lock);
    block = fake_block_find(at);
    if (block != NULL) {
        *out_begin = block->base;
        *out_end = block->base + block->bytes;
    }
    pthread_mutex_unlock(&fake.lock);
    return block != NULL;
}

/* Reserve @p bytes. Fails if the device is full, or if a test wants this allocation to fail. */
static cudaError_t take(int device, size_t bytes)
{
    fake.allocs++;
    if (fake.allocs == fake.config.fail_alloc || bytes > fake.config.memory - fake.used[device]) {
        return cudaErrorMemoryAllocation;
    }
    fake.used[device] += bytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    cudaError_t error = fake_enter_context();
    struct fake_block *block;
    void *base;
    int fd;

    if (error != cudaSuccess) {
        return error;
    }
    if (fake_capturing_here()) {
        return fake_leave(fake_capture_refuse(fake.capture->origin));
    }
    error = take(fake_device, bytes);
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        abort();
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        abort();
    }
    memset(base, 0xff, bytes);
    block = fake_block_add(base, bytes, FAKE_DEVICE);
    block->fd = fd;
    *out = base;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaFree(void *memory)
{
    cudaError_t error = fake_enter_context();
    struct fake_block *block = fake_block_find(memory);

    if (error != cudaSuccess) {
        return error;
    }
    if (memory == NULL) {
        return fake_leave(cudaSuccess);
    }
    if (block == NULL || block->base != memory ||
        (block->kind != FAKE_DEVICE && block->kind != FAKE_POOL) || block->released) {
        return fake_leave(cudaErrorInvalidValue);
    }
    if (fake_capturing_here()) {
        return fake_leave(fake_capture_refuse(fake.capture->origin));
    }
    error = fake_sync_all();
    fake.used[block->device] -= block->bytes;
    if (block->kind == FAKE_DEVICE) {
        munmap(block->base, block->bytes);
        close(block->fd);
    } else {
        free(block->base);
    }
    fake_block_forget(block);
    return fake_leave(error);
}

cudaError_t cudaMemGetInfo(size_t *out_free, size_t *total)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    *out_free = fake.config.memory - fake.used[fake_device];
    *total = fake.config.memory;
    return fake_leave(cudaSuccess);
}

/* --- pools: memory that is allocated and freed in stream order --- */

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *properties)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    if (!fake.config.pools) {
        return fake_leave(cudaErrorNotSupported);
    }
    *out = fake_zalloc(sizeof **out);
    (*out)->device = properties->location.id;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    free(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    (void)pool;
    (void)value; /* the fake keeps all memory, whatever the threshold */
    return attribute == cudaMemPoolAttrReleaseThreshold ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    if (attribute != cudaMemPoolAttrReservedMemCurrent &&
        attribute != cudaMemPoolAttrUsedMemCurrent) {
        return cudaErrorInvalidValue;
    }
    pthread_mutex_lock(&fake.lock);
    *(uint64_t *)value = pool_used[pool->device] + (attribute == cudaMemPoolAttrReservedMemCurrent
                                                        ? pool_kept[pool->device]
                                                        : 0);
    pthread_mutex_unlock(&fake.lock);
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    (void)keep;
    pthread_mutex_lock(&fake.lock);
    fake.used[pool->device] -= pool_kept[pool->device];
    pool_kept[pool->device] = 0;
    pthread_mutex_unlock(&fake.lock);
    return cudaSuccess;
}

struct poison {
    void *memory;
    size_t bytes;
    int device;
};

static void run_poison(void *closure)
{
    const struct poison *poison = closure;

    memset(poison->memory, 0xff, poison->bytes);
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();
    struct poison *poison;
    struct fake_block *block;
    void *base = NULL;
    size_t kept;

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    if (stream->capture != NULL) {
        return fake_leave(fake_capture_refuse(stream));
    }
    kept = pool_kept[pool->device] < bytes ? pool_kept[pool->device] : bytes;
    error = take(pool->device, bytes - kept);
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    pool_kept[pool->device] -= kept;
    if (posix_memalign(&base, 256, bytes) != 0) {
        abort();
    }
    block = fake_block_add(base, bytes, FAKE_POOL);
    block->device = pool->device;
    poison = fake_zalloc(sizeof *poison);
    *poison = (struct poison){base, bytes, pool->device};
    *out = base;
    pool_used[pool->device] += bytes;
    return fake_leave(fake_put_closure(stream, run_poison, poison, free));
}

static void run_release(void *closure)
{
    const struct poison *poison = closure;

    memset(poison->memory, 0xff, poison->bytes); /* so that a late reader sees it */
    pthread_mutex_lock(&fake.lock);
    fake_block_forget(fake_block_find(poison->memory));
    pool_used[poison->device] -= poison->bytes;
    pool_kept[poison->device] += poison->bytes;
    pthread_mutex_unlock(&fake.lock);
    free(poison->memory);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();
    struct fake_block *block = fake_block_find(memory);
    struct poison *poison;

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    if (block == NULL || block->base != memory || block->kind != FAKE_POOL || block->released) {
        return fake_leave(cudaErrorInvalidValue);
    }
    if (stream->capture != NULL) {
        return fake_leave(fake_capture_refuse(stream));
    }
    block->released = true;
    poison = fake_zalloc(sizeof *poison);
    *poison = (struct poison){block->base, block->bytes, block->device};
    return fake_leave(fake_put_closure(stream, run_release, poison, free));
}

/* --- host memory --- */

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    cudaError_t error = fake_enter_context();
    void *base = NULL;

    (void)flags;
    if (error != cudaSuccess) {
        return error;
    }
    error = fake_capture_forbids();
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    fake.pins++;
    if (fake.pins == fake.config.fail_pin) {
        return fake_leave(cudaErrorMemoryAllocation);
    }
    if (posix_memalign(&base, 256, bytes) != 0) {
        abort();
    }
    memset(base, 0xff, bytes);
    fake_block_add(base, bytes, FAKE_PINNED);
    *out = base;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory)
{
    cudaError_t error = fake_enter_context();
    struct fake_block *block = fake_block_find(memory);

    if (error != cudaSuccess) {
        return error;
    }
    if (block == NULL || block->base != memory || block->kind != FAKE_PINNED) {
        return fake_leave(cudaErrorInvalidValue);
    }
    error = fake_capture_forbids();
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    error = fake_sync_all();
    fake_block_forget(block);
    free(memory);
    return fake_leave(error);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    cudaError_t error = fake_enter_context();

    (void)flags;
    if (error != cudaSuccess) {
        return error;
    }
    error = fake_capture_forbids();
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    if (memory == NULL || bytes == 0) {
        return fake_leave(cudaErrorInvalidValue);
    }
    for (const struct fake_block *block = fake_blocks; block != NULL; block = block->next) {
        if ((char *)memory < block->base + block->bytes && block->base < (char *)memory + bytes) {
            return fake_leave(cudaErrorHostMemoryAlreadyRegistered);
        }
    }
    fake_block_add(memory, bytes, FAKE_REGISTERED);
    return fake_leave(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *memory)
{
    cudaError_t error = fake_enter_context();
    struct fake_block *block = fake_block_find(memory);

    if (error != cudaSuccess) {
        return error;
    }
    if (block == NULL || block->base != memory || block->kind != FAKE_REGISTERED) {
        return fake_leave(cudaErrorHostMemoryNotRegistered);
    }
    error = fake_sync_all();
    fake_block_forget(block);
    return fake_leave(error);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *memory, unsigned int flags)
{
    cudaError_t error = fake_enter_context();
    const struct fake_block *block = fake_block_find(memory);

    if (error != cudaSuccess) {
        return error;
    }
    if (flags != 0 || block == NULL ||
        (block->kind != FAKE_PINNED && block->kind != FAKE_REGISTERED)) {
        return fake_leave(cudaErrorInvalidValue);
    }
    *out = memory;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory)
{
    cudaError_t error = fake_enter_context();
    const struct fake_block *block = fake_block_find(memory);

    if (error != cudaSuccess) {
        return error;
    }
    memset(out, 0, sizeof *out);
    out->type = cudaMemoryTypeUnregistered;
    out->device = -2;
    if (block != NULL) {
        bool host = block->kind == FAKE_PINNED || block->kind == FAKE_REGISTERED;

        out->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
        out->device = block->device;
        out->devicePointer = (void *)(uintptr_t)memory;
        out->hostPointer = host ? (void *)(uintptr_t)memory : NULL;
    }
    return fake_leave(cudaSuccess);
}
