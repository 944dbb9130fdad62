/* queue.c - runs a group's operations in order: on the comm thread where the rank has a core to
 * spare, else inside the calls of the thread that owns the group. Also the handles' free list. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "group/device.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLICE_NS = 50000000, SPIN_NS = 50000, YIELDS = 64, PAUSES = 16 };

/* A wait between two looks: first spinning, then sleeping. */
struct nap {
    int64_t spin_until_ns;
    unsigned yields;
    bool overslept; /* the last sleep ended by itself */
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static unsigned lane_of(const struct cddpi_group_op *op)
{
    if (op->kind == CDDPI_SEND) {
        return 1 + 2 * (unsigned)op->root;
    }
    return op->kind == CDDPI_RECV ? 2 + 2 * (unsigned)op->root : 0;
}

static void push(struct cddpi_queue *queue, struct cddp_work *work)
{
    unsigned index = lane_of(&work->op);
    struct cddpi_lane *lane = &queue->lanes[index];

    work->next = NULL;
    if (lane->first == NULL) {
        lane->first = work;
    } else {
        lane->last->next = work;
    }
    lane->last = work;
    queue->messages += index != 0;
    queue->running++;
}

/* Take the first work off its lane and tell who waits. The work may be gone right after. */
static void complete(cddp_group *group, struct cddpi_lane *lane, cddp_status status)
{
    struct cddpi_queue *queue = &group->queue;
    struct cddp_work *work = lane->first;

    lane->first = work->next;
    queue->messages -= lane != queue->lanes;
    queue->running--;
    queue->finished++;
    work->status = status;
    if (atomic_exchange_explicit(&work->done, 1, memory_order_acq_rel) == 2) {
        syscall(SYS_futex, &work->done, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
    }
}

/* The lanes are left alone until the next work comes: if none is left, they may be another
 * thread's. Returns how many are left. */
static unsigned settle(struct cddpi_queue *queue)
{
    unsigned running = queue->running;
    unsigned finished = queue->finished;

    if (finished > 0) {
        queue->finished = 0;
        atomic_fetch_sub_explicit(&queue->pending, finished, memory_order_release);
    }
    return running;
}

/* Keep the stored text as the group's first failure. */
static void set_broken(cddp_group *group)
{
    if (!atomic_load_explicit(&group->broken, memory_order_relaxed)) {
        snprintf(group->broken_text, sizeof group->broken_text, "%s", cddp_last_error());
        atomic_store_explicit(&group->broken, true, memory_order_release);
    }
}

static void fail_all(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;

    for (unsigned i = 0; i < queue->lane_count; i++) {
        while (queue->lanes[i].first != NULL) {
            if (group->ops->drop != NULL) {
                group->ops->drop(group->backend, &queue->lanes[i].first->op);
            }
            complete(group, &queue->lanes[i], CDDP_ERR_CLOSED);
        }
    }
}

cddp_status cddpi_group_tell(cddp_group *group, cddp_status status)
{
    char text[900];
    cddp_status first;

    snprintf(text, sizeof text, "%s", cddp_last_error());
    first = group->ops->broken(group->backend);
    if (first != CDDP_OK) {
        return first;
    }
    group->ops->abort(group->backend, status, text);
    (void)cddpi_fail(status, "%s", text);
    if (status != CDDP_ERR_MISMATCH) {
        (void)cddpi_fail_prefix(status, "rank %d", group->rank);
    }
    return status;
}

/* The first work of @p lane failed with @p status and the thread's text: nothing here can go on. */
static void fail(cddp_group *group, struct cddpi_lane *lane, cddp_status status)
{
    status = cddpi_watch_reason(group->device, cddpi_group_tell(group, status));
    set_broken(group);
    if (group->ops->drop != NULL) {
        group->ops->drop(group->backend, &lane->first->op);
    }
    complete(group, lane, status);
    fail_all(group);
}

/* Returns whether anything was finished. */
static bool advance_lane(cddp_group *group, struct cddpi_lane *lane)
{
    bool any = false;

    while (lane->first != NULL) {
        bool done = false;
        cddp_status status = group->ops->advance(group->backend, &lane->first->op, &done);

        if (status != CDDP_OK) {
            fail(group, lane, status);
            return true;
        }
        if (!done) {
            return any;
        }
        complete(group, lane, CDDP_OK);
        any = true;
    }
    return any;
}

static bool advance_all(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;
    bool any = advance_lane(group, &queue->lanes[0]);

    for (unsigned i = 1; i < queue->lane_count && queue->messages > 0; i++) {
        any = advance_lane(group, &queue->lanes[i]) || any;
    }
    return any;
}

/* Look after every operation that is under way; fails them if one cannot be completed.
 * @param out_until_ns  The earliest deadline. */
static bool check_all(cddp_group *group, bool thorough, int64_t *out_until_ns)
{
    struct cddpi_queue *queue = &group->queue;
    int64_t now = cddpi_now_ns();

    *out_until_ns = INT64_MAX;
    for (unsigned i = 0; i < queue->lane_count; i++) {
        struct cddpi_lane *lane = &queue->lanes[i];
        cddp_status status;

        if (lane->first == NULL) {
            continue;
        }
        status = group->ops->check(group->backend, &lane->first->op, thorough);
        if (status == CDDP_OK && now >= lane->first->op.deadline_ns) {
            status = group->ops->expired(group->backend, &lane->first->op);
        }
        if (status != CDDP_OK) {
            fail(group, lane, status);
            return false;
        }
        if (lane->first->op.deadline_ns < *out_until_ns) {
            *out_until_ns = lane->first->op.deadline_ns;
        }
    }
    return true;
}

static bool arrived(struct cddpi_queue *queue)
{
    return queue->threaded && atomic_load_explicit(&queue->arrived, memory_order_acquire);
}

/* Between two looks at a queue that does not move. */
static void take_nap(cddp_group *group, struct nap *nap, int64_t limit_ns)
{
    struct cddpi_queue *queue = &group->queue;
    const struct cddpi_backend_ops *ops = group->ops;
    int64_t until;
    int64_t now;
    uint32_t ticket;
    int rank = -1;

    if (nap->yields < queue->yields) {
        nap->yields++;
        sched_yield();
        return;
    }
    if (queue->spin_ns > 0) {
        now = cddpi_now_ns();
        if (nap->spin_until_ns == 0) {
            nap->spin_until_ns = now + queue->spin_ns;
        }
        if (now < nap->spin_until_ns) {
            for (int i = 0; i < PAUSES; i++) {
                pause_cpu();
            }
            return;
        }
    }
    if (queue->messages == 0 && queue->lanes[0].first != NULL) {
        rank = queue->lanes[0].first->op.laggard;
    }
    ticket = ops->announce(group->backend, rank);
    if (!advance_all(group) && !arrived(queue) && check_all(group, nap->overslept, &until) &&
        queue->running > 0) {
        now = cddpi_now_ns();
        until = until < limit_ns ? until : limit_ns;
        until = until - now < SLICE_NS ? until - now : SLICE_NS;
        nap->overslept = until > 0 && !ops->sleep(group->backend, ticket, until) &&
                         until == SLICE_NS;
    }
    ops->awake(group->backend);
}

static void run_here(cddp_group *group, struct cddp_work *work, int64_t deadline_ns)
{
    struct nap nap = {0, 0, false};
    int64_t limit = deadline_ns != 0 ? deadline_ns : INT64_MAX;

    for (;;) {
        bool any = advance_all(group);

        (void)settle(&group->queue);
        if (atomic_load_explicit(&work->done, memory_order_acquire) == 1) {
            return;
        }
        if (any) {
            nap = (struct nap){0, 0, false};
            continue;
        }
        if (deadline_ns != 0 && cddpi_now_ns() >= deadline_ns) {
            return;
        }
        take_nap(group, &nap, limit);
    }
}

/* The comm thread: operations that have come since the last look go into their lanes. */
static bool take_incoming(struct cddpi_queue *queue, unsigned *running)
{
    bool stop;

    if (!arrived(queue)) {
        return true;
    }
    pthread_mutex_lock(&queue->mutex);
    while (queue->incoming != NULL) {
        struct cddp_work *work = queue->incoming;

        queue->incoming = work->next;
        push(queue, work);
        (*running)++;
    }
    stop = queue->stop;
    atomic_store_explicit(&queue->arrived, stop, memory_order_relaxed);
    pthread_mutex_unlock(&queue->mutex);
    return !stop;
}

/* Nothing to do: spin a little, since the next bucket is often near, then sleep. */
static void idle(struct cddpi_queue *queue)
{
    int64_t until = cddpi_now_ns() + queue->spin_ns;

    while (queue->spin_ns > 0 && !arrived(queue) && cddpi_now_ns() < until) {
        for (int i = 0; i < PAUSES; i++) {
            pause_cpu();
        }
    }
    pthread_mutex_lock(&queue->mutex);
    queue->idle = true;
    while (queue->incoming == NULL && !queue->stop) {
        pthread_cond_wait(&queue->wake, &queue->mutex);
    }
    queue->idle = false;
    pthread_mutex_unlock(&queue->mutex);
}

static void *comm_main(void *argument)
{
    cddp_group *group = argument;
    struct cddpi_queue *queue = &group->queue;
    struct nap nap = {0, 0, false};
    unsigned running = 0; /* once it is 0 the lanes may be the calling thread's */

    for (;;) {
        bool any;

        if (!take_incoming(queue, &running)) {
            return NULL;
        }
        if (running == 0) {
            idle(queue);
            continue;
        }
        any = advance_all(group);
        if (any || queue->running == 0) {
            nap = (struct nap){0, 0, false};
        } else {
            take_nap(group, &nap, INT64_MAX);
        }
        running = settle(queue);
    }
}

static bool wait_for_thread(struct cddpi_queue *queue, struct cddp_work *work, int64_t deadline_ns)
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
            for (int i = 0; i < PAUSES; i++) {
                pause_cpu();
            }
            continue;
        }
        if (done == 2 || atomic_compare_exchange_strong(&work->done, &done, 2)) {
            int64_t left = deadline_ns != 0 ? deadline_ns - now : SLICE_NS;
            struct timespec limit = {left / 1000000000, left % 1000000000};

            syscall(SYS_futex, &work->done, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, &limit, NULL, 0);
        }
    }
}

