/* queue.h - private to queue.c, comm.c and group_wire.c: the parts of running a group's operations.
 * All of one thread at a time, the one that runs the queue. */
#ifndef CDDPI_GROUP_QUEUE_H
#define CDDPI_GROUP_QUEUE_H

#include "group/group.h"

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

/* comm.c: the queue of a rank with a core to spare */
void *cddpi_comm_main(void *group);
void cddpi_comm_submit(cddp_group *group, struct cddp_work *work);
/** Whether @p work was done by @p deadline_ns; 0: there is none. */
bool cddpi_comm_wait(struct cddpi_queue *queue, struct cddp_work *work, int64_t deadline_ns);

/* group_wire.c: the queue of a group over several machines on a rank without a core to spare */
void *cddpi_wire_main(void *group);
/** Run @p work, beside which there is none. */
void cddpi_wire_run(cddp_group *group, struct cddp_work *work);
void cddpi_wire_submit(cddp_group *group, struct cddp_work *work);
void cddpi_wire_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

#endif
