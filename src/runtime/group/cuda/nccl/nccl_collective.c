/* nccl_collective.c - implements each kind of operation with calls of NCCL.
 *
 * A weighted mean of f32 or f64 is a sum in which NCCL multiplies each rank's input by the rank's
 * share of all weights. The share is in device memory, because it is computed in the stream. In 16
 * bits the share would be wrong by up to 0.4 %, so means of 16-bit types use deterministic.c. So do
 * integer means, since NCCL adds in the type itself, which overflows. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/cuda_kernels.h"

#include <string.h>

ncclDataType_t cddpi_nccl_type(cddp_type type)
{
    static const ncclDataType_t types[] = {
        [CDDP_F32] = ncclFloat32,   [CDDP_F64] = ncclFloat64, [CDDP_F16] = ncclFloat16,
        [CDDP_BF16] = ncclBfloat16, [CDDP_I32] = ncclInt32,   [CDDP_I64] = ncclInt64,
        [CDDP_U8] = ncclUint8,      [CDDP_I8] = ncclInt8,     [CDDP_BOOL] = ncclUint8};

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

static cddp_status fill(struct nccl_transport *transport, void *where, uint32_t value)
{
    CUresult result = transport->fill((CUdeviceptr)(uintptr_t)where, value, 1,
                                      (CUstream)transport->stream);

    return result == CUDA_SUCCESS
               ? CDDP_OK
               : cuda_fail(transport->device, CDDP_ERR_DEVICE,
                           "cuMemsetD32Async: error %d of the driver", (int)result);
}

cddp_status cddpi_nccl_gather_weights(struct nccl_transport *transport,
                                      const struct cddpi_group_op *op)
{
    double *own = transport->weights + transport->own_weight;
    uint64_t bits;
    cddp_status status;

    memcpy(&bits, &op->weight, sizeof bits);
    status = fill(transport, own, (uint32_t)bits);
    if (status == CDDP_OK) {
        status = fill(transport, (char *)own + 4, (uint32_t)(bits >> 32));
    }
    return status != CDDP_OK ? status
                             : NCCL_CALL(transport, all_gather, own, transport->weights, 1,
                                         ncclFloat64, transport->comm, transport->stream);
}

static cddp_status reduce_with(struct nccl_transport *transport, const struct cddpi_group_op *op,
                               const void *in, ncclRedOp_t redop)
{
    ncclDataType_t type = cddpi_nccl_type(op->type);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
        return NCCL_CALL(transport, all_reduce, in, op->out, op->count, type, redop,
                         transport->comm, transport->stream);
    case CDDPI_REDUCE:
        return NCCL_CALL(transport, reduce, in, op->out, op->count, type, redop, op->root,
                         transport->comm, transport->stream);
    default:
        return NCCL_CALL(transport, reduce_scatter, in, op->out, op->count, type, redop,
                         transport->comm, transport->stream);
    }
}

/* Compute this rank's share of all weights, as the weighted mean of 1 here and 0 elsewhere. */
static cddp_status find_share(struct nccl_transport *transport, const struct cddpi_group_op *op,
                              void *share)
{
    const char *one_hot = (const char *)transport->one_hot +
                          (op->type == CDDP_F64 ? (size_t)transport->size * 16 : 0);
    const void *inputs[NCCL_MOST_RANKS];

    for (int r = 0; r < transport->size; r++) {
        inputs[r] = one_hot + (size_t)r * 16;
    }
    return transport->device->kernels->reduce(transport->device, op->type, CDDP_OP_SUM, inputs,
                                              transport->weights, transport->size, 1, share);
}

static cddp_status reduce_shares(struct nccl_transport *transport, const struct cddpi_group_op *op,
                                 const void *in)
{
    void *share = transport->weights + transport->own_weight + 2; /* aligned as kernels require */
    ncclRedOp_t redop;
    cddp_status status = cddpi_nccl_gather_weights(transport, op);

    if (status == CDDP_OK) {
        status = find_share(transport, op, share);
    }
    if (status == CDDP_OK) {
        status = NCCL_CALL(transport, create_factor, &redop, share, cddpi_nccl_type(op->type),
                           ncclScalarDevice, transport->comm);
    }
    if (status != CDDP_OK) {
        return status;
    }
    status = reduce_with(transport, op, in, redop);
    if (status == CDDP_OK) { /* otherwise the communicator will be aborted */
        status = NCCL_CALL(transport, destroy_factor, redop, transport->comm);
    }
    return status;
}

