/* watchdog.c - owns the watchdog of a group's device: a thread that detects the end of operations,
 * compares what the ranks called, and aborts everything when something is wrong. */
#include "group/device/group_device.h"
#include "group/watch/peer.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

enum {
    PERIOD_NS = 4000000,
    THOROUGH_NS = 100000000,
    PAUSE_NS = 500000,
    STUCK_NS = 1000000000,
    REMOTE_MS = 4000 /* extra time, so that the thread that waits for other hosts' calls reports
                        first: it knows which of them are late */
};

/* --- the thread --- */

/* A copy of an operation in progress, to be read without the mutex. Only the checking thread, or a
 * failure, removes the operation from the list. */
struct watchdog_view {
    struct cddpi_event *done;
    int64_t start_ns, deadline_ns;
    uint64_t number;
    char title[200];
};

static bool first_under_way(struct cddpi_group_device *dev, bool starting,
                            struct watchdog_view *out)
{
    const struct cddpi_pending *pending;

    pthread_mutex_lock(&dev->mutex);
    pending = starting ? dev->starting : dev->first;
    if (pending != NULL) {
        out->done = pending->done;
        out->start_ns = pending->op.start_ns;
        out->deadline_ns = pending->op.deadline_ns;
        out->number = pending->op.number;
        cddpi_pending_title(pending, out->title, sizeof out->title);
    }
    pthread_mutex_unlock(&dev->mutex);
    return pending != NULL;
}

static void retire(struct cddpi_group_device *dev, uint64_t number)
{
    struct cddpi_pending *pending;

    pthread_mutex_lock(&dev->mutex);
    pending = dev->first;
    if (pending != NULL && pending->op.number == number) {
        dev->first = pending->next;
        cddpi_pending_end(dev, pending);
        atomic_store_explicit(&cddpi_own_calls(dev)->ended, number, memory_order_release);
    }
    pthread_mutex_unlock(&dev->mutex);
}

/* Fail if everything was aborted: an abort empties the streams, too, so an empty stream is no proof
 * of success. */
static cddp_status verify(struct cddpi_group_device *dev)
{
    CDDPI_TRY(dev->group->backend->ops->broken(dev->group->backend));
    return dev->transport->ops->poll(dev->transport);
}

cddp_status cddpi_watchdog_query(struct cddpi_group_device *dev, struct cddpi_event *done,
                                 bool *out_done)
{
    cddp_status status;

    atomic_store_explicit(&dev->query_start_ns, cddpi_now_ns(), memory_order_relaxed);
    status = dev->device->ops->query(dev->device, done, out_done);
    atomic_store_explicit(&dev->query_start_ns, 0, memory_order_relaxed);
    return status == CDDP_OK && *out_done ? verify(dev) : status;
}

/* Remove finished operations from the list. @p out_left: whether one is left; @p view is then a
 * copy of it. */
static cddp_status retire_done(struct cddpi_group_device *dev, struct watchdog_view *view,
                               bool *out_left)
{
    *out_left = false;
    while (first_under_way(dev, false, view)) {
        bool done = false;
        cddp_status status = cddpi_watchdog_query(dev, view->done, &done);

        if (status != CDDP_OK) {
            return cddpi_fail_titled(status, view->title);
        }
        if (!done) {
            *out_left = true;
            return CDDP_OK;
        }
        retire(dev, view->number);
    }
    return CDDP_OK;
}

/* Check the ranks that have not ended the operation yet. */
static cddp_status check_peers(struct cddpi_group_device *dev, const struct watchdog_view *view)
{
    int64_t now = cddpi_now_ns();
    bool thorough = now - view->start_ns > THOROUGH_NS && now - dev->checked_ns > THOROUGH_NS;

    for (int r = 0; r < dev->group->world_size; r++) {
        bool ended;
        cddp_status status;

        if (r == dev->group->rank || !cddpi_device_is_here(dev, r) ||
            atomic_load_explicit(&dev->calls[r].ended, memory_order_acquire) >= view->number) {
            continue;
        }
        status = cddpi_calls_check_peer(dev, r, thorough, view->title);
        /* read again: now everything is visible that a rank did before it left or died */
        ended = atomic_load_explicit(&dev->calls[r].ended, memory_order_acquire) >= view->number;
        if (status != CDDP_OK && !ended) {
            cddpi_error_during(view->title);
            return status;
        }
    }
    dev->checked_ns = thorough ? now : dev->checked_ns;
    return CDDP_OK;
}

