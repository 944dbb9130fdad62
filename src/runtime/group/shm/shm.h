/* shm.h - owns the layout of the block that a group's ranks on one machine share, and a rank's
 * private data about it.
 *
 * Rank 0 creates the block and all ranks map it. It is a memfd, so no named object is left over.
 * Each rank has a progress counter that only this rank writes. A collective is a sequence of
 * stages. A rank may run stage k once all counters are at least base + k; at its end the rank sets
 * its own counter to base + k + 1.
 */
#ifndef CDDPI_GROUP_SHM_SHM_H
#define CDDPI_GROUP_SHM_SHM_H

#include "base/alloc.h"
#include "base/machine.h"
#include "group/engine/group_call.h"
#include "group/transports.h"
#include "kernels/cpu/reduce.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    SHM_CHUNK_BYTES = 256 << 10, /* a staging buffer; each rank has two */
    SHM_RING_BYTES = 256 << 10,  /* for messages in transit from one rank to another */
    SHM_SEND_BUFFERS = 256,      /* maximum per rank; each has SHM_CHUNK_BYTES */
    SHM_PAGE_BYTES = 4096,
    SHM_MAX_RANKS = CDDPI_MACHINE_RANKS,
    SHM_TEXT_BYTES = 1024
};

enum shm_state { SHM_ABSENT, SHM_RUNNING, SHM_LEFT, SHM_EXITED };

/* A rank's current collective: its call and the place of its memory. */
struct shm_fingerprint {
    struct cddpi_call call;
    double weight;
    uint32_t in_segment, out_segment; /* 0: not in memory of cddp_group_alloc() */
    uint64_t in_offset, out_offset;
    int32_t fd; /* of CDDPI_ALLOC */
};

/* Only its own rank writes it, except `wakeup`. */
struct shm_rank {
    _Alignas(64) _Atomic uint32_t counter;
    /* indexed by the parity of the collective's number */
    _Alignas(64) struct shm_fingerprint fingerprints[2];
    _Alignas(64) _Atomic uint32_t wakeup; /* a futex: peers increment it */
    _Alignas(64) _Atomic uint32_t state;
    int32_t pid;
    uint64_t start_time; /* of the process, from /proc: a pid may be reused */
    cpu_set_t cores[CDDPI_MAX_CPUS / CPU_SETSIZE]; /* the kernel may have more than 1024 */
};

struct shm_block {
    uint64_t nonce;
    uint64_t bytes;
    int32_t world_size;
    _Alignas(64) _Atomic uint32_t abort_state; /* 0: none, 1: being written, 2: complete */
    int32_t abort_rank;
    struct cddpi_failure abort_failure;
    /* what each rank sleeps for: 0: it is awake, 1: any change, 2 + r: a change by rank r */
    _Alignas(64) _Atomic uint32_t sleep_for[SHM_MAX_RANKS];
    struct shm_rank ranks[];
};

/* A ring buffer from one rank to another, with a stream of headers and payloads. */
struct shm_ring {
    _Alignas(64) _Atomic uint64_t produced; /* bytes written so far */
    _Alignas(64) _Atomic uint64_t consumed;
    _Alignas(64) unsigned char bytes[SHM_RING_BYTES];
};

/* The progress of an operation, stored in its `state`. */
struct __attribute__((may_alias)) shm_progress {
    uint32_t base;   /* progress counter before the operation */
    uint32_t stage;  /* stages done */
    uint32_t last;   /* stage that ends the operation; known after the first exchange */
    int straggler;   /* the rank that the operation waits for */
    unsigned path;   /* which algorithm */
    unsigned lag;    /* number of stages before the first piece */
    size_t chunks;   /* number of pieces through the staging area */
    size_t chunk;    /* elements in a piece (of each block) */
    uint64_t parity; /* staging buffer of the first piece */
    uint64_t done_bytes;
    bool began;
    void *scratch;
};
_Static_assert(sizeof(struct shm_progress) <= CDDPI_OP_STATE_BYTES, "it has its place in an op");

static inline struct shm_progress *shm_progress(struct cddpi_group_op *op)
{
    return (struct shm_progress *)(void *)op->state;
}

static inline const struct shm_progress *shm_progress_of(const struct cddpi_group_op *op)
{
    return (const struct shm_progress *)(const void *)op->state;
}

/* Memory from cddp_group_alloc(): the blocks of all ranks, mapped here. */
struct shm_segment {
    uint32_t id; /* counts from 1, the same on all ranks */
    size_t bytes;
    void **at;  /* by rank */
    void *lent; /* this rank's block, if it is the caller's own memory; else NULL */
    struct shm_segment *next;
};

/* The state of one of this rank's send buffers: it is free once rank `peer` has consumed its ring
 * up to `until`.
 */
struct shm_send_state {
    int peer;
    uint64_t until;
};

struct shm_backend {
    struct cddpi_backend base; /* first: see shm_of() */
    int rank;
    int size;
    int *names; /* by rank: its number in error texts */
    struct shm_block *block;
    struct shm_rank *me;
    unsigned char *staging;
    struct shm_ring *rings;
    unsigned char *send_buffers; /* the send buffers of all ranks */
    size_t send_buffer_count;    /* per rank, as configured */
    struct shm_send_state *send_states;
    uint32_t *seen;   /* by rank: the counter's last value read */
    uint64_t parity;  /* number of staging pieces so far, the same on all ranks */
    const void **src; /* scratch arrays of `size` for the kernels */
    void **dst;
    double *factors;
    struct shm_segment *segments;
    uint32_t last_segment;
    /* the comm thread adds segments, the compute thread looks them up */
    pthread_mutex_t segments_mutex;
};

