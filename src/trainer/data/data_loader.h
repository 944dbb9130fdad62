/* data_loader.h - owns the training batches that a ring's threads make ahead of time: bytes become
 * normalised floats, with random crop and flip, or sequences of tokens are copied. A batch's
 * contents depend only on its request, not on threads or ranks. */
#ifndef CDDPI_DATA_LOADER_H
#define CDDPI_DATA_LOADER_H

#include "data/dataset.h"
#include "device/device.h"

#include <cddp/sampler.h>

struct cddpi_transform {
    /* per channel, of values in [0, 1]: x -> (x / 255 - mean) / std; a std of 0 counts as 1 */
    float mean[4], std[4];
    int crop_padding; /* > 0: pad by that many zeros (before normalising), then crop at random */
    bool flip;        /* horizontally, with probability 1/2 */
    /* For image files, used instead of crop_padding. Random transforms cut out a part with an area
     * in crop_area, as a fraction of the image (0, 0: 0.08 to 1). Without random transforms, the
     * shorter side is resized to `resize` pixels (0: the sample's size), and the centre is cut
     * out. */
    double crop_area[2];
    int resize;
};

struct cddpi_data_loader_options {
    const struct cddpi_dataset *dataset; /* borrowed, outlives the loader */
    struct cddpi_transform transform;    /* for images */
    uint64_t seed;    /* of the random transforms: keyed by (seed, epoch, sample) */
    int max_count;    /* samples of a micro-batch at most; a larger share is split */
    bool by_position; /* cut batches, not shares: see cddpi_data_loader_start() */
    int threads;      /* 0: next() makes each batch in the caller's thread */
    bool skip_broken; /* replace an image file that cannot be read by the next readable one of the
                         dataset, and count it; false: such a file is an error */
    int prefetch;     /* batches kept ready per loader; 0: 4 */
    struct cddpi_device *device; /* batches are in memory from which this device copies without
                                    waiting; borrowed, outlives the loader; NULL: the processor */
};

/* One batch or a part of one. The loader's threads make it, and cddpi_prefetcher_batch() describes
 * it to the model (train/device/prefetcher.h). Its arrays are in the ring's memory, valid until the
 * next call of next() or cancel(); or in a prefetcher's copy. */
struct cddpi_micro_batch {
    float *input;         /* images, numbers: count x C x H x W, 64-byte aligned; tokens: NULL */
    int32_t *tokens;      /* tokens: count x context, 64-byte aligned; images: NULL */
    int32_t *label;       /* classes: count; tokens: count x context, the token after each; real
                             targets: floats in the same memory, count x target_count */
    uint64_t *sample_ids; /* always in host memory */
    int count;            /* samples of the micro-batch */
    int broken;           /* how many of them were replaced (skip_broken) */
    uint64_t samples;     /* of the whole batch, over all ranks */
    uint64_t share; /* samples of this rank's whole share of the batch, which micro-batches split */
    uint64_t micro_batches; /* how many the loader gives of the batch; the same on all ranks */
    bool last;              /* the last of this rank's micro-batches of the batch; by position,
                               empty ones may follow */
    bool even;              /* all ranks have a share of the same size */
    uint64_t number, of;    /* by position: which micro-batch of the whole batch, of how many */
    int64_t waited_ns;      /* how long the caller waited for it */
    int64_t begun_ns;       /* when the loader began to make it */
    int64_t made_ns;        /* when the loader had made it */
    /* The prefetcher sets these. */
    uint64_t step;         /* the step it belongs to */
    const uint32_t *draws; /* on a device: random numbers for the model; NULL: none needed */
    int slot;              /* on a device: which of the prefetcher's two slots holds it */
};

struct cddpi_data_loader;

CDDP_CHECKED cddp_status cddpi_data_loader_create(const struct cddpi_data_loader_options *options,
                                                  struct cddpi_data_loader **out);
void cddpi_data_loader_destroy(struct cddpi_data_loader *loader);

/** Begin a schedule of batches. Batch k covers the positions [first + k * batch, first + (k + 1) *
 *  batch), cut at @p end, in @p sampler's order; this rank gets its share of them (cddp_share_of).
 *  The sampler's state is copied with its current epoch. If any rank's share is larger than
 *  max_count, the batch comes in micro-batches, equally many on every rank: max_count samples each,
 *  then the rest. Batches and micro-batches without a sample of this rank have count 0. Cancels the
 *  schedule that was under way. The sampler must not change its epoch before the last batch is
 *  taken or cancel() is called.
 *
 *  by_position: every batch is cut into micro-batches of max_count samples each and a rest, the
 *  same for any number of ranks; this rank gets its share of those. If another rank has more, empty
 *  ones follow, so that every rank gets equally many; a rank without any gets only empty ones.
 *  @param augment  Whether random transforms are applied. */
CDDP_CHECKED cddp_status cddpi_data_loader_start(struct cddpi_data_loader *loader,
                                                 const cddp_sampler *sampler, uint64_t epoch,
                                                 uint64_t first, uint64_t end, uint64_t batch,
                                                 int rank, int world_size, bool augment);

/** Take the next batch (or micro-batch) of the schedule; waits until it is made. After the last
 *  one, @p out->label is NULL.
 *  @return CDDP_OK, CDDP_ERR_STATE, CDDP_ERR_TIMEOUT; CDDP_ERR_FORMAT: a token is outside the
 *          vocabulary (the text names the file and the place); CDDP_ERR_IO: a file of the dataset
 *          was cut off; for a broken image file what cddpi_image_sample() returns. */
CDDP_CHECKED cddp_status cddpi_data_loader_next(struct cddpi_data_loader *loader,
                                                struct cddpi_micro_batch *out);

/** How many samples were replaced since the loader was created. @p out: what was wrong with the
 *  first of them; "": none was replaced. */
uint64_t cddpi_data_loader_broken(const struct cddpi_data_loader *loader, char *out,
                                  size_t out_bytes);

/** Stop the schedule. Returns when no thread uses the sampler any more. */
void cddpi_data_loader_cancel(struct cddpi_data_loader *loader);

#endif
