/* ipc_steps.c - owns the steps of which an operation is made: flags and weights, which the ranks'
 * streams exchange through host memory, copies, and the reduction of a piece. */
#include "group/cuda/ipc/ipc.h"
#include "kernels/cuda/cuda_kernels.h"

#include <string.h>

static _Atomic uint64_t *flag_of(const struct ipc_transport *ipc, int rank, enum ipc_flag flag)
{
    struct ipc_rank *theirs = &ipc->block->ranks[rank];

    return flag == IPC_ARRIVED ? &theirs->arrived : &theirs->done;
}

uint64_t cddpi_ipc_read(const struct ipc_transport *ipc, int rank, enum ipc_flag flag)
{
    return atomic_load_explicit(flag_of(ipc, rank, flag), memory_order_acquire);
}

cddp_status cddpi_ipc_signal(struct ipc_transport *ipc, cudaStream_t stream, enum ipc_flag flag,
                             uint64_t piece)
{
    return cddpi_flag_raise(&ipc->flags, stream, flag_of(ipc, ipc->rank, flag), piece);
}

cddp_status cddpi_ipc_await(struct ipc_transport *ipc, cudaStream_t stream, enum ipc_flag flag,
                            uint64_t piece)
{
    CUstreamBatchMemOpParams items[IPC_RANKS];
    unsigned count = 0;

    for (int r = 0; r < ipc->size; r++) {
        if (r != ipc->rank) {
            cddpi_flag_wait_item(&ipc->flags, flag_of(ipc, r, flag), piece, &items[count++]);
        }
    }
    return cddpi_flag_items(&ipc->flags, stream, items, count);
}

cddp_status cddpi_ipc_write_weight(struct ipc_transport *ipc, cudaStream_t stream, uint64_t piece,
                                   double weight)
{
    CUstreamBatchMemOpParams item;

    memset(&item, 0, sizeof item);
    item.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    item.writeValue.address = cddpi_flag_address(
        &ipc->flags, &ipc->block->weights[piece % IPC_SLOTS][ipc->rank]);
    memcpy(&item.writeValue.value64, &weight, sizeof weight);
    return cddpi_flag_items(&ipc->flags, stream, &item, 1);
}

void cddpi_ipc_release(struct ipc_transport *ipc)
{
    for (int r = 0; r < ipc->size; r++) {
        cddpi_flag_release(flag_of(ipc, r, IPC_ARRIVED));
        cddpi_flag_release(flag_of(ipc, r, IPC_DONE));
    }
}

size_t cddpi_ipc_part(const struct ipc_transport *ipc, const struct cddpi_group_op *op,
                      size_t count, int rank)
{
    size_t element = cddp_type_bytes(op->type);
    size_t grains = (count * element + IPC_GRAIN - 1) / IPC_GRAIN;
    size_t start = grains * (size_t)rank / (size_t)ipc->size * IPC_GRAIN / element;

    return start < count ? start : count;
}

cddp_status cddpi_ipc_copy(struct ipc_transport *ipc, cudaStream_t stream, void *to,
                           const void *from, size_t bytes)
{
    if (bytes == 0 || to == from) {
        return CDDP_OK;
    }
    return CUDA_CHECK(ipc->device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

cddp_status cddpi_ipc_fetch_weights(struct ipc_transport *ipc, uint64_t piece)
{
    return cddpi_ipc_copy(ipc, ipc->comm, ipc->weights, ipc->block->weights[piece % IPC_SLOTS],
                          (size_t)ipc->size * sizeof *ipc->weights);
}

/* Reduce @p count elements, which must fit into a row of scratch. */
static cddp_status reduce_row(struct ipc_transport *ipc, const struct cddpi_group_op *op,
                              const char *const *inputs, size_t bytes, char *out)
{
    const void *sources[IPC_RANKS];
    char *result = cuda_is_aligned(out) ? out : ipc->scratch + (size_t)ipc->size * ipc->row;

    for (int r = 0; r < ipc->size; r++) {
        bool usable = r == ipc->rank ? cuda_is_aligned(inputs[r]) : !ipc->staged;

        sources[r] = inputs[r];
        if (!usable) {
            char *copy = ipc->scratch + (size_t)r * ipc->row;

            sources[r] = copy;
            CDDPI_TRY(cddpi_ipc_copy(ipc, ipc->comm, copy, inputs[r], bytes));
        }
    }
    CDDPI_TRY(ipc->device->kernels->reduce(ipc->device, op->type, op->op, sources,
                                           op->weighted ? ipc->weights : NULL, ipc->size,
                                           bytes / cddp_type_bytes(op->type), result));
    return cddpi_ipc_copy(ipc, ipc->comm, out, result, bytes);
}

cddp_status cddpi_ipc_reduce(struct ipc_transport *ipc, const struct cddpi_group_op *op,
                             const char *const *inputs, size_t count, char *out)
{
    size_t bytes = count * cddp_type_bytes(op->type);
    bool scratch = ipc->staged || !cuda_is_aligned(inputs[ipc->rank]) || !cuda_is_aligned(out);
    size_t row = scratch ? ipc->row : bytes;

    for (size_t at = 0; at < bytes; at += row) {
        const char *here[IPC_RANKS];

        for (int r = 0; r < ipc->size; r++) {
            here[r] = inputs[r] + at;
        }
        CDDPI_TRY(reduce_row(ipc, op, here, bytes - at < row ? bytes - at : row, out + at));
    }
    return CDDP_OK;
}
