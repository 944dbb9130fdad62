/* prefetcher.c - owns the device memory of batches, and the order of copies and uses. */
#include "train/device/prefetcher.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"

#include <string.h>

enum { SLOTS = 2 };

/* The memory of one batch. */
struct prefetcher_slot {
    void *input; /* or tokens */
    int32_t *label;
    uint32_t *draws;            /* NULL: the model draws none */
    uint32_t *made_draws;       /* pinned: the source of draws */
    uint64_t *sample_ids;       /* in host memory */
    struct cddpi_event *copied; /* the batch has arrived */
    struct cddpi_event *used;   /* the compute stream has read the batch */
    struct cddpi_micro_batch batch;
};

struct cddpi_prefetcher {
    struct cddpi_data_loader *loader;
    struct cddpi_model *model;
    struct cddpi_device *device;
    uint32_t timeout_ms;
    size_t input_bytes, labels; /* per sample */
    uint64_t step;              /* of the loader's next batch */
    struct prefetcher_slot slots[SLOTS];
    unsigned fetched, taken; /* batches: number of copies started, and of batches returned */
    bool ended;              /* the loader has no more */
};

static cddp_status allocate_on_device(struct cddpi_prefetcher *prefetcher, size_t bytes,
                                      const char *what, void **out)
{
    return prefetcher->device->ops->alloc(prefetcher->device, bytes, what, out);
}

static cddp_status make_draws(struct cddpi_prefetcher *prefetcher, int max_count,
                              struct prefetcher_slot *slot)
{
    size_t bytes = cddpi_model_draw_words(prefetcher->model, max_count) * sizeof *slot->draws;
    void *memory = NULL;

    if (bytes == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(allocate_on_device(prefetcher, bytes, "a batch's random numbers", &memory));
    slot->draws = memory;
    CDDPI_TRY(prefetcher->device->ops->pin(prefetcher->device, bytes, &memory));
    slot->made_draws = memory;
    return CDDP_OK;
}

static cddp_status make_slot(struct cddpi_prefetcher *prefetcher, int max_count,
                             struct prefetcher_slot *slot)
{
    const struct cddpi_device_ops *ops = prefetcher->device->ops;
    size_t count = (size_t)max_count;
    void *memory = NULL;

    CDDPI_TRY(allocate_on_device(prefetcher, count * prefetcher->input_bytes, "a batch's input",
                                 &memory));
    slot->input = memory;
    CDDPI_TRY(allocate_on_device(prefetcher, count * prefetcher->labels * sizeof *slot->label,
                                 "a batch's labels", &memory));
    slot->label = memory;
    CDDPI_TRY(make_draws(prefetcher, max_count, slot));
    CDDPI_TRY(ops->event_create(prefetcher->device, false, &slot->copied));
    CDDPI_TRY(ops->event_create(prefetcher->device, false, &slot->used));
    /* The copy stream must wait for the allocation. */
    CDDPI_TRY(ops->record(prefetcher->device, slot->used, CDDPI_STREAM_COMPUTE));
    slot->sample_ids = cddpi_zalloc_array(count, sizeof *slot->sample_ids);
    return slot->sample_ids != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "prefetcher: no memory for %zu numbers", count);
}

cddp_status cddpi_prefetcher_create(struct cddpi_data_loader *loader, struct cddpi_model *model,
                                    struct cddpi_device *device, const struct cddpi_dataset *data,
                                    int max_count, struct cddpi_prefetcher **out)
{
    bool tokens = data->kind == CDDPI_DATASET_TOKENS;
    struct cddpi_prefetcher *prefetcher = cddpi_zalloc(sizeof *prefetcher);
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(prefetcher != NULL, "prefetcher: no memory for %zu bytes", sizeof *prefetcher);
    *prefetcher = (struct cddpi_prefetcher){
        .loader = loader, .model = model, .device = cddpi_device_or_cpu(device)};
    prefetcher->timeout_ms = cddpi_env_timeout_ms();
    prefetcher->labels = cddpi_dataset_labels(data);
    prefetcher->input_bytes = tokens ? prefetcher->labels * sizeof(int32_t)
                                     : cddpi_dataset_elements(data) * sizeof(float);
    for (int i = 0; status == CDDP_OK && cddpi_device_is_async(prefetcher->device) && i < SLOTS;
         i++) {
        status = make_slot(prefetcher, max_count, &prefetcher->slots[i]);
    }
    if (status != CDDP_OK) {
        cddpi_prefetcher_destroy(prefetcher);
        return status;
    }
    *out = prefetcher;
    return CDDP_OK;
}

void cddpi_prefetcher_destroy(struct cddpi_prefetcher *prefetcher)
{
    if (prefetcher == NULL) {
        return;
    }
    for (int i = 0; cddpi_device_is_async(prefetcher->device) && i < SLOTS; i++) {
        const struct cddpi_device_ops *ops = prefetcher->device->ops;
        struct prefetcher_slot *slot = &prefetcher->slots[i];

        if (slot->copied != NULL) { /* releasing memory is ordered in the compute stream */
            (void)ops->order(prefetcher->device, CDDPI_STREAM_COMPUTE, slot->copied);
            (void)ops->wait(prefetcher->device, slot->copied, prefetcher->timeout_ms);
        }
        ops->release(prefetcher->device, slot->input);
        ops->release(prefetcher->device, slot->label);
        ops->release(prefetcher->device, slot->draws);
        ops->unpin(prefetcher->device, slot->made_draws);
        ops->event_destroy(prefetcher->device, slot->copied);
        ops->event_destroy(prefetcher->device, slot->used);
        cddpi_free(slot->sample_ids);
    }
    cddpi_free(prefetcher);
}

