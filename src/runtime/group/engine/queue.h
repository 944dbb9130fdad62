/* queue.h - owns the queue that runs a group's operations; operations of one channel run one after
 * the other. */
#ifndef CDDPI_GROUP_QUEUE_H
#define CDDPI_GROUP_QUEUE_H

#include <cddp/group.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct cddpi_cores;    /* group/backend.h */
struct cddpi_group_op; /* group/operation.h */

/* Operations that must run in order. Channel 0 has the collectives, 1 + 2p the sends to rank p, 2 +
 * 2p the recvs from rank p. */
struct cddpi_channel {
    struct cddp_work *first, *last;
};

struct cddpi_queue {
    struct cddpi_channel *channels;
    unsigned channel_count;
    unsigned messages; /* number of sends and recvs in channels; if 0, only channel 0 is checked */
    unsigned running;  /* works in channels; only the running thread uses this and `finished` */
    unsigned finished; /* works that are done but still counted in `pending` */
    _Atomic unsigned pending; /* submitted and not done, in all threads */
    int64_t quiet_ns;         /* since then nothing has advanced, or ranks were last looked for; 0:
                                 not waited yet */

    int64_t spin_ns;
    unsigned yields; /* how often a wait yields instead of spinning, if there are more ranks than
                        cores */

    /* the comm thread, if the rank has a spare core: it runs the queue */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards incoming, stop and idle; if `shared`, the whole queue */
    pthread_cond_t wake;
    struct cddp_work *incoming, *incoming_last;
    _Atomic bool arrived; /* incoming is not empty, or stop is set */
    bool stop;
    bool idle; /* the thread sleeps on `wake` */

    /* the wire thread of comm.c. If neither `threaded` nor `shared`, only the calling thread
     * advances the queue */
    bool shared;           /* both threads advance the queue in turn, each with the mutex held */
    bool caller_drives;    /* the calling thread waits and advances the queue: the other thread does
                              not */
    pthread_cond_t parked; /* the thread has become idle */
};

cddp_status cddpi_queue_init(cddp_group *group, const struct cddpi_cores *cores);
void cddpi_queue_fini(cddp_group *group);
/** Wait for @p work until @p deadline_ns; 0: no deadline. Returns whether it is done. */
bool cddpi_queue_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

/** Advance pending operations, if the group has no thread that does so. Never waits. */
void cddpi_group_poll(cddp_group *group);

/** Whether an operation can begin: CDDP_OK, or the failure that ended the group. */
cddp_status cddpi_group_usable(cddp_group *group);

/** Start @p op on CPU memory, and wait for it if @p out is NULL. */
cddp_status cddpi_group_run(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out);

/* --- parts of it, for queue.c and comm.c; of one thread at a time, the one that runs
 * the queue --- */

/* The state of a wait between two checks of the queue: it first spins, then sleeps. */
struct cddpi_backoff {
    int64_t spin_until_ns;
    unsigned yields;
};

enum { CDDPI_QUEUE_SLICE_NS = 50000000, CDDPI_QUEUE_PAUSES = 16 };

/** Pause for a few dozen cycles between two checks. */
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

/** Whether another thread has submitted works. */
static inline bool cddpi_queue_arrived(struct cddpi_queue *queue)
{
    return queue->threaded && atomic_load_explicit(&queue->arrived, memory_order_acquire);
}

/** Put @p work into its channel. */
void cddpi_queue_push(struct cddpi_queue *queue, struct cddp_work *work);
/** Do what is possible now without waiting. Returns whether any work was finished or moved. */
bool cddpi_queue_advance(cddp_group *group);
/** Subtract the finished works from `pending`. Returns how many are left; if 0, another thread may
 * use the channels from now on. */
unsigned cddpi_queue_count_finished(struct cddpi_queue *queue);
/** Check the operations in progress, and sleep until something happens or a time limit passes.
 *  @param mutex  Released during the sleep; may be NULL. */
void cddpi_queue_sleep(cddp_group *group, int64_t limit_ns, pthread_mutex_t *mutex);
/** Wait between two checks of a queue in which nothing advances. */
void cddpi_queue_back_off(cddp_group *group, struct cddpi_backoff *backoff, int64_t limit_ns);
/** Run the queue until @p work is done, or until @p deadline_ns; 0: no deadline. */
void cddpi_queue_run_here(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

/* The thread that runs the queue on a rank with a spare core. */
void *cddpi_comm_main(void *group);
void cddpi_comm_submit(cddp_group *group, struct cddp_work *work);
/** Wait for @p work until @p deadline_ns; 0: no deadline. Returns whether it is done. */
bool cddpi_comm_wait(struct cddpi_queue *queue, struct cddp_work *work, int64_t deadline_ns);

/* The thread that shares the queue of a group over several machines, on a rank without a spare
 * core. */
void *cddpi_wire_main(void *group);
/** Run @p work when no other operation is in progress. */
void cddpi_wire_run(cddp_group *group, struct cddp_work *work);
void cddpi_wire_submit(cddp_group *group, struct cddp_work *work);
void cddpi_wire_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

#endif
