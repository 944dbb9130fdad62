/* device_watch.c - looks after operations on a device: a thread that sees them end, compares what
 * the ranks have called, and ends all of it when something is wrong. */
#include "group/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PERIOD_NS = 4000000, THOROUGH_NS = 100000000, PAUSE_NS = 500000, STUCK_NS = 1000000000 };

cddp_status cddpi_watch_fail(struct cddpi_group_device *side, cddp_status status)
{
    bool was_first;

    pthread_mutex_lock(&side->mutex);
    was_first = !atomic_load_explicit(&side->failed, memory_order_relaxed);
    if (was_first) {
        status = cddpi_group_tell(side->group, status);
        side->failure = status;
        snprintf(side->failure_text, sizeof side->failure_text, "%s", cddp_last_error());
        while (side->first != NULL) {
            struct cddpi_flight *flight = side->first;

            side->first = flight->next;
            flight->status = status;
            cddpi_flight_end(side, flight);
            status = CDDP_ERR_CLOSED; /* of those behind the first */
        }
        while (side->messages != NULL) {
            struct cddpi_flight *flight = side->messages;

            side->messages = flight->next;
            flight->status = side->failure;
            cddpi_flight_end(side, flight);
        }
        atomic_store_explicit(&side->failed, true, memory_order_release);
    }
    pthread_mutex_unlock(&side->mutex);
    if (was_first) {
        side->ops->abort(side->plane, side->failure_text);
    }
    return cddpi_fail(side->failure, "%s", side->failure_text);
}

/* To the backend a group that was ended here is closed; but it was the watchdog that ended it, and
 * its caller has not heard of it yet. */
cddp_status cddpi_watch_reason(struct cddpi_group_device *side, cddp_status status)
{
    if (side == NULL || status != CDDP_ERR_CLOSED) {
        return status;
    }
    pthread_mutex_lock(&side->mutex); /* in which it tells the backend, and then notes why */
    if (atomic_load_explicit(&side->failed, memory_order_relaxed)) {
        status = cddpi_fail(side->failure, "%s", side->failure_text);
    }
    pthread_mutex_unlock(&side->mutex);
    return status;
}

cddp_status cddpi_watch_status(struct cddpi_group_device *side)
{
    cddp_group *group = side->group;
    bool known = atomic_load_explicit(&group->broken, memory_order_acquire);

    if (!atomic_load_explicit(&side->failed, memory_order_acquire)) {
        cddp_status status = group->ops->broken(group->backend);

        if (status == CDDP_OK) {
            return CDDP_OK;
        }
        (void)cddpi_watch_fail(side, status);
    }
    if (known || side->told) {
        return cddpi_fail(CDDP_ERR_CLOSED, "%s", side->failure_text);
    }
    side->told = true;
    return cddpi_fail(side->failure, "%s", side->failure_text);
}

/* --- the thread --- */

/* What is under way and may be looked at without the mutex: only who looks, or a failure, takes it
 * off the row. */
struct look {
    struct cddpi_event *done;
    int64_t start_ns, deadline_ns;
    uint64_t number;
    char title[200];
};

static bool first_under_way(struct cddpi_group_device *side, bool starting, struct look *out)
{
    const struct cddpi_flight *flight;

    pthread_mutex_lock(&side->mutex);
    flight = starting ? side->starting : side->first;
    if (flight != NULL) {
        out->done = flight->done;
        out->start_ns = flight->op.start_ns;
        out->deadline_ns = flight->op.deadline_ns;
        out->number = flight->op.number;
        cddpi_watch_title(flight, out->title, sizeof out->title);
    }
    pthread_mutex_unlock(&side->mutex);
    return flight != NULL;
}

static void retire(struct cddpi_group_device *side, uint64_t number)
{
    struct cddpi_flight *flight;

    pthread_mutex_lock(&side->mutex);
    flight = side->first;
    if (flight != NULL && flight->op.number == number) {
        side->first = flight->next;
        cddpi_flight_end(side, flight);
        atomic_store_explicit(&cddpi_own_calls(side)->ended, number, memory_order_release);
    }
    pthread_mutex_unlock(&side->mutex);
}

/* Whether nothing was ended early: then streams run dry, too. */
static cddp_status verify(struct cddpi_group_device *side)
{
    cddp_status status = side->group->ops->broken(side->group->backend);

    return status == CDDP_OK ? side->ops->poll(side->plane) : status;
}

cddp_status cddpi_watch_ask(struct cddpi_group_device *side, struct cddpi_event *done,
                            bool *out_done)
{
    cddp_status status;

    atomic_store_explicit(&side->asked_ns, cddpi_now_ns(), memory_order_relaxed);
    status = side->device->ops->query(side->device, done, out_done);
    atomic_store_explicit(&side->asked_ns, 0, memory_order_relaxed);
    return status == CDDP_OK && *out_done ? verify(side) : status;
}

