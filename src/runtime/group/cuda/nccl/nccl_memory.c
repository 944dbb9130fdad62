/* nccl_memory.c - owns memory that NCCL can read and write without copies of its own. */
#include "base/log.h"
#include "group/cuda/nccl/nccl_transport.h"

#include <stdlib.h>
#include <string.h>

/* Memory of ncclMemAlloc() can be registered; that of cudaMalloc(), the fallback, cannot. */
static cddp_status make(struct nccl_transport *nccl, struct nccl_block *block, size_t bytes)
{
    cddp_status status;

    if (nccl->library.mem_alloc != NULL && nccl->library.mem_free != NULL && !nccl->plain &&
        nccl->library.mem_alloc(&block->memory, bytes) == ncclSuccess) {
        return CDDP_OK;
    }
    (void)cudaGetLastError(); /* not an error: some devices have no virtual memory management */
    block->memory = NULL;
    status = CUDA_CHECK(nccl->device, cudaMalloc(&block->memory, bytes));
    block->own = status == CDDP_OK;
    return status;
}

static bool has_windows(const struct nccl_transport *nccl, const struct nccl_block *block)
{
    const char *wanted = getenv("NCCL_WIN_ENABLE"); /* NCCL's own switch */

    return nccl->library.register_window != NULL && nccl->library.deregister_window != NULL &&
           !block->own && !nccl->deterministic && (wanted == NULL || strcmp(wanted, "0") != 0);
}

/* Where NCCL's thread writes a window, perhaps after this rank no longer waits. */
struct window_cell {
    ncclWindow_t window;
    struct window_cell *next;
};

/* Cells that a thread of NCCL may still write, so they stay until the process ends. */
static _Atomic(struct window_cell *) lost_cells;

static void lose(struct window_cell *cell)
{
    cell->next = atomic_load(&lost_cells);
    while (!atomic_compare_exchange_weak(&lost_cells, &cell->next, cell)) {
    }
}

static cddp_status register_window(struct nccl_transport *nccl, struct nccl_block *block,
                                   size_t bytes, struct window_cell *cell)
{
    cddp_status status = NCCL_CALL(nccl, register_window, nccl->comm, block->memory, bytes,
                                   &cell->window, NCCL_WIN_COLL_SYMMETRIC);

    if (status != CDDP_OK) {
        lose(cell);
        return status;
    }
    block->window = cell->window;
    cddpi_free(cell);
    return CDDP_OK;
}

/* With a window, kernels of all ranks access the memory directly, if all ranks have a window. With
 * a registration only, a rank's own memory need not be copied before it is sent. @p cell: for the
 * window, which this function releases; NULL: no window. */
static cddp_status register_block(struct nccl_transport *nccl, struct nccl_block *block,
                                  size_t bytes, struct window_cell *cell)
{
    uint32_t whole = nccl->timeout_ms;
    cddp_status status = cddpi_nccl_enter(nccl);

    if (status != CDDP_OK) {
        cddpi_free(cell);
        return status;
    }
    /* at most half the timeout, so that a rank that failed at once can still notify the ranks that
     * wait here */
    nccl->timeout_ms = whole / 2 < NCCL_REGISTER_MS ? whole / 2 : NCCL_REGISTER_MS;
    if (cell != NULL) {
        status = register_window(nccl, block, bytes, cell);
    }
    if (status == CDDP_OK && block->window == NULL && !block->own &&
        nccl->library.register_buffer != NULL && nccl->library.deregister_buffer != NULL) {
        status = NCCL_CALL(nccl, register_buffer, nccl->comm, block->memory, bytes,
                           &block->registration);
    }
    nccl->timeout_ms = whole;
    cddpi_nccl_leave(nccl);
    return status;
}

/* Register the memory with NCCL, which only makes it faster. If one rank cannot, no rank registers
 * any memory from then on. Collective. */
