/* nccl_transport.h - owns the private structs of the transport "nccl": a non-blocking communicator,
 * and NCCL's functions, which are looked up at run time.
 *
 * Only the thread that holds the mutex may be inside NCCL. The compute thread enqueues work; the
 * group's watchdog polls and aborts. Waiting for a call in progress happens without the mutex, so
 * that the call can be aborted. */
#ifndef CDDPI_GROUP_CUDA_NCCL_NCCL_TRANSPORT_H
#define CDDPI_GROUP_CUDA_NCCL_NCCL_TRANSPORT_H

#include "group/cuda/common.h"
#include "group/cuda/group_cuda_p2p.h"

#include <cuda.h>
#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>

/* member, symbol: functions of every supported version */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(get_version, ncclGetVersion)                                                                 \
    X(get_unique_id, ncclGetUniqueId)                                                              \
    X(error_string, ncclGetErrorString)                                                            \
    X(last_error, ncclGetLastError)                                                                \
    X(init, ncclCommInitRankConfig)                                                                \
    X(async_error, ncclCommGetAsyncError)                                                          \
    X(finalize, ncclCommFinalize)                                                                  \
    X(destroy, ncclCommDestroy)                                                                    \
    X(abort, ncclCommAbort)                                                                        \
    X(group_start, ncclGroupStart)                                                                 \
    X(group_end, ncclGroupEnd)                                                                     \
    X(all_reduce, ncclAllReduce)                                                                   \
    X(reduce, ncclReduce)                                                                          \
    X(broadcast, ncclBroadcast)                                                                    \
    X(all_gather, ncclAllGather)                                                                   \
    X(reduce_scatter, ncclReduceScatter)                                                           \
    X(send, ncclSend)                                                                              \
    X(recv, ncclRecv)                                                                              \
    X(create_factor, ncclRedOpCreatePreMulSum)                                                     \
    X(destroy_factor, ncclRedOpDestroy)

/* member, symbol, first version: NULL in older versions */
#define NCCL_NEWER_FUNCTIONS(X)                                                                    \
    X(mem_alloc, ncclMemAlloc, 21900)                                                              \
    X(mem_free, ncclMemFree, 21900)                                                                \
    X(register_buffer, ncclCommRegister, 21900)                                                    \
    X(deregister_buffer, ncclCommDeregister, 21900)                                                \
    X(register_window, ncclCommWindowRegister, 22700)                                              \
    X(deregister_window, ncclCommWindowDeregister, 22700)

#if NCCL_VERSION_CODE < 22700 /* these headers lack the types */
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_WIN_COLL_SYMMETRIC 0x01
ncclResult_t ncclCommWindowRegister(ncclComm_t, void *, size_t, ncclWindow_t *, int);
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
#endif

#ifndef CDDPI_NCCL_ROW_BYTES /* tests use smaller rows, so that little data has many pieces */
#define CDDPI_NCCL_ROW_BYTES (4 << 20)
#endif

#ifndef CDDPI_NCCL_ORDERED_RANKS /* tests have fewer */
#define CDDPI_NCCL_ORDERED_RANKS CDDPI_CUDA_REDUCE_RANKS
#endif

enum {
    NCCL_OLDEST = 21800,
    NCCL_REGISTERS_SAFELY = 23200, /* between hosts; an earlier one may hang (issue 2389) */
    NCCL_SHARES_DEVICES = 23003,   /* with NCCL_MULTI_RANK_GPU_ENABLE=1 */
    NCCL_LATER_MS = 2000,
    NCCL_KEPT_BYTES = 1 << 30, /* device memory kept for NCCL, or less on a small device ... */
    NCCL_KEPT_OPS = 64,        /* ... during so many operations, when NCCL takes its buffers */
    NCCL_REGISTER_MS = 60000,  /* time limit for registrations, which only make exchanges faster */
    NCCL_DRAIN_MS = 10000,     /* time limit for a stream that the transport does not block */
    NCCL_GRAIN = 256,          /* bytes; parts begin at multiples of this */
    NCCL_SCRATCH_BYTES = 256 << 20,       /* most of the rows of all ranks together */
    NCCL_ROW_BYTES = CDDPI_NCCL_ROW_BYTES /* bytes of a row of scratch, one row per rank */
};

