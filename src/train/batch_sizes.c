/* batch_sizes.c - owns the arithmetic of global batches, shares and micro-batches. */
#include "train/batch_sizes.h"

cddp_status cddpi_trainer_check_batch(const struct cddpi_config *config, int world_size)
{
    int64_t share = config->train.batch_size / world_size;

    if (share < 1) {
        return cddpi_config_fail(config, "train.batch_size",
                                 "%lld samples cannot be divided among a world size of %d: each "
                                 "rank needs at least one",
                                 (long long)config->train.batch_size, world_size);
    }
    if (config->train.accumulate > share) {
        return cddpi_config_fail(
            config, "train.accumulate",
            "a rank's share of train.batch_size = %lld is %lld in a world size of %d, which cannot "
            "be cut into %lld micro-batches: accumulate at most %lld, or let the batch have at "
            "least %lld samples",
            (long long)config->train.batch_size, (long long)share, world_size,
            (long long)config->train.accumulate, (long long)share,
            (long long)config->train.accumulate * world_size);
    }
    return CDDP_OK;
}

int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int world_size)
{
    int64_t share = (config->train.batch_size + world_size - 1) / world_size;

    return (share + config->train.accumulate - 1) / config->train.accumulate;
}

uint64_t cddpi_trainer_steps_left(const struct cddpi_config *config, uint64_t samples,
                                  const struct cddpi_cursor *cursor)
{
    uint64_t batch = (uint64_t)config->train.batch_size;
    uint64_t epochs = (uint64_t)config->train.epochs;
    uint64_t rest;

    if (cursor->epoch >= epochs) {
        return 0;
    }
    rest = samples - cursor->position;
    return (rest + batch - 1) / batch +
           (epochs - cursor->epoch - 1) * ((samples + batch - 1) / batch);
}
