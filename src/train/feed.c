/* feed.c - owns the device's memory for batches, and the order of its copies and its uses. */
#include "train/feed.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"

#include <string.h>

enum { PLACES = 2 };

/* Memory for one batch. */
struct place {
    void *input; /* or tokens */
    int32_t *label;
    uint32_t *draws;            /* NULL: the model draws none */
    uint32_t *made_draws;       /* pinned: before they are copied */
    uint64_t *sample_ids;       /* the processor's */
    struct cddpi_event *copied; /* the batch is there */
    struct cddpi_event *used;   /* and nobody reads it any more */
    struct cddpi_fed fed;
};

struct cddpi_feed {
    struct cddpi_loader *loader;
    struct cddpi_model *model;
    struct cddpi_device *device;
    uint32_t timeout_ms;
    size_t input_bytes, labels; /* of a sample */
    uint64_t step;              /* of the next batch of the loader */
    struct place places[PLACES];
    unsigned fetched, taken; /* batches: copies begun, and given out */
    bool ended;              /* the loader had no more */
};

static cddp_status allocate(struct cddpi_feed *feed, size_t bytes, const char *what, void **out)
{
    return feed->device->ops->alloc(feed->device, bytes, what, out);
}

static cddp_status make_draws(struct cddpi_feed *feed, int max_count, struct place *place)
{
    size_t bytes = cddpi_model_draw_words(feed->model, max_count) * sizeof *place->draws;
    void *memory = NULL;
    cddp_status status;

    if (bytes == 0) {
        return CDDP_OK;
    }
    status = allocate(feed, bytes, "a batch's random numbers", &memory);
    if (status == CDDP_OK) {
        place->draws = memory;
        status = feed->device->ops->pin(feed->device, bytes, &memory);
    }
    if (status == CDDP_OK) {
        place->made_draws = memory;
    }
    return status;
}

static cddp_status make_place(struct cddpi_feed *feed, int max_count, struct place *place)
{
    const struct cddpi_device_ops *ops = feed->device->ops;
    size_t count = (size_t)max_count;
    void *memory = NULL;
    cddp_status status = allocate(feed, count * feed->input_bytes, "a batch's input", &memory);

    if (status == CDDP_OK) {
        place->input = memory;
        status = allocate(feed, count * feed->labels * sizeof *place->label, "a batch's labels",
                          &memory);
    }
    if (status == CDDP_OK) {
        place->label = memory;
        status = make_draws(feed, max_count, place);
    }
    if (status == CDDP_OK) {
        status = ops->event_create(feed->device, false, &place->copied);
    }
    if (status == CDDP_OK) {
        status = ops->event_create(feed->device, false, &place->used);
    }
    if (status == CDDP_OK) { /* the copy stream begins behind the allocation */
        status = ops->record(feed->device, place->used, CDDPI_STREAM_COMPUTE);
    }
    if (status == CDDP_OK) {
        place->sample_ids = cddpi_zalloc_array(count, sizeof *place->sample_ids);
        if (place->sample_ids == NULL) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "feed: no memory for %zu numbers", count);
        }
    }
    return status;
}

cddp_status cddpi_feed_create(struct cddpi_loader *loader, struct cddpi_model *model,
                              struct cddpi_device *device, const struct cddpi_dataset *data,
                              int max_count, struct cddpi_feed **out)
{
    bool tokens = data->kind == CDDPI_DATASET_TOKENS;
    struct cddpi_feed *feed = cddpi_zalloc(sizeof *feed);
    cddp_status status = CDDP_OK;

    if (feed == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "feed: no memory for %zu bytes", sizeof *feed);
    }
    *feed = (struct cddpi_feed){
        .loader = loader, .model = model, .device = device != NULL ? device : cddpi_device_cpu()};
    feed->timeout_ms = cddpi_env_timeout_ms();
    feed->labels = tokens ? (size_t)data->context : 1;
    feed->input_bytes = tokens ? feed->labels * sizeof(int32_t)
                               : (size_t)data->channels * (size_t)data->height *
                                     (size_t)data->width * sizeof(float);
    for (int i = 0; status == CDDP_OK && cddpi_is_cuda(feed->device) && i < PLACES; i++) {
        status = make_place(feed, max_count, &feed->places[i]);
    }
    if (status != CDDP_OK) {
        cddpi_feed_destroy(feed);
        return status;
    }
    *out = feed;
    return CDDP_OK;
}

void cddpi_feed_destroy(struct cddpi_feed *feed)
{
    if (feed == NULL) {
        return;
    }
    for (int i = 0; cddpi_is_cuda(feed->device) && i < PLACES; i++) {
        const struct cddpi_device_ops *ops = feed->device->ops;
        struct place *place = &feed->places[i];

        if (place->copied != NULL) { /* memory is released in the order of the compute stream */
            (void)ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied);
            (void)ops->wait(feed->device, place->copied, feed->timeout_ms);
        }
        ops->release(feed->device, place->input);
        ops->release(feed->device, place->label);
        ops->release(feed->device, place->draws);
        ops->unpin(feed->device, place->made_draws);
        ops->event_destroy(feed->device, place->copied);
        ops->event_destroy(feed->device, place->used);
        cddpi_free(place->sample_ids);
    }
    cddpi_free(feed);
}

