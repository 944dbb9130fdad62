/* pipeline_feed.c - owns the memory of a chunk's batches on a device, and the order of copies and
 * uses. Batch n of a step is in place n modulo the number of places. */
#include "parallel/pipeline/pipeline_feed.h"

#include "base/alloc.h"
#include "base/error.h"
#include "parallel/parallel_memory.h"

/* The memory of one batch. */
struct feed_place {
    char *items[CDDPI_BATCH_ITEMS]; /* on the device; NULL: not read */
    uint32_t *made_draws;           /* pinned: the source of the random numbers */
    struct cddpi_event *copied;     /* the batch has arrived */
    struct cddpi_event *used;       /* the compute stream has read it */
    struct cddpi_batch batch;       /* there */
};

struct cddpi_pipeline_feed {
    struct cddpi_model *model;
    struct cddpi_device *device;
    uint32_t timeout_ms;
    size_t bytes[CDDPI_BATCH_ITEMS]; /* of a sample; 0: not read */
    int samples;                     /* for which there is room */
    int count;
    struct feed_place *places;
};

static struct feed_place *place_of(const struct cddpi_pipeline_feed *feed, int number)
{
    return &feed->places[number % feed->count];
}

cddp_status cddpi_pipeline_feed_create(const struct cddpi_model_spec *spec, int most,
                                       struct cddpi_model *model, struct cddpi_device *device,
                                       uint32_t timeout_ms, struct cddpi_pipeline_feed **out)
{
    struct cddpi_pipeline_feed *feed = cddpi_zalloc(sizeof *feed);
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(feed != NULL, "pipeline: no memory for %zu bytes", sizeof *feed);
    *feed = (struct cddpi_pipeline_feed){
        .model = model, .device = device, .timeout_ms = timeout_ms, .count = most + 1};
    cddpi_batch_item_bytes(model, spec, feed->bytes);
    feed->places = cddpi_zalloc_array((size_t)feed->count, sizeof *feed->places);
    if (feed->places == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d batches", feed->count);
    }
    for (int i = 0; status == CDDP_OK && i < feed->count; i++) {
        status = device->ops->event_create(device, false, &feed->places[i].copied);
        status = status == CDDP_OK ? device->ops->event_create(device, false, &feed->places[i].used)
                                   : status;
    }
    if (status != CDDP_OK) {
        cddpi_pipeline_feed_destroy(feed);
        return status;
    }
    *out = feed;
    return CDDP_OK;
}

static void release_place(struct cddpi_pipeline_feed *feed, struct feed_place *place)
{
    const struct cddpi_device_ops *ops = feed->device->ops;

    for (int i = 0; i < CDDPI_BATCH_ITEMS; i++) {
        ops->release(feed->device, place->items[i]);
        place->items[i] = NULL;
    }
    ops->unpin(feed->device, place->made_draws);
    place->made_draws = NULL;
}

void cddpi_pipeline_feed_destroy(struct cddpi_pipeline_feed *feed)
{
    if (feed == NULL) {
        return;
    }
    for (int i = 0; feed->places != NULL && i < feed->count; i++) {
        struct feed_place *place = &feed->places[i];

        if (place->copied != NULL) { /* releasing memory is ordered in the compute stream */
            (void)feed->device->ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied);
            (void)feed->device->ops->wait(feed->device, place->copied, feed->timeout_ms);
        }
        release_place(feed, place);
        feed->device->ops->event_destroy(feed->device, place->copied);
        feed->device->ops->event_destroy(feed->device, place->used);
    }
    cddpi_free(feed->places);
    cddpi_free(feed);
}

static cddp_status grow_place(struct cddpi_pipeline_feed *feed, struct feed_place *place,
                              int samples)
{
    const struct cddpi_device_ops *ops = feed->device->ops;
    void *memory = NULL;

    CDDPI_TRY(ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied));
    CDDPI_TRY(ops->wait(feed->device, place->copied, feed->timeout_ms));
    release_place(feed, place);
    for (int i = 0; i < CDDPI_BATCH_ITEMS; i++) {
        if (feed->bytes[i] > 0) {
            CDDPI_TRY(ops->alloc(feed->device, feed->bytes[i] * (size_t)samples,
                                 "a micro-batch of a pipeline", &memory));
            place->items[i] = memory;
        }
    }
    if (feed->bytes[CDDPI_ITEM_DRAWS] > 0) {
        CDDPI_TRY(ops->pin(feed->device, feed->bytes[CDDPI_ITEM_DRAWS] * (size_t)samples, &memory));
        place->made_draws = memory;
    }
    /* the copy stream must wait for the allocation */
    return ops->record(feed->device, place->used, CDDPI_STREAM_COMPUTE);
}