/* Take those that are done off the row. @p out_left: whether any is left; it is in @p look. */
static cddp_status retire_done(struct cddpi_group_device *side, struct look *look, bool *out_left)
{
    *out_left = false;
    while (first_under_way(side, false, look)) {
        bool done = false;
        cddp_status status = cddpi_watch_ask(side, look->done, &done);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "%s", look->title);
        }
        if (!done) {
            *out_left = true;
            return CDDP_OK;
        }
        retire(side, look->number);
    }
    return CDDP_OK;
}

/* Ranks without which the operation cannot end. */
static cddp_status check_peers(struct cddpi_group_device *side, const struct look *look)
{
    int64_t now = cddpi_now_ns();
    bool thorough = now - look->start_ns > THOROUGH_NS && now - side->looked_ns > THOROUGH_NS;

    for (int r = 0; r < side->group->world_size; r++) {
        bool ended;
        cddp_status status;

        if (r == side->group->rank ||
            atomic_load_explicit(&side->calls[r].ended, memory_order_acquire) >= look->number) {
            continue;
        }
        status = cddpi_watch_peer(side, r, thorough, look->title);
        /* again: once it has left, or died, what it did before is known */
        ended = atomic_load_explicit(&side->calls[r].ended, memory_order_acquire) >= look->number;
        if (status != CDDP_OK && !ended) {
            return status;
        }
    }
    side->looked_ns = thorough ? now : side->looked_ns;
    return CDDP_OK;
}

static cddp_status expired(const struct cddpi_group_device *side, const struct look *look)
{
    char late[512] = "";
    size_t used = 0;

    for (int r = 0; r < side->group->world_size && used < sizeof late - 64; r++) {
        const struct cddpi_calls *peer = &side->calls[r];
        uint64_t start_time = 0;
        char state = '?';

        if (atomic_load_explicit(&peer->called, memory_order_acquire) >= look->number) {
            continue;
        }
        (void)cddpi_host_process(peer->pid, &state, &start_time);
        used += (size_t)snprintf(late + used, sizeof late - used, "%srank %d (pid %d%s)",
                                 used > 0 ? ", " : "", r, peer->pid,
                                 state == 'T' || state == 't' ? ", stopped" : "");
    }
    return cddpi_fail(CDDP_ERR_TIMEOUT, "%s: waited %lld ms for %s", look->title,
                      (long long)((cddpi_now_ns() - look->start_ns) / 1000000),
                      used > 0 ? late : "the devices: all ranks have called it");
}

static cddp_status look_around(struct cddpi_group_device *side)
{
    struct look look;
    bool left = false;
    cddp_status status = side->group->ops->broken(side->group->backend);

    if (status != CDDP_OK) {
        return status; /* as the others word it */
    }
    status = retire_done(side, &look, &left);
    if (status == CDDP_OK) {
        status = cddpi_watch_compare(side);
    }
    if (status == CDDP_OK && !left) {
        left = first_under_way(side, true, &look);
    }
    if (status == CDDP_OK && left) {
        status = check_peers(side, &look);
    }
    if (status == CDDP_OK && left && cddpi_now_ns() >= look.deadline_ns) {
        status = expired(side, &look);
    }
    if (status == CDDP_OK) {
        status = cddpi_message_look(side, true);
    }
    if (status == CDDP_OK) {
        atomic_store_explicit(&side->asked_ns, cddpi_now_ns(), memory_order_relaxed);
        status = side->ops->poll(side->plane); /* which may put messages into streams */
        atomic_store_explicit(&side->asked_ns, 0, memory_order_relaxed);
        if (status != CDDP_OK && left) {
            status = cddpi_fail_prefix(status, "%s", look.title);
        }
    }
    return status;
}

void cddpi_watch_look(struct cddpi_group_device *side)
{
    cddp_status status;

    pthread_mutex_lock(&side->looking);
    status = look_around(side);
    pthread_mutex_unlock(&side->looking);
    if (status != CDDP_OK) {
        (void)cddpi_watch_fail(side, status);
    }
}

static bool has_work(const struct cddpi_group_device *side)
{
    const struct cddpi_calls *own = cddpi_own_calls(side);

    return !atomic_load_explicit(&side->failed, memory_order_relaxed) &&
           (side->first != NULL || side->starting != NULL || side->messages != NULL ||
            atomic_load_explicit(&own->compared, memory_order_relaxed) !=
                atomic_load_explicit(&own->called, memory_order_relaxed));
}

