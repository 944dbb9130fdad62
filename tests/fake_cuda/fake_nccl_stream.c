/* fake_nccl_stream.c - the fake's work in streams: show the input, wait for the peers, take their
 * data, release it. */
#include "fake_cuda/fake_nccl.h"

#include <stdlib.h>
#include <string.h>

void fake_nccl_comm_drop(ncclComm_t comm)
{
    if (atomic_fetch_sub(&comm->refs, 1) == 1) {
        free(comm); /* the mapping stays, since other ranks may be using it */
    }
}

static void drop(void *closure)
{
    struct fake_nccl_call *call = closure;

    if (call->recorded) {
        atomic_fetch_sub(&call->comm->recorded, 1);
    }
    fake_nccl_comm_drop(call->comm);
    free(call);
}

static void count(struct fake_nccl_counts *counts, int reader, int writer, uint64_t number)
{
    _Atomic uint32_t *lower = (_Atomic uint32_t *)&counts->of[reader][writer];

    atomic_store_explicit(lower, (uint32_t)number, memory_order_release);
}

static void put(const struct fake_nccl_call *call, void (*run)(void *))
{
    struct fake_nccl_call *copy = malloc(sizeof *copy);
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    *copy = *call;
    (void)cudaStreamIsCapturing(call->stream, &state);
    copy->recorded = state == cudaStreamCaptureStatusActive;
    atomic_fetch_add(&call->comm->recorded, copy->recorded ? 1 : 0);
    atomic_fetch_add(&call->comm->refs, 1);
    fake_cuda_launch(call->stream, run, copy, drop);
}

static void wait_for(const struct fake_nccl_call *call, struct fake_nccl_counts *counts, int writer,
                     const uint64_t *base, uint64_t more)
{
    fake_wait_beyond(call->stream, (volatile uint64_t *)&counts->of[call->comm->rank][writer], base,
                     more);
}

/* Wait until all peers have come as far as this rank. */
static void wait_for_all(const struct fake_nccl_call *call, struct fake_nccl_counts *counts)
{
    for (int r = 0; r < call->comm->size; r++) {
        if (r != call->comm->rank) {
            wait_for(call, counts, r, &call->comm->shown, 0);
        }
    }
}

static void show(void *closure)
{
    const struct fake_nccl_call *call = closure;
    struct fake_nccl_shared *shared = call->comm->shared;
    int rank = call->comm->rank;
    size_t count_in = call->count *
                      (call->kind == FAKE_NCCL_REDUCE_SCATTER ? (size_t)call->comm->size : 1);

    if (atomic_load(&call->comm->aborted)) {
        return;
    }
    if (call->kind != FAKE_NCCL_BROADCAST || rank == call->root) {
        memcpy(shared->inputs[rank], call->in, count_in * fake_nccl_type_bytes(call->type));
    }
    if (call->kind != FAKE_NCCL_BROADCAST && call->kind != FAKE_NCCL_ALL_GATHER) {
        fake_nccl_premultiply(call, shared->inputs[rank], count_in);
    }
    call->comm->shown++;
    for (int r = 0; r < call->comm->size; r++) {
        count(&shared->arrived, r, rank, call->comm->shown);
    }
}

static void take(void *closure)
{
    const struct fake_nccl_call *call = closure;
    struct fake_nccl_shared *shared = call->comm->shared;
    int rank = call->comm->rank;
    size_t bytes = call->count * fake_nccl_type_bytes(call->type);

    if (atomic_load(&call->comm->aborted)) {
        return;
    }
    switch (call->kind) {
    case FAKE_NCCL_BROADCAST:
        memcpy(call->out, shared->inputs[call->root], bytes);
        break;
    case FAKE_NCCL_ALL_GATHER:
        for (int r = 0; r < call->comm->size; r++) {
            memcpy((char *)call->out + (size_t)r * bytes, shared->inputs[r], bytes);
        }
        break;
    case FAKE_NCCL_REDUCE_SCATTER:
        fake_nccl_reduce(call, (size_t)rank * call->count, call->count);
        break;
    default:
        if (call->kind == FAKE_NCCL_ALL_REDUCE || rank == call->root) {
            fake_nccl_reduce(call, 0, call->count);
        }
    }
    for (int r = 0; r < call->comm->size; r++) {
        count(&shared->done, r, rank, call->comm->shown);
    }
}

