/* lone_norm.c - owns the warning about batch normalisation of a single value: the variance is 0, so
 * the output is the bias for any input, and no gradient passes. */
#include "train/lone_norm.h"

#include "train/batch_sizes.h"

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
    int64_t least = large > 0 ? last_part(large, size) : 0;

    if (small > 0 && last_part(small, size) < least) {
        least = last_part(small, size);
    }
    return least;
}

void cddpi_trainer_warn_lone_norm(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int64_t batch = config->train.batch_size;
    int64_t rest = (int64_t)(trainer->train.data.count % (uint64_t)batch);
    bool always = cddpi_trainer_smallest_micro_batch(config, trainer->replica_count, batch) == 1;
    bool at_end = rest > 0 &&
                  cddpi_trainer_smallest_micro_batch(config, trainer->replica_count, rest) == 1;

    /* The ranks of one replica together have all layers. */
    if ((!always && !at_end) || trainer->replica != 0) {
        return;
    }
    for (int m = 0; m < trainer->model_count; m++) {
        const char *name = cddpi_model_lone_norm(trainer->models[m].model);

        if (name != NULL) {
            cddpi_trainer_warn(
                trainer,
                "batch_norm \"%s\" has one value a channel in a sample, and %s "
                "micro-batches of one sample: of these nothing is left but the bias, "
                "and what is before learns nothing (PyTorch refuses them). Let "
                "train.batch_size give each rank two samples at least, or "
                "normalise over all ranks (sync)",
                name, always ? "each step has" : "the last step of an epoch has");
            return;
        }
    }
}