static cddp_status expired(const struct cddpi_group_device *dev, const struct watchdog_view *view)
{
    struct cddpi_late late = {.used = 0};
    cddp_status status;

    for (int r = 0; r < dev->group->world_size; r++) {
        const struct cddpi_calls *peer = &dev->calls[r];

        if (cddpi_device_is_here(dev, r) &&
            atomic_load_explicit(&peer->called, memory_order_acquire) < view->number) {
            cddpi_late_add(&late, r, peer->pid);
        }
    }
    status = cddpi_late_fail(&late, view->title, view->start_ns,
                             dev->remote != NULL ? "the devices, or ranks of other hosts"
                                                 : "the devices: all ranks have called it",
                             "");
    cddpi_error_during(view->title);
    return status;
}

/* Fail if a rank that has not ended the operation is gone, or the deadline has passed. */
static cddp_status check_operation(struct cddpi_group_device *dev, const struct watchdog_view *view)
{
    int64_t grace_ns = dev->remote != NULL ? (int64_t)REMOTE_MS * 1000000 : 0;

    CDDPI_TRY(check_peers(dev, view));
    return cddpi_now_ns() >= view->deadline_ns + grace_ns ? expired(dev, view) : CDDP_OK;
}

static cddp_status check_all(struct cddpi_group_device *dev)
{
    struct watchdog_view view;
    bool left = false;
    cddp_status status;

    /* on failure another rank has set the text */
    CDDPI_TRY(dev->group->backend->ops->broken(dev->group->backend));
    CDDPI_TRY(retire_done(dev, &view, &left));
    CDDPI_TRY(cddpi_calls_compare(dev));
    left = left || first_under_way(dev, true, &view);
    if (left) {
        CDDPI_TRY(check_operation(dev, &view));
    }
    CDDPI_TRY(cddpi_device_p2p_check(dev, true));
    atomic_store_explicit(&dev->query_start_ns, cddpi_now_ns(), memory_order_relaxed);
    status = dev->transport->ops->poll(dev->transport); /* it may enqueue messages */
    atomic_store_explicit(&dev->query_start_ns, 0, memory_order_relaxed);
    return status != CDDP_OK && left ? cddpi_fail_titled(status, view.title) : status;
}

void cddpi_watchdog_check(struct cddpi_group_device *dev)
{
    cddp_status status;

    pthread_mutex_lock(&dev->check_mutex);
    status = check_all(dev);
    pthread_mutex_unlock(&dev->check_mutex);
    if (status != CDDP_OK) {
        (void)cddpi_group_device_fail(dev, status);
    }
}

static bool has_work(const struct cddpi_group_device *dev)
{
    const struct cddpi_calls *own = cddpi_own_calls(dev);

    return !atomic_load_explicit(&dev->failed, memory_order_relaxed) &&
           (dev->first != NULL || dev->starting != NULL || dev->messages != NULL ||
            atomic_load_explicit(&own->compared, memory_order_relaxed) !=
                atomic_load_explicit(&own->called, memory_order_relaxed));
}

