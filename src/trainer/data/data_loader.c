/* data_loader.c - owns the loader's threads and its ring of batches. A batch's number says what it
 * holds and where it lies, so threads only have to agree on who makes which: they take numbers in
 * order, and the caller gets the batches in order, whichever is finished first. */
#include "data/data_loader.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "data/batch.h"
#include "data/micro_batch_schedule.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PREFETCH_DEFAULT = 4, MOST_THREADS = 256, MOST_PREFETCH = 4096 };

struct data_loader_slot {
    struct cddpi_micro_batch batch; /* in memory of the slot's own */
    struct cddpi_sample_fault fault;
    struct cddpi_image_scratch scratch;
    uint64_t made; /* number of the batch it holds, plus 1; 0: none */
};

struct cddpi_loader {
    struct cddpi_batch_maker maker;
    int max_count;
    uint32_t timeout_ms;
    struct cddpi_device *device;
    struct data_loader_slot *slots;
    uint64_t slot_count;
    pthread_t *threads;
    int thread_count;  /* that run */
    atomic_bool stop;  /* leave batches unfinished; written under the mutex */
    bool synchronised; /* the three below are initialised */
    pthread_mutex_t mutex;
    pthread_cond_t work; /* threads: there may be a batch to make */
    pthread_cond_t done; /* caller: a batch was made, or a thread fell idle */
    /* under the mutex */
    struct cddpi_micro_batch_schedule schedule; /* count == 0: nothing to do */
    bool started;
    bool closing;
    int busy;          /* threads that make a batch */
    uint64_t next;     /* the batch that the next free thread makes */
    uint64_t returned; /* batches given to the caller; the last of them is in use */
    uint64_t broken;   /* samples of those ever given that were replaced */
    char first_broken[1024];
};

static uint64_t released(const struct cddpi_loader *loader)
{
    return loader->returned > 0 ? loader->returned - 1 : 0;
}

/* A thread may begin as long as the batch's slot is not the caller's or still to be taken. */
static bool can_begin(const struct cddpi_loader *loader)
{
    return loader->next < loader->schedule.count &&
           loader->next - released(loader) < loader->slot_count;
}

static void make_batch(struct cddpi_loader *loader,
                       const struct cddpi_micro_batch_schedule *schedule, uint64_t number)
{
    struct data_loader_slot *slot = &loader->slots[number % loader->slot_count];
    int64_t begun_ns = cddpi_now_ns();

    cddpi_batch_make(&loader->maker, schedule, number, &loader->stop, &slot->scratch, &slot->batch,
                     &slot->fault);
    slot->batch.begun_ns = begun_ns;
    slot->batch.made_ns = cddpi_now_ns();
}

static void *run_thread(void *argument)
{
    struct cddpi_loader *loader = argument;

    pthread_mutex_lock(&loader->mutex);
    while (!loader->closing) {
        struct cddpi_micro_batch_schedule schedule = loader->schedule;
        uint64_t number = loader->next;

        if (!can_begin(loader)) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        loader->next++;
        loader->busy++;
        pthread_mutex_unlock(&loader->mutex);
        make_batch(loader, &schedule, number);
        pthread_mutex_lock(&loader->mutex);
        loader->busy--;
        loader->slots[number % loader->slot_count].made = number + 1;
        pthread_cond_signal(&loader->done); /* only the caller waits for it */
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

static cddp_status start_threads(struct cddpi_loader *loader, int count)
{
    sigset_t all, before;
    int error = 0;

    loader->threads = cddpi_zalloc_array((size_t)count, sizeof *loader->threads);
    if (loader->threads == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader: no memory for %d threads", count);
    }
    sigfillset(&all); /* signals are for the thread that trains, but for what a read may cause */
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && loader->thread_count < count) {
        error = pthread_create(&loader->threads[loader->thread_count], NULL, run_thread, loader);
        if (error == 0) {
            char name[16];

            snprintf(name, sizeof name, "cddp-load-%d", loader->thread_count);
            (void)pthread_setname_np(loader->threads[loader->thread_count], name);
            loader->thread_count++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, error, "loader: starting thread %d of %d",
                                loader->thread_count, count);
    }
    return CDDP_OK;
}

static cddp_status synchronise(struct cddpi_loader *loader)
{
    pthread_condattr_t monotonic;
    int error = pthread_mutex_init(&loader->mutex, NULL);

    if (error != 0) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, error, "loader: making a mutex");
    }
    pthread_condattr_init(&monotonic); /* this one and those below cannot fail with glibc or musl */
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    loader->synchronised = true;
    return CDDP_OK;
}

