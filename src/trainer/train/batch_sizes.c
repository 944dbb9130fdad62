/* batch_sizes.c - owns the arithmetic of global batches, shares and micro-batches. */
#include "train/batch_sizes.h"

#include "nn/model.h"
#include "parallel/pipeline/pipeline_schedule.h"

int64_t cddpi_trainer_all_micro_batches(const struct cddpi_config *config, int64_t samples)
{
    return (samples + config->train.micro_batch - 1) / config->train.micro_batch;
}

int64_t cddpi_trainer_micro_batches(const struct cddpi_config *config, int replicas)
{
    int64_t count = config->parallel.micro_batches;

    if (cddpi_trainer_by_position(config)) {
        count = cddpi_trainer_all_micro_batches(config, config->train.batch_size);
        return (count + replicas - 1) / replicas;
    }
    return count > 0 ? count : config->train.accumulate;
}

static cddp_status check_micro_batches(const struct cddpi_config *config, int replicas,
                                       const char *among)
{
    int64_t all = cddpi_trainer_all_micro_batches(config, config->train.batch_size);

    return all >= replicas
               ? CDDP_OK
               : cddpi_config_fail(
                     config, "train.micro_batch",
                     "train.batch_size = %lld has %lld micro-batches of %lld samples, "
                     "too few for %s of %d: use at most %lld, or a micro_batch of at "
                     "most %lld (then results have other bits)",
                     (long long)config->train.batch_size, (long long)all,
                     (long long)config->train.micro_batch, among, replicas, (long long)all,
                     (long long)((config->train.batch_size - 1) / (replicas - 1)));
}

cddp_status cddpi_trainer_check_batch(const struct cddpi_config *config, int replicas,
                                      const char *among)
{
    int64_t share = config->train.batch_size / replicas;

    if (share < 1) {
        return cddpi_config_fail(config, "train.batch_size",
                                 "%lld samples cannot be divided among %s of %d: each "
                                 "rank needs at least one",
                                 (long long)config->train.batch_size, among, replicas);
    }
    if (config->train.micro_batch == CDDPI_AUTO) {
        return CDDP_OK; /* each replica will have one */
    }
    if (cddpi_trainer_by_position(config)) {
        return check_micro_batches(config, replicas, among);
    }
    if (cddpi_trainer_micro_batches(config, replicas) > share) {
        return cddpi_config_fail(
            config,
            config->parallel.micro_batches > 0 ? "parallel.micro_batches" : "train.accumulate",
            "a rank's share of train.batch_size = %lld is %lld in %s of %d, which cannot "
            "be cut into %lld micro-batches: accumulate at most %lld, or let the batch have at "
            "least %lld samples",
            (long long)config->train.batch_size, (long long)share, among, replicas,
            (long long)cddpi_trainer_micro_batches(config, replicas), (long long)share,
            (long long)cddpi_trainer_micro_batches(config, replicas) * replicas);
    }
    return CDDP_OK;
}

int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int replicas)
{
    int64_t share = (config->train.batch_size + replicas - 1) / replicas;
    int64_t count = cddpi_trainer_micro_batches(config, replicas);

    if (cddpi_trainer_by_position(config)) {
        return config->train.micro_batch;
    }
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

cddp_status cddpi_trainer_check_pipeline_batches(const struct cddpi_config *config)
{
    int64_t count = config->parallel.micro_batches;

    if (count > 0 && config->train.accumulate > 1 && config->train.accumulate != count) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is %lld, but train.accumulate = %lld says another number of "
                                 "micro-batches: give one of the two",
                                 (long long)count, (long long)config->train.accumulate);
    }
    if (config->parallel.schedule != CDDPI_PIPELINE_GPIPE || count <= CDDPI_MODEL_SLOTS) {
        return CDDP_OK;
    }
    return cddpi_config_fail(config, "parallel.micro_batches",
                             "gpipe keeps all %lld micro-batches at once, and at most %d are "
                             "possible: use 1f1b",
                             (long long)count, CDDPI_MODEL_SLOTS);
}

/* Samples in the last micro-batch of @p share samples, in micro-batches of @p size. */
static int64_t last_part(int64_t share, int64_t size)
{
    int64_t rest = share % size;

    return rest > 0 ? rest : share < size ? share : size;
}

int64_t cddpi_trainer_smallest_micro_batch(const struct cddpi_config *config, int replicas,
                                           int64_t batch)
{
    int64_t size = cddpi_trainer_micro_batch(config, replicas);
    int64_t large = (batch + replicas - 1) / replicas;
    int64_t small = batch / replicas;
    int64_t least;

    if (cddpi_trainer_by_position(config)) {
        return batch > 0 ? last_part(batch, size) : 0;
    }
    least = large > 0 ? last_part(large, size) : 0;

    if (small > 0 && last_part(small, size) < least) {
        least = last_part(small, size);
    }
    return least;
}
