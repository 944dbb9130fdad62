/* workers.c - owns the threads of a process's devices, which wait between two pieces of work. */
#include "device/parallel.h"

#include "base/alloc.h"
#include "base/error.h"

#include <pthread.h>

struct worker {
    struct cddpi_workers *all;
    int device;
    uint64_t done; /* the last round of work it has finished */
    pthread_t thread;
};

struct cddpi_workers {
    const cddp_devices *devices;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t work, idle;
    cddpi_worker_fn fn;
    void *arg;
    uint64_t round; /* the current round of work, from 1 */
    bool ends;
    int busy;
    int failed; /* the device that failed first in this round; -1: none has failed */
    struct cddpi_failure failure;
    int count; /* the number of threads that were started */
    struct worker list[];
};

static cddp_status bind_thread(int device, void *arg)
{
    const cddp_devices *devices = arg;

    return cddpi_core_bind(&devices->cores[device]);
}

/* Wait for the next round of work. False: the thread must end. */
static bool await_work(struct worker *worker)
{
    struct cddpi_workers *all = worker->all;
    bool ends;

    pthread_mutex_lock(&all->lock);
    while (all->round == worker->done && !all->ends) {
        pthread_cond_wait(&all->work, &all->lock);
    }
    ends = all->ends;
    pthread_mutex_unlock(&all->lock);
    return !ends;
}

static void tell_done(struct worker *worker, cddp_status status)
{
    struct cddpi_workers *all = worker->all;

    pthread_mutex_lock(&all->lock);
    worker->done = all->round;
    if (status != CDDP_OK && all->failed < 0) {
        all->failed = worker->device;
        all->failure = *cddpi_last_failure();
        all->failure.status = status;
    }
    if (--all->busy == 0) {
        pthread_cond_signal(&all->idle);
    }
    pthread_mutex_unlock(&all->lock);
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    while (await_work(worker)) {
        tell_done(worker, worker->all->fn(worker->device, worker->all->arg));
    }
    return NULL;
}

cddp_status cddpi_workers_run(struct cddpi_workers *workers, cddpi_worker_fn fn, void *arg)
{
    cddp_status status;

    pthread_mutex_lock(&workers->lock);
    workers->fn = fn;
    workers->arg = arg;
    workers->failed = -1;
    workers->busy = workers->count;
    workers->round++;
    pthread_cond_broadcast(&workers->work);
    while (workers->busy > 0) {
        pthread_cond_wait(&workers->idle, &workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
    if (workers->failed < 0) {
        return CDDP_OK;
    }
    status = (cddp_status)workers->failure.status;
    (void)cddpi_fail_again(status, &workers->failure);
    return cddpi_fail_prefix(status, "%s", workers->devices->cores[workers->failed].name);
}

cddp_status cddpi_workers_create(const cddp_devices *devices, struct cddpi_workers **out)
{
    struct cddpi_workers *workers = cddpi_zalloc(sizeof *workers +
                                                 (size_t)devices->count * sizeof *workers->list);
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(workers != NULL, "devices: no memory for %d threads", devices->count);
    workers->devices = devices;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->work, NULL);
    pthread_cond_init(&workers->idle, NULL);
    while (status == CDDP_OK && workers->count < devices->count) {
        struct worker *worker = &workers->list[workers->count];
        int error;

        worker->all = workers;
        worker->device = workers->count;
        error = pthread_create(&worker->thread, NULL, work, worker);
        workers->count += error == 0 ? 1 : 0;
        status = error == 0 ? CDDP_OK
                            : cddpi_fail_errno(CDDP_ERR_NO_MEMORY, error, "%s: no thread",
                                               devices->cores[worker->device].name);
    }
    if (status == CDDP_OK) {
        status = cddpi_workers_run(workers, bind_thread, (void *)(uintptr_t)devices);
    }
    if (status != CDDP_OK) {
        cddpi_workers_destroy(workers);
        return status;
    }
    *out = workers;
    return CDDP_OK;
}

void cddpi_workers_destroy(struct cddpi_workers *workers)
{
    if (workers == NULL) {
        return;
    }
    pthread_mutex_lock(&workers->lock);
    workers->ends = true;
    pthread_cond_broadcast(&workers->work);
    pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < workers->count; i++) {
        (void)pthread_join(workers->list[i].thread, NULL);
    }
    pthread_cond_destroy(&workers->idle);
    pthread_cond_destroy(&workers->work);
    pthread_mutex_destroy(&workers->lock);
    cddpi_free(workers);
}
