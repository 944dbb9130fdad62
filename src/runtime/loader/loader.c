/* loader.c - owns a loader's life, the beginning of epochs, and the batches that its caller gets.
 */
#include "loader/loader.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/struct_size.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/on_device.h"

#include <signal.h>
#include <string.h>

enum { THREADS = 2, AHEAD = 2, MOST_THREADS = 1024, MOST_AHEAD = 4096 };

cddp_share cddpi_loader_positions(const cddp_loader *loader, uint64_t number)
{
    uint64_t first = number * loader->options.batch_size;
    uint64_t left = loader->options.samples - first;
    uint64_t count = left < loader->options.batch_size ? left : loader->options.batch_size;

    return (cddp_share){first, count};
}

cddp_share cddpi_loader_share(const cddp_loader *loader, uint64_t number)
{
    cddp_share all = cddpi_loader_positions(loader, number);

    return cddp_share_of(all.first, all.count, loader->rank, loader->world_size);
}

static cddp_status read_options(const cddp_loader_options *options, cddp_loader_options *out)
{
    cddp_loader_options read = CDDP_LOADER_OPTIONS_INIT;
    cddp_status status;

    if (options == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: options is NULL");
    }
    status = cddpi_struct_read("loader options", "CDDP_LOADER_OPTIONS_INIT", options, sizeof read,
                               sizeof read.struct_size, &read);
    if (status != CDDP_OK) {
        return status;
    }
    if (read.samples == 0 || read.sample_bytes == 0 || read.batch_size == 0 || read.load == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: %s",
                          read.load == NULL        ? "load is NULL"
                          : read.samples == 0      ? "there are no samples"
                          : read.sample_bytes == 0 ? "samples have 0 bytes"
                                                   : "batch_size is 0");
    }
    if (read.threads < 0 || read.threads > MOST_THREADS || read.ahead < 0 ||
        read.ahead > MOST_AHEAD) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader_create: %d threads (at most %d), %d batches ahead (at most %d)",
                          read.threads, MOST_THREADS, read.ahead, MOST_AHEAD);
    }
    read.threads = read.threads > 0 ? read.threads : THREADS;
    read.ahead = read.ahead > 0 ? read.ahead : AHEAD;
    *out = read;
    return CDDP_OK;
}

/* One slot more than are made ahead: the caller has the last one. */
static cddp_status make_slots(cddp_loader *loader)
{
    const cddp_loader_options *options = &loader->options;
    uint64_t most = options->batch_size < options->samples ? options->batch_size : options->samples;
    size_t bytes;

    loader->capacity = (most + (uint64_t)loader->world_size - 1) / (uint64_t)loader->world_size;
    loader->slot_count = (uint64_t)options->ahead + 1;
    loader->slots = cddpi_zalloc_array(loader->slot_count, sizeof *loader->slots);
    if (loader->slots == NULL ||
        __builtin_mul_overflow(loader->capacity, options->sample_bytes, &bytes)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory for %llu batches",
                          (unsigned long long)loader->slot_count);
    }
    for (uint64_t s = 0; s < loader->slot_count; s++) {
        struct cddpi_loader_slot *slot = &loader->slots[s];
        void *memory = NULL;
        cddp_status status = loader->device->ops->pin(loader->device, bytes, &memory);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "loader_create: a batch of %zu bytes", bytes);
        }
        slot->data = memory;
        slot->indices = cddpi_zalloc_array(loader->capacity, sizeof *slot->indices);
        if (slot->indices == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory for %llu indices",
                              (unsigned long long)loader->capacity);
        }
    }
    return CDDP_OK;
}

/* Signals are the program's: its own threads handle them. */
static cddp_status start_threads(cddp_loader *loader)
{
    sigset_t all;
    sigset_t before;

    loader->threads = cddpi_zalloc_array((size_t)loader->options.threads, sizeof *loader->threads);
    if (loader->threads == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory for threads");
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    loader->alive = loader->options.threads;
    while (loader->thread_count < loader->options.threads &&
           pthread_create(&loader->threads[loader->thread_count], NULL, cddpi_loader_main,
                          loader) == 0) {
        loader->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return loader->thread_count == loader->options.threads
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: thread %d of %d did not start",
                            loader->thread_count, loader->options.threads);
}

static void stop_threads(cddp_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int t = 0; t < loader->thread_count; t++) {
        pthread_join(loader->threads[t], NULL);
    }
}

