/* ipc_reduce.c - reduces a piece: prepares what the table's kernel needs, and calls it. */
#include "group/cuda/ipc/ipc.h"
#include "kernels/cuda/cuda_kernels.h"

static bool aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0; /* kernels require this */
}

size_t cddpi_ipc_part(const struct ipc_transport *transport, const struct cddpi_group_op *op,
                      size_t count, int rank)
{
    size_t element = cddp_type_bytes(op->type);
    size_t grains = (count * element + IPC_GRAIN - 1) / IPC_GRAIN;
    size_t start = grains * (size_t)rank / (size_t)transport->size * IPC_GRAIN / element;

    return start < count ? start : count;
}

cddp_status cddpi_ipc_copy(struct ipc_transport *transport, cudaStream_t stream, void *to,
                           const void *from, size_t bytes)
{
    if (bytes == 0 || to == from) {
        return CDDP_OK;
    }
    return CUDA_CHECK(transport->device,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

cddp_status cddpi_ipc_fetch_weights(struct ipc_transport *transport, uint64_t piece)
{
    return cddpi_ipc_copy(transport, transport->comm, transport->weights,
                          transport->block->weights[piece % IPC_SLOTS],
                          (size_t)transport->size * sizeof *transport->weights);
}

/* Reduce @p count elements, which must fit into a row of scratch. */
static cddp_status reduce_row(struct ipc_transport *transport, const struct cddpi_group_op *op,
                              const char *const *inputs, size_t bytes, char *out)
{
    const void *sources[IPC_RANKS];
    char *result = aligned(out) ? out
                                : transport->scratch + (size_t)transport->size * transport->row;
    cddp_status status = CDDP_OK;

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        bool usable = r == transport->rank ? aligned(inputs[r]) : !transport->staged;

        sources[r] = inputs[r];
        if (!usable) {
            sources[r] = transport->scratch + (size_t)r * transport->row;
            status = cddpi_ipc_copy(transport, transport->comm,
                                    transport->scratch + (size_t)r * transport->row, inputs[r],
                                    bytes);
        }
    }
    if (status == CDDP_OK) {
        status = transport->device->kernels->reduce(
            transport->device, op->type, op->op, sources, op->weighted ? transport->weights : NULL,
            transport->size, bytes / cddp_type_bytes(op->type), result);
    }
    return status != CDDP_OK ? status
                             : cddpi_ipc_copy(transport, transport->comm, out, result, bytes);
}

cddp_status cddpi_ipc_reduce(struct ipc_transport *transport, const struct cddpi_group_op *op,
                             const char *const *inputs, size_t count, char *out)
{
    size_t bytes = count * cddp_type_bytes(op->type);
    bool scratch = transport->staged || !aligned(inputs[transport->rank]) || !aligned(out);
    size_t row = scratch ? transport->row : bytes;
    cddp_status status = CDDP_OK;

    for (size_t at = 0; at < bytes && status == CDDP_OK; at += row) {
        const char *here[IPC_RANKS];

        for (int r = 0; r < transport->size; r++) {
            here[r] = inputs[r] + at;
        }
        status = reduce_row(transport, op, here, bytes - at < row ? bytes - at : row, out + at);
    }
    return status;
}
