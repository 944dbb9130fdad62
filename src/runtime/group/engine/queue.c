/* queue.c - runs a group's operations in order: on the comm thread if the rank has a spare core
 * (comm.c); otherwise inside the calls of the thread that owns the group and, between machines,
 * also on a thread that mostly sleeps (also comm.c). */
#include "group/engine/queue.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "group/device/group_device.h"
#include "group/engine/group_call.h"
#include "group/engine/group_state.h"
#include "group/engine/handles.h"
#include "group/watch/dump.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN_NS = 50000, YIELDS = 64 };

static unsigned channel_of(const struct cddpi_group_op *op)
{
    if (op->kind == CDDPI_SEND) {
        return 1 + 2 * (unsigned)op->root;
    }
    return op->kind == CDDPI_RECV ? 2 + 2 * (unsigned)op->root : 0;
}

void cddpi_queue_push(struct cddpi_queue *queue, struct cddp_work *work)
{
    unsigned index = channel_of(&work->op);
    struct cddpi_channel *channel = &queue->channels[index];

    work->next = NULL;
    if (channel->first == NULL) {
        channel->first = work;
    } else {
        channel->last->next = work;
    }
    channel->last = work;
    queue->messages += index != 0;
    queue->running++;
}

/* Remove the first work from its channel and wake its waiters, which may destroy the work at
 * once. */
