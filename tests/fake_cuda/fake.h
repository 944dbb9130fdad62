/* fake.h - inside the fake CUDA runtime. */
#ifndef CDDP_TESTS_FAKE_H
#define CDDP_TESTS_FAKE_H

#include "fake_cuda/fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FAKE_MAX_DEVICES = 16, FAKE_MAX_QUEUED = 4096 };

/* A moment in a stream: one record of an event, or the end of what is waited for. */
struct fake_point {
    int refs;
    bool done;
    int64_t at_ns;
    cudaStream_t stream;
};

enum fake_kind {
    FAKE_RUN,        /* a closure */
    FAKE_RECORD,     /* reach the point (in graphs: the event's, made at each launch) */
    FAKE_WAIT,       /* for a point (in graphs: the event's as it was at the launch) */
    FAKE_WAIT_VALUE, /* for a word in memory, which another process may write */
    FAKE_GRAPH
};

/* One piece of work, in a stream or in a graph. */
struct fake_work {
    enum fake_kind kind;
    bool is_kernel;
    void (*run)(void *closure);
    void *closure;
    void (*drop)(void *closure);
    struct fake_point *point;
    cudaEvent_t event; /* in graphs */
    volatile uint32_t *word;
    uint32_t value;
    unsigned flags;
    volatile uint64_t *wide; /* instead of `word`: at least `wide_value`, in circles, */
    uint64_t wide_value;     /* and so much more than what is here when it is looked at, */
    const uint64_t *base;    /* if that is not NULL */
};

struct fake_node {
    struct fake_work work;
    size_t *after; /* indices of what must be done before */
    size_t after_count;
};

/* What a capture made; shared by graphs and the launches of them that are under way. */
struct CUgraph_st {
    int refs;
    struct fake_node *nodes;
    size_t count, room;
};

struct fake_capture {
    uint64_t id;
    cudaStream_t origin;
    struct CUgraph_st *graph;
    cudaError_t broken; /* why nothing will come of it */
};

struct fake_item {
    struct fake_item *next;
    struct fake_work work;
    /* of FAKE_GRAPH: one launch of it */
    struct CUgraph_st *graph;
    bool *done;
    struct fake_point **points;
    size_t left;
};

struct fake_tips {
    size_t *nodes;
    size_t count;
};

struct CUstream_st {
    struct CUstream_st *next;
    int device;
    int number;
    unsigned flags;
    struct fake_item *first, *last;
    bool running;   /* its first item, without the lock */
    bool destroyed; /* goes when it has run dry */
    struct fake_capture *capture;
    struct fake_tips tips;
};

struct CUevent_st {
    int device;
    struct fake_point *point; /* of its last record; NULL: none yet */
    bool timed;
    uint64_t capture; /* id of the capture it was captured in; 0: outside */
    struct fake_tips tips;
};

/* A host thread that waits. */
struct fake_demand {
    struct fake_demand *next;
    struct fake_point *point;
    bool strict; /* run nothing but what it needs */
};

struct fake_config {
    int devices;
    int visible[FAKE_MAX_DEVICES]; /* which of the machine's */
    int driver;
    size_t memory;
    long fail_alloc, fail_launch, refuse_launch, fail_pin, refuse_capture, fail_graph;
    bool ipc, peers, pools, wait_value, parts;
    char name[64]; /* "": each has its own */
    int64_t idle_ns;
    uint64_t seed;
};

struct fake_state {
    pthread_mutex_t lock;
    pthread_cond_t work;    /* to the thread that runs it */
    pthread_cond_t changed; /* to those who wait for it */
    pid_t owner;            /* the process that used it first; 0: none */
    struct fake_config config;
    cudaError_t sticky; /* the context is lost */
    uint64_t random;
    pthread_t runner;
    bool has_runner, stop;
    struct CUstream_st *streams;
    struct CUstream_st null_streams[FAKE_MAX_DEVICES];
    int stream_count;
    size_t queued;
    unsigned full;   /* threads that wait for room; meanwhile nobody else gets far */
    size_t pressure; /* pieces that may run because somebody asks again and again */
    int64_t last_put_ns;
    struct fake_demand *demands;
    struct fake_capture *capture; /* one at a time */
    uint64_t captures;
    long launches, runs, allocs, pins, captured, graphs;
    size_t used[FAKE_MAX_DEVICES];
};