#define NCCL_MEMBER(member, symbol) __typeof__(symbol) *member;
#define NCCL_NEWER_MEMBER(member, symbol, since) NCCL_MEMBER(member, symbol)

struct nccl_library {
    void *handle;
    int version; /* 22809 means 2.28.9 */
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_NEWER_FUNCTIONS(NCCL_NEWER_MEMBER)
};

/* What to send to and receive from one rank in an exchange; 0 bytes: nothing. */
struct nccl_transfer {
    int peer;
    const char *out;
    size_t out_bytes;
    char *in;
    size_t in_bytes;
};

/* A block of memory from alloc. */
struct nccl_block {
    struct nccl_block *next;
    void *memory;
    void *registration;  /* for copies by this rank; NULL: none */
    ncclWindow_t window; /* for kernels of all ranks; NULL: none */
    bool own;            /* of cudaMalloc */
};

struct nccl_transport {
    struct cddpi_device_transport base; /* first: see nccl_of() */
    struct cddpi_device *device;
    struct nccl_library library;
    int rank, size;
    int hosts, host_ranks; /* 0, or hosts that all have so many consecutive ranks */
    bool deterministic;
    uint32_t timeout_ms;
    struct cddpi_device_open_params params; /* copied */
    cudaStream_t stream;
    __typeof__(&cuMemsetD32Async) fill;

    pthread_mutex_t mutex; /* guards comm, and all calls of NCCL */
    bool has_mutex;
    ncclComm_t comm;          /* NULL: not connected yet, or aborted */
    _Atomic uint32_t aborted; /* 0: no, 1: being written, 2: yes */
    char reason[CDDPI_TRANSPORT_TEXT_BYTES];

    /* device memory: one row per rank, one for the result, and one per host */
    char *scratch;
    size_t row;                      /* bytes */
    struct nccl_transfer *transfers; /* as many as ranks, for the exchange being enqueued */
    const void **inputs;             /* likewise, for the reduction kernel */
    /* device memory: one per rank; then this rank's own; then its share; then 1 / ranks */
    double *weights;
    size_t own_weight; /* index of this rank's own weight in `weights`; even */
    struct nccl_block *blocks;
    int begun;  /* operations, at most NCCL_KEPT_OPS */
    bool keeps; /* one of its device's keepers */
    bool stuck; /* work did not end within NCCL_DRAIN_MS */
    bool plain; /* memory is not registered, since some rank could not */
    /* a call failed during a capture or a registration: comm may be unusable */
    _Atomic bool suspect;
    struct cddpi_p2p *p2p; /* messages, which do not use NCCL; NULL with one rank */
};

static inline struct nccl_transport *nccl_of(struct cddpi_device_transport *base)
{
    return (struct nccl_transport *)(void *)base;
}

/* nccl_connect.c */
/** CDDP_ERR_UNAVAILABLE: the library is missing, is too old, or lacks a function. */
cddp_status cddpi_nccl_load(struct nccl_library *out);
/** "2.28.9" */
void cddpi_nccl_version_text(int version, char *out, size_t bytes);
/** Create a communicator. Collective. */
cddp_status cddpi_nccl_connect(struct nccl_transport *nccl);
/** Whether any rank's @p own is true. Collective. */
cddp_status cddpi_nccl_any(struct nccl_transport *nccl, bool own, bool *out);
/** Create a new communicator if that of any rank is suspect. Collective; no capture may be in
 *  progress. */
cddp_status cddpi_nccl_recover(struct cddpi_device_transport *base);

