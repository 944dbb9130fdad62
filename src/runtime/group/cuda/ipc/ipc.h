/* ipc.h - owns the private structs of the transports "ipc" and "staged", in which ranks of one
 * machine reduce on their GPUs.
 *
 * All ranks map one block of host memory, which is registered with CUDA. Each rank's stream
 * increments two flags there, and waits for those of the others; neither kernels nor threads spin.
 * Work is cut into pieces, which are numbered across all operations. Piece k of a rank has up to
 * three stages:
 *
 *   A: bring the input where peers can read it;              then `arrived` = k
 *   B: when all have arrived: read the peers' input, reduce; then `done` = k
 *   C: when all are done: read what the peers reduced
 *
 * Peers read a rank's window: device memory that they open through CUDA IPC ("ipc"), or a part of
 * the block ("staged"). A window has three slots, used in turn. The slot of piece k may be written
 * when all ranks have done piece k - 2, because stage C of piece k - 3 is earlier in their streams.
 * All peers have opened the memory from alloc, so it needs no window ("zero-copy"): stage A copies
 * nothing, and stage B writes results into the peers' memory.
 *
 * Flags are released when a peer is lost: see stream_flags.h. Messages (send and recv) use
 * group_cuda_p2p.h instead. */
#ifndef CDDPI_GROUP_CUDA_IPC_H
#define CDDPI_GROUP_CUDA_IPC_H

#include "group/cuda/common.h"
#include "group/cuda/group_cuda_p2p.h"
#include "group/cuda/stream_flags.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdatomic.h>

enum {
    IPC_RANKS = 64, /* limit of the reduction kernel */
    IPC_SLOTS = 3,
    IPC_GRAIN = 256, /* bytes; windows, parts, and blocks in them begin at multiples of this */
    IPC_ALLOC_BYTES = 2 << 20, /* granularity of shared allocations: whole pages of the GPU, since
                                  CUDA would also share other data in them */
    IPC_PLACES = 1024,         /* number of operations whose places are kept for comparison */
    IPC_TEXT_BYTES = CDDPI_TRANSPORT_TEXT_BYTES
};

/* Tests use smaller pieces, so that little data has many pieces, and start shortly before the lower
 * half of the flags overflows. */
#ifndef CDDPI_IPC_SIZES
#define CDDPI_IPC_SIZES 64 << 10, 8 << 20, 4 << 20, 0
#endif
struct ipc_sizes {
    size_t small;   /* up to this many bytes, every rank does the whole reduction itself */
    size_t window;  /* bytes of a slot in device memory */
    size_t staging; /* bytes of a slot in host memory */
    uint64_t start; /* the number before the first piece */
};
static const struct ipc_sizes ipc_sizes = {CDDPI_IPC_SIZES};

/* Only its own rank writes it, except for releases. */
struct ipc_rank {
    _Alignas(128) _Atomic uint64_t arrived;
    _Alignas(128) _Atomic uint64_t done;
    /* 1: the rank has closed the transport and the peers' memory */
    _Alignas(128) _Atomic uint32_t left;
    _Atomic uint32_t closed; /* number of blocks of alloc that the rank has closed */
    /* by number % IPC_PLACES: the place of an operation in memory of alloc. Upper half: the number;
     * lower half: a hash of the place */
    _Atomic uint64_t places[IPC_PLACES];
};

/* The start of the shared memory; the windows of the staged transport follow. */
struct ipc_block {
    _Atomic uint32_t abort_state; /* 0: none, 1: being written, 2: complete */
    int32_t abort_rank;
    char abort_text[IPC_TEXT_BYTES];
    _Alignas(128) double weights[IPC_SLOTS][IPC_RANKS]; /* written by streams */
    struct ipc_rank ranks[];
};

/* A block of alloc, which all ranks have opened. */
struct ipc_segment {
    struct ipc_segment *next;
    size_t bytes;         /* as requested */
    char *at[IPC_RANKS];  /* by rank: its address in this process */
    uint32_t id;          /* counts from 1, the same on all ranks */
    cudaEvent_t last_use; /* recorded when the block is retired */
    bool closed;
};

struct ipc_transport {
    struct cddpi_device_transport base; /* first: see ipc_of() */
    struct cddpi_device *device;
    cudaStream_t comm;
    int rank, size;
    bool staged;
    struct cddpi_device_open_params params; /* copied */

    struct ipc_block *block; /* NULL with one rank */
    size_t block_bytes;
    bool registered;
    size_t window;            /* bytes of a slot */
    char *windows[IPC_RANKS]; /* slot 0 of each rank */
    char *scratch;   /* device memory: one row per rank for its part of a piece, and one for the
                        result */
    size_t row;      /* bytes */
    double *weights; /* device memory, one per rank */
    cudaStream_t side_stream; /* used for stage A of staged, and for set-up */
    cudaEvent_t started, copied_in[IPC_SLOTS],
        consumed[IPC_SLOTS]; /* stage A; the end of a piece */
    struct cddpi_stream_flags flags;
    struct cddpi_p2p *p2p;      /* NULL with one rank */
    char *p2p_areas[IPC_RANKS]; /* by rank: device memory for messages; staged: none */

