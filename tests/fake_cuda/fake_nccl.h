/* fake_nccl.h - a NCCL between real processes of one machine, for tests: what it puts into streams
 * copies numbers through shared memory, and waits for peers without holding anything up.
 *
 * It insists on the rules of communicators that do not block: a call while another is in progress
 * is an invalid usage, and each call is in progress for a while; the first collective is until all
 * ranks have called one, and the first message until its receiver (or sender) has called for it,
 * since they connect ranks. Two ranks on one device are refused. As in 2.28, neither finalize nor
 * abort ends as long as there are captured graphs with work of the communicator.
 *
 * Environment, read by ncclGetVersion() or when a communicator is made
 * (CDDP_FAKE_CUDA_WITHOUT=nccl: there is no library):
 *   CDDP_FAKE_NCCL_VERSION        22809
 *   CDDP_FAKE_NCCL_INIT           fail: making a communicator does; hang: it never ends
 *   CDDP_FAKE_NCCL_ASYNC_ERROR    after the n-th collective of this rank there is a remote error
 *   CDDP_FAKE_NCCL_STUCK          the n-th collective of this rank never ends, unless it is aborted
 *   CDDP_FAKE_NCCL_MEMORY         0: ncclMemAlloc() fails
 *   CDDP_FAKE_NCCL_FAIL_CAPTURE   the n-th call of this process that is captured fails
 *   CDDP_FAKE_NCCL_WINDOW         fail: registering a window does, once the peers know of it
 *   CDDP_FAKE_NCCL_CALLS          a file: with the rank behind its name it gets, at the end, how
 *                                 often what was called: "all_reduce bf16 sum 12" */
#ifndef CDDP_TESTS_FAKE_NCCL_H
#define CDDP_TESTS_FAKE_NCCL_H

#include "fake_cuda/fake.h"

/* found by name, as those of the library */
#pragma GCC visibility push(default)
#include <nccl.h>
ncclResult_t ncclGroupStart(void); /* there without prototypes */
ncclResult_t ncclGroupEnd(void);
#pragma GCC visibility pop

#include <stdatomic.h>

enum {
    FAKE_NCCL_RANKS = 8,
    FAKE_NCCL_BYTES = 64 << 20,    /* a rank's input */
    FAKE_NCCL_P2P_BYTES = 16 << 20 /* from one rank to another, in one group */
};

/* Counts, by who reads and who writes. The upper half is set by a reader that aborts. */
struct fake_nccl_counts {
    _Atomic uint64_t of[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS];
};

struct fake_nccl_shared {
    _Atomic int joined;
    _Atomic int connected; /* ranks that have called a collective */
    _Atomic int windows;   /* calls for one, of all ranks */
    _Atomic bool met[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS]
                    [2]; /* has sent to, or received from, another */
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
    _Atomic int busy; /* this many questions are answered with "in progress" */
    _Atomic bool aborted;
    _Atomic int recorded; /* pieces of work in captured graphs */
    bool hangs, connected, finalized;
    ncclWindow_t *window; /* is set when the call that is in progress ends */
    void *window_memory;
    ncclResult_t error;
    char text[256];
    uint64_t collectives; /* called so far */
    int windows;          /* asked for so far */
    /* Done so far, by the one stream that they are in: captured graphs are done again and again. */
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
    int root;           /* or the peer */
    size_t p2p_offset;
    cudaStream_t stream;
    bool recorded;
};

/** Count a call, for the file of $CDDP_FAKE_NCCL_CALLS. */
void fake_nccl_count(const char *what);
void fake_nccl_count_call(const struct fake_nccl_call *call, bool factor);
size_t fake_nccl_type_bytes(ncclDataType_t type);
/** Add up as a chain of ranks would: in rank order, rounded to the type at each. */
void fake_nccl_reduce(const struct fake_nccl_call *call, size_t from, size_t count);
void fake_nccl_comm_drop(ncclComm_t comm);
/** Put @p count calls, which were one group, into their streams. */
ncclResult_t fake_nccl_put(struct fake_nccl_call *calls, size_t count);
/** Premultiply this rank's input, where it is shown to the peers. */
void fake_nccl_premultiply(const struct fake_nccl_call *call, void *data, size_t count);

#endif
