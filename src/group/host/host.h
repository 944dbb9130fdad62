/* host.h - the shared block of a group on one machine, and what a rank knows of it.
 *
 * Rank 0 makes the block (a memfd, so nothing with a name is left behind) and all map it. Every
 * rank has a progress counter that only it writes. A collective is a row of stages: stage k may run
 * when all counters are at least base + k, and ends by setting the own counter to base + k + 1. */
#ifndef CDDPI_HOST_H
#define CDDPI_HOST_H

#include "group/group.h"
#include "kernels/cpu/reduce.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    HOST_CHUNK_BYTES = 256 << 10, /* a staging buffer; each rank has two */
    HOST_RING_BYTES = 256 << 10,  /* what can be sent before the peer receives */
    HOST_PAGE_BYTES = 4096,
    HOST_MAX_RANKS = 512,
    HOST_TEXT_BYTES = 1024
};

enum host_state { HOST_ABSENT, HOST_RUNNING, HOST_LEFT };

/* What a rank says about the collective that it is in. */
struct host_descriptor {
    uint8_t kind, type, op, weighted;
    int32_t root;
    uint64_t count;
    double weight;
    uint32_t in_segment, out_segment; /* 0: not in memory of cddp_group_alloc() */
    uint64_t in_offset, out_offset;
    int32_t fd; /* of CDDPI_ALLOC */
};

/* Written by its rank alone, but for `bell`. */
struct host_rank {
    _Alignas(64) _Atomic uint32_t counter;
    _Alignas(64) struct host_descriptor descriptors[2]; /* by the parity of the number */
    _Alignas(64) _Atomic uint32_t bell;                 /* a futex: peers add to it */
    _Alignas(64) _Atomic uint32_t state;
    int32_t pid;
    uint64_t start_time; /* of the process, as /proc tells it: a pid may be used again */
    cpu_set_t cores;
};

struct host_block {
    uint64_t nonce;
    uint64_t bytes;
    int32_t world_size;
    _Alignas(64) _Atomic uint32_t abort_state; /* 0 none, 1 being written, 2 there */
    int32_t abort_rank;
    int32_t abort_status;
    char abort_text[HOST_TEXT_BYTES];
    /* what each rank sleeps for: 0 awake, 1 any news, 2 + r news of rank r */
    _Alignas(64) _Atomic uint32_t sleep_for[HOST_MAX_RANKS];
    struct host_rank ranks[];
};

/* A ring from one rank to another; a stream of headers and payloads. */
struct host_ring {
    _Alignas(64) _Atomic uint64_t produced; /* bytes so far */
    _Alignas(64) _Atomic uint64_t consumed;
    _Alignas(64) unsigned char bytes[HOST_RING_BYTES];
};

/* Memory of cddp_group_alloc(): every rank's block, mapped here. */
struct host_segment {
    uint32_t id; /* counts from 1, the same on all ranks */
    size_t bytes;
    void **at; /* by rank */
    struct host_segment *next;
};

struct cddpi_backend {
    int rank;
    int size;
    int fd; /* of the block, while rank 0 still has to give it; else -1 */
    struct host_block *block;
    struct host_rank *me;
    unsigned char *staging;
    struct host_ring *rings;
    uint32_t *seen;   /* by rank: last counter read */
    uint64_t parity;  /* staging pieces so far: the same on all ranks */
    const void **src; /* scratch arrays of `size` for the kernels */
    void **dst;
    double *factors;
    struct host_segment *segments;
    uint32_t last_segment;
    pthread_mutex_t segments_mutex; /* the comm thread adds, the compute thread looks up */
};

/* Bytes of the whole pages that hold @p bytes. */
static inline size_t host_pages(size_t bytes)
{
    return (bytes + HOST_PAGE_BYTES - 1) / HOST_PAGE_BYTES * HOST_PAGE_BYTES;
}

static inline unsigned char *host_staging(const struct cddpi_backend *host, int rank,
                                          uint64_t parity)
{
    return host->staging + ((size_t)rank * 2 + (parity & 1)) * HOST_CHUNK_BYTES;
}

static inline struct host_ring *host_ring(const struct cddpi_backend *host, int from, int to)
{
    return host->rings + (size_t)from * (size_t)host->size + (size_t)to;
}

static inline struct host_descriptor *host_descriptor(const struct cddpi_backend *host, int rank,
                                                      uint64_t number)
{
    return &host->block->ranks[rank].descriptors[number & 1];
}

extern const struct cddpi_backend_ops cddpi_host_ops;

