/* micro_batch_schedule.h - calculates how the batches of an epoch are split into micro-batches, and
 * which positions of the sampler's order each micro-batch holds. Pure functions. */
#ifndef CDDPI_DATA_MICRO_BATCH_SCHEDULE_H
#define CDDPI_DATA_MICRO_BATCH_SCHEDULE_H

#include <cddp/sampler.h>

/* The arguments of cddpi_data_loader_start(), and what follows from them. */
struct cddpi_micro_batch_schedule {
    const cddp_sampler *sampler; /* borrowed */
    uint64_t epoch, first, end, batch;
    int rank, world_size;
    bool augment;
    uint64_t micro_batch_size; /* at most this many samples */
    uint64_t micro_batches;    /* per whole batch */
    uint64_t count;            /* micro-batches of all batches; 0: the schedule is empty */
};

/** Check the arguments for a dataset of @p samples, and set micro_batches and count. */
CDDP_CHECKED cddp_status
cddpi_micro_batch_schedule_plan(struct cddpi_micro_batch_schedule *schedule, uint64_t samples);

/** This rank's share of the batch that micro-batch @p number < count belongs to. */
cddp_share cddpi_micro_batch_schedule_share(const struct cddpi_micro_batch_schedule *schedule,
                                            uint64_t number);

/** Whether all ranks have a share of the same size. */
bool cddpi_micro_batch_schedule_is_even(const struct cddpi_micro_batch_schedule *schedule,
                                        uint64_t number);

/** The positions of the micro-batch itself: a part of that share. */
cddp_share cddpi_micro_batch_schedule_part(const struct cddpi_micro_batch_schedule *schedule,
                                           uint64_t number);

/** Whether it is the last one of its batch. */
bool cddpi_micro_batch_schedule_ends_batch(const struct cddpi_micro_batch_schedule *schedule,
                                           uint64_t number);

#endif