extern struct fake_state fake;
extern _Thread_local int fake_device; /* -1: the thread has chosen none */

/** Lock, reading the environment in the first call. An error: unlocked again, and kept for
 *  cudaGetLastError(). */
cudaError_t fake_enter(void);
/** The same for calls that need a context: a thread that has chosen no device would get one on
 *  device 0, which costs memory there, and is another rank's. That ends the program. */
cudaError_t fake_enter_context(void);
/** Unlock, and keep @p error. */
cudaError_t fake_leave(cudaError_t error);
cudaError_t fake_keep(cudaError_t error);
uint64_t fake_random(void);
int64_t fake_now_ns(void);
void *fake_zalloc(size_t bytes);

/* streams and points; all with the lock held */
cudaStream_t fake_stream_of(cudaStream_t stream);
/** Put @p work into the stream or what it records; takes the closure in any case. */
cudaError_t fake_put(cudaStream_t stream, const struct fake_work *work);
cudaError_t fake_put_item(cudaStream_t stream, struct fake_item *item);
cudaError_t fake_put_closure(cudaStream_t stream, void (*run)(void *), void *closure,
                             void (*drop)(void *));
struct fake_point *fake_point_new(cudaStream_t stream);
void fake_point_drop(struct fake_point *point);
/** Wait until @p point is done; the lock is let go meanwhile. */
cudaError_t fake_await(struct fake_point *point);
cudaError_t fake_sync_stream(cudaStream_t stream);
cudaError_t fake_sync_all(void);
void fake_work_drop(struct fake_work *work);
bool fake_work_ready(const struct fake_work *work, const struct fake_point *point);
/** Take a stream that was destroyed and has run dry out of the list. */
void fake_stream_bury(cudaStream_t stream);
/** Start the thread that runs things. */
void fake_start_runner(void);

/* graphs */
cudaError_t fake_capture_put(cudaStream_t stream, const struct fake_work *work);
void fake_graph_drop(struct CUgraph_st *graph);
bool fake_graph_pick(const struct fake_item *item, size_t *out);
void fake_tips_copy(struct fake_tips *to, const struct fake_tips *from);
void fake_tips_add(struct fake_tips *to, const struct fake_tips *from);
void fake_tips_clear(struct fake_tips *tips);
/** Break the capture under way, if @p stream takes part in it: what was called is not allowed. */
cudaError_t fake_capture_refuse(cudaStream_t stream);
/** The same for calls that no thread that captures may make. */
bool fake_capturing_here(void);
/** cudaSuccess, unless this thread captures: then that is broken by the call. */
cudaError_t fake_capture_forbids(void);

/** In @p stream: wait until *word - *base - more is not negative, also in replays. The lock is not
 *  held. */
void fake_wait_beyond(cudaStream_t stream, volatile uint64_t *word, const uint64_t *base,
                      uint64_t more);
/** What fake_memops.c has under this name, or NULL. */
void (*fake_memops_symbol(const char *name))(void);

/* memory */
enum fake_memory {
    FAKE_NONE,   /* nobody told us of it: pageable */
    FAKE_DEVICE, /* cudaMalloc */
    FAKE_POOL,   /* cudaMallocAsync */
    FAKE_OPENED, /* another process's */
    FAKE_PINNED, /* cudaHostAlloc */
    FAKE_REGISTERED
};
/** What [memory, memory + bytes) is; *out_whole: it lies in one block. Pageable memory always does.
 */
enum fake_memory fake_memory_of(const void *memory, size_t bytes, bool *out_whole, int *out_device);
#endif