static void complete_first(cddp_group *group, struct cddpi_channel *channel, cddp_status status)
{
    struct cddpi_queue *queue = &group->queue;
    struct cddp_work *work = channel->first;

    channel->first = work->next;
    queue->messages -= channel != queue->channels;
    queue->running--;
    queue->finished++;
    work->status = status;
    cddpi_recorder_end(&group->recorder, work->op.serial, status);
    if (atomic_exchange_explicit(&work->done, 1, memory_order_acq_rel) == 2) {
        syscall(SYS_futex, &work->done, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
    }
}

unsigned cddpi_queue_count_finished(struct cddpi_queue *queue)
{
    unsigned running = queue->running;
    unsigned finished = queue->finished;

    if (finished > 0) {
        queue->finished = 0;
        atomic_fetch_sub_explicit(&queue->pending, finished, memory_order_release);
    }
    return running;
}

/* Write " (ranks of this part: 0 is the job's 2, 1 is 3)"; nothing for the group of the whole
 * job. */
static void name_ranks(const cddp_group *group, char *out, size_t bytes)
{
    static const char more[] = ", ...)";
    size_t used = 0;

    out[0] = '\0';
    for (int r = 0; group->ranks_of_job != NULL && r < group->world_size; r++) {
        if (used > bytes - 64) {
            memcpy(out + used, more, sizeof more);
            return;
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s%d is %s%d%s",
                                 r == 0 ? " (ranks of this part: " : ", ", r,
                                 r == 0 ? "the job's " : "", group->ranks_of_job[r],
                                 r == group->world_size - 1 ? ")" : "");
    }
}

/* Keep the stored failure as the group's first. For a part of a job, add its ranks' numbers in the
 * job. */
static void set_broken(cddp_group *group)
{
    char ranks[400];

    if (!atomic_load_explicit(&group->broken, memory_order_relaxed)) {
        name_ranks(group, ranks, sizeof ranks);
        (void)cddpi_fail_suffix(cddpi_last_failure()->status, "%s", ranks);
        cddpi_error_fatal();
        group->failure = *cddpi_last_failure();
        atomic_store_explicit(&group->broken, true, memory_order_release);
        cddpi_dump_failure(group, &group->failure);
    }
}

/* End all works with @p status. */
static void fail_all(cddp_group *group, cddp_status status)
{
    struct cddpi_queue *queue = &group->queue;

    for (unsigned i = 0; i < queue->channel_count; i++) {
        while (queue->channels[i].first != NULL) {
            if (group->backend->ops->drop != NULL) {
                group->backend->ops->drop(group->backend, &queue->channels[i].first->op);
            }
            complete_first(group, &queue->channels[i], status);
        }
    }
}

/* End all works, because the first work of @p channel failed with @p status and the thread's error
 * text. */
static void fail_first(cddp_group *group, struct cddpi_channel *channel, cddp_status status)
{
    const struct cddpi_group_op *op = &channel->first->op;
    char operation[CDDPI_FAILURE_OPERATION_BYTES];

    /* unless the failure already names one: from another rank, or an earlier one */
    if (cddpi_last_failure()->operation[0] == '\0') {
        cddpi_op_title(op, operation, sizeof operation);
        cddpi_error_during(operation);
    }
    cddpi_recorder_end(&group->recorder, op->serial, status);
    status = cddpi_group_device_reason(group, cddpi_group_fail_all(group, status));
    set_broken(group);
    if (group->backend->ops->drop != NULL) {
        group->backend->ops->drop(group->backend, &channel->first->op);
    }
    complete_first(group, channel, status);
    fail_all(group, CDDP_ERR_BROKEN);
}

/* Returns whether any work was finished or moved. */
static bool advance_channel(cddp_group *group, struct cddpi_channel *channel)
{
    uint32_t moves = group->backend->moves;
    bool any = false;

    while (channel->first != NULL) {
        struct cddpi_group_op *op = &channel->first->op;
        bool done = false;
        cddp_status status;

        if (!op->started) {
            op->started = true;
            cddpi_recorder_start(&group->recorder, op->serial);
        }
        status = group->backend->ops->advance(group->backend, op, &done);
        if (status != CDDP_OK) {
            fail_first(group, channel, status);
            return true;
        }
        if (!done) {
            return any || group->backend->moves != moves;
        }
        complete_first(group, channel, CDDP_OK);
        any = true;
    }
    return any;
}

bool cddpi_queue_advance(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;
    bool any = advance_channel(group, &queue->channels[0]);

    for (unsigned i = 1; i < queue->channel_count && queue->messages > 0; i++) {
        any = advance_channel(group, &queue->channels[i]) || any;
    }
    if (any) {
        queue->quiet_ns = 0;
    }
    return any;
}

/* Whether to look for ranks that have died: nothing has advanced for a while, in however many waits
 * and polls. */
static bool is_quiet(struct cddpi_queue *queue, int64_t now)
{
    bool is_due = queue->quiet_ns != 0 && now - queue->quiet_ns >= CDDPI_QUEUE_SLICE_NS;

    if (queue->quiet_ns == 0 || is_due) {
        queue->quiet_ns = now;
    }
    return is_due;
}

/* Check every operation in progress; if one cannot be completed, all fail.
 * @param out_until_ns  The earliest deadline. */
static bool check_all(cddp_group *group, int64_t *out_until_ns)
{
    struct cddpi_queue *queue = &group->queue;
    int64_t now = cddpi_now_ns();
    bool thorough = is_quiet(queue, now);

    *out_until_ns = INT64_MAX;
    for (unsigned i = 0; i < queue->channel_count; i++) {
        struct cddpi_channel *channel = &queue->channels[i];
        cddp_status status;

        if (channel->first == NULL) {
            continue;
        }
        status = group->backend->ops->check(group->backend, &channel->first->op, thorough);
        if (status == CDDP_OK && now >= channel->first->op.deadline_ns) {
            status = group->backend->ops->expired(group->backend, &channel->first->op);
        }
        if (status != CDDP_OK) {
            fail_first(group, channel, status);
            return false;
        }
        if (i == 0) {
            cddpi_straggler_look(group, &channel->first->op, now);
        }
        if (channel->first->op.deadline_ns < *out_until_ns) {
            *out_until_ns = channel->first->op.deadline_ns;
        }
    }
    return true;
}

void cddpi_queue_sleep(cddp_group *group, int64_t limit_ns, pthread_mutex_t *mutex)
{
    struct cddpi_queue *queue = &group->queue;
    const struct cddpi_backend_ops *ops = group->backend->ops;
    const struct cddpi_group_op *only = NULL;
    int64_t until;
    uint32_t ticket;

    if (queue->messages == 0 && queue->channels[0].first != NULL) {
        only = &queue->channels[0].first->op;
    }
    ticket = ops->prepare_sleep(group->backend, only);
    if (!cddpi_queue_advance(group) && !cddpi_queue_arrived(queue) && check_all(group, &until) &&
        queue->running > 0) {
        int64_t now = cddpi_now_ns();

        until = until < limit_ns ? until : limit_ns;
        until = until - now < CDDPI_QUEUE_SLICE_NS ? until - now : CDDPI_QUEUE_SLICE_NS;
        if (mutex != NULL) {
            pthread_mutex_unlock(mutex);
        }
        if (until > 0) {
            (void)ops->sleep(group->backend, ticket, until);
        }
        if (mutex != NULL) {
            pthread_mutex_lock(mutex);
        }
    }
    ops->end_sleep(group->backend);
}

void cddpi_queue_back_off(cddp_group *group, struct cddpi_backoff *backoff, int64_t limit_ns)
{
    struct cddpi_queue *queue = &group->queue;
    int64_t now;

    if (backoff->yields < queue->yields) {
        backoff->yields++;
        sched_yield();
        return;
    }
    if (queue->spin_ns > 0) {
        now = cddpi_now_ns();
        if (backoff->spin_until_ns == 0) {
            backoff->spin_until_ns = now + queue->spin_ns;
        }
        if (now < backoff->spin_until_ns) {
            cddpi_queue_pause();
            return;
        }
    }
    cddpi_queue_sleep(group, limit_ns, NULL);
}

void cddpi_queue_run_here(cddp_group *group, struct cddp_work *work, int64_t deadline_ns)
{
    struct cddpi_backoff backoff = {0};
    int64_t limit = deadline_ns != 0 ? deadline_ns : INT64_MAX;

    for (;;) {
        bool any = cddpi_queue_advance(group);

        (void)cddpi_queue_count_finished(&group->queue);
        if (atomic_load_explicit(&work->done, memory_order_acquire) == 1) {
            return;
        }
        if (deadline_ns != 0 && cddpi_now_ns() >= deadline_ns) {
            return;
        }
        if (any) {
            backoff = (struct cddpi_backoff){0};
        } else {
            cddpi_queue_back_off(group, &backoff, limit);
        }
    }
}

static bool idle_now(struct cddpi_queue *queue)
{
    return atomic_load_explicit(&queue->pending, memory_order_acquire) == 0;
}

/* Number @p op, which begins now: for the transport, and by the count of the program's own calls.
 */
static void number_operation(cddp_group *group, struct cddpi_group_op *op)
{
    unsigned channel = channel_of(op);

    if (channel != 0) {
        op->number = op->call = ++group->messages[channel];
        return;
    }
    op->number = ++group->collectives;
    if (group->call_is_of_ddp) {
        return;
    }
    /* a call that consists of several collectives counts once */
    group->calls += !group->call_is_counted;
    group->call_is_counted = true;
    op->call = group->calls;
}

cddp_status cddpi_group_usable(cddp_group *group)
{
    cddp_status status;

    if (atomic_load_explicit(&group->broken, memory_order_acquire)) {
        /* a part of this call may fail before the call has started the others; that failure is its
         * status */
        return cddpi_group_fail_broken(
            group, group->call_found_broken ? CDDP_ERR_BROKEN : (cddp_status)group->failure.status);
    }
    status = group->backend->ops->broken(group->backend);
    if (status != CDDP_OK && idle_now(&group->queue)) {
        status = cddpi_group_device_reason(group, status);
        set_broken(group);
        return cddpi_group_fail_broken(group, status);
    }
    return CDDP_OK;
}

static void submit(cddp_group *group, struct cddp_work *work)
{
    struct cddpi_queue *queue = &group->queue;

    atomic_fetch_add_explicit(&queue->pending, 1, memory_order_relaxed);
    if (queue->shared) {
        cddpi_wire_submit(group, work);
        return;
    }
    if (queue->threaded) {
        cddpi_comm_submit(group, work);
        return;
    }
    cddpi_queue_push(queue, work);
    (void)cddpi_queue_advance(group);
    (void)cddpi_queue_count_finished(queue);
}

cddp_status cddpi_group_run(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out)
{
    struct cddp_work local = {.op = *op, .group = group};
    struct cddp_work *work = &local;
    bool direct;

    CDDPI_TRY(cddpi_group_usable(group));
    if (out != NULL) {
        work = cddpi_work_take(group, &local);
        if (work == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
    }
    number_operation(group, &work->op);
    work->op.unattended = out != NULL && !group->queue.threaded;
    work->op.start_ns = cddpi_now_ns();
    work->op.deadline_ns = work->op.start_ns + (int64_t)group->timeout_ms * 1000000;
    direct = out == NULL && idle_now(&group->queue);
    work->op.started = direct;
    cddpi_recorder_begin(&group->recorder, &work->op, false);
    if (direct) {
        atomic_fetch_add_explicit(&group->queue.pending, 1, memory_order_relaxed);
        if (group->queue.shared) {
            cddpi_wire_run(group, work);
        } else {
            cddpi_queue_push(&group->queue, work);
            cddpi_queue_run_here(group, work, 0);
        }
    } else {
        submit(group, work);
        if (out != NULL) {
            *out = work;
            return CDDP_OK;
        }
        (void)cddpi_queue_wait(group, work, 0);
    }
    return work->status == CDDP_OK ? CDDP_OK : cddpi_group_fail_broken(group, work->status);
}

bool cddpi_queue_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns)
{
    if (atomic_load_explicit(&work->done, memory_order_acquire) != 1) {
        if (group->queue.threaded) {
            return cddpi_comm_wait(&group->queue, work, deadline_ns);
        }
        if (group->queue.shared) {
            cddpi_wire_wait(group, work, deadline_ns);
        } else {
            cddpi_queue_run_here(group, work, deadline_ns);
        }
    }
    return atomic_load_explicit(&work->done, memory_order_acquire) == 1;
}

void cddpi_group_poll(cddp_group *group)
{
    if (!group->queue.threaded && !group->queue.shared && group->queue.running > 0) {
        int64_t until;

        if (!cddpi_queue_advance(group)) {
            (void)check_all(group, &until); /* who only polls hears of failures, too */
        }
        (void)cddpi_queue_count_finished(&group->queue);
    }
}

static cddp_status start_thread(cddp_group *group, void *(*run)(void *))
{
    struct cddpi_queue *queue = &group->queue;

    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->wake, NULL);
    pthread_cond_init(&queue->parked, NULL);
    if (pthread_create(&queue->thread, NULL, run, group) != 0) {
        queue->threaded = queue->shared = false;
        pthread_mutex_destroy(&queue->mutex);
        pthread_cond_destroy(&queue->wake);
        pthread_cond_destroy(&queue->parked);
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "the comm thread did not start");
    }
    return CDDP_OK;
}