static bool idle_now(struct cddpi_queue *queue)
{
    return atomic_load_explicit(&queue->pending, memory_order_acquire) == 0;
}

struct cddp_work *cddpi_work_take(cddp_group *group, const struct cddp_work *start)
{
    struct cddp_work *work = group->free_works;

    if (work != NULL) {
        group->free_works = work->next;
    } else {
        work = cddpi_zalloc(sizeof *work);
    }
    if (work == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "rank %d: no memory for a work handle", group->rank);
        return NULL;
    }
    *work = *start;
    work->older = group->newest;
    if (group->newest != NULL) {
        group->newest->newer = work;
    }
    group->newest = work;
    return work;
}

cddp_status cddpi_group_run(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out)
{
    struct cddp_work local = {.op = *op, .group = group};
    struct cddp_work *work = &local;
    cddp_status status;
    bool direct;

    if (atomic_load_explicit(&group->broken, memory_order_acquire)) {
        return cddpi_fail(CDDP_ERR_CLOSED, "%s", group->broken_text);
    }
    status = group->ops->broken(group->backend);
    if (status != CDDP_OK && idle_now(&group->queue)) {
        status = cddpi_watch_reason(group->device, status);
        set_broken(group);
        return status;
    }
    if (out != NULL) {
        work = cddpi_work_take(group, &local);
        if (work == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
    }
    work->op.number = lane_of(op) == 0 ? ++group->collectives : ++group->messages[lane_of(op)];
    work->op.start_ns = cddpi_now_ns();
    work->op.deadline_ns = work->op.start_ns + (int64_t)group->timeout_ms * 1000000;
    direct = out == NULL && idle_now(&group->queue);
    if (direct) {
        atomic_fetch_add_explicit(&group->queue.pending, 1, memory_order_relaxed);
        push(&group->queue, work);
        run_here(group, work, 0);
    } else {
        cddpi_queue_submit(group, work);
        if (out != NULL) {
            *out = work;
            return CDDP_OK;
        }
        (void)cddpi_queue_wait(group, work, 0);
    }
    if (work->status != CDDP_OK) {
        return cddpi_fail(work->status, "%s", group->broken_text);
    }
    return CDDP_OK;
}

void cddpi_queue_submit(cddp_group *group, struct cddp_work *work)
{
    struct cddpi_queue *queue = &group->queue;

    atomic_fetch_add_explicit(&queue->pending, 1, memory_order_relaxed);
    if (!queue->threaded) {
        push(queue, work);
        (void)advance_all(group);
        (void)settle(queue);
        return;
    }
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
    group->ops->ring(group->backend);
}

bool cddpi_queue_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns)
{
    if (atomic_load_explicit(&work->done, memory_order_acquire) != 1) {
        if (group->queue.threaded) {
            return wait_for_thread(&group->queue, work, deadline_ns);
        }
        run_here(group, work, deadline_ns);
    }
    return atomic_load_explicit(&work->done, memory_order_acquire) == 1;
}