static void post(void *closure)
{
    const struct fake_nccl_call *call = closure;
    struct fake_nccl_shared *shared = call->comm->shared;

    if (!atomic_load(&call->comm->aborted)) {
        memcpy(shared->p2p[call->comm->rank][call->root] + call->p2p_offset, call->in,
               call->count * fake_nccl_type_bytes(call->type));
        count(&shared->sent, call->root, call->comm->rank, ++call->comm->posted[call->root]);
    }
}

static void fetch(void *closure)
{
    const struct fake_nccl_call *call = closure;
    struct fake_nccl_shared *shared = call->comm->shared;

    if (!atomic_load(&call->comm->aborted)) {
        memcpy(call->out, shared->p2p[call->root][call->comm->rank] + call->p2p_offset,
               call->count * fake_nccl_type_bytes(call->type));
        count(&shared->taken, call->root, call->comm->rank, ++call->comm->fetched[call->root]);
    }
}

/* Take the memory that connections need, as late as NCCL does. */
static ncclResult_t take_buffers(ncclComm_t comm)
{
    size_t mib = (size_t)fake_nccl_setting("BUFFERS", 0);

    return mib == 0 || cudaMalloc(&comm->buffers, mib << 20) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

static void put_collective(struct fake_nccl_call *call)
{
    ncclComm_t comm = call->comm;

    comm->collectives++;
    if (!comm->connected) {
        comm->connected = true;
        atomic_fetch_add(&comm->shared->connected, 1);
    }
    if (comm->stuck_at > 0 && comm->collectives >= (uint64_t)comm->stuck_at) {
        /* never reached, so it waits for ever */
        wait_for(call, &comm->shared->arrived, comm->rank, NULL, UINT32_MAX);
        return;
    }
    wait_for_all(call, &comm->shared->done);
    put(call, show);
    wait_for_all(call, &comm->shared->arrived);
    put(call, take);
}

/* Queue all sends, then all receives; those of one pair run one after the other. */
static ncclResult_t put_p2p(struct fake_nccl_call *calls, size_t count_of, enum fake_nccl_kind kind)
{
    size_t used[FAKE_NCCL_RANKS] = {0};

    for (size_t i = 0; i < count_of; i++) {
        struct fake_nccl_call *call = &calls[i];
        ncclComm_t comm = call->comm;
        bool sends = kind == FAKE_NCCL_SEND;

        if (call->kind != kind) {
            continue;
        }
        atomic_store(&comm->shared->met[comm->rank][call->root][sends ? 0 : 1], true);
        call->p2p_offset = used[call->root];
        used[call->root] += call->count * fake_nccl_type_bytes(call->type);
        if (used[call->root] > FAKE_NCCL_P2P_BYTES) {
            return ncclInternalError;
        }
        if (sends && call->p2p_offset == 0) { /* wait until earlier groups' messages were fetched */
            wait_for(call, &comm->shared->taken, call->root, &comm->posted[call->root], 0);
        }
        if (!sends) {
            wait_for(call, &comm->shared->sent, call->root, &comm->fetched[call->root], 1);
        }
        put(call, sends ? post : fetch);
    }
    return ncclSuccess;
}

ncclResult_t fake_nccl_put(struct fake_nccl_call *calls, size_t count_of)
{
    ncclResult_t result;

    for (size_t i = 0; i < count_of; i++) {
        size_t ranks = (size_t)calls[i].comm->size;
        size_t bytes = calls[i].count * fake_nccl_type_bytes(calls[i].type) * ranks;

        if (calls[i].kind != FAKE_NCCL_SEND && calls[i].kind != FAKE_NCCL_RECV) {
            if (bytes > FAKE_NCCL_BYTES) {
                return ncclInternalError;
            }
            result = calls[i].comm->connected ? ncclSuccess : take_buffers(calls[i].comm);
            if (result != ncclSuccess) {
                return result;
            }
            put_collective(&calls[i]);
        }
    }
    result = put_p2p(calls, count_of, FAKE_NCCL_SEND);
    return result != ncclSuccess ? result : put_p2p(calls, count_of, FAKE_NCCL_RECV);
}
