/* remote.c - owns what ranks of several hosts exchange about their calls on devices. A thread with
 * its own group does this, since ranks of other hosts do not see this host's shared memory.
 *
 * For each enqueued operation, all ranks' threads gather its call and compare. If no rank has made
 * another call since, they also wait for each other at the operation's end. So the group's
 * transport detects a rank that dies or is missing while the device works, as in any collective.
 * All threads decide the same, since they decide from the gathered data. */
#include "group/device/group_device.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/engine/group_state.h"

#include <string.h>
#include <time.h>

enum { LOOK_NS = 300000 };

/* An operation whose call must be compared. */
struct remote_job {
    struct remote_job *next;
    struct cddpi_group_op op;
    char title[200];
};

/* What a rank sends to all others about an operation. */
struct told {
    struct cddpi_call call;
    uint32_t is_newest; /* the rank has made no other call since */
};

struct cddpi_remote {
    struct cddpi_group_device *dev;
    cddp_group *group; /* of the same ranks; only the thread uses it */
    struct told *told; /* by rank */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct remote_job *first, *last; /* under the mutex, like the next two */
    bool is_busy;
    bool stop;
    _Atomic bool is_over; /* aborted: the thread ends soon */
};

static const struct cddpi_call *call_in(const void *context, int rank)
{
    const struct told *told = context;

    return &told[rank].call;
}

/* Add the operation to the text of the thread's failure, without repeating the rank's name. */
static cddp_status fail_during(const struct remote_job *job, cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    size_t unnamed = (size_t)failure.unnamed;

    memmove(failure.text, failure.text + unnamed, strlen(failure.text + unnamed) + 1);
    failure.unnamed = 0;
    failure.rank = -1;
    (void)cddpi_fail_again(status, &failure);
    return cddpi_fail_prefix(status, "%s", job->title);
}

static cddp_status compare(struct cddpi_remote *remote, const struct remote_job *job,
                           bool *out_newest)
{
    struct cddpi_group_device *dev = remote->dev;
    int size = dev->group->world_size;
    struct told own;
    char text[CDDPI_FAILURE_BYTES - 200];
    cddp_status status;

    memset(&own, 0, sizeof own);
    own.call = cddpi_call_of(&job->op);
    own.is_newest = atomic_load(&cddpi_own_calls(dev)->called) == job->op.number;
    status = cddp_all_gather(remote->group, &own, remote->told, sizeof own, CDDP_U8, NULL);
    if (status != CDDP_OK) {
        return fail_during(job, status);
    }
    *out_newest = true;
    for (int r = 0; r < size; r++) {
        *out_newest = *out_newest && remote->told[r].is_newest != 0;
        if (!cddpi_call_same(&remote->told[0].call, &remote->told[r].call)) {
            cddpi_call_describe_all(call_in, remote->told, NULL, size, text, sizeof text);
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree at operation #%llu on their devices: %s",
                              (unsigned long long)job->op.number, text);
        }
    }
    atomic_store_explicit(&cddpi_own_calls(dev)->compared, job->op.number, memory_order_release);
    return CDDP_OK;
}

/* Wait until this rank's part of the operation has ended, then until all other ranks' parts
 * have. */
static cddp_status await_end(struct cddpi_remote *remote, const struct remote_job *job)
{
    const struct cddpi_calls *own = cddpi_own_calls(remote->dev);
    const struct cddpi_group_op end = {
        .kind = CDDPI_BARRIER, .number = job->op.number, .call = job->op.number};
    struct timespec pause = {0, LOOK_NS};
    cddp_status status;

    while (atomic_load_explicit(&own->ended, memory_order_acquire) < job->op.number) {
        if (atomic_load(&remote->is_over)) {
            return CDDP_OK;
        }
        status = remote->group->backend->ops->check(remote->group->backend, &end, false);
        if (status != CDDP_OK) { /* another host is gone or has failed */
            return fail_during(job, status);
        }
        nanosleep(&pause, NULL);
    }
    status = cddp_barrier(remote->group, NULL);
    return status == CDDP_OK ? CDDP_OK : fail_during(job, status);
}

static cddp_status do_job(struct cddpi_remote *remote, const struct remote_job *job)
{
    struct cddpi_group_device *dev = remote->dev;
    bool is_newest = false;
    cddp_status status;

    CDDPI_TRY(compare(remote, job, &is_newest));
    if (dev->transport->ops->host_part != NULL) {
        /* the group watches the peers during this call */
        status = dev->transport->ops->host_part(dev->transport, &job->op);
        return status == CDDP_OK ? CDDP_OK : fail_during(job, status);
    }
    return is_newest ? await_end(remote, job) : CDDP_OK;
}

/* Get the next job; NULL: stop. */
static struct remote_job *take_job(struct cddpi_remote *remote)
{
    struct remote_job *job;

