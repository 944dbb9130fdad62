/* nccl_collective.c - implements each kind of operation with calls of NCCL, among them exchanges of
 * pieces of device memory between any two ranks, all at once.
 *
 * NCCL's fastest kernels (NVLS, symmetric memory) only make plain sums. So a mean is a sum that is
 * divided here, and a weighted mean of f32 or f64 in place is a sum of what was multiplied here by
 * the rank's share of all weights. If the input must stay, NCCL multiplies. The share is in device
 * memory, because it is computed in the stream. In 16
 * bits the share would be wrong by up to 0.4 %, so means of 16-bit types use deterministic.c. So do
 * integer means, since NCCL adds in the type itself, which overflows. With more ranks than its
 * kernel takes, each rank rounds its scaled input to 16 bits; integer means are refused. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/cuda_kernels.h"

#include <string.h>

static ncclDataType_t type_of(cddp_type type)
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

cddp_status cddpi_nccl_copy(struct nccl_transport *nccl, void *to, const void *from, size_t bytes)
{
    if (bytes == 0 || to == from) {
        return CDDP_OK;
    }
    return CUDA_CHECK(nccl->device,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nccl->stream));
}

/* Enqueue one peer's transfers. NCCL starts the calls inside a group only at the group's end. */
static ncclResult_t note(struct nccl_transport *nccl, const struct nccl_transfer *transfer,
                         int peer)
{
    ncclResult_t result = ncclSuccess;

    if (transfer->out_bytes > 0) {
        result = nccl->library.send(transfer->out, transfer->out_bytes, ncclUint8, peer, nccl->comm,
                                    nccl->stream);
    }
    if ((result == ncclSuccess || result == ncclInProgress) && transfer->in_bytes > 0) {
        result = nccl->library.recv(transfer->in, transfer->in_bytes, ncclUint8, peer, nccl->comm,
                                    nccl->stream);
    }
    return result == ncclInProgress ? ncclSuccess : result;
}

struct nccl_transfer *cddpi_nccl_transfers(struct nccl_transport *nccl)
{
    memset(nccl->transfers, 0, (size_t)nccl->size * sizeof *nccl->transfers);
    return nccl->transfers;
}

cddp_status cddpi_nccl_exchange(struct nccl_transport *nccl)
{
    const struct nccl_transfer *transfers = nccl->transfers;
    const struct nccl_transfer *own = &transfers[nccl->rank];
    ncclResult_t result = nccl->library.group_start();
    ncclResult_t end;

    for (int i = 1; i < nccl->size && result == ncclSuccess; i++) {
        int peer = (nccl->rank + i) % nccl->size;

        result = note(nccl, &transfers[peer], peer);
    }
    end = nccl->library.group_end(); /* also after a failure, otherwise the next call would be
                                          part of the group */
    CDDPI_TRY(cddpi_nccl_await(nccl, result != ncclSuccess ? result : end, "send and receive"));
    return cddpi_nccl_copy(nccl, own->in, own->out, own->in_bytes);
}

cddp_status cddpi_nccl_exchange_list(struct nccl_transport *nccl, int count)
{
    ncclResult_t result = nccl->library.group_start();
    ncclResult_t end;

    for (int i = 0; i < count && result == ncclSuccess; i++) {
        result = note(nccl, &nccl->transfers[i], nccl->transfers[i].peer);
    }
    end = nccl->library.group_end();
    return cddpi_nccl_await(nccl, result != ncclSuccess ? result : end, "send and receive");
}

static cddp_status fill(struct nccl_transport *nccl, void *where, uint32_t value)
{
    CUresult result = nccl->fill((CUdeviceptr)(uintptr_t)where, value, 1, (CUstream)nccl->stream);

    return result == CUDA_SUCCESS
               ? CDDP_OK
               : cuda_fail(nccl->device, CDDP_ERR_DEVICE,
                           "cuMemsetD32Async: error %d of the driver", (int)result);
}