struct cddpi_batch cddpi_prefetcher_batch(const struct cddpi_micro_batch *micro_batch)
{
    return (struct cddpi_batch){.input = micro_batch->input,
                                .label = micro_batch->label,
                                .count = micro_batch->count,
                                .step = micro_batch->step,
                                .sample_ids = micro_batch->sample_ids,
                                .tokens = micro_batch->tokens,
                                .draws = micro_batch->draws,
                                .weight = (double)micro_batch->count /
                                          (double)micro_batch->samples};
}

/* Copy @p bytes, which may be 0. */
static cddp_status copy_some(struct cddpi_prefetcher *prefetcher, void *to, const void *from,
                             size_t bytes)
{
    return bytes > 0 ? prefetcher->device->ops->copy(prefetcher->device, CDDPI_STREAM_COPY, to,
                                                     from, bytes)
                     : CDDP_OK;
}

/* Start copying slot->batch, and make slot->batch point to the copy. */
static cddp_status send_batch(struct cddpi_prefetcher *prefetcher, struct prefetcher_slot *slot)
{
    const struct cddpi_device_ops *ops = prefetcher->device->ops;
    struct cddpi_micro_batch *batch = &slot->batch;
    const void *input = batch->tokens != NULL ? (const void *)batch->tokens : batch->input;
    size_t count = (size_t)batch->count;
    size_t words = slot->draws != NULL ? cddpi_model_draw_words(prefetcher->model, batch->count)
                                       : 0;

    if (words > 0) {
        cddpi_model_draws(prefetcher->model, batch->step, batch->sample_ids, batch->count,
                          slot->made_draws);
    }
    CDDPI_TRY(ops->order(prefetcher->device, CDDPI_STREAM_COPY, slot->used));
    CDDPI_TRY(copy_some(prefetcher, slot->input, input, count * prefetcher->input_bytes));
    CDDPI_TRY(copy_some(prefetcher, slot->label, batch->label,
                        count * prefetcher->labels * sizeof(int32_t)));
    CDDPI_TRY(copy_some(prefetcher, slot->draws, slot->made_draws, words * sizeof *slot->draws));
    CDDPI_TRY(ops->record(prefetcher->device, slot->copied, CDDPI_STREAM_COPY));
    memcpy(slot->sample_ids, batch->sample_ids, count * sizeof *slot->sample_ids);
    batch->sample_ids = slot->sample_ids;
    batch->label = slot->label;
    batch->draws = slot->draws;
    if (batch->tokens != NULL) {
        batch->tokens = slot->input;
    } else {
        batch->input = slot->input;
    }
    return CDDP_OK;
}

/* Take the loader's next batch; if its label is NULL, there is no more. */
static cddp_status load_batch(struct cddpi_prefetcher *prefetcher, struct cddpi_micro_batch *out)
{
    CDDPI_TRY(cddpi_data_loader_next(prefetcher->loader, out));
    out->step = prefetcher->step;
    prefetcher->step += out->last;
    return CDDP_OK;
}

/* Start copying the next batch, unless the loader has no more. This reuses the loader's memory of
 * the previous batch, so that batch's copy must have ended; it has had a whole step's time. */
static cddp_status fetch_batch(struct cddpi_prefetcher *prefetcher)
{
    struct prefetcher_slot *slot = &prefetcher->slots[prefetcher->fetched % SLOTS];
    struct prefetcher_slot *before = &prefetcher->slots[(prefetcher->fetched + 1) % SLOTS];
    struct cddpi_batch batch;

    CDDPI_TRY(
        prefetcher->device->ops->wait(prefetcher->device, before->copied, prefetcher->timeout_ms));
    CDDPI_TRY(load_batch(prefetcher, &slot->batch));
    prefetcher->ended = slot->batch.label == NULL;
    if (prefetcher->ended) {
        return CDDP_OK;
    }
    slot->batch.slot = (int)(prefetcher->fetched % SLOTS);
    batch = cddpi_prefetcher_batch(&slot->batch);
    CDDPI_TRY(cddpi_model_check_batch(prefetcher->model, &batch));
    CDDPI_TRY(send_batch(prefetcher, slot));
    prefetcher->fetched++;
    return CDDP_OK;
}

void cddpi_prefetcher_start(struct cddpi_prefetcher *prefetcher, uint64_t step)
{
    prefetcher->taken = prefetcher->fetched;
    prefetcher->step = step;
    prefetcher->ended = false;
}

cddp_status cddpi_prefetcher_next(struct cddpi_prefetcher *prefetcher,
                                  struct cddpi_micro_batch *out)
{
    const struct prefetcher_slot *slot = &prefetcher->slots[prefetcher->taken % SLOTS];

    if (!cddpi_device_is_async(prefetcher->device)) {
        return load_batch(prefetcher, out);
    }
    memset(out, 0, sizeof *out);
    if (prefetcher->fetched == prefetcher->taken && !prefetcher->ended) {
        CDDPI_TRY(fetch_batch(prefetcher));
    }
    if (prefetcher->fetched == prefetcher->taken) {
        return CDDP_OK;
    }
    CDDPI_TRY(
        prefetcher->device->ops->order(prefetcher->device, CDDPI_STREAM_COMPUTE, slot->copied));
    prefetcher->taken++;
    *out = slot->batch;
    return CDDP_OK;
}

cddp_status cddpi_prefetcher_release(struct cddpi_prefetcher *prefetcher)
{
    if (!cddpi_device_is_async(prefetcher->device) || prefetcher->taken == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(prefetcher->device->ops->record(
        prefetcher->device, prefetcher->slots[(prefetcher->taken - 1) % SLOTS].used,
        CDDPI_STREAM_COMPUTE));
    return prefetcher->ended ? CDDP_OK : fetch_batch(prefetcher);
}
