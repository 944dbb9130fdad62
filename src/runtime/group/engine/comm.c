/* comm.c - runs the queue of a group on a thread of its own.
 *
 * On a rank with a spare core, the comm thread runs the queue. It sleeps while there is nothing to
 * do.
 *
 * On a rank without a spare core, of a group over several machines, the wire thread shares the
 * queue with the calling thread. Data from the wire needs little CPU time, but often: if it waited
 * for the next call of the compute thread, the wire would be idle until then. So the wire thread
 * sleeps until data arrives and processes it. Whenever the calling thread waits, it runs the queue
 * itself, without a thread switch, and the wire thread is parked. The thread that runs the queue
 * holds its mutex, except while the wire thread sleeps. */
#include "base/clock.h"
#include "group/engine/handles.h"
#include "group/engine/queue.h"
#include "group/group.h"

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Put operations that were submitted since the last check into their channels. Returns false if the
 * thread must stop. */
static bool take_incoming(struct cddpi_queue *queue, unsigned *running)
{
    bool stop;

    if (!cddpi_queue_arrived(queue)) {
        return true;
    }
    pthread_mutex_lock(&queue->mutex);
    while (queue->incoming != NULL) {
        struct cddp_work *work = queue->incoming;

        queue->incoming = work->next;
        cddpi_queue_push(queue, work);
        (*running)++;
    }
    stop = queue->stop;
    atomic_store_explicit(&queue->arrived, stop, memory_order_relaxed);
    pthread_mutex_unlock(&queue->mutex);
    return !stop;
}

/* Wait for work: spin for a short time, since the next bucket often comes soon, then sleep. */
static void idle(struct cddpi_queue *queue)
{
    int64_t until = cddpi_now_ns() + queue->spin_ns;

    while (queue->spin_ns > 0 && !cddpi_queue_arrived(queue) && cddpi_now_ns() < until) {
        cddpi_queue_pause();
    }
    pthread_mutex_lock(&queue->mutex);
    queue->idle = true;
    while (queue->incoming == NULL && !queue->stop) {
        pthread_cond_wait(&queue->wake, &queue->mutex);
    }
    queue->idle = false;
    pthread_mutex_unlock(&queue->mutex);
}

void *cddpi_comm_main(void *argument)
{
    cddp_group *group = argument;
    struct cddpi_queue *queue = &group->queue;
    struct cddpi_backoff backoff = {0};
    unsigned running = 0; /* once this is 0, the calling thread may use the channels */

    for (;;) {
        bool any;

        if (!take_incoming(queue, &running)) {
            return NULL;
        }
        if (running == 0) {
            idle(queue);
            continue;
        }
        any = cddpi_queue_advance(group);
        if (any || queue->running == 0) {
            backoff = (struct cddpi_backoff){0};
        } else {
            cddpi_queue_back_off(group, &backoff, INT64_MAX);
        }
        running = cddpi_queue_count_finished(queue);
    }
}

bool cddpi_comm_wait(struct cddpi_queue *queue, struct cddp_work *work, int64_t deadline_ns)
{
    int64_t spin_until = cddpi_now_ns() + queue->spin_ns;

    for (;;) {
        uint32_t done = atomic_load_explicit(&work->done, memory_order_acquire);
        int64_t now;

        if (done == 1) {
            return true;
        }
        now = cddpi_now_ns();
        if (deadline_ns != 0 && now >= deadline_ns) {
            return false;
        }
        if (now < spin_until) {
            cddpi_queue_pause();
            continue;
        }
        if (done == 2 || atomic_compare_exchange_strong(&work->done, &done, 2)) {
            int64_t left = deadline_ns != 0 ? deadline_ns - now : CDDPI_QUEUE_SLICE_NS;
            struct timespec limit = {left / 1000000000, left % 1000000000};

            syscall(SYS_futex, &work->done, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, &limit, NULL, 0);
        }
    }
}

void cddpi_comm_submit(cddp_group *group, struct cddp_work *work)
{
    struct cddpi_queue *queue = &group->queue;

    work->next = NULL;
    pthread_mutex_lock(&queue->mutex);
    if (queue->incoming == NULL) {
        queue->incoming = work;
    } else {
        queue->incoming_last->next = work;
    }
    queue->incoming_last = work;
    atomic_store_explicit(&queue->arrived, true, memory_order_release);
    if (queue->idle) {
        pthread_cond_signal(&queue->wake);
    }
    pthread_mutex_unlock(&queue->mutex);
    group->backend->ops->wake(group->backend);
}

void *cddpi_wire_main(void *argument)
{
    cddp_group *group = argument;
    struct cddpi_queue *queue = &group->queue;

    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        bool any;

        while ((queue->caller_drives || queue->running == 0) && !queue->stop) {
            queue->idle = true;
            pthread_cond_signal(&queue->parked);
            pthread_cond_wait(&queue->wake, &queue->mutex);
        }
        queue->idle = false;
        if (queue->stop) {
            pthread_mutex_unlock(&queue->mutex);
            return NULL;
        }
        any = cddpi_queue_advance(group);
        if (!any && queue->running > 0) {
            cddpi_queue_sleep(group, INT64_MAX, &queue->mutex);
        }
        (void)cddpi_queue_count_finished(queue);
    }
}

/* Give the queue to the calling thread. */
static void enter_queue(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;

    pthread_mutex_lock(&queue->mutex);
    queue->caller_drives = true;
    if (!queue->idle) {
        group->backend->ops->wake(group->backend);
    }
    while (!queue->idle) {
        pthread_cond_wait(&queue->parked, &queue->mutex);
    }
}

static void leave_queue(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;

    queue->caller_drives = false;
    if (queue->running > 0) {
        pthread_cond_signal(&queue->wake);
    }
    pthread_mutex_unlock(&queue->mutex);
}

void cddpi_wire_run(cddp_group *group, struct cddp_work *work)
{
    enter_queue(group);
    cddpi_queue_push(&group->queue, work);
    cddpi_queue_run_here(group, work, 0);
    leave_queue(group);
}

void cddpi_wire_submit(cddp_group *group, struct cddp_work *work)
{
    struct cddpi_queue *queue = &group->queue;

    pthread_mutex_lock(&queue->mutex);
    cddpi_queue_push(queue, work);
    (void)cddpi_queue_advance(group);
    (void)cddpi_queue_count_finished(queue);
    if (queue->running > 0 && queue->idle) {
        pthread_cond_signal(&queue->wake);
    } else if (queue->running > 0) {
        group->backend->ops->wake(
            group->backend); /* it may sleep on something that is no longer waited for */
    }
    pthread_mutex_unlock(&queue->mutex);
}

void cddpi_wire_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns)
{
    enter_queue(group);
    cddpi_queue_run_here(group, work, deadline_ns);
    leave_queue(group);
}