cddp_status cddpi_pipeline_feed_make_room(struct cddpi_pipeline_feed *feed, int samples)
{
    if (samples <= feed->samples) {
        return CDDP_OK;
    }
    feed->samples = 0;
    for (int i = 0; i < feed->count; i++) {
        CDDPI_TRY(grow_place(feed, &feed->places[i], samples));
    }
    feed->samples = samples;
    return CDDP_OK;
}

size_t cddpi_pipeline_feed_bytes(const struct cddpi_pipeline_feed *feed)
{
    size_t bytes = 0;

    for (int i = 0; feed != NULL && i < CDDPI_BATCH_ITEMS; i++) {
        bytes += feed->bytes[i] * (size_t)feed->samples * (size_t)feed->count;
    }
    return bytes;
}

/* Start copying the items that the chunk reads. */
static cddp_status copy_items(struct cddpi_pipeline_feed *feed, struct feed_place *place,
                              const struct cddpi_batch *batch, bool training)
{
    const void *from[CDDPI_BATCH_ITEMS] = {
        [CDDPI_ITEM_INPUT] = batch->input,
        [CDDPI_ITEM_TOKENS] = batch->tokens,
        [CDDPI_ITEM_LABEL] = batch->label,
        [CDDPI_ITEM_DRAWS] = training ? place->made_draws : NULL,
    };

    for (int i = 0; i < CDDPI_BATCH_ITEMS; i++) {
        size_t bytes = feed->bytes[i] * (size_t)batch->count;

        if (bytes > 0 && from[i] != NULL) {
            CDDPI_TRY(feed->device->ops->copy(feed->device, CDDPI_STREAM_COPY, place->items[i],
                                              from[i], bytes));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_pipeline_feed_put(struct cddpi_pipeline_feed *feed, int number,
                                    const struct cddpi_batch *batch, bool training)
{
    const struct cddpi_device_ops *ops = feed->device->ops;
    struct feed_place *place = place_of(feed, number);

    CDDPI_TRY(cddpi_model_check_batch(feed->model, batch));
    if (place->made_draws != NULL && training) { /* its last copy was long ago */
        CDDPI_TRY(ops->wait(feed->device, place->copied, feed->timeout_ms));
        cddpi_model_draws(feed->model, batch->step, batch->sample_ids, batch->count,
                          place->made_draws);
    }
    place->batch = *batch;
    place->batch.input = (const float *)(const void *)place->items[CDDPI_ITEM_INPUT];
    place->batch.tokens = (const int32_t *)(const void *)place->items[CDDPI_ITEM_TOKENS];
    place->batch.label = (const int32_t *)(const void *)place->items[CDDPI_ITEM_LABEL];
    place->batch.draws = (const uint32_t *)(const void *)place->items[CDDPI_ITEM_DRAWS];
    CDDPI_TRY(ops->order(feed->device, CDDPI_STREAM_COPY, place->used));
    CDDPI_TRY(copy_items(feed, place, batch, training));
    return ops->record(feed->device, place->copied, CDDPI_STREAM_COPY);
}

cddp_status cddpi_pipeline_feed_take(struct cddpi_pipeline_feed *feed, int number,
                                     struct cddpi_batch *out)
{
    struct feed_place *place = place_of(feed, number);

    *out = place->batch;
    return feed->device->ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied);
}

cddp_status cddpi_pipeline_feed_release(struct cddpi_pipeline_feed *feed, int number)
{
    return feed->device->ops->record(feed->device, place_of(feed, number)->used,
                                     CDDPI_STREAM_COMPUTE);
}

cddp_status cddpi_pipeline_feed_settle(struct cddpi_pipeline_feed *feed)
{
    for (int i = 0; i < feed->count; i++) {
        CDDPI_TRY(feed->device->ops->wait(feed->device, feed->places[i].copied, feed->timeout_ms));
    }
    return CDDP_OK;
}
