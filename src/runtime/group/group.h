/* group.h - inside of a process group: one operation's state, the queue that runs operations, and
 * the table of functions that a backend fills. What lies in a device's memory goes by
 * group/device/group_device.h, beside the queue. */
#ifndef CDDPI_GROUP_H
#define CDDPI_GROUP_H

#include "base/error.h"
#include "base/handle.h"
#include "group/backend.h"
#include "group/join/user_store.h"
#include "group/watch/recorder.h"

#include <cddp/group.h>

#include <pthread.h>
#include <stdatomic.h>

/** The rank in the job of rank @p rank of @p group. */
int cddpi_group_rank_of_job(const cddp_group *group, int rank);
/** A call fails with @p status for what broke @p group. */
cddp_status cddpi_group_fail_broken(cddp_group *group, cddp_status status);
/** End the group on all ranks: @p failure, from now on of this @p status and with a culprit, says
 *  why. Any thread. */
void cddpi_group_end(cddp_group *group, cddp_status status, struct cddpi_failure *failure);

struct cddp_work {
    struct cddpi_handle handle;
    struct cddpi_group_op op;
    cddp_group *group;               /* NULL once the group is destroyed */
    struct cddpi_pending *pending;   /* of the group's device; NULL: the queue runs it */
    struct cddp_work *next;          /* in its channel, the incoming list or the free list */
    struct cddp_work *newer, *older; /* handles that the caller has */
    struct cddp_work *before;        /* goes with this one, which is done after it; or NULL */
    cddp_status status;
    _Atomic uint32_t done; /* 0 no, 1 yes, 2 no and someone sleeps on it */
};

/* Operations that must run in order: channel 0 has the collectives, 1 + 2p the sends to rank p,
 * 2 + 2p the recvs from it. */
struct cddpi_channel {
    struct cddp_work *first, *last;
};

struct cddpi_queue {
    struct cddpi_channel *channels;
    unsigned channel_count;
    unsigned messages; /* sends and recvs in channels; only if there are any are their channels
                          looked at */
    unsigned running;  /* works in channels; this and `finished` are the running thread's own */
    unsigned finished; /* works done that `pending` still counts */
    _Atomic unsigned pending; /* submitted and not done, whoever runs them */

    int64_t spin_ns;
    unsigned yields; /* how often a wait yields, instead of spinning, when ranks outnumber cores */

    /* the comm thread, where the rank has a core to spare: the queue is its */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards incoming, stop and idle; or all of the queue, see shared */
    pthread_cond_t wake;
    struct cddp_work *incoming, *incoming_last;
    _Atomic bool arrived; /* incoming is not empty, or stop */
    bool stop;
    bool idle; /* the thread sleeps on `wake` */

    /* group_wire.c; else, if neither is there, the calling thread alone advances the queue */
    bool shared;           /* both threads do, in turn, each with the mutex */
    bool caller_drives;    /* the calling thread waits: the other one keeps out */
    pthread_cond_t parked; /* the thread has become idle */
};

/* Of the thread that runs the queue: when it warns of ranks that are late. */
struct cddpi_straggler {
    int64_t limit_ns;  /* CDDP_STRAGGLER_MS; 0: never */
    uint64_t number;   /* of the collective that was last looked at, */
    int64_t since_ns;  /* which has waited since then */
    int64_t again_ns;  /* no warning before */
    unsigned warnings; /* so far; many are as good as a few more */
};

struct cddp_group {
    struct cddpi_handle handle;
    _Atomic unsigned refs; /* the caller's, and one of each cddp_ddp */
    bool is_closed;        /* the caller's is gone */
    struct cddp_group *next_open;
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    int host; /* the number of this rank's host in the job: ranks of one share memory */
    uint32_t generation;
    uint32_t timeout_ms;
    cddp_store *place; /* where its ranks met, kept so that no other job meets there; NULL: not */
    const struct cddpi_transport *transport;
    struct cddpi_backend *backend;
    struct cddpi_group_device *device; /* see cddpi_group_has_device() */
    struct cddpi_queue queue;
    struct cddpi_straggler straggler;
    struct cddp_work *free_works, *free_last; /* used again in the order they were given back */
    unsigned free_count;
    struct cddp_work *newest; /* handles that are out */
    uint64_t collectives;     /* submitted so far */
    uint64_t calls;           /* of the program's own, so far: see cddpi_group_op.call */
    bool call_found_broken;   /* the group was broken before the public call that runs */
    bool call_is_counted;     /* the public call that runs has its number */
    bool call_is_of_ddp;      /* it is one of a cddp_ddp, which counts its backward passes */
    uint64_t *messages;       /* submitted so far, by channel */
    int *ranks_of_job;        /* of a part: the rank in the job of each; NULL: the same */
    struct cddpi_user_store *user_store; /* NULL: nobody asked for it */
    char token[256];                     /* the job's secret; "": one that no other rank shares */
    _Atomic bool broken;                 /* then the failure below is set and does not change */
    struct cddpi_failure failure;
    struct cddpi_recorder recorder; /* its last operations */
    struct cddpi_dump *dump;        /* where these are written; NULL: nowhere yet (dump.h) */
    struct cddpi_trace *trace;      /* NULL: no step is traced (group_trace.h) */
};