/* The next moment that is @p ns away, for waiting on a condition. */
static struct timespec in_ns(long ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

static void *watch_main(void *argument)
{
    struct cddpi_group_device *side = argument;

    pthread_mutex_lock(&side->mutex);
    while (!side->stop) {
        struct timespec until;

        if (!has_work(side)) {
            side->idle = true;
            pthread_cond_wait(&side->wake, &side->mutex);
            side->idle = false;
            continue;
        }
        pthread_mutex_unlock(&side->mutex);
        cddpi_watch_look(side);
        until = in_ns(PERIOD_NS);
        pthread_mutex_lock(&side->mutex);
        while (!side->stop &&
               pthread_cond_timedwait(&side->wake, &side->mutex, &until) != ETIMEDOUT) {
        }
    }
    pthread_mutex_unlock(&side->mutex);
    return NULL;
}

/* --- the monitor --- */

/* A call of CUDA may hold up those of all other threads: a launch that finds no room waits for the
 * streams, which wait for a peer that has died, and the watchdog's question waits for the launch.
 * So this looks after peers and deadlines without a call of the device while the watchdog is stuck.
 */
static void look_without_device(struct cddpi_group_device *side)
{
    struct look look;
    cddp_status status = side->group->ops->broken(side->group->backend);

    if (status == CDDP_OK &&
        (first_under_way(side, false, &look) || first_under_way(side, true, &look))) {
        status = check_peers(side, &look);
        if (status == CDDP_OK && cddpi_now_ns() >= look.deadline_ns) {
            status = expired(side, &look);
        }
    }
    if (status == CDDP_OK) {
        status = cddpi_message_look(side, false);
    }
    if (status != CDDP_OK) {
        (void)cddpi_watch_fail(side, status);
    }
}

static void *monitor_main(void *argument)
{
    struct cddpi_group_device *side = argument;

    pthread_mutex_lock(&side->mutex);
    while (!side->stop) {
        int64_t asked_ns = atomic_load_explicit(&side->asked_ns, memory_order_relaxed);
        struct timespec until = in_ns(STUCK_NS / 2);

        if (asked_ns != 0 && cddpi_now_ns() - asked_ns > STUCK_NS &&
            !atomic_load_explicit(&side->failed, memory_order_relaxed)) {
            pthread_mutex_unlock(&side->mutex);
            look_without_device(side);
            pthread_mutex_lock(&side->mutex);
        }
        if (!side->stop) {
            (void)pthread_cond_timedwait(&side->over, &side->mutex, &until);
        }
    }
    pthread_mutex_unlock(&side->mutex);
    return NULL;
}

void cddpi_watch_begin(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    pthread_mutex_lock(&side->mutex);
    side->starting = flight;
    if (flight != NULL && side->idle) {
        pthread_cond_signal(&side->wake);
    }
    pthread_mutex_unlock(&side->mutex);
}

void cddpi_watch_add(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    pthread_mutex_lock(&side->mutex);
    if (atomic_load_explicit(&side->failed, memory_order_relaxed)) {
        flight->status = side->failure; /* in the meantime */
        cddpi_flight_end(side, flight);
        pthread_mutex_unlock(&side->mutex);
        return;
    }
    flight->under_way = true;
    flight->next = NULL;
    if (side->first == NULL) {
        side->first = flight;
    } else {
        side->last->next = flight;
    }
    side->last = flight;
    if (side->idle) {
        pthread_cond_signal(&side->wake);
    }
    pthread_mutex_unlock(&side->mutex);
}

static void stop_threads(struct cddpi_group_device *side, bool monitored)
{
    pthread_mutex_lock(&side->mutex);
    side->stop = true;
    pthread_cond_signal(&side->wake);
    pthread_cond_signal(&side->over);
    pthread_mutex_unlock(&side->mutex);
    pthread_join(side->thread, NULL);
    if (monitored) {
        pthread_join(side->monitor, NULL);
    }
}

static void fini(struct cddpi_group_device *side)
{
    pthread_cond_destroy(&side->wake);
    pthread_cond_destroy(&side->over);
    pthread_mutex_destroy(&side->looking);
    pthread_mutex_destroy(&side->mutex);
}

cddp_status cddpi_watch_start(struct cddpi_group_device *side)
{
    pthread_condattr_t attributes;
    bool watches;

    pthread_mutex_init(&side->mutex, NULL);
    pthread_mutex_init(&side->looking, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&side->wake, &attributes);
    pthread_cond_init(&side->over, &attributes);
    pthread_condattr_destroy(&attributes);
    watches = pthread_create(&side->thread, NULL, watch_main, side) == 0;
    if (!watches || pthread_create(&side->monitor, NULL, monitor_main, side) != 0) {
        if (watches) {
            stop_threads(side, false);
        }
        fini(side);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "rank %d: the device's watchdog did not start",
                          side->group->rank);
    }
    side->watched = true;
    return CDDP_OK;
}

static bool is_busy(struct cddpi_group_device *side)
{
    bool busy;

    pthread_mutex_lock(&side->mutex);
    busy = side->first != NULL || side->messages != NULL;
    pthread_mutex_unlock(&side->mutex);
    return busy;
}

void cddpi_watch_stop(struct cddpi_group_device *side, bool finish)
{
    struct timespec pause = {0, PAUSE_NS};

    if (!side->watched) {
        return;
    }
    while (finish && is_busy(side)) { /* each has its deadline */
        nanosleep(&pause, NULL);
    }
    if (is_busy(side)) {
        atomic_store_explicit(&cddpi_own_calls(side)->left, 1, memory_order_release);
        side->ops->abort(side->plane, "this rank has left the group");
    }
    stop_threads(side, true);
    fini(side);
    atomic_store_explicit(&cddpi_own_calls(side)->left, 1, memory_order_release);
    side->watched = false;
}
