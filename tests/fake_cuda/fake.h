/* fake.h - shared by the files of the fake CUDA runtime. */
#ifndef CDDP_TESTS_FAKE_H
#define CDDP_TESTS_FAKE_H

#include "fake_cuda/fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FAKE_MAX_DEVICES = 16, FAKE_MAX_QUEUED = 4096 };

/* A point in a stream: one record of an event, or the end of work that somebody waits for. */
struct fake_point {
    int refs;
    bool done;
    int64_t at_ns;
    cudaStream_t stream;
};

enum fake_kind {
    FAKE_RUN,        /* a closure */
    FAKE_RECORD,     /* complete the point (in graphs: the event's point, made at each launch) */
    FAKE_WAIT,       /* wait for a point (in graphs: the event's point at the time of the launch) */
    FAKE_WAIT_VALUE, /* wait for a word in memory, which another process may write */
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
    volatile uint64_t *wide; /* instead of `word`: wait for *wide >= wide_value + *base */
    uint64_t wide_value;     /* (differences wrap around) */
    const uint64_t *base;    /* read at each look; NULL: 0 */
};

struct fake_node {
    struct fake_work work;
    size_t *after; /* indices of nodes that must run before */
    size_t after_count;
};

/* The result of a capture; shared by graphs and their running launches. */
struct CUgraph_st {
    int refs;
    struct fake_node *nodes;
    size_t count, room;
};

struct fake_capture {
    uint64_t id;
    cudaStream_t origin;
    struct CUgraph_st *graph;
    cudaError_t broken; /* why the capture has failed */
};

struct fake_item {
    struct fake_item *next;
    struct fake_work work;
    /* FAKE_GRAPH: one launch of the graph */
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
    bool running;   /* its first item runs, without the lock */
    bool destroyed; /* removed once it is empty */
    struct fake_capture *capture;
    struct fake_tips tips;
};

struct CUevent_st {
    int device;
    struct fake_point *point; /* its last record; NULL: not recorded yet */
    bool timed;
    uint64_t capture; /* id of the capture in which it was recorded; 0: outside a capture */
    struct fake_tips tips;
};

/* A host thread that waits for a point. */
struct fake_demand {
    struct fake_demand *next;
    struct fake_point *point;
    bool strict; /* run only what the point needs */
};

struct fake_config {
    int devices;
    int visible[FAKE_MAX_DEVICES]; /* which of the machine's devices */
    int driver;
    size_t memory;
    int multiprocessors; /* of each device */
    int launch_error;
    int fail_card; /* of whose kernels one fails; -1: of all */
    long fail_alloc, fail_launch, refuse_launch, fail_pin, refuse_capture, fail_graph;
    bool ipc, peers, pools, wait_value, parts;
    char name[64]; /* "": each device has its own name */
    int64_t idle_ns;
    uint64_t seed;
};

struct fake_state {
    pthread_mutex_t lock;
    pthread_cond_t work;    /* signals the thread that runs the work */
    pthread_cond_t changed; /* signals threads that wait for progress */
    pid_t owner;            /* the first process that used the runtime; 0: none yet */
    struct fake_config config;
    cudaError_t sticky; /* the error after which the context is lost */
    uint64_t random;
    pthread_t runner;
    bool has_runner, stop;
    struct CUstream_st *streams;
    struct CUstream_st null_streams[FAKE_MAX_DEVICES];
    int stream_count;
    size_t queued;
    unsigned full;   /* threads that wait for room in the queue; meanwhile other threads wait,
                        too */
    size_t pressure; /* pieces of work that may run because a thread keeps querying */
    int64_t last_put_ns;
    struct fake_demand *demands;
    struct fake_capture *capture; /* at most one capture at a time */
    uint64_t captures;
    long launches, runs, allocs, pins, captured, graphs;
    size_t used[FAKE_MAX_DEVICES];
};

extern struct fake_state fake;
extern _Thread_local int fake_device; /* -1: not chosen in this thread */

/** Lock, after reading the environment in the first call. On error it is unlocked again, and the
 *  error is kept for cudaGetLastError(). */
cudaError_t fake_enter(void);
/** As fake_enter(), for calls that need a context. A thread that has not chosen a device would get
 *  a context on device 0, which costs memory there, and device 0 belongs to another rank. So such a
 *  call ends the program. */
cudaError_t fake_enter_context(void);
/** Unlock, and keep @p error for cudaGetLastError(). */
cudaError_t fake_leave(cudaError_t error);
cudaError_t fake_keep(cudaError_t error);
uint64_t fake_random(void);
int64_t fake_now_ns(void);
void *fake_zalloc(size_t bytes);

/* streams and points; callers hold the lock */
cudaStream_t fake_stream_of(cudaStream_t stream);
/** Add @p work to the stream, or to its capture. Takes ownership of the closure in any case. */
cudaError_t fake_put(cudaStream_t stream, const struct fake_work *work);
cudaError_t fake_put_item(cudaStream_t stream, struct fake_item *item);
cudaError_t fake_put_closure(cudaStream_t stream, void (*run)(void *), void *closure,
                             void (*drop)(void *));
struct fake_point *fake_point_new(cudaStream_t stream);
void fake_point_drop(struct fake_point *point);
/** Wait until @p point is done. Releases the lock while waiting. */
cudaError_t fake_await(struct fake_point *point);
cudaError_t fake_sync_stream(cudaStream_t stream);
cudaError_t fake_sync_all(void);
void fake_work_drop(struct fake_work *work);
bool fake_work_ready(const struct fake_work *work, const struct fake_point *point);
/** Remove a destroyed stream that is empty from the list. */
void fake_stream_bury(cudaStream_t stream);
/** Start the thread that runs the queued work. */
void fake_start_runner(void);

/* graphs */
cudaError_t fake_capture_put(cudaStream_t stream, const struct fake_work *work);
void fake_graph_drop(struct CUgraph_st *graph);
bool fake_graph_pick(const struct fake_item *item, size_t *out);
void fake_tips_copy(struct fake_tips *to, const struct fake_tips *from);
void fake_tips_add(struct fake_tips *to, const struct fake_tips *from);
void fake_tips_clear(struct fake_tips *tips);
/** End the current capture with an error if @p stream takes part in it: the call is not allowed. */
cudaError_t fake_capture_refuse(cudaStream_t stream);
/** Whether this thread captures, in which case some calls are not allowed on any stream. */
bool fake_capturing_here(void);
/** Returns cudaSuccess, unless this thread captures: then the call ends the capture with an
 *  error. */
cudaError_t fake_capture_forbids(void);

/** Make @p stream wait, also in replays, until *word - *base - more is not negative. The caller
 *  does not hold the lock. */
void fake_wait_beyond(cudaStream_t stream, volatile uint64_t *word, const uint64_t *base,
                      uint64_t more);
/** The function @p name of fake_memops.c, or NULL. */
void (*fake_memops_symbol(const char *name))(void);

/* memory */
enum fake_memory {
    FAKE_NONE,   /* unknown to the runtime: pageable */
    FAKE_DEVICE, /* cudaMalloc */
    FAKE_POOL,   /* cudaMallocAsync */
    FAKE_OPENED, /* another process's memory */
    FAKE_PINNED, /* cudaHostAlloc */
    FAKE_REGISTERED
};
/** The kind of memory at [memory, memory + bytes). *out_whole: it is within one block; always true
 *  for pageable memory. */
enum fake_memory fake_memory_of(const void *memory, size_t bytes, bool *out_whole, int *out_device);
#endif