/* Memory that batches lie in; NULL: there is none. */
static void *take_memory(struct cddpi_loader *loader, size_t count, size_t sample_bytes)
{
    void *memory = NULL;

    if (sample_bytes > SIZE_MAX / count ||
        loader->device->ops->pin(loader->device, count * sample_bytes, &memory) != CDDP_OK) {
        return NULL;
    }
    return memory;
}

static cddp_status create_slots(struct cddpi_loader *loader)
{
    size_t count = (size_t)loader->max_count;
    size_t sample_bytes = loader->maker.sample_elements * sizeof(float); /* or of a token */

    loader->slots = cddpi_zalloc_array(loader->slot_count, sizeof *loader->slots);
    for (uint64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        struct cddpi_micro_batch *batch = &loader->slots[i].batch;
        void *input = take_memory(loader, count, sample_bytes);

        if (loader->maker.dataset->kind == CDDPI_DATASET_TOKENS) {
            batch->tokens = input;
        } else {
            batch->input = input;
        }
        batch->label = take_memory(loader, count,
                                   loader->maker.sample_labels * sizeof *batch->label);
        batch->sample_ids = cddpi_zalloc_array(count, sizeof *batch->sample_ids);
        if (input == NULL || batch->label == NULL || batch->sample_ids == NULL) {
            break;
        }
        if (i + 1 == loader->slot_count) {
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_NO_MEMORY,
                      "loader: no memory for %llu batches of %zu samples of %zu bytes",
                      (unsigned long long)loader->slot_count, count, sample_bytes);
}

static cddp_status check_options(const struct cddpi_loader_options *options)
{
    if (options->dataset == NULL || options->dataset->count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader: there is no dataset, or it is empty");
    }
    if (options->dataset->kind == CDDPI_DATASET_TOKENS && options->dataset->context < 1) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader: the context is %d, but a token sequence needs 1 token at least",
                          options->dataset->context);
    }
    if (options->max_count < 1 || options->threads < 0 || options->threads > MOST_THREADS ||
        options->prefetch < 0 || options->prefetch > MOST_PREFETCH) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "loader: max_count is %d (at least 1), threads %d (0 to %d) and prefetch %d (0 to %d)",
            options->max_count, options->threads, MOST_THREADS, options->prefetch, MOST_PREFETCH);
    }
    return CDDP_OK;
}

cddp_status cddpi_loader_create(const struct cddpi_loader_options *options,
                                struct cddpi_loader **out)
{
    struct cddpi_loader *loader;
    cddp_status status = check_options(options);

    if (status != CDDP_OK) {
        return status;
    }
    loader = cddpi_zalloc(sizeof *loader);
    if (loader == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader: no memory for %zu bytes", sizeof *loader);
    }
    loader->device = cddpi_device_or_cpu(options->device);
    loader->max_count = options->max_count;
    loader->timeout_ms = cddpi_env_timeout_ms();
    loader->slot_count = 1; /* the caller's */
    if (options->threads > 0) {
        loader->slot_count += options->prefetch > 0 ? (uint64_t)options->prefetch
                                                    : PREFETCH_DEFAULT;
    }
    status = cddpi_batch_maker_init(options, &loader->maker);
    if (status == CDDP_OK) {
        status = create_slots(loader);
    }
    if (status == CDDP_OK) {
        status = synchronise(loader);
    }
    if (status == CDDP_OK && options->threads > 0) {
        status = start_threads(loader, options->threads);
    }
    if (status != CDDP_OK) {
        cddpi_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return CDDP_OK;
}

static void end_threads(struct cddpi_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->closing = true;
    atomic_store_explicit(&loader->stop, true, memory_order_relaxed);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->thread_count; i++) {
        pthread_join(loader->threads[i], NULL);
    }
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->mutex);
}

void cddpi_loader_destroy(struct cddpi_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    if (loader->synchronised) {
        end_threads(loader);
    }
    for (uint64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        struct cddpi_micro_batch *batch = &loader->slots[i].batch;

        loader->device->ops->unpin(loader->device, batch->input);
        loader->device->ops->unpin(loader->device, batch->tokens);
        loader->device->ops->unpin(loader->device, batch->label);
        cddpi_free(batch->sample_ids);
        cddpi_image_scratch_free(&loader->slots[i].scratch);
    }
    cddpi_free(loader->slots);
    cddpi_free(loader->threads);
    cddpi_free(loader);
}

