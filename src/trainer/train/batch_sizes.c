/* batch_sizes.c - owns the arithmetic of global batches, shares and micro-batches. */
#include "train/batch_sizes.h"

int64_t cddpi_trainer_micro_batches(const struct cddpi_config *config)
{
    int64_t count = config->parallel.micro_batches;

    return count > 0 ? count : config->train.accumulate;
}

/* A pipeline's schedule is made for the micro-batches that were asked for. The smallest share of a
 * full step is looked at: it has the fewest. */
static cddp_status check_division(const struct cddpi_config *config, int replicas)
{
    int64_t asked = cddpi_trainer_micro_batches(config);
    int64_t share = config->train.batch_size / replicas;
    int64_t samples = cddpi_trainer_micro_batch(config, replicas);
    int64_t made = (share + samples - 1) / samples;

    if (config->parallel.pipeline == 1 || made == asked) {
        return CDDP_OK;
    }
    return cddpi_config_fail(
        config, config->parallel.micro_batches > 0 ? "parallel.micro_batches" : "train.accumulate",
        "a pipeline's share of train.batch_size = %lld is %lld, which makes %lld micro-batches of "
        "%lld samples, but not %lld: let their number divide the share",
        (long long)config->train.batch_size, (long long)share, (long long)made, (long long)samples,
        (long long)asked);
}

cddp_status cddpi_trainer_check_batch(const struct cddpi_config *config, int replicas)
{
    const char *ranks = config->parallel.pipeline > 1 ? "a number of replicas" : "a world size";
    int64_t share = config->train.batch_size / replicas;

    if (share < 1) {
        return cddpi_config_fail(config, "train.batch_size",
                                 "%lld samples cannot be divided among %s of %d: each "
                                 "rank needs at least one",
                                 (long long)config->train.batch_size, ranks, replicas);
    }
    if (cddpi_trainer_micro_batches(config) > share) {
        return cddpi_config_fail(
            config,
            config->parallel.micro_batches > 0 ? "parallel.micro_batches" : "train.accumulate",
            "a rank's share of train.batch_size = %lld is %lld in %s of %d, which cannot "
            "be cut into %lld micro-batches: accumulate at most %lld, or let the batch have at "
            "least %lld samples",
            (long long)config->train.batch_size, (long long)share, ranks, replicas,
            (long long)cddpi_trainer_micro_batches(config), (long long)share,
            (long long)cddpi_trainer_micro_batches(config) * replicas);
    }
    return check_division(config, replicas);
}

int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int replicas)
{
    int64_t share = (config->train.batch_size + replicas - 1) / replicas;
    int64_t count = cddpi_trainer_micro_batches(config);

    return (share + count - 1) / count;
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
