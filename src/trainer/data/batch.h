/* batch.h - calculates how the batches of an epoch are split into micro-batches, and makes one
 * micro-batch in memory that the caller gives. The result depends only on the schedule, the number
 * and the seed. Any number of threads at once. */
#ifndef CDDPI_DATA_BATCH_H
#define CDDPI_DATA_BATCH_H

#include "data/data_loader.h"
#include "data/images/sample.h"
#include "kernels/cpu/image.h"

#include <stdatomic.h>

/* The arguments of cddpi_data_loader_start(), and what follows from them. */
struct cddpi_micro_batch_schedule {
    const cddp_sampler *sampler; /* borrowed */
    uint64_t epoch, first, end, batch;
    int rank, world_size;
    bool augment;
    bool by_position;          /* batches are cut, not shares */
    uint64_t micro_batch_size; /* at most this many samples */
    uint64_t micro_batches;    /* per whole batch */
    uint64_t count;            /* micro-batches of all batches; 0: the schedule is empty */
};

/** Check the arguments for a dataset of @p samples, and set micro_batches and count. */
CDDP_CHECKED cddp_status
cddpi_micro_batch_schedule_plan(struct cddpi_micro_batch_schedule *schedule, uint64_t samples);

enum { CDDPI_BATCH_CHANNELS = 4 };

/* How bytes become floats; tokens are copied unchanged, and numbers become float32. */
struct cddpi_batch_maker {
    const struct cddpi_dataset *dataset; /* borrowed */
    uint64_t seed;
    int crop_padding;
    bool flip;
    bool skip_broken;
    struct cddpi_image_use use; /* for image files; `random` is not set */
    size_t sample_elements;     /* floats of one sample's input */
    size_t sample_labels;
    float tables[CDDPI_BATCH_CHANNELS][CDDPI_IMAGE_VALUES]; /* of a channel's bytes, normalised */
};

/* What is wrong with a batch; where broken files are replaced, what is wrong with the first of
 * them. */
struct cddpi_sample_fault {
    cddp_status status; /* why the batch is incomplete; CDDP_OK: it is complete */
    char text[1024];    /* "": no fault */
    int error_number;   /* the errno that caused it; 0: none */
};

/** Check the options and prepare the tables. */
CDDP_CHECKED cddp_status cddpi_batch_maker_init(const struct cddpi_data_loader_options *options,
                                                struct cddpi_batch_maker *out);

/** Make micro-batch @p number of @p schedule in the memory that @p out points to. Stops early, with
 *  an incomplete batch, when @p stop is set, or at a sample that cannot be made: a sequence with a
 *  token outside the vocabulary, a number that is not finite, or a broken image file. @p out_fault
 * then says why.
 *  @param scratch  For image files; one call at a time uses it. */
void cddpi_batch_make(const struct cddpi_batch_maker *maker,
                      const struct cddpi_micro_batch_schedule *schedule, uint64_t number,
                      const atomic_bool *stop, struct cddpi_image_scratch *scratch,
                      struct cddpi_micro_batch *out, struct cddpi_sample_fault *out_fault);

#endif