cddp_status cddpi_nccl_gather_weights(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    double *own = nccl->weights + nccl->own_weight;
    uint64_t bits;

    memcpy(&bits, &op->weight, sizeof bits);
    CDDPI_TRY(fill(nccl, own, (uint32_t)bits));
    CDDPI_TRY(fill(nccl, (char *)own + 4, (uint32_t)(bits >> 32)));
    return NCCL_CALL(nccl, all_gather, own, nccl->weights, 1, ncclFloat64, nccl->comm,
                     nccl->stream);
}

static cddp_status reduce_with(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                               const void *in, ncclRedOp_t redop)
{
    ncclDataType_t type = type_of(op->type);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
        return NCCL_CALL(nccl, all_reduce, in, op->out, op->count, type, redop, nccl->comm,
                         nccl->stream);
    case CDDPI_REDUCE:
        return NCCL_CALL(nccl, reduce, in, op->out, op->count, type, redop, op->root, nccl->comm,
                         nccl->stream);
    default:
        return NCCL_CALL(nccl, reduce_scatter, in, op->out, op->count, type, redop, nccl->comm,
                         nccl->stream);
    }
}

static cddp_status mean(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    CDDPI_TRY(reduce_with(nccl, op, op->in, ncclSum));
    if (op->kind == CDDPI_REDUCE && nccl->rank != op->root) {
        return CDDP_OK;
    }
    return nccl->device->kernels->scale(nccl->device, op->type,
                                        nccl->weights + nccl->own_weight + 4, op->count, op->out);
}

/* @p scaled: memory for @p count elements, the input or another. */
static cddp_status scale_and_sum(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                                 size_t count, void *scaled)
{
    const struct cddpi_cuda_kernels *kernels = nccl->device->kernels;
    double *share = nccl->weights + nccl->own_weight + 2;

    CDDPI_TRY(cddpi_nccl_gather_weights(nccl, op));
    CDDPI_TRY(kernels->share(nccl->device, CDDP_F64, nccl->weights, nccl->size, nccl->rank, share));
    CDDPI_TRY(cddpi_nccl_copy(nccl, scaled, op->in, count * cddp_type_bytes(op->type)));
    /* a share of 0 writes zeros */
    CDDPI_TRY(kernels->scale(nccl->device, op->type, share, count, scaled));
    return reduce_with(nccl, op, scaled, ncclSum);
}

static cddp_status reduce_shares(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                                 const void *in)
{
    void *share = nccl->weights + nccl->own_weight + 2;
    ncclRedOp_t redop;

    CDDPI_TRY(cddpi_nccl_gather_weights(nccl, op));
    CDDPI_TRY(nccl->device->kernels->share(nccl->device, op->type, nccl->weights, nccl->size,
                                           nccl->rank, share));
    CDDPI_TRY(NCCL_CALL(nccl, create_factor, &redop, share, type_of(op->type), ncclScalarDevice,
                        nccl->comm));
    CDDPI_TRY(reduce_with(nccl, op, in, redop)); /* on failure the communicator will be aborted */
    return NCCL_CALL(nccl, destroy_factor, redop, nccl->comm);
}

static cddp_status reduce_zeros(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                                size_t count, void *zeros)
{
    CDDPI_TRY(CUDA_CHECK(
        nccl->device, cudaMemsetAsync(zeros, 0, count * cddp_type_bytes(op->type), nccl->stream)));
    return reduce_shares(nccl, op, zeros);
}

/* Reduce something else than the input, which stays: let @p reduction make it in the output, or in
 * memory of its own if a rank's output may be smaller, or NULL. */