static void release(cddp_loader *loader)
{
    for (uint64_t s = 0; loader->slots != NULL && s < loader->slot_count; s++) {
        loader->device->ops->unpin(loader->device, loader->slots[s].data);
        cddpi_free(loader->slots[s].indices);
    }
    cddpi_free(loader->slots);
    cddpi_free(loader->threads);
    cddp_sampler_destroy(loader->sampler);
    pthread_mutex_destroy(&loader->mutex);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->made);
    if (loader->group != NULL) {
        cddpi_group_unref(loader->group);
    }
    cddpi_handle_release(&loader->handle, sizeof *loader);
}

static void take_group(cddp_loader *loader, cddp_group *group)
{
    loader->device = cddpi_device_cpu();
    loader->world_size = 1;
    if (group != NULL) {
        loader->group = group;
        cddpi_group_ref(group);
        loader->device = cddpi_group_on_device(group);
        loader->rank = cddp_group_rank(group);
        loader->world_size = cddp_group_world_size(group);
    }
}

cddp_status cddp_loader_create(const cddp_loader_options *options, cddp_loader **out)
{
    cddp_loader_options read = CDDP_LOADER_OPTIONS_INIT;
    cddp_loader *loader;
    cddp_status status = out != NULL ? read_options(options, &read)
                                     : cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: out is NULL");

    if (status == CDDP_OK && read.group != NULL) {
        status = cddpi_group_enter(read.group, "loader_create");
        status = status == CDDP_OK ? cddpi_group_leave(read.group, CDDP_OK) : status;
    }
    if (status != CDDP_OK) {
        return status;
    }
    loader = cddpi_zalloc(sizeof *loader);
    if (loader == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory");
    }
    cddpi_handle_init(&loader->handle, CDDPI_HANDLE_LOADER);
    loader->options = read;
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->made, NULL);
    take_group(loader, read.group);
    loader->batches = read.samples / read.batch_size +
                      (read.drop_last == 0 && read.samples % read.batch_size != 0);
    status = cddp_sampler_create(read.order, read.samples, read.seed, &loader->sampler);
    if (status == CDDP_OK) {
        status = make_slots(loader);
    }
    if (status == CDDP_OK) {
        status = start_threads(loader);
    }
    if (status != CDDP_OK) {
        struct cddpi_failure failure = *cddpi_last_failure();

        stop_threads(loader);
        release(loader);
        return cddpi_fail_again(status, &failure);
    }
    *out = loader;
    return CDDP_OK;
}

void cddp_loader_destroy(cddp_loader *loader)
{
    if (loader != NULL && cddpi_loader_is_maker(loader)) {
        cddpi_log(CDDPI_LOG_WARN,
                  "loader_destroy: a function that makes samples cannot destroy its "
                  "loader; nothing was done");
        return;
    }
    if (loader == NULL ||
        !cddpi_handle_enter_last(&loader->handle, CDDPI_HANDLE_LOADER, "loader_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(&loader->handle)) {
        cddpi_handle_end(&loader->handle); /* a fork has none of its threads */
        return;
    }
    stop_threads(loader);
    release(loader);
}

static cddp_status no_threads(const cddp_loader *loader)
{
    return cddpi_fail(CDDP_ERR_STATE,
                      "loader: the function that makes samples has ended all %d threads by "
                      "pthread_exit(): it has to return",
                      loader->options.threads);
}

static cddp_status begin(cddp_loader *loader, uint64_t epoch, uint64_t batch)
{
    cddp_status status;

    if (batch > loader->batches) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_begin: batch %llu of %llu",
                          (unsigned long long)batch, (unsigned long long)loader->batches);
    }
    if (cddpi_loader_is_maker(loader)) {
        return cddpi_fail(CDDP_ERR_STATE, "loader_begin: the function that makes samples calls it");
    }
    pthread_mutex_lock(&loader->mutex);
    if (loader->alive == 0) {
        pthread_mutex_unlock(&loader->mutex);
        return no_threads(loader);
    }
    loader->begun = false;
    while (loader->busy > 0) { /* they read the order */
        pthread_cond_wait(&loader->made, &loader->mutex);
    }
    status = cddp_sampler_set_epoch(loader->sampler, epoch);
    loader->epoch = epoch;
    loader->first = loader->taken = loader->next_batch = batch;
    loader->next_sample = 0;
    loader->begun = status == CDDP_OK;
    cddpi_loader_open_batch(loader);
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

