/* reduce.c - the arithmetic of a piece: what the table's kernel needs, and how it gets it. */
#include "group/ipc/ipc.h"
#include "kernels/cuda/cuda_kernels.h"

static bool aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0; /* what kernels ask for */
}

size_t cddpi_ipc_part(const struct cddpi_plane *plane, const struct cddpi_group_op *op,
                      size_t count, int rank)
{
    size_t element = cddp_type_bytes(op->type);
    size_t grains = (count * element + IPC_GRAIN - 1) / IPC_GRAIN;
    size_t start = grains * (size_t)rank / (size_t)plane->size * IPC_GRAIN / element;

    return start < count ? start : count;
}

cddp_status cddpi_ipc_copy(struct cddpi_plane *plane, cudaStream_t stream, void *to,
                           const void *from, size_t bytes)
{
    if (bytes == 0 || to == from) {
        return CDDP_OK;
    }
    return CUDA_CHECK(plane->device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

cddp_status cddpi_ipc_fetch_weights(struct cddpi_plane *plane, uint64_t piece)
{
    return cddpi_ipc_copy(plane, plane->comm, plane->weights,
                          plane->block->weights[piece % IPC_SLOTS],
                          (size_t)plane->size * sizeof *plane->weights);
}

/* As much as fits into a row of scratch. */
static cddp_status reduce_row(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                              const char *const *inputs, size_t bytes, char *out)
{
    const void *sources[IPC_RANKS];
    char *result = aligned(out) ? out : plane->scratch + (size_t)plane->size * plane->row;
    cddp_status status = CDDP_OK;

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        bool usable = r == plane->rank ? aligned(inputs[r]) : !plane->staged;

        sources[r] = inputs[r];
        if (!usable) {
            sources[r] = plane->scratch + (size_t)r * plane->row;
            status = cddpi_ipc_copy(plane, plane->comm, plane->scratch + (size_t)r * plane->row,
                                    inputs[r], bytes);
        }
    }
    if (status == CDDP_OK) {
        status = plane->device->kernels->reduce(plane->device, op->type, op->op, sources,
                                                op->weighted ? plane->weights : NULL, plane->size,
                                                bytes / cddp_type_bytes(op->type), result);
    }
    return status != CDDP_OK ? status : cddpi_ipc_copy(plane, plane->comm, out, result, bytes);
}

cddp_status cddpi_ipc_reduce(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                             const char *const *inputs, size_t count, char *out)
{
    size_t bytes = count * cddp_type_bytes(op->type);
    bool scratch = plane->staged || !aligned(inputs[plane->rank]) || !aligned(out);
    size_t row = scratch ? plane->row : bytes;
    cddp_status status = CDDP_OK;

    for (size_t at = 0; at < bytes && status == CDDP_OK; at += row) {
        const char *here[IPC_RANKS];

        for (int r = 0; r < plane->size; r++) {
            here[r] = inputs[r] + at;
        }
        status = reduce_row(plane, op, here, bytes - at < row ? bytes - at : row, out + at);
    }
    return status;
}