static inline struct shm_backend *shm_of(struct cddpi_backend *base)
{
    return (struct shm_backend *)(void *)base;
}

/* The number of rank @p rank in error texts. */
static inline int shm_name(const struct shm_backend *shm, int rank)
{
    return shm->names[rank];
}

/* @p bytes rounded up to whole pages. */
static inline size_t shm_pages(size_t bytes)
{
    return cddpi_align_to(bytes, SHM_PAGE_BYTES);
}

static inline unsigned char *shm_staging(const struct shm_backend *shm, int rank, uint64_t parity)
{
    return shm->staging + ((size_t)rank * 2 + (parity & 1)) * SHM_CHUNK_BYTES;
}

static inline struct shm_ring *shm_ring(const struct shm_backend *shm, int from, int to)
{
    return shm->rings + (size_t)from * (size_t)shm->size + (size_t)to;
}

static inline struct shm_fingerprint *shm_fingerprint(const struct shm_backend *shm, int rank,
                                                      uint64_t number)
{
    return &shm->block->ranks[rank].fingerprints[number & 1];
}

extern const struct cddpi_backend_ops cddpi_shm_ops;

/* handshake.c */
/* Where other ranks find the shared block: an open file of process @p pid. */
struct shm_block_place {
    uint64_t nonce;
    uint64_t start_time; /* of the process */
    int pid;
    int fd;         /* -1: none */
    int world_size; /* in a reply only */
};
extern const struct cddpi_message_form cddpi_shm_block_form;

/* block.c */
/** Create a block for @p world_size ranks, as a memfd. */
cddp_status cddpi_shm_block_create(int world_size, uint64_t *out_nonce, int *out_fd);
/** Map the block @p fd, and take this rank's place in it. The caller still owns @p fd. */
cddp_status cddpi_shm_attach(const struct cddpi_open_params *params, int fd, uint64_t nonce,
                             struct shm_backend **out);
/** Wait until every rank has attached. Calls @p give_up (may be NULL) every few milliseconds. */
cddp_status cddpi_shm_await_attached(struct shm_backend *shm, int64_t deadline_ns,
                                     cddp_status (*give_up)(void *), void *argument);

/* handshake.c: see struct cddpi_transport */
cddp_status cddpi_shm_open(const struct cddpi_members *members, struct cddpi_backend **out);
cddp_status cddpi_shm_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out);

/* segment.c */
/** The block that holds all of [data, data + bytes), or NULL. */
struct shm_segment *cddpi_shm_find(struct shm_backend *shm, const void *data, size_t bytes);
struct shm_segment *cddpi_shm_segment(struct shm_backend *shm, uint32_t id);
cddp_status cddpi_shm_alloc_own(struct shm_backend *shm, struct cddpi_group_op *op, int *out_fd);
cddp_status cddpi_shm_alloc_map(struct shm_backend *shm, struct cddpi_group_op *op);
void cddpi_shm_alloc_drop(struct cddpi_backend *backend, struct cddpi_group_op *op);
/** See struct cddpi_backend_ops. */
bool cddpi_shm_peers(struct cddpi_backend *backend, const void *memory, size_t bytes,
                     const void **out);
void cddpi_shm_free(struct cddpi_backend *backend, void *memory);
uint64_t cddpi_shm_place(struct cddpi_backend *backend, const void *memory, size_t bytes);
void cddpi_shm_segments_fini(struct shm_backend *shm);

/* shm_wait.c */
void cddpi_shm_publish(struct shm_backend *shm, uint32_t counter);
void cddpi_shm_notify(struct shm_backend *shm, int rank);
void cddpi_shm_wake_all(struct shm_backend *shm);
void cddpi_shm_wake(struct cddpi_backend *backend);
uint32_t cddpi_shm_prepare_sleep(struct cddpi_backend *backend, const struct cddpi_group_op *op);
bool cddpi_shm_sleep(struct cddpi_backend *backend, uint32_t ticket, int64_t ns);
void cddpi_shm_end_sleep(struct cddpi_backend *backend);
void cddpi_shm_abort(struct cddpi_backend *backend, const struct cddpi_failure *failure);
cddp_status cddpi_shm_broken(struct cddpi_backend *backend);
cddp_status cddpi_shm_check(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                            bool thorough);
void cddpi_shm_late(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                    struct cddpi_late *late);
cddp_status cddpi_shm_expired(struct cddpi_backend *backend, const struct cddpi_group_op *op);

/* shm_collective.c, shm_reduce.c, shm_move.c, shm_message.c */
cddp_status cddpi_shm_advance(struct cddpi_backend *backend, struct cddpi_group_op *op,
                              bool *out_done);
void cddpi_shm_reduce_stage(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage);
/** How the inputs of all ranks are reduced, weights included. */
struct cddpi_reduce cddpi_shm_reduction(struct shm_backend *shm, const struct cddpi_group_op *op);
void cddpi_shm_move_stage(struct shm_backend *shm, struct cddpi_group_op *op, unsigned stage);
cddp_status cddpi_shm_message(struct shm_backend *shm, struct cddpi_group_op *op, bool *out_done);
/** Whether a send in progress waits until its peer makes room. */
bool cddpi_shm_send_waits(const struct shm_backend *shm, const struct cddpi_group_op *op);

/* a message's path: NONE: the ring, STAGED: send buffers */
enum { SHM_PATH_NONE, SHM_PATH_SMALL, SHM_PATH_ZERO_COPY, SHM_PATH_STAGED };

#endif
