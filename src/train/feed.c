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
    uint64_t *sample_ids;       /* the processor's */
    struct cddpi_event *copied; /* the batch is there */
    struct cddpi_event *used;   /* and nobody reads it any more */
};

struct cddpi_feed {
    struct cddpi_loader *loader;
    struct cddpi_device *device;
    uint32_t timeout_ms;
    size_t input_bytes, labels; /* of a sample */
    struct place places[PLACES];
    unsigned fetched, taken;   /* batches: copies begun, and given out */
    struct cddpi_loaded ahead; /* the last one fetched */
    int64_t waited_ns;         /* for it */
};

static bool is_on_processor(const struct cddpi_feed *feed)
{
    return feed->device == cddpi_device_cpu();
}

static cddp_status make_place(struct cddpi_feed *feed, int max_count, struct place *place)
{
    const struct cddpi_device_ops *ops = feed->device->ops;
    size_t count = (size_t)max_count;
    void *memory = NULL;
    cddp_status status = ops->alloc(feed->device, count * feed->input_bytes, "a batch's input",
                                    &memory);

    if (status == CDDP_OK) {
        place->input = memory;
        status = ops->alloc(feed->device, count * feed->labels * sizeof *place->label,
                            "a batch's labels", &memory);
    }
    if (status == CDDP_OK) {
        place->label = memory;
        status = ops->event_create(feed->device, false, &place->copied);
    }
    if (status == CDDP_OK) {
        status = ops->event_create(feed->device, false, &place->used);
    }
    if (status == CDDP_OK) {
        place->sample_ids = cddpi_zalloc_array(count, sizeof *place->sample_ids);
        if (place->sample_ids == NULL) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "feed: no memory for %zu numbers", count);
        }
    }
    return status;
}

cddp_status cddpi_feed_create(struct cddpi_loader *loader, struct cddpi_device *device,
                              int max_count, size_t input_bytes, size_t labels,
                              struct cddpi_feed **out)
{
    struct cddpi_feed *feed = cddpi_zalloc(sizeof *feed);
    cddp_status status = CDDP_OK;

    if (feed == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "feed: no memory for %zu bytes", sizeof *feed);
    }
    *feed = (struct cddpi_feed){
        .loader = loader, .device = device, .input_bytes = input_bytes, .labels = labels};
    feed->timeout_ms = (uint32_t)cddpi_env_integer(CDDPI_ENV_TIMEOUT_MS, 1, UINT32_MAX, 300000);
    for (int i = 0; status == CDDP_OK && !is_on_processor(feed) && i < PLACES; i++) {
        status = make_place(feed, max_count, &feed->places[i]);
        if (status == CDDP_OK) { /* the copy stream begins behind the allocation */
            status = device->ops->record(device, feed->places[i].used, CDDPI_STREAM_COMPUTE);
        }
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
    for (int i = 0; !is_on_processor(feed) && i < PLACES; i++) {
        struct place *place = &feed->places[i];

        if (place->copied != NULL) { /* release is ordered by the compute stream alone */
            (void)feed->device->ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied);
        }
        feed->device->ops->release(feed->device, place->input);
        feed->device->ops->release(feed->device, place->label);
        feed->device->ops->event_destroy(feed->device, place->copied);
        feed->device->ops->event_destroy(feed->device, place->used);
        cddpi_free(place->sample_ids);
    }
    cddpi_free(feed);
}

static cddp_status copy_batch(struct cddpi_feed *feed, const struct cddpi_loaded *loaded,
                              struct place *place)
{
    const struct cddpi_device_ops *ops = feed->device->ops;
    const void *input = loaded->tokens != NULL ? (const void *)loaded->tokens : loaded->input;
    size_t count = (size_t)loaded->count;
    cddp_status status = ops->order(feed->device, CDDPI_STREAM_COPY, place->used);

    if (status == CDDP_OK && count > 0) {
        status = ops->copy(feed->device, CDDPI_STREAM_COPY, place->input, input,
                           count * feed->input_bytes);
    }
    if (status == CDDP_OK && count > 0) {
        status = ops->copy(feed->device, CDDPI_STREAM_COPY, place->label, loaded->label,
                           count * feed->labels * sizeof *place->label);
    }
    return status == CDDP_OK ? ops->record(feed->device, place->copied, CDDPI_STREAM_COPY) : status;
}

/* The next batch's copy is begun; fetched == taken: the loader has no more. The loader's memory for
 * the batch before is free again from here on, so that copy must have ended: it has had a step's
 * time. */
static cddp_status fetch(struct cddpi_feed *feed)
{
    struct place *place = &feed->places[feed->fetched % PLACES];
    struct place *before = &feed->places[(feed->fetched + 1) % PLACES];
    cddp_status status = feed->device->ops->wait(feed->device, before->copied, feed->timeout_ms);

    if (status == CDDP_OK) {
        status = cddpi_loader_next(feed->loader, &feed->ahead, &feed->waited_ns);
    }
    if (status != CDDP_OK || feed->ahead.label == NULL) {
        return status;
    }
    status = copy_batch(feed, &feed->ahead, place);
    if (status != CDDP_OK) {
        return status;
    }
    memcpy(place->sample_ids, feed->ahead.sample_ids,
           (size_t)feed->ahead.count * sizeof *place->sample_ids);
    feed->ahead.sample_ids = place->sample_ids;
    feed->ahead.label = place->label;
    if (feed->ahead.tokens != NULL) {
        feed->ahead.tokens = place->input;
    } else {
        feed->ahead.input = place->input;
    }
    feed->fetched++;
    return CDDP_OK;
}

cddp_status cddpi_feed_next(struct cddpi_feed *feed, struct cddpi_loaded *out,
                            int64_t *out_waited_ns)
{
    struct place *place = &feed->places[feed->taken % PLACES];
    cddp_status status = CDDP_OK;

    if (is_on_processor(feed)) {
        return cddpi_loader_next(feed->loader, out, out_waited_ns);
    }
    if (feed->fetched == feed->taken) {
        status = fetch(feed);
    }
    if (status == CDDP_OK && feed->fetched != feed->taken) {
        status = feed->device->ops->order(feed->device, CDDPI_STREAM_COMPUTE, place->copied);
        feed->taken++;
    }
    if (status != CDDP_OK) {
        return status;
    }
    *out = feed->ahead;
    if (out_waited_ns != NULL) {
        *out_waited_ns = feed->waited_ns;
    }
    return CDDP_OK;
}

cddp_status cddpi_feed_used(struct cddpi_feed *feed)
{
    cddp_status status;

    if (is_on_processor(feed) || feed->taken == 0) {
        return CDDP_OK;
    }
    status = feed->device->ops->record(feed->device, feed->places[(feed->taken - 1) % PLACES].used,
                                       CDDPI_STREAM_COMPUTE);
    return status == CDDP_OK ? fetch(feed) : status;
}

void cddpi_feed_forget(struct cddpi_feed *feed)
{
    feed->taken = feed->fetched;
}