void cddpi_group_poll(cddp_group *group)
{
    if (!group->queue.threaded && group->queue.running > 0) {
        (void)advance_all(group);
        (void)settle(&group->queue);
    }
}

cddp_status cddpi_queue_init(cddp_group *group, int cores, int own_cores)
{
    struct cddpi_queue *queue = &group->queue;
    bool crowded = cores < group->local_world_size;
    bool spare = cores >= 2 * group->local_world_size && own_cores >= 2 && group->world_size > 1;

    queue->lane_count = 1 + 2 * (unsigned)group->world_size;
    queue->lanes = cddpi_zalloc_array(queue->lane_count, sizeof *queue->lanes);
    group->messages = cddpi_zalloc_array(queue->lane_count, sizeof *group->messages);
    if (queue->lanes == NULL || group->messages == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "rank %d: no memory for the work queue", group->rank);
    }
    queue->spin_ns = cddpi_env_integer(CDDPI_ENV_SPIN_US, 0, 1000000, crowded ? 0 : SPIN_NS / 1000);
    queue->spin_ns *= 1000;
    queue->yields = crowded ? YIELDS : 0;
    if (cddpi_env_integer(CDDPI_ENV_COMM_THREAD, 0, 1, spare) == 0 || group->world_size == 1) {
        return CDDP_OK;
    }
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->wake, NULL);
    queue->threaded = true;
    if (pthread_create(&queue->thread, NULL, comm_main, group) != 0) {
        queue->threaded = false;
        pthread_mutex_destroy(&queue->mutex);
        pthread_cond_destroy(&queue->wake);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "rank %d: the comm thread did not start",
                          group->rank);
    }
    return CDDP_OK;
}

void cddpi_queue_fini(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;

    if (queue->threaded) {
        pthread_mutex_lock(&queue->mutex);
        queue->stop = true;
        atomic_store_explicit(&queue->arrived, true, memory_order_release);
        pthread_cond_signal(&queue->wake);
        pthread_mutex_unlock(&queue->mutex);
        group->ops->ring(group->backend);
        pthread_join(queue->thread, NULL);
        pthread_mutex_destroy(&queue->mutex);
        pthread_cond_destroy(&queue->wake);
    }
    if (queue->lanes != NULL) {
        fail_all(group);
    }
    cddpi_free(queue->lanes);
    queue->lanes = NULL;
}