static cddp_status reduce_another(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                                  cddp_status (*reduction)(struct nccl_transport *nccl,
                                                           const struct cddpi_group_op *op,
                                                           size_t count, void *in))
{
    struct cddpi_device *device = nccl->device;
    size_t count = op->count;
    cudaMemPool_t pool = cuda_device_of(device)->pool;
    void *in = op->out;
    cddp_status status = CDDP_OK;

    if (op->kind != CDDPI_ALL_REDUCE) {
        size_t bytes;

        count *= op->kind == CDDPI_REDUCE_SCATTER ? (size_t)nccl->size : 1;
        bytes = count * cddp_type_bytes(op->type);
        status = CUDA_CHECK(device, pool != NULL
                                        ? cudaMallocFromPoolAsync(&in, bytes, pool, nccl->stream)
                                        : cudaMalloc(&in, bytes));
    }
    if (status == CDDP_OK) {
        status = reduction(nccl, op, count, in);
    }
    if (status == CDDP_OK && in != op->out) { /* without a pool, this waits for the peers */
        status = CUDA_CHECK(device, pool != NULL ? cudaFreeAsync(in, nccl->stream) : cudaFree(in));
    }
    return status;
}

static cddp_status reduce(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    bool real = op->type == CDDP_F32 || op->type == CDDP_F64;
    bool half = op->type == CDDP_F16 || op->type == CDDP_BF16;
    bool many = nccl->size > CDDPI_NCCL_ORDERED_RANKS;

    if (nccl->deterministic || (op->weighted && half && !many) ||
        (op->op == CDDP_OP_MEAN && !real && !half)) {
        return cddpi_nccl_deterministic(nccl, op);
    }
    if (!op->weighted) { /* sums of f16 may overflow where the mean does not */
        return op->op == CDDP_OP_MEAN && op->type != CDDP_F16
                   ? mean(nccl, op)
                   : reduce_with(nccl, op, op->in, operation(op->op));
    }
    if (op->kind == CDDPI_ALL_REDUCE && op->in == op->out) {
        return scale_and_sum(nccl, op, op->count, op->out);
    }
    if (half) { /* NCCL would multiply with a share of 16 bits */
        return reduce_another(nccl, op, scale_and_sum);
    }
    /* a rank of weight 0 reduces zeros instead of its input, since 0 times NaN would be NaN */
    return op->weight > 0 ? reduce_shares(nccl, op, op->in)
                          : reduce_another(nccl, op, reduce_zeros);
}

/* gather, scatter and all_to_all: send one block to, and receive one block from, each rank that has
 * one. */
static cddp_status exchange_blocks(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);
    bool root = nccl->rank == op->root;
    struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);

    for (int r = 0; r < nccl->size; r++) {
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
    return cddpi_nccl_exchange(nccl);
}

/* all_to_all in place: received data stays in scratch until everything is sent. */
static cddp_status exchange_in_place(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    size_t block = op->count * cddp_type_bytes(op->type);

    for (size_t at = 0; at < block; at += nccl->row) {
        size_t bytes = block - at < nccl->row ? block - at : nccl->row;
        struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);

        for (int r = 0; r < nccl->size; r++) {
            if (r != nccl->rank) {
                transfers[r] = (struct nccl_transfer){
                    r, (const char *)op->in + (size_t)r * block + at, bytes,
                    nccl->scratch + (size_t)r * nccl->row, bytes};
            }
        }
        CDDPI_TRY(cddpi_nccl_exchange(nccl));
        for (int r = 0; r < nccl->size; r++) {
            CDDPI_TRY(cddpi_nccl_copy(nccl, (char *)op->out + (size_t)r * block + at,
                                      transfers[r].in, transfers[r].in_bytes));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_nccl_collective(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    ncclDataType_t type = type_of(op->type);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        return reduce(nccl, op);
    case CDDPI_BROADCAST:
        return NCCL_CALL(nccl, broadcast, op->in, op->out, op->count, type, op->root, nccl->comm,
                         nccl->stream);
    case CDDPI_ALL_GATHER:
        return NCCL_CALL(nccl, all_gather, op->in, op->out, op->count, type, nccl->comm,
                         nccl->stream);
    case CDDPI_ALL_TO_ALL:
        return op->in == op->out ? exchange_in_place(nccl, op) : exchange_blocks(nccl, op);
    case CDDPI_GATHER:
    case CDDPI_SCATTER:
        return exchange_blocks(nccl, op);
    default:
        return cddpi_transport_refuse(op);
    }
}
