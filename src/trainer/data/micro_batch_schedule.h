/* micro_batch_schedule.h - the batches of an epoch, cut into micro-batches, as arithmetic: which
 * positions of the sampler's order micro-batch after micro-batch holds. */
#ifndef CDDPI_DATA_MICRO_BATCH_SCHEDULE_H
#define CDDPI_DATA_MICRO_BATCH_SCHEDULE_H

#include <cddp/sampler.h>

/* What a loader was asked for. */
struct cddpi_micro_batch_schedule {
    const cddp_sampler *sampler; /* borrowed */
    uint64_t epoch, first, end, batch;
    int rank, world_size;
    bool augment;
    uint64_t micro_batch_size; /* samples of a micro-batch, at most */
    uint64_t micro_batches;    /* of a whole batch */
    uint64_t count;            /* micro-batches of all batches; 0: nothing to do */
};

/** Check what was asked for, of a dataset of @p samples, and fill the last two. */
CDDP_CHECKED cddp_status
cddpi_micro_batch_schedule_plan(struct cddpi_micro_batch_schedule *schedule, uint64_t samples);

/** This rank's share of the batch that micro-batch @p number < count belongs to. */
cddp_share cddpi_micro_batch_schedule_share(const struct cddpi_micro_batch_schedule *schedule,
                                            uint64_t number);

/** Whether all ranks have a share of that size. */
bool cddpi_micro_batch_schedule_is_even(const struct cddpi_micro_batch_schedule *schedule,
                                        uint64_t number);

/** The micro-batch: a part of that share. */
cddp_share cddpi_micro_batch_schedule_part(const struct cddpi_micro_batch_schedule *schedule,
                                           uint64_t number);

/** Whether it is the last one of its batch. */
bool cddpi_micro_batch_schedule_ends_batch(const struct cddpi_micro_batch_schedule *schedule,
                                           uint64_t number);

#endif
