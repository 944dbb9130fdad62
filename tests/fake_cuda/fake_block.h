/* fake_block.h - the blocks of memory that the fake runtime allocated or registered. */
#ifndef CDDP_TESTS_FAKE_BLOCK_H
#define CDDP_TESTS_FAKE_BLOCK_H

#include "fake_cuda/fake.h"

struct fake_block {
    struct fake_block *next;
    char *base;
    size_t bytes;
    enum fake_memory kind;
    int device;
    int fd;        /* FAKE_DEVICE: shared with processes that open the block */
    int refs;      /* FAKE_OPENED */
    bool released; /* its release is queued, so no new work may use it */
    cudaIpcMemHandle_t handle;
};

extern struct fake_block *fake_blocks;

/* Callers hold the lock. */
struct fake_block *fake_block_find(const void *memory);
struct fake_block *fake_block_add(void *base, size_t bytes, enum fake_memory kind);
void fake_block_forget(struct fake_block *block);

#endif
