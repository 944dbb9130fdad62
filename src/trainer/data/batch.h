/* batch.h - making one batch: a pure function of which samples and which random stream, that writes
 * to memory it is given. Any thread, any number at once. */
#ifndef CDDPI_DATA_BATCH_H
#define CDDPI_DATA_BATCH_H

#include "data/data_loader.h"
#include "data/images/sample.h"
#include "data/micro_batch_schedule.h"
#include "kernels/cpu/image.h"

#include <stdatomic.h>

enum { CDDPI_BATCH_CHANNELS = 4 };

/* How bytes become floats; tokens stay what they are. */
struct cddpi_batch_maker {
    const struct cddpi_dataset *dataset; /* borrowed */
    uint64_t seed;
    int crop_padding;
    bool flip;
    bool skip_broken;
    struct cddpi_image_use use; /* of image files, but for whether at random */
    size_t sample_elements;     /* of the input */
    size_t sample_labels;
    float tables[CDDPI_BATCH_CHANNELS][CDDPI_IMAGE_VALUES]; /* a channel's bytes, normalised */
};

/* What is wrong with a batch, or, where broken files are replaced, with the first of them. */
struct cddpi_sample_fault {
    cddp_status status; /* why the batch is not whole; CDDP_OK: it is */
    char text[1024];    /* "": nothing is wrong */
};

/** Check the options and prepare the tables. */
CDDP_CHECKED cddp_status cddpi_batch_maker_init(const struct cddpi_data_loader_options *options,
                                                struct cddpi_batch_maker *out);

/** Make micro-batch @p number of @p schedule in the memory that @p out names. Stops early, leaving
 * it incomplete, once @p stop is set, or before a sample that cannot be made: a sequence with a
 * token outside the vocabulary, a broken image file; @p out_fault says so then.
 *  @param scratch  For image files; used by one call at a time. */
void cddpi_batch_make(const struct cddpi_batch_maker *maker,
                      const struct cddpi_micro_batch_schedule *schedule, uint64_t number,
                      const atomic_bool *stop, struct cddpi_image_scratch *scratch,
                      struct cddpi_micro_batch *out, struct cddpi_sample_fault *out_fault);

#endif