cddp_status cddpi_queue_init(cddp_group *group, const struct cddpi_cores *cores)
{
    struct cddpi_queue *queue = &group->queue;
    bool crowded = cores->all < cores->ranks;
    bool spare = cores->all >= 2 * cores->ranks && cores->own >= 2 && group->world_size > 1;

    queue->channel_count = 1 + 2 * (unsigned)group->world_size;
    queue->channels = cddpi_zalloc_array(queue->channel_count, sizeof *queue->channels);
    group->messages = cddpi_zalloc_array(queue->channel_count, sizeof *group->messages);
    if (queue->channels == NULL || group->messages == NULL) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "no memory for the work queue");
    }
    cddpi_straggler_init(&group->straggler);
    queue->spin_ns = cddpi_env_integer(CDDPI_ENV_SPIN_US, 0, 1000000, crowded ? 0 : SPIN_NS / 1000);
    queue->spin_ns *= 1000;
    queue->yields = crowded ? YIELDS : 0;
    if (group->world_size > 1 && cddpi_env(CDDPI_ENV_COMM_THREAD) == NULL && !spare &&
        group->backend->ops->has_wire != NULL && group->backend->ops->has_wire(group->backend)) {
        queue->shared = true;
        queue->idle = true;
        return start_thread(group, cddpi_wire_main);
    }
    if (cddpi_env_integer(CDDPI_ENV_COMM_THREAD, 0, 1, spare) == 0 || group->world_size == 1) {
        return CDDP_OK;
    }
    queue->threaded = true;
    return start_thread(group, cddpi_comm_main);
}

void cddpi_queue_fini(cddp_group *group)
{
    struct cddpi_queue *queue = &group->queue;

    if (queue->threaded || queue->shared) {
        pthread_mutex_lock(&queue->mutex);
        queue->stop = true;
        atomic_store_explicit(&queue->arrived, true, memory_order_release);
        pthread_cond_signal(&queue->wake);
        pthread_mutex_unlock(&queue->mutex);
        group->backend->ops->wake(group->backend);
        pthread_join(queue->thread, NULL);
        pthread_mutex_destroy(&queue->mutex);
        pthread_cond_destroy(&queue->wake);
        pthread_cond_destroy(&queue->parked);
    }
    if (queue->channels != NULL) {
        fail_all(group, CDDP_ERR_CLOSED);
    }
    cddpi_free(queue->channels);
    queue->channels = NULL;
}
