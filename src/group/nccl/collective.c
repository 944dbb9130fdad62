/* collective.c - each kind of operation as calls of NCCL.
 *
 * Weighted means of f32 and f64 are sums of numbers that NCCL multiplies on their way with this
 * rank's share of all weights, a number that lies in device memory because only the stream knows
 * it. For 16-bit types a share of so few bits would be wrong by up to 0.4 %: they take the way of
 * fixed.c, as integer means do (NCCL adds in the type itself, which overflows). */
#include "group/nccl/nccl_plane.h"
#include "kernels/cuda/cuda_kernels.h"

#include <string.h>

ncclDataType_t cddpi_nccl_type(cddp_type type)
{
    static const ncclDataType_t types[] = {
        [CDDP_F32] = ncclFloat32,   [CDDP_F64] = ncclFloat64, [CDDP_F16] = ncclFloat16,
        [CDDP_BF16] = ncclBfloat16, [CDDP_I32] = ncclInt32,   [CDDP_I64] = ncclInt64,
        [CDDP_U8] = ncclUint8};

    return types[type];
}

static ncclRedOp_t operation(cddp_op op)
{
    static const ncclRedOp_t operations[] = {[CDDP_OP_SUM] = ncclSum,
                                             [CDDP_OP_MEAN] = ncclAvg,
                                             [CDDP_OP_MIN] = ncclMin,
                                             [CDDP_OP_MAX] = ncclMax,
                                             [CDDP_OP_PROD] = ncclProd};

    return operations[op];
}

static cddp_status fill(struct cddpi_plane *plane, void *where, uint32_t value)
{
    CUresult result = plane->fill((CUdeviceptr)(uintptr_t)where, value, 1, (CUstream)plane->stream);

    return result == CUDA_SUCCESS
               ? CDDP_OK
               : cuda_fail(plane->device, CDDP_ERR_DEVICE,
                           "cuMemsetD32Async: error %d of the driver", (int)result);
}

cddp_status cddpi_nccl_gather_weights(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    double *own = plane->weights + plane->own_weight;
    uint64_t bits;
    cddp_status status;

    memcpy(&bits, &op->weight, sizeof bits);
    status = fill(plane, own, (uint32_t)bits);
    if (status == CDDP_OK) {
        status = fill(plane, (char *)own + 4, (uint32_t)(bits >> 32));
    }
    return status != CDDP_OK ? status
                             : NCCL_CALL(plane, all_gather, own, plane->weights, 1, ncclFloat64,
                                         plane->comm, plane->stream);
}

static cddp_status reduce_with(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                               const void *in, ncclRedOp_t redop)
{
    ncclDataType_t type = cddpi_nccl_type(op->type);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
        return NCCL_CALL(plane, all_reduce, in, op->out, op->count, type, redop, plane->comm,
                         plane->stream);
    case CDDPI_REDUCE:
        return NCCL_CALL(plane, reduce, in, op->out, op->count, type, redop, op->root, plane->comm,
                         plane->stream);
    default:
        return NCCL_CALL(plane, reduce_scatter, in, op->out, op->count, type, redop, plane->comm,
                         plane->stream);
    }
}

/* This rank's share of all weights, as the weighted mean of 1 here and 0 elsewhere. */
static cddp_status find_share(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                              void *share)
{
    const char *one_hot = (const char *)plane->one_hot +
                          (op->type == CDDP_F64 ? (size_t)plane->size * 16 : 0);
    const void *inputs[NCCL_MOST_RANKS];

    for (int r = 0; r < plane->size; r++) {
        inputs[r] = one_hot + (size_t)r * 16;
    }
    return plane->device->kernels->reduce(plane->device, op->type, CDDP_OP_SUM, inputs,
                                          plane->weights, plane->size, 1, share);
}

static cddp_status reduce_shares(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                                 const void *in)
{
    void *share = plane->weights + plane->own_weight + 2; /* aligned as kernels want it */
    ncclRedOp_t redop;
    cddp_status status = cddpi_nccl_gather_weights(plane, op);

    if (status == CDDP_OK) {
        status = find_share(plane, op, share);
    }
    if (status == CDDP_OK) {
        status = NCCL_CALL(plane, make_factor, &redop, share, cddpi_nccl_type(op->type),
                           ncclScalarDevice, plane->comm);
    }
    if (status != CDDP_OK) {
        return status;
    }
    status = reduce_with(plane, op, in, redop);
    if (status == CDDP_OK) { /* else there is an abort to come */
        status = NCCL_CALL(plane, unmake_factor, redop, plane->comm);
    }
    return status;
}