static cddp_status register_on_all(struct nccl_transport *nccl, struct nccl_block *block,
                                   size_t bytes)
{
    struct window_cell *cell = has_windows(nccl, block) ? cddpi_zalloc(sizeof *cell) : NULL;
    cddp_status status;
    bool lacks;
    bool failed;

    status = cddpi_nccl_any(nccl, cell == NULL, &lacks);
    if (status != CDDP_OK || lacks) {
        cddpi_free(cell);
        cell = NULL;
    }
    CDDPI_TRY(status);
    failed = register_block(nccl, block, bytes, cell) != CDDP_OK;
    if (failed) {
        atomic_store(&nccl->suspect, true);
        cddpi_log(CDDPI_LOG_WARN,
                  "rank %d: %s; memory is not registered with NCCL: exchanges are slower",
                  nccl->rank, cddp_last_error());
    }
    CDDPI_TRY(cddpi_nccl_any(nccl, failed, &nccl->plain));
    if (!nccl->plain) {
        return CDDP_OK;
    }
    block->window = NULL; /* windows are freed with the communicator */
    block->registration = NULL;
    return cddpi_nccl_recover(&nccl->base);
}

static void unmake(struct nccl_transport *nccl, struct nccl_block *block)
{
    if ((block->registration != NULL || block->window != NULL) &&
        cddpi_nccl_enter(nccl) == CDDP_OK) {
        if (block->window != NULL) {
            (void)NCCL_CALL(nccl, deregister_window, nccl->comm, block->window);
        } else {
            (void)NCCL_CALL(nccl, deregister_buffer, nccl->comm, block->registration);
        }
        cddpi_nccl_leave(nccl);
    }
    if (block->own) {
        (void)cudaFree(block->memory);
    } else if (block->memory != NULL) {
        (void)nccl->library.mem_free(block->memory);
    }
    (void)cudaGetLastError(); /* otherwise the next check of a launch would report the error */
    cddpi_free(block);
}

/* Zero the memory. Does not use the communication stream, where work may wait for peers. */
static cddp_status clear(struct nccl_transport *nccl, void *memory, size_t bytes)
{
    struct cddpi_device *device = nccl->device;
    cudaStream_t side_stream;
    cddp_status status;

    CDDPI_TRY(CUDA_CHECK(device, cudaStreamCreateWithFlags(&side_stream, cudaStreamNonBlocking)));
    status = CUDA_CHECK(device, cudaMemsetAsync(memory, 0, bytes, side_stream));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(side_stream));
    }
    (void)cudaStreamDestroy(side_stream);
    return status;
}

cddp_status cddpi_nccl_alloc(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct nccl_transport *nccl = nccl_of(base);
    struct nccl_block *block = cddpi_zalloc(sizeof *block);
    size_t given = bytes > 0 ? bytes : 1;
    cddp_status status;

    cddpi_transport_enter(nccl->device);
    if (block == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
    } else {
        status = make(nccl, block, given);
        if (status == CDDP_OK) {
            status = clear(nccl, block->memory, given);
        }
    }
    status = cddpi_transport_agree(&nccl->params, status);
    if (status == CDDP_OK && !nccl->plain) {
        status = cddpi_transport_agree(&nccl->params, register_on_all(nccl, block, given));
    }
    if (status != CDDP_OK) {
        if (block != NULL) {
            unmake(nccl, block);
        }
        return status;
    }
    block->next = nccl->blocks;
    nccl->blocks = block;
    *out = block->memory;
    return CDDP_OK;
}

void cddpi_nccl_free(struct cddpi_device_transport *base, void *memory)
{
    struct nccl_transport *nccl = nccl_of(base);

    for (struct nccl_block **link = &nccl->blocks; *link != NULL; link = &(*link)->next) {
        struct nccl_block *block = *link;

        if (block->memory == memory) {
            *link = block->next;
            /* the caller no longer uses the memory, but the stream may */
            if (cddpi_nccl_drain(nccl)) {
                unmake(nccl, block);
            } else {
                cddpi_free(block);
            }
            return;
        }
    }
}
