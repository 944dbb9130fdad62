/* queue.h - runs a group's operations: those that must go in order, one after the other. */
#ifndef CDDPI_GROUP_QUEUE_H
#define CDDPI_GROUP_QUEUE_H

#include <cddp/group.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct cddpi_cores;    /* group/backend.h */
struct cddpi_group_op; /* group/operation.h */

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

cddp_status cddpi_queue_init(cddp_group *group, const struct cddpi_cores *cores);
void cddpi_queue_fini(cddp_group *group);
void cddpi_queue_submit(cddp_group *group, struct cddp_work *work);
/** Wait for @p work, until @p deadline_ns if that is not 0. Returns whether it is done. */
bool cddpi_queue_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

/** Let pending operations progress, where no thread does. Never waits; does nothing otherwise. */
void cddpi_group_poll(cddp_group *group);

/** Whether an operation can begin: CDDP_OK, or what has ended the group. */
cddp_status cddpi_group_usable(cddp_group *group);

/** Start @p op on the processor's memory: wait for it when @p out is NULL. */
cddp_status cddpi_group_run(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out);

/* --- parts of it, for queue.c, comm.c and group_wire.c; of one thread at a time, the one that runs
 * the queue --- */

/* The state of a wait between two looks at the queue: first it spins, then it sleeps. */
struct cddpi_backoff {
    int64_t spin_until_ns;
    unsigned yields;
    bool overslept; /* the last sleep ended by itself */
};

enum { CDDPI_QUEUE_SLICE_NS = 50000000, CDDPI_QUEUE_PAUSES = 16 };

/** A few dozen cycles between two looks. */
static inline void cddpi_queue_pause(void)
{
    for (int i = 0; i < CDDPI_QUEUE_PAUSES; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

/** Whether another thread has handed works in. */
static inline bool cddpi_queue_arrived(struct cddpi_queue *queue)
{
    return queue->threaded && atomic_load_explicit(&queue->arrived, memory_order_acquire);
}

/** Put @p work into its channel. */
void cddpi_queue_push(struct cddpi_queue *queue, struct cddp_work *work);
/** Do what can be done now. Returns whether anything was finished. */
bool cddpi_queue_advance(cddp_group *group);
/** Take the finished works off `pending`. Returns how many are left: if none, another thread may
 * use the channels from now on. */
unsigned cddpi_queue_count_finished(struct cddpi_queue *queue);
/** Check what is under way, and sleep until there is news, or for a while.
 *  @param overslept  What the last sleep returned: then peers are checked thoroughly.
 *  @param mutex      Is released while it sleeps; NULL: none.
 *  @return whether the sleep ended by itself. */
bool cddpi_queue_sleep(cddp_group *group, int64_t limit_ns, bool overslept, pthread_mutex_t *mutex);
/** Wait between two looks at a queue in which nothing advances. */
void cddpi_queue_back_off(cddp_group *group, struct cddpi_backoff *backoff, int64_t limit_ns);
/** Run the queue until @p work is done, or until @p deadline_ns; 0: none. */
void cddpi_queue_run_here(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

#endif
