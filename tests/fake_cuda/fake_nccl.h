/* fake_nccl.h - NCCL between real processes of one machine, for tests: its work in streams copies
 * numbers through shared memory, and waits for peers without blocking other streams.
 *
 * It enforces the rules of non-blocking communicators. A call while another is in progress is an
 * invalid argument. Each call is in progress for a while; the first collective until all ranks have
 * called one, and the first message until its receiver (or sender) has made its call, since these
 * calls connect ranks. As from 2.28 on, registering a window returns success although another
 * thread has only begun to do it. Two ranks on one device are refused. As in 2.28, neither finalize
 * nor abort ends while captured graphs contain work of the communicator.
 *
 * Environment, read by ncclGetVersion() or when a communicator is created
 * (CDDP_FAKE_CUDA_WITHOUT=nccl: there is no library):
 *   CDDP_FAKE_NCCL_VERSION        22809
 *   CDDP_FAKE_NCCL_INIT           fail: creating a communicator fails; hang: it never ends
 *   CDDP_FAKE_NCCL_ASYNC_ERROR    after the n-th collective of this rank there is a remote error
 *   CDDP_FAKE_NCCL_STUCK          the n-th collective of this rank never ends, unless it is aborted
 *   CDDP_FAKE_NCCL_ENDLESS        1: from 2.28 on, no abort ends work of a rank with windows
 *   CDDP_FAKE_NCCL_MEMORY         0: ncclMemAlloc() fails
 *   CDDP_FAKE_NCCL_BUFFERS        MiB of device memory that the first collective takes, or fails
 * (0) CDDP_FAKE_NCCL_FAIL_CAPTURE   the n-th captured call of this process fails
 *   CDDP_FAKE_NCCL_WINDOW         fail: registering a window fails, once the peers know of it
 *   CDDP_FAKE_NCCL_CALLS          a file name; at exit, the file of that name plus the rank gets
 * the number of calls of each kind: "all_reduce bf16 sum 12" */
#ifndef CDDP_TESTS_FAKE_NCCL_H
#define CDDP_TESTS_FAKE_NCCL_H

#include "fake_cuda/fake.h"

/* visible, since they are looked up by name like those of the library */
#pragma GCC visibility push(default)
#include <nccl.h>
ncclResult_t ncclGroupStart(void); /* declared without prototypes there */
ncclResult_t ncclGroupEnd(void);
#pragma GCC visibility pop

#include <stdatomic.h>

enum {
    FAKE_NCCL_RANKS = 68,          /* more than a reduction kernel of a fixed number takes */
    FAKE_NCCL_BYTES = 64 << 20,    /* most bytes of a rank's input */
    FAKE_NCCL_P2P_BYTES = 16 << 20 /* most bytes from one rank to another, in one group */
};

/* Counters, by reading and writing rank. A reader that aborts sets the upper half. */
struct fake_nccl_counts {
    _Atomic uint64_t of[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS];
};

struct fake_nccl_shared {
    _Atomic int joined;
    _Atomic int connected; /* ranks that have called a collective */
    _Atomic int windows;   /* window registrations called, by all ranks */
    _Atomic bool met[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS]
                    [2]; /* [rank][peer]: has sent to, or received from, the peer */
    struct {
        int device;
        long host; /* a hash */
    } members[FAKE_NCCL_RANKS];
    struct fake_nccl_counts arrived, done; /* collectives */
    struct fake_nccl_counts sent, taken;   /* send and recv */
    unsigned char inputs[FAKE_NCCL_RANKS][FAKE_NCCL_BYTES];
    unsigned char p2p[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS][FAKE_NCCL_P2P_BYTES];
};

struct ncclComm {
    _Atomic int refs;
    struct fake_nccl_shared *shared;
    int rank, size, device;
    _Atomic int busy; /* number of queries to answer with "in progress" */
    _Atomic bool aborted;
    _Atomic int recorded; /* pieces of work in captured graphs */
    bool hangs, connected, finalized;
    bool registers; /* a thread registers a window: see fake_nccl_window.c */
    pthread_t registrar;
    _Atomic bool registered; /* it has done so */
    ncclWindow_t *window;    /* where it writes the window */
    void *window_memory;
    void *buffers; /* device memory, which stays taken */
    ncclResult_t error;
    char text[256];
    uint64_t collectives; /* collectives called so far */
    int windows;          /* windows requested so far */
    /* Progress of the one stream that this work is in; captured graphs repeat their work. */
    uint64_t shown, posted[FAKE_NCCL_RANKS], fetched[FAKE_NCCL_RANKS];
    long error_after, stuck_at;
    struct {
        bool used;
        ncclDataType_t type;
        const void *scalar;
    } factors[16];
};

enum fake_nccl_kind {
    FAKE_NCCL_ALL_REDUCE,
    FAKE_NCCL_REDUCE,
    FAKE_NCCL_BROADCAST,
    FAKE_NCCL_ALL_GATHER,
    FAKE_NCCL_REDUCE_SCATTER,
    FAKE_NCCL_SEND,
    FAKE_NCCL_RECV
};

struct fake_nccl_call {
    ncclComm_t comm;
    enum fake_nccl_kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    const void *factor; /* the scalar of op, or NULL */
    int root;           /* root, or the peer */
    size_t p2p_offset;
    cudaStream_t stream;
    bool recorded;
};

/** Count a call, for the file $CDDP_FAKE_NCCL_CALLS. */
void fake_nccl_count(const char *what);
void fake_nccl_count_call(const struct fake_nccl_call *call, bool factor);
void fake_nccl_count_bytes(const struct fake_nccl_call *call);

/** Bytes that this process has sent, by ncclSend(), to ranks with another $NCCL_HOSTID since the
 * last call. Visible to tests. */
__attribute__((visibility("default"))) size_t fake_nccl_bytes_to_other_hosts(void);
size_t fake_nccl_type_bytes(ncclDataType_t type);
/** Reduce in rank order, as a chain of ranks would, rounding to the type after each rank. */
void fake_nccl_reduce(const struct fake_nccl_call *call, size_t from, size_t count);
void fake_nccl_comm_drop(ncclComm_t comm);
/** The number in $CDDP_FAKE_NCCL_NAME. */
long fake_nccl_setting(const char *name, long otherwise);
ncclResult_t fake_nccl_fail(ncclComm_t comm, ncclResult_t result, const char *text);
/** Begin a call; no other call may be in progress. */
ncclResult_t fake_nccl_begin(ncclComm_t comm);
/** End a call, which is then in progress for a while. */
ncclResult_t fake_nccl_later(ncclComm_t comm);
/** Whether this rank waits for a peer that has not made its call yet. */
bool fake_nccl_is_connecting(const struct ncclComm *comm);
/** Whether the thread that registers a window has ended; its failure is then the communicator's. */
bool fake_nccl_registered(ncclComm_t comm);
/** Abort the communicator's work in other threads, and wait for them. */
void fake_nccl_stop_registering(ncclComm_t comm);
/** Queue @p count calls, which form one group, in their streams. */
ncclResult_t fake_nccl_put(struct fake_nccl_call *calls, size_t count);
/** Premultiply this rank's input in the memory that the peers read. */
void fake_nccl_premultiply(const struct fake_nccl_call *call, void *data, size_t count);

#endif