/** Whether the group's data may lie in a device's memory; else all memory is the processor's. */
static inline bool cddpi_group_has_device(const cddp_group *group)
{
    return group->device != NULL;
}

/** Let pending operations progress, where no thread does. Never waits; does nothing otherwise. */
void cddpi_group_poll(cddp_group *group);

/** Whether a thread of the group's own drives communication, beside compute. */
bool cddpi_group_has_thread(const cddp_group *group);

/** Where this rank sees every rank's counterpart of memory from cddp_group_alloc(): @p out gets
 *  world_size pointers, valid as long as the memory. False: it does not. */
bool cddpi_group_peers(cddp_group *group, const void *memory, size_t bytes, const void **out);

/** What is called from now on reduces @p bucket; -1: none. */
static inline void cddpi_group_name_bucket(cddp_group *group, int32_t bucket)
{
    group->recorder.bucket = bucket;
}

/** A group over an open @p backend of @p transport, which it owns from now on also when this fails.
 */
cddp_status cddpi_group_build(const struct cddpi_open_params *params,
                              const struct cddpi_transport *transport,
                              struct cddpi_backend *backend, cddp_group **out);

/** Whether an operation can begin: CDDP_OK, or what has ended the group. */
cddp_status cddpi_group_usable(cddp_group *group);

/** Start @p op on the processor's memory: wait for it when @p out is NULL. */
cddp_status cddpi_group_run(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out);

/* straggler.c */
void cddpi_straggler_init(struct cddpi_straggler *straggler);
/** Collective @p op has not ended yet: warn of those who let it wait, if that is due. */
void cddpi_straggler_look(cddp_group *group, const struct cddpi_group_op *op, int64_t now_ns);

/** Begin the public call @p call (its name without cddp_) on @p group in this function, and end it
 *  wherever that returns: see base/handle.h. */
#define CDDPI_ENTER_GROUP(group, call) CDDPI_ENTER(&(group)->handle, cddpi_group_enter(group, call))

/* group_entry.c: what every public call begins and ends with */
/** Begin the public call @p call (its name without cddp_) on @p group, which may be NULL: see
 *  base/handle.h. On CDDP_OK the call ends with cddpi_group_leave(). */
cddp_status cddpi_group_enter(cddp_group *group, const char *call);
/** The same for what keeps the group alive, also after the caller has destroyed it. */
cddp_status cddpi_group_enter_kept(cddp_group *group, const char *call);
/** End the call. Returns @p status. */
static inline cddp_status cddpi_group_leave(cddp_group *group, cddp_status status)
{
    return cddpi_handle_leave(&group->handle, status);
}
/** Whether @p group may be asked what it is: by any thread, and also in a fork. */
bool cddpi_group_may_ask(const cddp_group *group, const char *call);
/** Keep the group alive until cddpi_group_unref(). */
void cddpi_group_ref(cddp_group *group);
void cddpi_group_unref(cddp_group *group);

/* at_exit.c */
void cddpi_group_note_open(cddp_group *group);
void cddpi_group_note_closed(cddp_group *group);

/** The public call that has just been entered is one of a cddp_ddp. */
static inline void cddpi_group_call_of_ddp(cddp_group *group)
{
    if (group->handle.depth == 0) {
        group->call_is_of_ddp = true;
    }
}

/* group_state.c */
/** Something failed here with @p status and the thread's text: tell all others through the backend,
 *  unless another rank's failure was first. Returns the status of the first failure, with a text
 *  that names its rank. Called by the group's thread, or the watchdog. */
cddp_status cddpi_group_fail_all(cddp_group *group, cddp_status status);

/* handles.c */
/** A handle for the caller, begun as a copy of @p start; NULL with a text: no memory. */
struct cddp_work *cddpi_work_take(cddp_group *group, const struct cddp_work *start);
/** The caller has given the handle back, and nobody waits for it: it may be used again. */
void cddpi_work_put(struct cddp_work *work);

/* queue.c */
cddp_status cddpi_queue_init(cddp_group *group, const struct cddpi_cores *cores);
void cddpi_queue_fini(cddp_group *group);
void cddpi_queue_submit(cddp_group *group, struct cddp_work *work);
/** Wait for @p work, until @p deadline_ns if that is not 0. Returns whether it is done. */
bool cddpi_queue_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

#endif