/* nccl_call.c: calls of NCCL, by one thread at a time */
/** Lock the mutex; after an abort CDDP_ERR_BROKEN, without the mutex. */
cddp_status cddpi_nccl_enter(struct nccl_transport *nccl);
void cddpi_nccl_leave(struct nccl_transport *nccl);
/** With the mutex held: wait until @p call, which returned @p result, is no longer in progress.
 *  Returns its final status. */
cddp_status cddpi_nccl_await(struct nccl_transport *nccl, ncclResult_t result, const char *call);
cddp_status cddpi_nccl_poll(struct nccl_transport *nccl);
void cddpi_nccl_abort(struct nccl_transport *nccl, const char *reason);
/** Wait until the work in the stream is done, for a limited time, and only once if it never ends.
 *  Returns whether it is done; if not, do not free memory that it uses. */
bool cddpi_nccl_drain(struct nccl_transport *nccl);
/** Destroy or abort @p comm with @p call. No thread may use it any more. Waits for a limited
 *  time. */
void cddpi_nccl_release_comm(struct nccl_transport *nccl, __typeof__(ncclCommAbort) *call,
                             ncclComm_t comm);

#define NCCL_CALL(nccl, member, ...)                                                               \
    cddpi_nccl_await((nccl), (nccl)->library.member(__VA_ARGS__), #member)

/* nccl_collective.c: call these with the mutex held */
cddp_status cddpi_nccl_collective(struct nccl_transport *nccl, const struct cddpi_group_op *op);
/** Gather all ranks' weights of @p op into transport->weights. */
cddp_status cddpi_nccl_gather_weights(struct nccl_transport *nccl, const struct cddpi_group_op *op);

/** Make transport->transfers empty. */
struct nccl_transfer *cddpi_nccl_transfers(struct nccl_transport *nccl);
/** Do all of transport->transfers at once; this rank's transfer to itself is a copy. */
cddp_status cddpi_nccl_exchange(struct nccl_transport *nccl);
/** Do the first @p count of transport->transfers at once, each with its peer, which may have
 * several, in the same order on both ranks. */
cddp_status cddpi_nccl_exchange_list(struct nccl_transport *nccl, int count);
cddp_status cddpi_nccl_copy(struct nccl_transport *nccl, void *to, const void *from, size_t bytes);

/* A piece of an operation: elements [at, at + count) of the input, or of each block. */
struct nccl_cut {
    const struct cddpi_group_op *op;
    size_t element;
    size_t at, count;
    int ranks;
};

/* deterministic.c: call these with the mutex held */
/** Rank @p r's part of the piece: where it starts in the input, and its elements. all_reduce and
 *  reduce: the piece is divided among the ranks. reduce_scatter: each block belongs to its rank. */
size_t cddpi_nccl_part(const struct nccl_cut *cut, int r, size_t *out_start);
/** Do an all_reduce, reduce or reduce_scatter in the table's fixed order: an all-to-all, the
 *  reduction kernel, and a second all-to-all. */
cddp_status cddpi_nccl_deterministic(struct nccl_transport *nccl, const struct cddpi_group_op *op);

/* nccl_hosts.c */
/** Set transport->hosts, from the host numbers of all ranks. */
void cddpi_nccl_find_hosts(struct nccl_transport *nccl, const int32_t *hosts);
/** Whether cddpi_nccl_over_hosts() can do @p op, the same on all ranks. */
bool cddpi_nccl_has_hosts(const struct nccl_transport *nccl, const struct cddpi_group_op *op);
/** With the mutex held: as cddpi_nccl_deterministic(), with the same bits, but each host's ranks
 *  reduce their data before it goes to other hosts. */
cddp_status cddpi_nccl_over_hosts(struct nccl_transport *nccl, const struct cddpi_group_op *op);

/* nccl_memory.c */
cddp_status cddpi_nccl_alloc(struct cddpi_device_transport *base, size_t bytes, void **out);
void cddpi_nccl_free(struct cddpi_device_transport *base, void *memory);

#endif