/* Zero times what this rank has would still be NaN if that is: zeros in its place. */
static cddp_status reduce_nothing(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    struct cddpi_device *device = plane->device;
    size_t bytes = op->count * cddp_type_bytes(op->type);
    cudaMemPool_t pool = cuda_device_of(device)->pool;
    void *zeros = op->out;
    cddp_status status = CDDP_OK;

    if (op->kind == CDDPI_REDUCE_SCATTER) {
        bytes *= (size_t)plane->size;
        status = CUDA_CHECK(
            device, pool != NULL ? cudaMallocFromPoolAsync(&zeros, bytes, pool, plane->stream)
                                 : cudaMalloc(&zeros, bytes));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMemsetAsync(zeros, 0, bytes, plane->stream));
    }
    if (status == CDDP_OK) {
        status = reduce_shares(plane, op, zeros);
    }
    if (status == CDDP_OK && zeros != op->out) { /* without a pool, this waits for the peers */
        status = CUDA_CHECK(device,
                            pool != NULL ? cudaFreeAsync(zeros, plane->stream) : cudaFree(zeros));
    }
    return status;
}

static cddp_status reduce(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    bool real = op->type == CDDP_F32 || op->type == CDDP_F64;
    bool half = op->type == CDDP_F16 || op->type == CDDP_BF16;

    if (plane->deterministic || (op->weighted && half) ||
        (op->op == CDDP_OP_MEAN && !real && !half)) {
        return cddpi_nccl_fixed(plane, op);
    }
    if (!op->weighted) {
        return reduce_with(plane, op, op->in, operation(op->op));
    }
    return op->weight > 0 ? reduce_shares(plane, op, op->in) : reduce_nothing(plane, op);
}

/* gather, scatter and all_to_all: what goes to and comes from each rank. */
static cddp_status exchange_blocks(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);
    bool root = plane->rank == op->root;
    struct nccl_parcel parcels[NCCL_MOST_RANKS] = {{NULL, 0, NULL, 0}};

    for (int r = 0; r < plane->size; r++) {
        struct nccl_parcel *parcel = &parcels[r];
        bool gathers = op->kind == CDDPI_GATHER;
        bool scatters = op->kind == CDDPI_SCATTER;

        if (gathers ? r == op->root : scatters ? root : true) {
            parcel->out = (const char *)op->in + (gathers ? 0 : (size_t)r * bytes);
            parcel->out_bytes = bytes;
        }
        if (gathers ? root : scatters ? r == op->root : true) {
            parcel->in = (char *)op->out + (scatters ? 0 : (size_t)r * bytes);
            parcel->in_bytes = bytes;
        }
    }
    return cddpi_nccl_exchange(plane, parcels);
}

/* all_to_all in place: what comes waits in scratch until all is sent. */
static cddp_status exchange_in_place(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    size_t block = op->count * cddp_type_bytes(op->type);
    cddp_status status = CDDP_OK;

    for (size_t at = 0; at < block && status == CDDP_OK; at += plane->row) {
        size_t bytes = block - at < plane->row ? block - at : plane->row;
        struct nccl_parcel parcels[NCCL_MOST_RANKS] = {{NULL, 0, NULL, 0}};

        for (int r = 0; r < plane->size; r++) {
            if (r != plane->rank) {
                parcels[r] = (struct nccl_parcel){(const char *)op->in + (size_t)r * block + at,
                                                  bytes, plane->scratch + (size_t)r * plane->row,
                                                  bytes};
            }
        }
        status = cddpi_nccl_exchange(plane, parcels);
        for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
            status = cddpi_nccl_copy(plane, (char *)op->out + (size_t)r * block + at, parcels[r].in,
                                     parcels[r].in_bytes);
        }
    }
    return status;
}

cddp_status cddpi_nccl_collective(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    ncclDataType_t type = cddpi_nccl_type(op->type);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        return reduce(plane, op);
    case CDDPI_BROADCAST:
        return NCCL_CALL(plane, broadcast, op->in, op->out, op->count, type, op->root, plane->comm,
                         plane->stream);
    case CDDPI_ALL_GATHER:
        return NCCL_CALL(plane, all_gather, op->in, op->out, op->count, type, plane->comm,
                         plane->stream);
    case CDDPI_ALL_TO_ALL:
        return op->in == op->out ? exchange_in_place(plane, op) : exchange_blocks(plane, op);
    case CDDPI_GATHER:
    case CDDPI_SCATTER:
        return exchange_blocks(plane, op);
    default:
        return cddpi_plane_refuse(plane->device, op);
    }
}
