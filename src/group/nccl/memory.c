/* memory.c - memory that NCCL may read and write without copies of its own. */
#include "group/nccl/nccl_plane.h"

/* ncclMemAlloc() makes memory that can be registered; cudaMalloc()'s only moves data. */
static cddp_status make(struct cddpi_plane *plane, struct nccl_block *block, size_t bytes)
{
    bool registers = plane->nccl.mem_alloc != NULL && plane->nccl.mem_free != NULL &&
                     plane->nccl.enroll != NULL && plane->nccl.unenroll != NULL;
    cddp_status status;

    if (registers && plane->nccl.mem_alloc(&block->memory, bytes) != ncclSuccess) {
        block->memory = NULL; /* devices without virtual memory management: no matter */
        (void)cudaGetLastError();
    }
    if (block->memory == NULL) {
        status = CUDA_CHECK(plane->device, cudaMalloc(&block->memory, bytes));
        block->own = status == CDDP_OK;
        registers = false;
    } else {
        status = cddpi_nccl_enter(plane);
    }
    if (status != CDDP_OK || !registers) {
        return status;
    }
    status = NCCL_CALL(plane, enroll, plane->comm, block->memory, bytes, &block->registration);
    cddpi_nccl_leave(plane);
    return status;
}

static void unmake(struct cddpi_plane *plane, struct nccl_block *block)
{
    if (block->registration != NULL && cddpi_nccl_enter(plane) == CDDP_OK) {
        (void)NCCL_CALL(plane, unenroll, plane->comm, block->registration);
        cddpi_nccl_leave(plane);
    }
    if (block->own) {
        (void)cudaFree(block->memory);
    } else if (block->memory != NULL) {
        (void)plane->nccl.mem_free(block->memory);
    }
    (void)cudaGetLastError(); /* or the next launch would be blamed for it */
    cddpi_plane_free(plane->device, block);
}

/* Beside the communication stream, where work may wait for peers. */
static cddp_status clear(struct cddpi_plane *plane, void *memory, size_t bytes)
{
    struct cddpi_device *device = plane->device;
    cudaStream_t side;
    cddp_status status = CUDA_CHECK(device,
                                    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));

    if (status != CDDP_OK) {
        return status;
    }
    status = CUDA_CHECK(device, cudaMemsetAsync(memory, 0, bytes, side));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(side));
    }
    (void)cudaStreamDestroy(side);
    return status;
}

cddp_status cddpi_nccl_alloc(struct cddpi_plane *plane, size_t bytes, void **out)
{
    struct nccl_block *block = cddpi_plane_zalloc(plane->device, sizeof *block);
    size_t given = bytes > 0 ? bytes : 1;
    cddp_status status;

    cddpi_plane_enter(plane->device);
    if (block == NULL) {
        status = cddpi_plane_fail(plane->device, CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
    } else {
        status = make(plane, block, given);
        if (status == CDDP_OK) {
            status = clear(plane, block->memory, given);
        }
    }
    status = cddpi_plane_agree(&plane->seat, status);
    if (status != CDDP_OK) {
        if (block != NULL) {
            unmake(plane, block);
        }
        return status;
    }
    block->next = plane->blocks;
    plane->blocks = block;
    *out = block->memory;
    return CDDP_OK;
}

void cddpi_nccl_free(struct cddpi_plane *plane, void *memory)
{
    for (struct nccl_block **link = &plane->blocks; *link != NULL; link = &(*link)->next) {
        struct nccl_block *block = *link;

        if (block->memory == memory) {
            *link = block->next;
            /* whoever frees is done with it, but the stream may not be */
            if (cddpi_plane_drain(plane->device, plane->stream, NCCL_DRAIN_MS)) {
                unmake(plane, block);
            } else {
                cddpi_plane_warn(plane->device, "work on the device does not end: memory of the "
                                                "group stays until this process ends");
                cddpi_plane_free(plane->device, block);
            }
            return;
        }
    }
}