/* The time @p ns from now, for waiting on a condition. */
static struct timespec in_ns(long ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

static void *watchdog_main(void *argument)
{
    struct cddpi_group_device *dev = argument;

    pthread_mutex_lock(&dev->mutex);
    while (!dev->stop) {
        uint64_t asked = dev->asked;
        struct timespec until;

        if (!has_work(dev)) {
            dev->idle = true;
            pthread_cond_wait(&dev->wake, &dev->mutex);
            dev->idle = false;
            continue;
        }
        pthread_mutex_unlock(&dev->mutex);
        cddpi_watchdog_check(dev);
        until = in_ns(PERIOD_NS);
        pthread_mutex_lock(&dev->mutex);
        dev->answered = asked;
        pthread_cond_broadcast(&dev->over);
        while (!dev->stop && dev->asked == asked &&
               pthread_cond_timedwait(&dev->wake, &dev->mutex, &until) != ETIMEDOUT) {
        }
    }
    pthread_mutex_unlock(&dev->mutex);
    return NULL;
}

/* --- the monitor --- */

/* A CUDA call may block those of all other threads: a launch that finds no room waits for the
 * streams, the streams wait for a peer that has died, and the watchdog's query waits for the
 * launch. So this function checks peers and deadlines without calling the device while the watchdog
 * is stuck. */
static cddp_status check_without_device(struct cddpi_group_device *dev)
{
    struct watchdog_view view;

    CDDPI_TRY(dev->group->backend->ops->broken(dev->group->backend));
    if (first_under_way(dev, false, &view) || first_under_way(dev, true, &view)) {
        CDDPI_TRY(check_operation(dev, &view));
    }
    return cddpi_device_p2p_check(dev, false);
}

static void *monitor_main(void *argument)
{
    struct cddpi_group_device *dev = argument;

    pthread_mutex_lock(&dev->mutex);
    while (!dev->stop) {
        int64_t query_start_ns = atomic_load_explicit(&dev->query_start_ns, memory_order_relaxed);
        struct timespec until = in_ns(STUCK_NS / 2);

        if (query_start_ns != 0 && cddpi_now_ns() - query_start_ns > STUCK_NS &&
            !atomic_load_explicit(&dev->failed, memory_order_relaxed)) {
            cddp_status status;

            pthread_mutex_unlock(&dev->mutex);
            status = check_without_device(dev);
            if (status != CDDP_OK) {
                (void)cddpi_group_device_fail(dev, status);
            }
            pthread_mutex_lock(&dev->mutex);
        }
        if (!dev->stop) {
            (void)pthread_cond_timedwait(&dev->over, &dev->mutex, &until);
        }
    }
    pthread_mutex_unlock(&dev->mutex);
    return NULL;
}

static void stop_threads(struct cddpi_group_device *dev, bool monitored)
{
    pthread_mutex_lock(&dev->mutex);
    dev->stop = true;
    pthread_cond_signal(&dev->wake);
    pthread_cond_broadcast(&dev->over);
    pthread_mutex_unlock(&dev->mutex);
    pthread_join(dev->thread, NULL);
    if (monitored) {
        pthread_join(dev->monitor, NULL);
    }
}

static void fini(struct cddpi_group_device *dev)
{
    pthread_cond_destroy(&dev->wake);
    pthread_cond_destroy(&dev->over);
    pthread_mutex_destroy(&dev->check_mutex);
    pthread_mutex_destroy(&dev->mutex);
}

cddp_status cddpi_watchdog_start(struct cddpi_group_device *dev)
{
    pthread_condattr_t attributes;
    bool watches;

    pthread_mutex_init(&dev->mutex, NULL);
    pthread_mutex_init(&dev->check_mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&dev->wake, &attributes);
    pthread_cond_init(&dev->over, &attributes);
    pthread_condattr_destroy(&attributes);
    watches = pthread_create(&dev->thread, NULL, watchdog_main, dev) == 0;
    if (!watches || pthread_create(&dev->monitor, NULL, monitor_main, dev) != 0) {
        if (watches) {
            stop_threads(dev, false);
        }
        fini(dev);
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, dev->group->rank,
                               "the device's watchdog did not start");
    }
    if (cddpi_remote_start(dev) != CDDP_OK) {
        stop_threads(dev, true);
        fini(dev);
        return CDDP_ERR_NO_MEMORY;
    }
    dev->watched = true;
    return CDDP_OK;
}

static bool is_busy(struct cddpi_group_device *dev)
{
    bool busy;

    pthread_mutex_lock(&dev->mutex);
    busy = dev->first != NULL || dev->messages != NULL;
    pthread_mutex_unlock(&dev->mutex);
    return busy;
}

void cddpi_watchdog_stop(struct cddpi_group_device *dev, bool finish)
{
    struct timespec pause = {0, PAUSE_NS};

    if (!dev->watched) {
        return;
    }
    while (finish && is_busy(dev)) { /* the loop ends: each operation has a deadline */
        nanosleep(&pause, NULL);
    }
    cddpi_remote_stop(dev, finish && !is_busy(dev));
    if (is_busy(dev)) {
        atomic_store_explicit(&cddpi_own_calls(dev)->end, CDDPI_PEER_LEFT, memory_order_release);
        dev->transport->ops->abort(dev->transport, "this rank has left the group");
    }
    stop_threads(dev, true);
    fini(dev);
    atomic_store_explicit(&cddpi_own_calls(dev)->end, CDDPI_PEER_LEFT, memory_order_release);
    dev->watched = false;
}

/* The thread that exits may hold the mutex, and the watchdog may be stuck in the device: so this
 * function makes no call of the device itself, and waits for neither beyond the deadline. */
void cddpi_watchdog_exit(struct cddpi_group_device *dev, int64_t deadline_ns)
{
    const struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    const struct timespec pause = {0, PAUSE_NS};
    uint64_t number;

    if (!dev->watched) {
        return;
    }
    while (pthread_mutex_trylock(&dev->mutex) != 0) {
        if (cddpi_now_ns() >= deadline_ns) {
            return;
        }
        nanosleep(&pause, NULL);
    }
    number = ++dev->asked; /* a check that has begun may have asked the device too early */
    pthread_cond_signal(&dev->wake);
    while (has_work(dev) && dev->answered < number &&
           pthread_cond_timedwait(&dev->over, &dev->mutex, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&dev->mutex);
}