void cddpi_loader_cancel(struct cddpi_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->schedule.count = 0;
    loader->started = false;
    atomic_store_explicit(&loader->stop, true, memory_order_relaxed);
    while (loader->busy > 0) { /* for the rest of one sample */
        pthread_cond_wait(&loader->done, &loader->mutex);
    }
    atomic_store_explicit(&loader->stop, false, memory_order_relaxed);
    for (uint64_t i = 0; i < loader->slot_count; i++) {
        loader->slots[i].made = 0;
    }
    loader->next = 0;
    loader->returned = 0;
    pthread_mutex_unlock(&loader->mutex);
}

cddp_status cddpi_loader_start(struct cddpi_loader *loader, const cddp_sampler *sampler,
                               uint64_t epoch, uint64_t first, uint64_t end, uint64_t batch,
                               int rank, int world_size, bool augment)
{
    struct cddpi_micro_batch_schedule schedule = {.sampler = sampler,
                                                  .epoch = epoch,
                                                  .first = first,
                                                  .end = end,
                                                  .batch = batch,
                                                  .rank = rank,
                                                  .world_size = world_size,
                                                  .augment = augment,
                                                  .micro_batch_size = (uint64_t)loader->max_count};
    cddp_status status;

    cddpi_loader_cancel(loader);
    status = cddpi_micro_batch_schedule_plan(&schedule, loader->maker.dataset->count);
    if (status == CDDP_OK) {
        status = cddpi_dataset_check(loader->maker.dataset, true);
    }
    if (status != CDDP_OK) {
        return status;
    }
    pthread_mutex_lock(&loader->mutex);
    loader->schedule = schedule;
    loader->started = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    return CDDP_OK;
}

/* With the mutex held. The deadline is for disks that do not answer, the only thing that threads
 * wait for. */
static cddp_status wait_for_batch(struct cddpi_loader *loader, uint64_t number)
{
    const struct data_loader_slot *slot = &loader->slots[number % loader->slot_count];
    int64_t deadline = cddpi_deadline_ns(loader->timeout_ms);
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};

    while (slot->made != number + 1) {
        if (pthread_cond_timedwait(&loader->done, &loader->mutex, &until) == ETIMEDOUT &&
            slot->made != number + 1) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "loader: batch %llu was not read within %u ms",
                              (unsigned long long)number, loader->timeout_ms);
        }
    }
    return CDDP_OK;
}

/* With the mutex held: release the last batch and get the next. */
static cddp_status take(struct cddpi_loader *loader, struct cddpi_micro_batch *out)
{
    uint64_t number = loader->returned;
    const struct data_loader_slot *slot = &loader->slots[number % loader->slot_count];
    cddp_status status = CDDP_OK;

    if (loader->thread_count == 0) {
        make_batch(loader, &loader->schedule, number);
    } else {
        status = wait_for_batch(loader, number);
    }
    if (status == CDDP_OK) {
        status = cddpi_dataset_check(loader->maker.dataset, false);
    }
    if (status == CDDP_OK && slot->fault.status != CDDP_OK) {
        status = cddpi_fail(slot->fault.status, "%s", slot->fault.text);
    }
    if (status != CDDP_OK) {
        return status;
    }
    loader->returned = number + 1;
    if (loader->broken == 0 && slot->batch.broken > 0) {
        memcpy(loader->first_broken, slot->fault.text, sizeof slot->fault.text);
    }
    loader->broken += (uint64_t)slot->batch.broken;
    pthread_cond_signal(&loader->work); /* the slot before has become free */
    *out = slot->batch;
    return CDDP_OK;
}

cddp_status cddpi_loader_next(struct cddpi_loader *loader, struct cddpi_micro_batch *out)
{
    struct cddpi_micro_batch batch = {0};
    int64_t begin = cddpi_now_ns();
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&loader->mutex);
    if (!loader->started) {
        status = cddpi_fail(CDDP_ERR_STATE,
                            "loader: the next batch was asked for before start, or after cancel");
    } else if (loader->returned < loader->schedule.count) {
        status = take(loader, &batch);
    }
    pthread_mutex_unlock(&loader->mutex);
    if (status != CDDP_OK) {
        return status;
    }
    batch.waited_ns = cddpi_now_ns() - begin;
    *out = batch;
    return CDDP_OK;
}

uint64_t cddpi_loader_broken(struct cddpi_loader *loader, char *out, size_t out_bytes)
{
    uint64_t broken;

    pthread_mutex_lock(&loader->mutex);
    broken = loader->broken;
    snprintf(out, out_bytes, "%s", loader->first_broken);
    pthread_mutex_unlock(&loader->mutex);
    return broken;
}