static struct cddpi_fed as_loaded(const struct cddpi_feed *feed, const struct cddpi_loaded *loaded)
{
    return (struct cddpi_fed){.batch = {.input = loaded->input,
                                        .tokens = loaded->tokens,
                                        .label = loaded->label,
                                        .count = loaded->count,
                                        .step = feed->step,
                                        .sample_ids = loaded->sample_ids},
                              .share = loaded->share,
                              .last = loaded->last,
                              .even = loaded->even};
}

/* Copy @p bytes, none if there are none. */
static cddp_status copy(struct cddpi_feed *feed, void *to, const void *from, size_t bytes)
{
    return bytes > 0 ? feed->device->ops->copy(feed->device, CDDPI_STREAM_COPY, to, from, bytes)
                     : CDDP_OK;
}

/* Begin to copy what place->fed has, and let it be there. */
static cddp_status send(struct cddpi_feed *feed, struct place *place)
{
    const struct cddpi_device_ops *ops = feed->device->ops;
    struct cddpi_batch *batch = &place->fed.batch;
    const void *input = batch->tokens != NULL ? (const void *)batch->tokens : batch->input;
    size_t count = (size_t)batch->count;
    size_t words = place->draws != NULL ? cddpi_model_draw_words(feed->model, batch->count) : 0;
    cddp_status status = ops->order(feed->device, CDDPI_STREAM_COPY, place->used);

    if (words > 0) {
        cddpi_model_draws(feed->model, batch->step, batch->sample_ids, batch->count,
                          place->made_draws);
    }
    if (status == CDDP_OK) {
        status = copy(feed, place->input, input, count * feed->input_bytes);
    }
    if (status == CDDP_OK) {
        status = copy(feed, place->label, batch->label, count * feed->labels * sizeof(int32_t));
    }
    if (status == CDDP_OK) {
        status = copy(feed, place->draws, place->made_draws, words * sizeof *place->draws);
    }
    if (status == CDDP_OK) {
        status = ops->record(feed->device, place->copied, CDDPI_STREAM_COPY);
    }
    memcpy(place->sample_ids, batch->sample_ids, count * sizeof *place->sample_ids);
    batch->sample_ids = place->sample_ids;
    batch->label = place->label;
    batch->draws = place->draws;
    if (batch->tokens != NULL) {
        batch->tokens = place->input;
    } else {
        batch->input = place->input;
    }
    return status;
}

/* The next batch's copy is begun, unless the loader has no more. Its memory for the batch before is
 * free again from here on, so that copy must have ended: it has had a step's time. */
static cddp_status fetch(struct cddpi_feed *feed)
{
    struct place *place = &feed->places[feed->fetched % PLACES];
    struct place *before = &feed->places[(feed->fetched + 1) % PLACES];
    struct cddpi_loaded loaded = {0};
    int64_t waited_ns = 0;
    cddp_status status = feed->device->ops->wait(feed->device, before->copied, feed->timeout_ms);

    if (status == CDDP_OK) {
        status = cddpi_loader_next(feed->loader, &loaded, &waited_ns);
    }
    if (status != CDDP_OK) {
        return status;
    }
    feed->ended = loaded.label == NULL;
    if (feed->ended) {
        return CDDP_OK;
    }
    place->fed = as_loaded(feed, &loaded);
    place->fed.place = (int)(feed->fetched % PLACES);
    place->fed.waited_ns = waited_ns;
    feed->step += loaded.last;
    status = cddpi_model_check_batch(feed->model, &place->fed.batch);
    if (status == CDDP_OK) {
        status = send(feed, place);
    }
    feed->fetched += status == CDDP_OK;
    return status;
}

static cddp_status next_on_processor(struct cddpi_feed *feed, struct cddpi_fed *out)
{
    struct cddpi_loaded loaded = {0};
    int64_t waited_ns = 0;
    cddp_status status = cddpi_loader_next(feed->loader, &loaded, &waited_ns);

    if (status != CDDP_OK) {
        return status;
    }
    *out = as_loaded(feed, &loaded);
    out->waited_ns = waited_ns;
    feed->step += loaded.last;
    return CDDP_OK;
}

void cddpi_feed_start(struct cddpi_feed *feed, uint64_t step)
{
    feed->taken = feed->fetched;
    feed->step = step;
    feed->ended = false;
}

cddp_status cddpi_feed_next(struct cddpi_feed *feed, struct cddpi_fed *out)
{
    const struct place *place;
    cddp_status status = CDDP_OK;

    if (!cddpi_is_cuda(feed->device)) {
        return next_on_processor(feed, out);
    }
    if (feed->fetched == feed->taken && !feed->ended) {
        status = fetch(feed);
    }
    if (status != CDDP_OK || feed->fetched == feed->taken) {
        memset(out, 0, sizeof *out);
        return status;
    }
    place = &feed->places[feed->taken % PLACES];
    status = feed->device->ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied);
    if (status == CDDP_OK) {
        feed->taken++;
        *out = place->fed;
    }
    return status;
}

cddp_status cddpi_feed_used(struct cddpi_feed *feed)
{
    cddp_status status;

    if (!cddpi_is_cuda(feed->device) || feed->taken == 0) {
        return CDDP_OK;
    }
    status = feed->device->ops->record(feed->device, feed->places[(feed->taken - 1) % PLACES].used,
                                       CDDPI_STREAM_COMPUTE);
    return status == CDDP_OK && !feed->ended ? fetch(feed) : status;
}
