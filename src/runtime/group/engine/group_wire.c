/* group_wire.c - runs the queue of a group over several machines, on a rank without a spare core.
 * Data from the wire needs little CPU time, but often: if it waited for the next call of the
 * compute thread, the wire would be idle until then. So a separate thread sleeps until data arrives
 * and processes it. Whenever the calling thread waits, it runs the queue itself, without a thread
 * switch, and the separate thread is parked. The thread that runs the queue holds its mutex, except
 * while the separate thread sleeps. */
#include "group/engine/group_wire.h"

#include "group/engine/queue.h"
#include "group/group.h"

#include <stdint.h>

void *cddpi_wire_main(void *argument)
{
    cddp_group *group = argument;
    struct cddpi_queue *queue = &group->queue;
    bool overslept = false;

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
        if (any || queue->running == 0) {
            overslept = false;
        } else {
            overslept = cddpi_queue_sleep(group, INT64_MAX, overslept, &queue->mutex);
        }
        (void)cddpi_queue_count_finished(queue);
    }
}

/* Give the queue to the calling thread. */
static void enter(cddp_group *group)
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

static void leave(cddp_group *group)
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
    enter(group);
    cddpi_queue_push(&group->queue, work);
    cddpi_queue_run_here(group, work, 0);
    leave(group);
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
    enter(group);
    cddpi_queue_run_here(group, work, deadline_ns);
    leave(group);
}
