/* flags.c - what the ranks' streams tell each other: flags and weights in host memory. */
#include "group/ipc/ipc.h"

#include <string.h>

static CUdeviceptr address(const struct cddpi_plane *plane, const volatile void *member)
{
    return (CUdeviceptr)(uintptr_t)(plane->block_device +
                                    ((const volatile char *)member - (char *)plane->block));
}

static _Atomic uint64_t *flag_of(const struct cddpi_plane *plane, int rank, enum ipc_flag flag)
{
    struct ipc_rank *theirs = &plane->block->ranks[rank];

    return flag == IPC_ARRIVED ? &theirs->arrived : &theirs->done;
}

uint64_t cddpi_ipc_read(const struct cddpi_plane *plane, int rank, enum ipc_flag flag)
{
    return atomic_load_explicit(flag_of(plane, rank, flag), memory_order_acquire);
}

cddp_status cddpi_ipc_signal(struct cddpi_plane *plane, cudaStream_t stream, enum ipc_flag flag,
                             uint64_t piece)
{
    return cddpi_flag_raise(&plane->flags, stream,
                            address(plane, flag_of(plane, plane->rank, flag)), piece);
}

cddp_status cddpi_ipc_await(struct cddpi_plane *plane, cudaStream_t stream, enum ipc_flag flag,
                            uint64_t piece)
{
    CUstreamBatchMemOpParams items[IPC_RANKS];
    unsigned count = 0;

    for (int r = 0; r < plane->size; r++) {
        if (r != plane->rank) {
            cddpi_flag_wait_item(&plane->flags, address(plane, flag_of(plane, r, flag)), piece,
                                 &items[count++]);
        }
    }
    return cddpi_flag_items(&plane->flags, stream, items, count);
}

cddp_status cddpi_ipc_tell_weight(struct cddpi_plane *plane, cudaStream_t stream, uint64_t piece,
                                  double weight)
{
    CUstreamBatchMemOpParams item;

    memset(&item, 0, sizeof item);
    item.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    item.writeValue.address = address(plane,
                                      &plane->block->weights[piece % IPC_SLOTS][plane->rank]);
    memcpy(&item.writeValue.value64, &weight, sizeof weight);
    return cddpi_flag_items(&plane->flags, stream, &item, 1);
}

void cddpi_ipc_release(struct cddpi_plane *plane)
{
    for (int r = 0; r < plane->size; r++) {
        cddpi_flag_release(flag_of(plane, r, IPC_ARRIVED));
        cddpi_flag_release(flag_of(plane, r, IPC_DONE));
    }
}
