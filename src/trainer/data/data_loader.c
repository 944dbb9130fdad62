/* data_loader.c - owns the memory of the ring of batches. A piece of the ring is a whole
 * micro-batch; its number determines its contents and its slot. */
#include "data/data_loader.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "data/batch.h"
#include "loader/batch_ring.h"

#include <stdio.h>
#include <string.h>

enum { PREFETCH_DEFAULT = 4, MOST_THREADS = 256, MOST_PREFETCH = 4096 };

struct data_loader_slot {
    struct cddpi_micro_batch batch; /* its arrays are the slot's own memory */
    struct cddpi_sample_fault fault;
    struct cddpi_image_scratch scratch;
};

struct cddpi_data_loader {
    struct cddpi_batch_maker maker;
    int max_count;
    bool by_position;
    struct cddpi_device *device;
    struct data_loader_slot *slots;
    uint64_t slot_count;
    atomic_bool stop; /* stop, even in the middle of a batch */
    struct cddpi_micro_batch_schedule schedule;
    bool started;
    uint64_t broken; /* replaced samples among all that next() has returned */
    char first_broken[1024];
    struct cddpi_batch_ring ring;
};

static uint64_t open_batch(void *owner, uint64_t number, uint64_t slot)
{
    (void)owner;
    (void)number;
    (void)slot;
    return 1;
}

static cddp_status make_batch(void *owner, uint64_t number, uint64_t slot_index, uint64_t piece)
{
    struct cddpi_data_loader *loader = owner;
    struct data_loader_slot *slot = &loader->slots[slot_index];
    int64_t begun_ns = cddpi_now_ns();

    (void)piece;
    cddpi_batch_make(&loader->maker, &loader->schedule, number, &loader->stop, &slot->scratch,
                     &slot->batch, &slot->fault);
    slot->batch.begun_ns = begun_ns;
    slot->batch.made_ns = cddpi_now_ns();
    return CDDP_OK; /* next() checks slot->fault after more serious errors */
}

static const struct cddpi_batch_ring_ops ring_ops = {.open = open_batch, .make = make_batch};

/* Allocate the memory of batches; NULL: no memory. */
static void *take_memory(struct cddpi_data_loader *loader, size_t count, size_t sample_bytes)
{
    void *memory = NULL;

    if (sample_bytes > SIZE_MAX / count ||
        loader->device->ops->pin(loader->device, count * sample_bytes, &memory) != CDDP_OK) {
        return NULL;
    }
    return memory;
}

static cddp_status create_slots(struct cddpi_data_loader *loader)
{
    size_t count = (size_t)loader->max_count;
    size_t sample_bytes = loader->maker.sample_elements * sizeof(float); /* or bytes of a token */

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

static cddp_status check_options(const struct cddpi_data_loader_options *options)
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

cddp_status cddpi_data_loader_create(const struct cddpi_data_loader_options *options,
                                     struct cddpi_data_loader **out)
{
    struct cddpi_data_loader *loader;
    cddp_status status;
    int error;

    CDDPI_TRY(check_options(options));
    loader = cddpi_zalloc(sizeof *loader);
    CDDPI_TRY_MEMORY(loader != NULL, "loader: no memory for %zu bytes", sizeof *loader);
    loader->device = cddpi_device_or_cpu(options->device);
    loader->max_count = options->max_count;
    loader->by_position = options->by_position;
    loader->slot_count = 1; /* for the caller's thread */
    if (options->threads > 0) {
        loader->slot_count += options->prefetch > 0 ? (uint64_t)options->prefetch
                                                    : PREFETCH_DEFAULT;
    }
    CDDPI_TRY_GOTO(fail, status, cddpi_batch_maker_init(options, &loader->maker));
    CDDPI_TRY_GOTO(fail, status, create_slots(loader));
    CDDPI_TRY_GOTO(fail, status,
                   cddpi_batch_ring_init(&loader->ring, "loader", &ring_ops, loader,
                                         loader->slot_count, options->threads,
                                         cddpi_env_timeout_ms()));
    error = cddpi_batch_ring_start(&loader->ring, options->threads);
    if (error == 0) {
        *out = loader;
        return CDDP_OK;
    }
    status = cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, error, "loader: starting thread %d of %d",
                              loader->ring.thread_count, options->threads);

fail:
    cddpi_data_loader_destroy(loader);
    return status;
}

void cddpi_data_loader_destroy(struct cddpi_data_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    atomic_store_explicit(&loader->stop, true, memory_order_relaxed);
    cddpi_batch_ring_fini(&loader->ring);
    for (uint64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        struct cddpi_micro_batch *batch = &loader->slots[i].batch;

        loader->device->ops->unpin(loader->device, batch->input);
        loader->device->ops->unpin(loader->device, batch->tokens);
        loader->device->ops->unpin(loader->device, batch->label);
        cddpi_free(batch->sample_ids);
        cddpi_image_scratch_free(&loader->slots[i].scratch);
    }
    cddpi_free(loader->slots);
    cddpi_free(loader);
}

void cddpi_data_loader_cancel(struct cddpi_data_loader *loader)
{
    loader->started = false;
    atomic_store_explicit(&loader->stop, true, memory_order_relaxed);
    cddpi_batch_ring_cancel(&loader->ring); /* waits until the current samples are finished */
    atomic_store_explicit(&loader->stop, false, memory_order_relaxed);
}

cddp_status cddpi_data_loader_start(struct cddpi_data_loader *loader, const cddp_sampler *sampler,
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
                                                  .by_position = loader->by_position,
                                                  .micro_batch_size = (uint64_t)loader->max_count};

    cddpi_data_loader_cancel(loader);
    CDDPI_TRY(cddpi_micro_batch_schedule_plan(&schedule, loader->maker.dataset->count));
    CDDPI_TRY(cddpi_dataset_check(loader->maker.dataset, true));
    loader->schedule = schedule;
    loader->started = true;
    cddpi_batch_ring_begin(&loader->ring, 0, schedule.count);
    return CDDP_OK;
}

cddp_status cddpi_data_loader_next(struct cddpi_data_loader *loader, struct cddpi_micro_batch *out)
{
    int64_t begin = cddpi_now_ns();
    const struct data_loader_slot *slot;
    uint64_t number;

    if (!loader->started) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "loader: the next batch was asked for before start, or after cancel");
    }
    number = loader->ring.taken;
    if (number == loader->schedule.count) {
        *out = (struct cddpi_micro_batch){.waited_ns = cddpi_now_ns() - begin};
        return CDDP_OK;
    }
    /* The deadline is for disks that do not answer: the threads wait for nothing else. */
    CDDPI_TRY(cddpi_batch_ring_await(&loader->ring));
    CDDPI_TRY(cddpi_dataset_check(loader->maker.dataset, false));
    slot = &loader->slots[number % loader->slot_count];
    if (slot->fault.status != CDDP_OK) {
        (void)cddpi_fail(slot->fault.status, "%s", slot->fault.text);
        cddpi_error_number(slot->fault.error_number);
        return slot->fault.status;
    }
    loader->ring.taken++;
    if (loader->broken == 0 && slot->batch.broken > 0) {
        memcpy(loader->first_broken, slot->fault.text, sizeof slot->fault.text);
    }
    loader->broken += (uint64_t)slot->batch.broken;
    *out = slot->batch;
    out->waited_ns = cddpi_now_ns() - begin;
    return CDDP_OK;
}

uint64_t cddpi_data_loader_broken(const struct cddpi_data_loader *loader, char *out,
                                  size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", loader->first_broken);
    return loader->broken;
}