    pthread_mutex_lock(&remote->mutex);
    remote->is_busy = false;
    while (remote->first == NULL && !remote->stop) {
        pthread_cond_wait(&remote->wake, &remote->mutex);
    }
    job = atomic_load(&remote->is_over) ? NULL : remote->first;
    if (job != NULL) {
        remote->first = job->next;
        remote->is_busy = true;
    }
    pthread_mutex_unlock(&remote->mutex);
    return job;
}

static void *remote_main(void *argument)
{
    struct cddpi_remote *remote = argument;
    struct remote_job *job;

    while ((job = take_job(remote)) != NULL) {
        cddp_status status = do_job(remote, job);

        cddpi_free(job);
        if (status != CDDP_OK && !atomic_load(&remote->is_over)) {
            atomic_store(&remote->is_over, true);
            (void)cddpi_group_device_fail(remote->dev, status);
        }
        if (atomic_load(&remote->is_over)) {
            break;
        }
    }
    pthread_mutex_lock(&remote->mutex);
    remote->is_busy = false;
    pthread_mutex_unlock(&remote->mutex);
    return NULL;
}

static cddp_status start(struct cddpi_remote *remote)
{
    if (pthread_create(&remote->thread, NULL, remote_main, remote) != 0) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, remote->dev->group->rank,
                               "the thread that compares calls between hosts did not start");
    }
    remote->has_thread = true;
    return CDDP_OK;
}

static cddp_status call(struct cddpi_remote *remote, const struct cddpi_pending *pending)
{
    struct remote_job *job = cddpi_zalloc(sizeof *job);

    if (job == NULL) {
        return cddpi_group_device_fail_call(
            remote->dev,
            cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for what hosts tell each other"));
    }
    job->op = pending->op;
    cddpi_pending_title(pending, job->title, sizeof job->title);
    pthread_mutex_lock(&remote->mutex);
    if (remote->first == NULL) {
        remote->first = job;
    } else {
        remote->last->next = job;
    }
    remote->last = job;
    pthread_cond_signal(&remote->wake);
    pthread_mutex_unlock(&remote->mutex);
    return CDDP_OK;
}

cddp_status cddpi_remote_collective(struct cddpi_remote *remote, const struct cddpi_group_op *op)
{
    return cddpi_group_run(remote->group, op, NULL);
}

static void abort_remote(struct cddpi_remote *remote, const struct cddpi_failure *failure)
{
    struct cddpi_failure copy = *failure;

    atomic_store(&remote->is_over, true);
    cddpi_group_end(remote->group, (cddp_status)copy.status, &copy);
}

static bool has_work(struct cddpi_remote *remote)
{
    bool has_any;

    pthread_mutex_lock(&remote->mutex);
    has_any = remote->is_busy || remote->first != NULL;
    pthread_mutex_unlock(&remote->mutex);
    return has_any;
}

static void stop(struct cddpi_remote *remote, bool finish)
{
    struct timespec pause = {0, LOOK_NS};

    if (!remote->has_thread) {
        return;
    }
    /* the other ranks need this rank's part; the loop ends, since each collective has a deadline */
    while (finish && has_work(remote) && !atomic_load(&remote->is_over)) {
        nanosleep(&pause, NULL);
    }
    if (has_work(remote) && !atomic_load(&remote->is_over)) {
        atomic_store(&remote->is_over, true);
        cddp_group_abort(remote->group, "this rank has left the group while work was under way");
    }
    pthread_mutex_lock(&remote->mutex);
    remote->stop = true;
    pthread_cond_signal(&remote->wake);
    pthread_mutex_unlock(&remote->mutex);
    pthread_join(remote->thread, NULL);
    remote->has_thread = false;
}

static const struct cddpi_remote_ops ops = {start, call, abort_remote, stop};

cddp_status cddpi_remote_create(struct cddpi_group_device *dev, cddp_group *group,
                                struct cddpi_remote **out)
{
    struct cddpi_remote *remote = cddpi_zalloc(sizeof *remote);

    if (remote != NULL) {
        remote->dev = dev;
        remote->group = group;
        remote->told = cddpi_zalloc_array((size_t)group->world_size, sizeof *remote->told);
        pthread_mutex_init(&remote->mutex, NULL);
        pthread_cond_init(&remote->wake, NULL);
    }
    if (remote == NULL || remote->told == NULL) {
        cddpi_remote_destroy(remote);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for what hosts tell each other");
    }
    dev->remote_ops = &ops;
    *out = remote;
    return CDDP_OK;
}

void cddpi_remote_destroy(struct cddpi_remote *remote)
{
    if (remote == NULL) {
        return;
    }
    while (remote->first != NULL) {
        struct remote_job *next = remote->first->next;

        cddpi_free(remote->first);
        remote->first = next;
    }
    pthread_cond_destroy(&remote->wake);
    pthread_mutex_destroy(&remote->mutex);
    cddpi_free(remote->told);
    cddpi_free(remote);
}
