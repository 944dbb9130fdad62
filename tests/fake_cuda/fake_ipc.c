/* fake_ipc.c - device memory of other processes: a handle says which file in /proc is the
 * memory. */
#include "fake_cuda/fake_block.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The contents of a cudaIpcMemHandle_t. */
struct address {
    char magic[8];
    int pid, fd;
    uint64_t bytes, inode;
    int card;
};

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *memory)
{
    cudaError_t error = fake_enter_context();
    const struct fake_block *block = fake_block_find(memory);
    struct address address = {"fakecud", getpid(), -1, 0, 0, 0};
    struct stat facts;

    if (error != cudaSuccess) {
        return error;
    }
    if (!fake.config.ipc) {
        return fake_leave(cudaErrorNotSupported);
    }
    if (block == NULL || block->kind != FAKE_DEVICE || fstat(block->fd, &facts) != 0) {
        return fake_leave(cudaErrorInvalidValue);
    }
    address.fd = block->fd;
    address.bytes = block->bytes;
    address.inode = facts.st_ino;
    address.card = fake.config.visible[block->device];
    memset(out, 0, sizeof *out);
    memcpy(out, &address, sizeof address);
    return fake_leave(cudaSuccess);
}

/* Map the memory at @p address, if its process still runs. */
static void *map_other(const struct address *address)
{
    char path[64];
    struct stat facts;
    void *base = MAP_FAILED;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", address->pid, address->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &facts) == 0 && facts.st_ino == address->inode) {
        base = mmap(NULL, address->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    return base;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned int flags)
{
    cudaError_t error = fake_enter_context();
    struct address address;
    struct fake_block *block;
    void *base;

    if (error != cudaSuccess) {
        return error;
    }
    memcpy(&address, &handle, sizeof address);
    if (!fake.config.ipc) {
        return fake_leave(cudaErrorNotSupported);
    }
    if (flags != cudaIpcMemLazyEnablePeerAccess || memcmp(address.magic, "fakecud", 8) != 0 ||
        address.pid == getpid()) {
        return fake_leave(cudaErrorInvalidValue);
    }
    if (!fake.config.peers && address.card != fake.config.visible[fake_device]) {
        return fake_leave(cudaErrorMapBufferObjectFailed);
    }
    for (block = fake_blocks; block != NULL; block = block->next) {
        if (block->kind == FAKE_OPENED && memcmp(&block->handle, &handle, sizeof handle) == 0) {
            block->refs++;
            *out = block->base;
            return fake_leave(cudaSuccess);
        }
    }
    base = map_other(&address);
    if (base == MAP_FAILED) {
        return fake_leave(cudaErrorMapBufferObjectFailed);
    }
    block = fake_block_add(base, address.bytes, FAKE_OPENED);
    block->handle = handle;
    *out = base;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    cudaError_t error = fake_enter_context();
    struct fake_block *block = fake_block_find(memory);

    if (error != cudaSuccess) {
        return error;
    }
    if (block == NULL || block->base != memory || block->kind != FAKE_OPENED) {
        return fake_leave(cudaErrorInvalidValue);
    }
    if (--block->refs == 0) {
        error = fake_sync_all();
        munmap(block->base, block->bytes);
        fake_block_forget(block);
    }
    return fake_leave(error);
}
