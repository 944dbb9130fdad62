/* placed_engine_check.c - checks the parallel.* and train.* keys before layers are placed on
 * devices. */
#include "base/error.h"
#include "train/batch_sizes.h"
#include "train/engines/placed/placed_engine.h"
#include "train/engines/single/single.h"

static cddp_status check_micro_batches(const struct cddpi_config *config)
{
    CDDPI_TRY(cddpi_trainer_check_pipeline_batches(config));
    return config->parallel.micro_batches > 1 && cddpi_trainer_has_sync(config)
               ? cddpi_config_fail(config, "parallel.micro_batches",
                                   "several are on their way at once, but batch_norm over all "
                                   "ranks (sync) takes statistics of one of them")
               : CDDP_OK;
}

static cddp_status check_model_parallel(const struct cddpi_config *config)
{
    if (config->parallel.placement[0] != '\0' && config->parallel.stages.count > 0) {
        return cddpi_config_fail(config, "parallel.placement",
                                 "parallel.stages say where layers are, too: give one of the two");
    }
    return check_micro_batches(config);
}

/* Check a run with one GPU whose optimizer is in host memory. */
static cddp_status check_offload(const struct cddpi_config *config)
{
    const char *words = config->train.device != CDDPI_TRAIN_ON_CUDA
                            ? "is for ranks with a GPU each: it needs train.device = \"cuda\""
                        : config->model.type == CDDPI_MODEL_DCGAN
                            ? "dcgan's two optimizers are on its device: leave this out"
                        : cddpi_trainer_has_sync(config)
                            ? "leaves ranks no exchange of statistics of batch_norm (sync): "
                              "leave this out"
                            : NULL;

    return words == NULL ? CDDP_OK
                         : cddpi_config_fail(config, "train.offload_optimizer", "%s", words);
}

cddp_status cddpi_placed_engine_check(const struct cddpi_config *config, int world_size)
{
    if (config->parallel.type == CDDPI_PARALLEL_RANKS) {
        CDDPI_TRY(check_offload(config));
        CDDPI_TRY(cddpi_own_devices_check_generate(config));
        return cddpi_single_check(config, world_size);
    }
    CDDPI_TRY(cddpi_own_devices_check(config));
    CDDPI_TRY(check_model_parallel(config));
    return cddpi_own_devices_check_generate(config);
}
