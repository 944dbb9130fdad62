/* memory.c - memory that NCCL may read and write without copies of its own. */
#include "group/nccl/nccl_plane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ncclMemAlloc() makes memory that can be registered; cudaMalloc()'s only moves data. */
static cddp_status make(struct cddpi_plane *plane, struct nccl_block *block, size_t bytes)
{
    cddp_status status;

    if (plane->nccl.mem_alloc != NULL && plane->nccl.mem_free != NULL && !plane->plain &&
        plane->nccl.mem_alloc(&block->memory, bytes) == ncclSuccess) {
        return CDDP_OK;
    }
    (void)cudaGetLastError(); /* devices without virtual memory management: no matter */
    block->memory = NULL;
    status = CUDA_CHECK(plane->device, cudaMalloc(&block->memory, bytes));
    block->own = status == CDDP_OK;
    return status;
}

static bool has_windows(const struct cddpi_plane *plane, const struct nccl_block *block)
{
    const char *wanted = getenv("NCCL_WIN_ENABLE"); /* NCCL's own switch */

    return plane->nccl.make_window != NULL && plane->nccl.unmake_window != NULL && !block->own &&
           !plane->deterministic && (wanted == NULL || strcmp(wanted, "0") != 0);
}

/* With a window kernels of all ranks reach the memory directly, if all have one; without, a rank's
 * own memory need not be copied on its way. */
static cddp_status enrol(struct cddpi_plane *plane, struct nccl_block *block, size_t bytes,
                         bool window)
{
    uint32_t whole = plane->timeout_ms;
    cddp_status status = cddpi_nccl_enter(plane);

    if (status != CDDP_OK) {
        return status;
    }
    /* a rank that failed at once can still tell those that wait for it in here */
    plane->timeout_ms = whole / 2 < NCCL_ENROL_MS ? whole / 2 : NCCL_ENROL_MS;
    if (window) {
        status = NCCL_CALL(plane, make_window, plane->comm, block->memory, bytes, &block->window,
                           NCCL_WIN_COLL_SYMMETRIC);
    }
    if (status == CDDP_OK && block->window == NULL && !block->own && plane->nccl.enroll != NULL &&
        plane->nccl.unenroll != NULL) {
        status = NCCL_CALL(plane, enroll, plane->comm, block->memory, bytes, &block->registration);
    }
    plane->timeout_ms = whole;
    cddpi_nccl_leave(plane);
    return status;
}

/* Register the memory with NCCL, which makes it faster, no more: where one rank cannot, none does,
 * now and later. Collective. */
static cddp_status enrol_on_all(struct cddpi_plane *plane, struct nccl_block *block, size_t bytes)
{
    uint8_t own = has_windows(plane, block);
    uint8_t all[NCCL_MOST_RANKS];
    bool window = true;
    cddp_status enrolled;
    cddp_status status = plane->seat.exchange(plane->seat.context, &own, sizeof own, all);
    char text[2 * CDDPI_PLANE_TEXT];

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        window = window && all[r] != 0;
    }
    if (status != CDDP_OK) {
        return status;
    }
    enrolled = enrol(plane, block, bytes, window);
    if (enrolled != CDDP_OK) {
        atomic_store(&plane->spoilt, true);
        snprintf(text, sizeof text, "%s; memory is not registered with NCCL: exchanges are slower",
                 cddpi_plane_last_error(plane->device));
        cddpi_plane_warn(plane->device, text);
    }
    own = enrolled != CDDP_OK;
    status = plane->seat.exchange(plane->seat.context, &own, sizeof own, all);
    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        plane->plain = plane->plain || all[r] != 0;
    }
    if (status == CDDP_OK && plane->plain) {
        block->window = NULL; /* they go with the communicator */
        block->registration = NULL;
        status = cddpi_nccl_mend(plane);
    }
    return status;
}

static void unmake(struct cddpi_plane *plane, struct nccl_block *block)
{
    if ((block->registration != NULL || block->window != NULL) &&
        cddpi_nccl_enter(plane) == CDDP_OK) {
        if (block->window != NULL) {
            (void)NCCL_CALL(plane, unmake_window, plane->comm, block->window);
        } else {
            (void)NCCL_CALL(plane, unenroll, plane->comm, block->registration);
        }
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
    if (status == CDDP_OK && !plane->plain) {
        status = cddpi_plane_agree(&plane->seat, enrol_on_all(plane, block, given));
    }
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