/* A rank of weight 0 reduces zeros instead of its input, since 0 times NaN would be NaN. */
static cddp_status reduce_nothing(struct nccl_transport *transport, const struct cddpi_group_op *op)
{
    struct cddpi_device *device = transport->device;
    size_t bytes = op->count * cddp_type_bytes(op->type);
    cudaMemPool_t pool = cuda_device_of(device)->pool;
    void *zeros = op->out;
    cddp_status status = CDDP_OK;

    if (op->kind == CDDPI_REDUCE_SCATTER) {
        bytes *= (size_t)transport->size;
        status = CUDA_CHECK(
            device, pool != NULL ? cudaMallocFromPoolAsync(&zeros, bytes, pool, transport->stream)
                                 : cudaMalloc(&zeros, bytes));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMemsetAsync(zeros, 0, bytes, transport->stream));
    }
    if (status == CDDP_OK) {
        status = reduce_shares(transport, op, zeros);
    }
    if (status == CDDP_OK && zeros != op->out) { /* without a pool, this waits for the peers */
        status = CUDA_CHECK(device, pool != NULL ? cudaFreeAsync(zeros, transport->stream)
                                                 : cudaFree(zeros));
    }
    return status;
}

static cddp_status reduce(struct nccl_transport *transport, const struct cddpi_group_op *op)
{
    bool real = op->type == CDDP_F32 || op->type == CDDP_F64;
    bool half = op->type == CDDP_F16 || op->type == CDDP_BF16;

    if (transport->deterministic || (op->weighted && half) ||
        (op->op == CDDP_OP_MEAN && !real && !half)) {
        return cddpi_nccl_deterministic(transport, op);
    }
    if (!op->weighted) {
        return reduce_with(transport, op, op->in, operation(op->op));
    }
    return op->weight > 0 ? reduce_shares(transport, op, op->in) : reduce_nothing(transport, op);
}

/* gather, scatter and all_to_all: send one block to, and receive one block from, each rank that has
 * one. */
static cddp_status exchange_blocks(struct nccl_transport *transport,
                                   const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);
    bool root = transport->rank == op->root;
    struct nccl_transfer transfers[NCCL_MOST_RANKS] = {{NULL, 0, NULL, 0}};

    for (int r = 0; r < transport->size; r++) {
        struct nccl_transfer *transfer = &transfers[r];
        bool gathers = op->kind == CDDPI_GATHER;
        bool scatters = op->kind == CDDPI_SCATTER;

        if (gathers ? r == op->root : scatters ? root : true) {
            transfer->out = (const char *)op->in + (gathers ? 0 : (size_t)r * bytes);
            transfer->out_bytes = bytes;
        }
        if (gathers ? root : scatters ? r == op->root : true) {
            transfer->in = (char *)op->out + (scatters ? 0 : (size_t)r * bytes);
            transfer->in_bytes = bytes;
        }
    }
    return cddpi_nccl_exchange(transport, transfers);
}

/* all_to_all in place: received data stays in scratch until everything is sent. */
static cddp_status exchange_in_place(struct nccl_transport *transport,
                                     const struct cddpi_group_op *op)
{
    size_t block = op->count * cddp_type_bytes(op->type);
    cddp_status status = CDDP_OK;

    for (size_t at = 0; at < block && status == CDDP_OK; at += transport->row) {
        size_t bytes = block - at < transport->row ? block - at : transport->row;
        struct nccl_transfer transfers[NCCL_MOST_RANKS] = {{NULL, 0, NULL, 0}};

        for (int r = 0; r < transport->size; r++) {
            if (r != transport->rank) {
                transfers[r] = (struct nccl_transfer){
                    (const char *)op->in + (size_t)r * block + at, bytes,
                    transport->scratch + (size_t)r * transport->row, bytes};
            }
        }
        status = cddpi_nccl_exchange(transport, transfers);
        for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
            status = cddpi_nccl_copy(transport, (char *)op->out + (size_t)r * block + at,
                                     transfers[r].in, transfers[r].in_bytes);
        }
    }
    return status;
}

cddp_status cddpi_nccl_collective(struct nccl_transport *transport, const struct cddpi_group_op *op)
{
    ncclDataType_t type = cddpi_nccl_type(op->type);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        return reduce(transport, op);
    case CDDPI_BROADCAST:
        return NCCL_CALL(transport, broadcast, op->in, op->out, op->count, type, op->root,
                         transport->comm, transport->stream);
    case CDDPI_ALL_GATHER:
        return NCCL_CALL(transport, all_gather, op->in, op->out, op->count, type, transport->comm,
                         transport->stream);
    case CDDPI_ALL_TO_ALL:
        return op->in == op->out ? exchange_in_place(transport, op)
                                 : exchange_blocks(transport, op);
    case CDDPI_GATHER:
    case CDDPI_SCATTER:
        return exchange_blocks(transport, op);
    default:
        return cddpi_transport_refuse(transport->device, op);
    }
}
