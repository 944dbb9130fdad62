/* micro_batch_schedule.c - owns how batches are split: into micro-batches of one size and a rest,
 * equally many on every rank. */
#include "data/micro_batch_schedule.h"

#include "base/error.h"

/* The number of micro-batches in a batch of @p count samples. It is the same on all ranks, so that
 * the collectives of each micro-batch match; a rank's last ones may be empty. */
static uint64_t micro_batches_of(const struct cddpi_micro_batch_schedule *schedule, uint64_t count)
{
    uint64_t largest = cddp_share_of(0, count, 0, schedule->world_size).count;

    return largest > schedule->micro_batch_size ? (largest - 1) / schedule->micro_batch_size + 1
                                                : 1;
}

static cddp_status check_schedule(const struct cddpi_micro_batch_schedule *schedule,
                                  uint64_t samples)
{
    uint64_t order;

    if (schedule->sampler == NULL || schedule->batch == 0 || schedule->world_size < 1 ||
        schedule->rank < 0 || schedule->rank >= schedule->world_size) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "loader: batches of %llu samples cannot be divided for rank %d of %d ranks",
            (unsigned long long)schedule->batch, schedule->rank, schedule->world_size);
    }
    order = cddp_sampler_count(schedule->sampler);
    if (order > samples || schedule->first > schedule->end || schedule->end > order) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader: positions %llu to %llu are outside an order of %llu samples, or "
                          "that is longer than the dataset of %llu",
                          (unsigned long long)schedule->first, (unsigned long long)schedule->end,
                          (unsigned long long)order, (unsigned long long)samples);
    }
    return CDDP_OK;
}

cddp_status cddpi_micro_batch_schedule_plan(struct cddpi_micro_batch_schedule *schedule,
                                            uint64_t samples)
{
    uint64_t positions, left;

    CDDPI_TRY(check_schedule(schedule, samples));
    positions = schedule->end - schedule->first;
    left = positions % schedule->batch;
    schedule->micro_batches = micro_batches_of(
        schedule, positions < schedule->batch ? positions : schedule->batch);
    schedule->count = positions / schedule->batch * schedule->micro_batches +
                      (left > 0 ? micro_batches_of(schedule, left) : 0);
    return CDDP_OK;
}

/* The positions of the batch that micro-batch @p number belongs to. */
static cddp_share batch_of(const struct cddpi_micro_batch_schedule *schedule, uint64_t number)
{
    uint64_t first = schedule->first + number / schedule->micro_batches * schedule->batch;
    uint64_t left = schedule->end - first;

    return (cddp_share){first, left < schedule->batch ? left : schedule->batch};
}

cddp_share cddpi_micro_batch_schedule_share(const struct cddpi_micro_batch_schedule *schedule,
                                            uint64_t number)
{
    cddp_share batch = batch_of(schedule, number);

    return cddp_share_of(batch.first, batch.count, schedule->rank, schedule->world_size);
}

bool cddpi_micro_batch_schedule_is_even(const struct cddpi_micro_batch_schedule *schedule,
                                        uint64_t number)
{
    return batch_of(schedule, number).count % (uint64_t)schedule->world_size == 0;
}

cddp_share cddpi_micro_batch_schedule_part(const struct cddpi_micro_batch_schedule *schedule,
                                           uint64_t number)
{
    cddp_share share = cddpi_micro_batch_schedule_share(schedule, number);
    uint64_t skipped = number % schedule->micro_batches * schedule->micro_batch_size;

    skipped = skipped < share.count ? skipped : share.count;
    share.first += skipped;
    share.count -= skipped;
    share.count = share.count < schedule->micro_batch_size ? share.count
                                                           : schedule->micro_batch_size;
    return share;
}

bool cddpi_micro_batch_schedule_ends_batch(const struct cddpi_micro_batch_schedule *schedule,
                                           uint64_t number)
{
    return number + 1 == schedule->count || (number + 1) % schedule->micro_batches == 0;
}
