/* flags.c - owns what the ranks' streams exchange through host memory: flags and weights. */
#include "group/cuda/ipc/ipc.h"

#include <string.h>

static CUdeviceptr address(const struct ipc_transport *transport, const volatile void *member)
{
    return (CUdeviceptr)(uintptr_t)(transport->block_device +
                                    ((const volatile char *)member - (char *)transport->block));
}

static _Atomic uint64_t *flag_of(const struct ipc_transport *transport, int rank,
                                 enum ipc_flag flag)
{
    struct ipc_rank *theirs = &transport->block->ranks[rank];

    return flag == IPC_ARRIVED ? &theirs->arrived : &theirs->done;
}

uint64_t cddpi_ipc_read(const struct ipc_transport *transport, int rank, enum ipc_flag flag)
{
    return atomic_load_explicit(flag_of(transport, rank, flag), memory_order_acquire);
}

cddp_status cddpi_ipc_signal(struct ipc_transport *transport, cudaStream_t stream,
                             enum ipc_flag flag, uint64_t piece)
{
    return cddpi_flag_raise(&transport->flags, stream,
                            address(transport, flag_of(transport, transport->rank, flag)), piece);
}

cddp_status cddpi_ipc_await(struct ipc_transport *transport, cudaStream_t stream,
                            enum ipc_flag flag, uint64_t piece)
{
    CUstreamBatchMemOpParams items[IPC_RANKS];
    unsigned count = 0;

    for (int r = 0; r < transport->size; r++) {
        if (r != transport->rank) {
            cddpi_flag_wait_item(&transport->flags, address(transport, flag_of(transport, r, flag)),
                                 piece, &items[count++]);
        }
    }
    return cddpi_flag_items(&transport->flags, stream, items, count);
}

cddp_status cddpi_ipc_write_weight(struct ipc_transport *transport, cudaStream_t stream,
                                   uint64_t piece, double weight)
{
    CUstreamBatchMemOpParams item;

    memset(&item, 0, sizeof item);
    item.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    item.writeValue.address = address(
        transport, &transport->block->weights[piece % IPC_SLOTS][transport->rank]);
    memcpy(&item.writeValue.value64, &weight, sizeof weight);
    return cddpi_flag_items(&transport->flags, stream, &item, 1);
}

void cddpi_ipc_release(struct ipc_transport *transport)
{
    for (int r = 0; r < transport->size; r++) {
        cddpi_flag_release(flag_of(transport, r, IPC_ARRIVED));
        cddpi_flag_release(flag_of(transport, r, IPC_DONE));
    }
}
