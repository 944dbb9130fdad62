/* nccl_memory.c - owns memory that NCCL can read and write without copies of its own. */
#include "group/cuda/nccl/nccl_transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of ncclMemAlloc() can be registered; that of cudaMalloc(), the fallback, cannot. */
static cddp_status make(struct nccl_transport *transport, struct nccl_block *block, size_t bytes)
{
    cddp_status status;

    if (transport->nccl.mem_alloc != NULL && transport->nccl.mem_free != NULL &&
        !transport->plain && transport->nccl.mem_alloc(&block->memory, bytes) == ncclSuccess) {
        return CDDP_OK;
    }
    (void)cudaGetLastError(); /* not an error: some devices have no virtual memory management */
    block->memory = NULL;
    status = CUDA_CHECK(transport->device, cudaMalloc(&block->memory, bytes));
    block->own = status == CDDP_OK;
    return status;
}

static bool has_windows(const struct nccl_transport *transport, const struct nccl_block *block)
{
    const char *wanted = getenv("NCCL_WIN_ENABLE"); /* NCCL's own switch */

    return transport->nccl.register_window != NULL && transport->nccl.deregister_window != NULL &&
           !block->own && !transport->deterministic && (wanted == NULL || strcmp(wanted, "0") != 0);
}

/* With a window, kernels of all ranks access the memory directly, if all ranks have a window. With
 * a registration only, a rank's own memory need not be copied before it is sent. */
static cddp_status register_block(struct nccl_transport *transport, struct nccl_block *block,
                                  size_t bytes, bool window)
{
    uint32_t whole = transport->timeout_ms;
    cddp_status status = cddpi_nccl_enter(transport);

    if (status != CDDP_OK) {
        return status;
    }
    /* at most half the timeout, so that a rank that failed at once can still notify the ranks that
     * wait here */
    transport->timeout_ms = whole / 2 < NCCL_REGISTER_MS ? whole / 2 : NCCL_REGISTER_MS;
    if (window) {
        status = NCCL_CALL(transport, register_window, transport->comm, block->memory, bytes,
                           &block->window, NCCL_WIN_COLL_SYMMETRIC);
    }
    if (status == CDDP_OK && block->window == NULL && !block->own &&
        transport->nccl.register_buffer != NULL && transport->nccl.deregister_buffer != NULL) {
        status = NCCL_CALL(transport, register_buffer, transport->comm, block->memory, bytes,
                           &block->registration);
    }
    transport->timeout_ms = whole;
    cddpi_nccl_leave(transport);
    return status;
}

/* Register the memory with NCCL, which only makes it faster. If one rank cannot, no rank registers
 * any memory from then on. Collective. */
static cddp_status register_on_all(struct nccl_transport *transport, struct nccl_block *block,
                                   size_t bytes)
{
    uint8_t own = has_windows(transport, block);
    uint8_t all[NCCL_MOST_RANKS];
    bool window = true;
    cddp_status registered_here;
    cddp_status status = transport->params.exchange(transport->params.context, &own, sizeof own,
                                                    all);
    char text[2 * CDDPI_TRANSPORT_TEXT_BYTES];

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        window = window && all[r] != 0;
    }
    if (status != CDDP_OK) {
        return status;
    }
    registered_here = register_block(transport, block, bytes, window);
    if (registered_here != CDDP_OK) {
        atomic_store(&transport->suspect, true);
        snprintf(text, sizeof text, "%s; memory is not registered with NCCL: exchanges are slower",
                 cddpi_transport_last_error(transport->device));
        cddpi_transport_warn(transport->device, text);
    }
    own = registered_here != CDDP_OK;
    status = transport->params.exchange(transport->params.context, &own, sizeof own, all);
    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        transport->plain = transport->plain || all[r] != 0;
    }
    if (status == CDDP_OK && transport->plain) {
        block->window = NULL; /* windows are freed with the communicator */
        block->registration = NULL;
        status = cddpi_nccl_recover(&transport->base);
    }
    return status;
}

static void unmake(struct nccl_transport *transport, struct nccl_block *block)
{
    if ((block->registration != NULL || block->window != NULL) &&
        cddpi_nccl_enter(transport) == CDDP_OK) {
        if (block->window != NULL) {
            (void)NCCL_CALL(transport, deregister_window, transport->comm, block->window);
        } else {
            (void)NCCL_CALL(transport, deregister_buffer, transport->comm, block->registration);
        }
        cddpi_nccl_leave(transport);
    }
    if (block->own) {
        (void)cudaFree(block->memory);
    } else if (block->memory != NULL) {
        (void)transport->nccl.mem_free(block->memory);
    }
    (void)cudaGetLastError(); /* otherwise the next check of a launch would report the error */
    cddpi_transport_free(transport->device, block);
}

/* Zero the memory. Does not use the communication stream, where work may wait for peers. */
static cddp_status clear(struct nccl_transport *transport, void *memory, size_t bytes)
{
    struct cddpi_device *device = transport->device;
    cudaStream_t side_stream;
    cddp_status status = CUDA_CHECK(device,
                                    cudaStreamCreateWithFlags(&side_stream, cudaStreamNonBlocking));

    if (status != CDDP_OK) {
        return status;
    }
    status = CUDA_CHECK(device, cudaMemsetAsync(memory, 0, bytes, side_stream));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(side_stream));
    }
    (void)cudaStreamDestroy(side_stream);
    return status;
}

cddp_status cddpi_nccl_alloc(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct nccl_transport *transport = nccl_of(base);
    struct nccl_block *block = cddpi_transport_zalloc(transport->device, sizeof *block);
    size_t given = bytes > 0 ? bytes : 1;
    cddp_status status;

    cddpi_transport_enter(transport->device);
    if (block == NULL) {
        status = cddpi_transport_fail(transport->device, CDDP_ERR_NO_MEMORY,
                                      "group_alloc: no memory");
    } else {
        status = make(transport, block, given);
        if (status == CDDP_OK) {
            status = clear(transport, block->memory, given);
        }
    }
    status = cddpi_transport_agree(&transport->params, status);
    if (status == CDDP_OK && !transport->plain) {
        status = cddpi_transport_agree(&transport->params,
                                       register_on_all(transport, block, given));
    }
    if (status != CDDP_OK) {
        if (block != NULL) {
            unmake(transport, block);
        }
        return status;
    }
    block->next = transport->blocks;
    transport->blocks = block;
    *out = block->memory;
    return CDDP_OK;
}

void cddpi_nccl_free(struct cddpi_device_transport *base, void *memory)
{
    struct nccl_transport *transport = nccl_of(base);

    for (struct nccl_block **link = &transport->blocks; *link != NULL; link = &(*link)->next) {
        struct nccl_block *block = *link;

        if (block->memory == memory) {
            *link = block->next;
            /* the caller no longer uses the memory, but the stream may */
            if (cddpi_transport_drain(transport->device, transport->stream, NCCL_DRAIN_MS)) {
                unmake(transport, block);
            } else {
                cddpi_transport_warn(transport->device,
                                     "work on the device does not end: memory of the "
                                     "group stays until this process ends");
                cddpi_transport_free(transport->device, block);
            }
            return;
        }
    }
}
