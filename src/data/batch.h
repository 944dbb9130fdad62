/* batch.h - making one batch: a pure function of which samples and which random stream, that writes
 * to memory it is given. Any thread, any number at once. */
#ifndef CDDPI_DATA_BATCH_H
#define CDDPI_DATA_BATCH_H

#include "data/loader.h"
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
    size_t sample_elements; /* of the input */
    size_t sample_labels;
    float tables[CDDPI_BATCH_CHANNELS][CDDPI_IMAGE_VALUES]; /* a channel's bytes, normalised */
};

/** Check the options and prepare the tables. */
CDDP_CHECKED cddp_status cddpi_batch_maker_init(const struct cddpi_loader_options *options,
                                                struct cddpi_batch_maker *out);

/** Make micro-batch @p number of @p schedule in the memory that @p out names. Stops early, leaving
 * it incomplete, once @p stop is set, or before a sequence with a token outside the vocabulary:
 *  @p out_fault says which then, else its path is NULL. */
void cddpi_batch_make(const struct cddpi_batch_maker *maker,
                      const struct cddpi_micro_batch_schedule *schedule, uint64_t number,
                      const atomic_bool *stop, struct cddpi_micro_batch *out,
                      struct cddpi_token_fault *out_fault);

#endif