    _Atomic uint64_t pieces; /* number so far, plus ipc_sizes.start */
    uint64_t operations;
    struct ipc_segment *segments;
    struct ipc_segment *retired; /* blocks in the order of free_memory */
    uint32_t last_segment;
    uint32_t freed; /* number retired and freed so far */

    int alive[IPC_RANKS]; /* a pidfd of each peer, or -1 */
    uint64_t compared;    /* number of operations whose places were compared; only poll uses it */
    _Atomic uint32_t aborted; /* 0: no, 1: being written, 2: yes */
    char reason[IPC_TEXT_BYTES];
};

static inline struct ipc_transport *ipc_of(struct cddpi_device_transport *base)
{
    return (struct ipc_transport *)(void *)base;
}

static inline char *ipc_window(const struct ipc_transport *ipc, int rank, uint64_t piece)
{
    return ipc->windows[rank] + piece % IPC_SLOTS * ipc->window;
}

/* ipc_steps.c */
enum ipc_flag { IPC_ARRIVED, IPC_DONE };
/** Enqueue into @p stream: set this rank's flag to @p piece, once all earlier writes are visible to
 *  all ranks. */
cddp_status cddpi_ipc_signal(struct ipc_transport *ipc, cudaStream_t stream, enum ipc_flag flag,
                             uint64_t piece);
/** Enqueue into @p stream: wait until all peers' flags have reached @p piece. */
cddp_status cddpi_ipc_await(struct ipc_transport *ipc, cudaStream_t stream, enum ipc_flag flag,
                            uint64_t piece);
/** Enqueue into @p stream: write this rank's weight for @p piece. */
cddp_status cddpi_ipc_write_weight(struct ipc_transport *ipc, cudaStream_t stream, uint64_t piece,
                                   double weight);
/** End all ranks' waits, present and future ones. Any thread. */
void cddpi_ipc_release(struct ipc_transport *ipc);
uint64_t cddpi_ipc_read(const struct ipc_transport *ipc, int rank, enum ipc_flag flag);

/** The number of elements before the part of rank @p rank in @p count elements. */
size_t cddpi_ipc_part(const struct ipc_transport *ipc, const struct cddpi_group_op *op,
                      size_t count, int rank);
/** Copy the weights of @p piece to the memory from which kernels read them. */
cddp_status cddpi_ipc_fetch_weights(struct ipc_transport *ipc, uint64_t piece);
cddp_status cddpi_ipc_copy(struct ipc_transport *ipc, cudaStream_t stream, void *to,
                           const void *from, size_t bytes);
/** Reduce @p count elements of all @p inputs in the communication stream. This rank's input and @p
 *  out may be the same, and need not be aligned: memory that kernels cannot use is copied through
 *  scratch. */
cddp_status cddpi_ipc_reduce(struct ipc_transport *ipc, const struct cddpi_group_op *op,
                             const char *const *inputs, size_t count, char *out);

/* ipc_health.c: see struct cddpi_device_transport_ops */
/** From now on, check whether the processes are alive. */
void cddpi_ipc_watch(struct ipc_transport *ipc, const int32_t *pids);
cddp_status cddpi_ipc_poll(struct cddpi_device_transport *base);
/** The part of poll that several threads may call at once: whether this rank or a peer has
 *  aborted. */
cddp_status cddpi_ipc_ended(struct ipc_transport *ipc);
void cddpi_ipc_abort(struct cddpi_device_transport *base, const char *reason);
bool cddpi_ipc_gone(const struct ipc_transport *ipc, int rank);
/** Store the place of an operation's memory for comparison; blocks are NULL if the place does not
 *  matter. */
void cddpi_ipc_note_place(struct ipc_transport *ipc, const struct ipc_segment *in_block,
                          const void *in, const struct ipc_segment *out_block, const void *out);

/* ipc_memory.c */
/** Share device memory of @p bytes with all ranks. Collective: every rank succeeds or every rank
 *  fails. */
cddp_status cddpi_ipc_share(struct ipc_transport *ipc, size_t bytes, char **out_at);
/** Close the peers' memory in @p at. */
void cddpi_ipc_unshare(struct ipc_transport *ipc, char **at);
cddp_status cddpi_ipc_alloc(struct cddpi_device_transport *base, size_t bytes, void **out);
void cddpi_ipc_free(struct cddpi_device_transport *base, void *memory);
/** The block that holds all of [data, data + bytes), or NULL. */
const struct ipc_segment *cddpi_ipc_find(const struct ipc_transport *ipc, const void *data,
                                         size_t bytes);
/** The two steps of free: close the peers' memory that streams no longer use, then free this rank's
 *  memory that no peer has open. @p all: do it for all blocks, without these checks. */
void cddpi_ipc_close_retired(struct ipc_transport *ipc, bool all);
void cddpi_ipc_free_retired(struct ipc_transport *ipc, bool all);

/* chunked.c */
cddp_status cddpi_ipc_chunked(struct ipc_transport *ipc, const struct cddpi_group_op *op);

/* zero_copy.c */
/** Whether @p op can be done directly in its own memory; the same result on all ranks. */
bool cddpi_ipc_is_zero_copy(struct ipc_transport *ipc, const struct cddpi_group_op *op);
cddp_status cddpi_ipc_zero_copy(struct ipc_transport *ipc, const struct cddpi_group_op *op);

#endif