/* block.c */
/** A new block for @p world_size ranks, as a memfd. */
cddp_status cddpi_host_block_create(int world_size, uint64_t *out_nonce, int *out_fd);
/** Map the block of @p fd (which stays the caller's) and take this rank's place in it. */
cddp_status cddpi_host_attach(const struct cddpi_seat *seat, int fd, uint64_t nonce,
                              struct cddpi_backend **out);
/** Wait until every rank has attached. @p give_up (may be NULL) is asked every few milliseconds. */
cddp_status cddpi_host_meet(struct cddpi_backend *host, int64_t deadline_ns,
                            cddp_status (*give_up)(void *), void *argument);
/** Open file @p fd of process @p pid. */
cddp_status cddpi_host_open_fd(int pid, uint64_t start_time, int fd, int *out_fd);
/** Cores that any rank, and that this rank, may use. */
void cddpi_host_cores(const struct cddpi_backend *host, int *out_all, int *out_own);
/** State letter of a process, and when it started; false if there is none. */
bool cddpi_host_process(int pid, char *out_state, uint64_t *out_start_time);

/* segment.c */
/** The block that holds all of [data, data + bytes), or NULL. */
struct host_segment *cddpi_host_find(struct cddpi_backend *host, const void *data, size_t bytes);
struct host_segment *cddpi_host_segment(struct cddpi_backend *host, uint32_t id);
cddp_status cddpi_host_alloc_own(struct cddpi_backend *host, struct cddpi_group_op *op,
                                 int *out_fd);
cddp_status cddpi_host_alloc_map(struct cddpi_backend *host, struct cddpi_group_op *op);
void cddpi_host_alloc_drop(struct cddpi_backend *host, struct cddpi_group_op *op);
/** See struct cddpi_backend_ops. */
bool cddpi_host_peers(struct cddpi_backend *host, const void *memory, size_t bytes,
                      const void **out);
void cddpi_host_free(struct cddpi_backend *host, void *memory);
void cddpi_host_segments_fini(struct cddpi_backend *host);

/* signal.c */
void cddpi_host_publish(struct cddpi_backend *host, uint32_t counter);
void cddpi_host_notify(struct cddpi_backend *host, int rank);
void cddpi_host_ring_all(struct cddpi_backend *host);
void cddpi_host_ring(struct cddpi_backend *host);
uint32_t cddpi_host_announce(struct cddpi_backend *host, int rank);
bool cddpi_host_sleep(struct cddpi_backend *host, uint32_t ticket, int64_t ns);
void cddpi_host_awake(struct cddpi_backend *host);
void cddpi_host_abort(struct cddpi_backend *host, cddp_status status, const char *text);
cddp_status cddpi_host_broken(struct cddpi_backend *host);

/* health.c */
cddp_status cddpi_host_check(struct cddpi_backend *host, const struct cddpi_group_op *op,
                             bool thorough);
cddp_status cddpi_host_expired(struct cddpi_backend *host, const struct cddpi_group_op *op);
/** Whether @p op still waits for @p rank. */
bool cddpi_host_needs(const struct cddpi_backend *host, const struct cddpi_group_op *op, int rank);

/* collective.c, reduce.c, move.c, message.c */
cddp_status cddpi_host_advance(struct cddpi_backend *host, struct cddpi_group_op *op,
                               bool *out_done);
void cddpi_host_reduce_stage(struct cddpi_backend *host, struct cddpi_group_op *op, unsigned stage);
/** How the inputs of all ranks are reduced, weights included. */
struct cddpi_reduce cddpi_host_kernel(struct cddpi_backend *host, const struct cddpi_group_op *op);
void cddpi_host_move_stage(struct cddpi_backend *host, struct cddpi_group_op *op, unsigned stage);
cddp_status cddpi_host_message(struct cddpi_backend *host, struct cddpi_group_op *op,
                               bool *out_done);
/** Text of what a rank called: "all_reduce sum f32 x 100". */
void cddpi_host_describe(const struct host_descriptor *what, char *out, size_t bytes);
bool cddpi_host_same_call(const struct host_descriptor *a, const struct host_descriptor *b);
/** What a rank called. */
typedef const struct host_descriptor *(*host_call_fn)(const void *context, int rank);
/** Ranks that called the same are told together: "ranks 0, 2: barrier; rank 1: ..." @p bytes is
 *  more than 200. */
void cddpi_host_word_calls(host_call_fn call_of, const void *context, int size, char *out,
                           size_t bytes);

enum { HOST_PATH_NONE, HOST_PATH_SMALL, HOST_PATH_DIRECT, HOST_PATH_STAGED };

#endif