cddp_status cddp_loader_begin(cddp_loader *loader, uint64_t epoch, uint64_t batch)
{
    cddp_status status = cddpi_handle_enter((struct cddpi_handle *)loader, CDDPI_HANDLE_LOADER,
                                            "loader_begin");

    return status == CDDP_OK ? cddpi_handle_leave(&loader->handle, begin(loader, epoch, batch))
                             : status;
}

/* With the mutex: whether all samples of this rank's share of batch @p number are made. */
static bool is_whole(const cddp_loader *loader, uint64_t number)
{
    const struct cddpi_loader_slot *slot = &loader->slots[number % loader->slot_count];

    return loader->next_batch >= number && slot->missing == 0 &&
           (loader->next_batch > number || loader->next_sample >= slot->share.count);
}

/* With the mutex: give the batch before back, and wait for the next, or until nobody makes it. */
static struct cddpi_loader_slot *await(cddp_loader *loader)
{
    uint64_t number = loader->taken++;
    struct cddpi_loader_slot *slot = &loader->slots[number % loader->slot_count];

    cddpi_loader_open_batch(loader);
    while (!is_whole(loader, number) && loader->alive > 0) {
        pthread_cond_wait(&loader->made, &loader->mutex);
    }
    return slot;
}

static cddp_status next(cddp_loader *loader, cddp_batch *out)
{
    cddp_batch batch = CDDP_BATCH_INIT;
    const struct cddpi_loader_slot *slot;
    /* before a batch is taken: is there room for it */
    cddp_status status = cddpi_struct_fill("batch", "CDDP_BATCH_INIT", &batch, sizeof batch, out);

    if (status != CDDP_OK) {
        return status;
    }
    if (cddpi_loader_is_maker(loader)) {
        return cddpi_fail(CDDP_ERR_STATE, "loader_next: the function that makes samples calls it");
    }
    pthread_mutex_lock(&loader->mutex);
    if (!loader->begun) {
        pthread_mutex_unlock(&loader->mutex);
        return cddpi_fail(CDDP_ERR_STATE, "loader_next: no epoch was begun, or it failed");
    }
    batch.number = loader->taken;
    batch.end = loader->taken == loader->batches;
    if (!batch.end) {
        slot = await(loader);
        batch.data = slot->data;
        batch.indices = slot->indices;
        batch.count = slot->share.count;
        batch.total = cddpi_loader_positions(loader, batch.number).count;
        if (slot->failed_at != UINT64_MAX) {
            status = cddpi_fail_again((cddp_status)slot->failure.status, &slot->failure);
            loader->begun = false;
        } else if (!is_whole(loader, batch.number)) {
            status = no_threads(loader);
            loader->begun = false;
        }
    }
    pthread_mutex_unlock(&loader->mutex);
    return status == CDDP_OK
               ? cddpi_struct_fill("batch", "CDDP_BATCH_INIT", &batch, sizeof batch, out)
               : status;
}

cddp_status cddp_loader_next(cddp_loader *loader, cddp_batch *out)
{
    cddp_status status = cddpi_handle_enter((struct cddpi_handle *)loader, CDDPI_HANDLE_LOADER,
                                            "loader_next");

    return status == CDDP_OK ? cddpi_handle_leave(&loader->handle, next(loader, out)) : status;
}

uint64_t cddp_loader_batches(const cddp_loader *loader)
{
    return cddpi_handle_check_life((const struct cddpi_handle *)loader, CDDPI_HANDLE_LOADER,
                                   "loader_batches") == CDDP_OK
               ? loader->batches
               : 0;
}
