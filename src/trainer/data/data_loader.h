/* data_loader.h - the trainer's batches, made ahead of time by the threads of a ring: bytes to
 * normalised floats, with random crop and flip, or sequences of tokens. What a batch holds depends
 * on its request alone, not on threads or ranks. */
#ifndef CDDPI_DATA_LOADER_H
#define CDDPI_DATA_LOADER_H

#include "data/dataset.h"
#include "device/device.h"

#include <cddp/sampler.h>

struct cddpi_transform {
    /* per channel, of values in [0, 1]: x -> (x / 255 - mean) / std; a std of 0 counts as 1 */
    float mean[4], std[4];
    int crop_padding; /* > 0: pad with zeros (before normalising) by so much, crop at random */
    bool flip;        /* horizontally, with probability 1/2 */
    /* of image files, instead of crop_padding: random transforms cut out a part of the image, of so
     * much of its area (0, 0: 0.08 to 1), and else the middle is, once the shorter side has resize
     * pixels (0: as many as a sample) */
    double crop_area[2];
    int resize;
};

struct cddpi_data_loader_options {
    const struct cddpi_dataset *dataset; /* borrowed, outlives the loader */
    struct cddpi_transform transform;    /* of images */
    uint64_t seed;               /* of the random transforms: keyed by (seed, epoch, sample) */
    int max_count;               /* samples of a micro-batch at most; a larger share is cut */
    int threads;                 /* 0: batches are made by the caller in next() */
    bool skip_broken;            /* an image file that cannot be read is replaced by the next one of
                                    the dataset that can, and counted; false: it is an error */
    int prefetch;                /* batches kept ready per loader; 0: 4 */
    struct cddpi_device *device; /* batches lie in memory that this one copies from without waiting;
                                    borrowed, outlives the loader; NULL: the processor */
};

/* One batch or a part of it, from the threads that make it to the model, for which
 * cddpi_prefetcher_batch() describes it (train/device/prefetcher.h). It lies in the ring's memory,
 * valid until the next call of next() or of cancel(), or where a prefetcher has copied it. */
struct cddpi_micro_batch {
    float *input;         /* images: count x C x H x W, 64-byte aligned; tokens: NULL */
    int32_t *tokens;      /* tokens: count x context, 64-byte aligned; images: NULL */
    int32_t *label;       /* images: count; tokens: count x context, what follows each */
    uint64_t *sample_ids; /* always in the processor's memory */
    int count;            /* samples of the micro-batch */
    int broken;           /* how many of them have been replaced (skip_broken) */
    uint64_t share;       /* of this rank's whole share, of which the micro-batch is a part */
    bool last;            /* it is the last micro-batch of its batch */
    bool even;            /* all ranks have a share of that size */
    int64_t waited_ns;    /* how long the caller waited for it */
    int64_t begun_ns;     /* when the loader began to make it */
    int64_t made_ns;      /* and ended */
    /* set by a prefetcher */
    uint64_t step;         /* to which it belongs */
    const uint32_t *draws; /* on a device: random numbers for the model; NULL: it draws none */
    int slot;              /* on a device: in which of the prefetcher's two slots it lies */
};

struct cddpi_data_loader;

CDDP_CHECKED cddp_status cddpi_data_loader_create(const struct cddpi_data_loader_options *options,
                                                  struct cddpi_data_loader **out);
void cddpi_data_loader_destroy(struct cddpi_data_loader *loader);

/** Begin a schedule of batches: batch k holds the samples of @p sampler (copied state: epoch as it
 * is now) at this rank's share (cddp_share_of) of the positions [first + k * batch, first + (k + 1)
 * * batch), cut at @p end. A batch in which any rank's share is larger than max_count comes in
 * micro-batches, as many on every rank: max_count samples each, then what is left. Batches and
 * micro-batches without a sample of this rank have count 0. Cancels what was under way. The sampler
 * must not change its epoch before the last batch is taken or cancel() is called.
 *  @param augment  Whether random transforms are applied. */
CDDP_CHECKED cddp_status cddpi_data_loader_start(struct cddpi_data_loader *loader,
                                                 const cddp_sampler *sampler, uint64_t epoch,
                                                 uint64_t first, uint64_t end, uint64_t batch,
                                                 int rank, int world_size, bool augment);

/** The next batch (or micro-batch) of the schedule, waiting for it if it must. @p out->label NULL
 * after the last one.
 *  @return CDDP_OK, CDDP_ERR_STATE, CDDP_ERR_TIMEOUT; CDDP_ERR_FORMAT for a batch with a token
 *          outside the vocabulary: names the file and where; CDDP_ERR_IO when a file of the dataset
 *          was cut off; for a batch with a broken image file what cddpi_image_sample() says. */
CDDP_CHECKED cddp_status cddpi_data_loader_next(struct cddpi_data_loader *loader,
                                                struct cddpi_micro_batch *out);

/** How many samples that were taken have been replaced since the loader was created, and what was
 * wrong with the first of them; "": nothing. */
uint64_t cddpi_data_loader_broken(const struct cddpi_data_loader *loader, char *out,
                                  size_t out_bytes);

/** Stop the schedule; returns when no thread touches the sampler any more. */
void cddpi_data_loader_cancel(struct cddpi_data_loader *loader);

#endif
