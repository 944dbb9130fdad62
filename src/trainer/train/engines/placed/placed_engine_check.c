/* placed_engine_check.c - owns what is refused of parallel.* and train.devices before there is a
 * model. */
#include "train/engines/placed/placed_engine.h"

bool cddpi_trainer_has_sync(const struct cddpi_config *config)
{
    bool sync = config->model.sync_batch_norm;

    for (int i = 0; i < config->model.layers.count; i++) {
        sync = sync || config->model.layers.values[i].sync;
    }
    return sync;
}

static cddp_status check_data_parallel(const struct cddpi_config *config)
{
    if (config->parallel.stages.count > 0) {
        return cddpi_config_fail(config, "parallel.stages",
                                 "with parallel.type = \"data_parallel\" each device has all "
                                 "layers");
    }
    if (config->parallel.micro_batches > 1) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is for pipelines; with parallel.type = \"data_parallel\" "
                                 "train.accumulate makes micro-batches");
    }
    return cddpi_trainer_has_sync(config)
               ? cddpi_config_fail(config, "parallel.type",
                                   "\"data_parallel\" cannot take statistics of batch_norm over "
                                   "all devices (sync): start a rank for each device")
               : CDDP_OK;
}

static cddp_status check_micro_batches(const struct cddpi_config *config)
{
    int64_t count = config->parallel.micro_batches;

    if (count > 0 && config->train.accumulate > 1 && config->train.accumulate != count) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is %lld, but train.accumulate = %lld says another number of "
                                 "micro-batches: give one of the two",
                                 (long long)count, (long long)config->train.accumulate);
    }
    if (count > 1 && cddpi_trainer_has_sync(config)) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "several are on their way at once, but batch_norm over all ranks "
                                 "(sync) takes statistics of one of them");
    }
    if (count > CDDPI_MODEL_SLOTS && config->parallel.schedule == CDDPI_PIPELINE_GPIPE) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "gpipe keeps all %lld micro-batches at once, and at most %d are "
                                 "possible: use 1f1b",
                                 (long long)count, CDDPI_MODEL_SLOTS);
    }
    return CDDP_OK;
}

static cddp_status check_model_parallel(const struct cddpi_config *config)
{
    if (config->parallel.placement[0] != '\0' && config->parallel.stages.count > 0) {
        return cddpi_config_fail(config, "parallel.placement",
                                 "parallel.stages say where layers are, too: give one of the two");
    }
    return check_micro_batches(config);
}

/* Keys that only stages over ranks read. */
static cddp_status check_others(const struct cddpi_config *config)
{
    const char *key = config->parallel.balance != 0          ? "parallel.balance"
                      : config->parallel.memory_bytes > 0    ? "parallel.memory_bytes"
                      : config->parallel.recompute.count > 0 ? "parallel.recompute"
                                                             : NULL;

    return key == NULL ? CDDP_OK
                       : cddpi_config_fail(config, key,
                                           "is for stages over ranks (parallel.pipeline): leave "
                                           "this out");
}

static cddp_status check_generate(const struct cddpi_config *config)
{
    return config->train.generate_steps > 0
               ? cddpi_config_fail(config, "train.generate_steps",
                                   "text cannot be generated on the way by a model on several "
                                   "devices, or whose optimizer is not on its GPU; from a "
                                   "checkpoint of it it can: cddp-train --generate")
               : CDDP_OK;
}

cddp_status cddpi_trainer_offload_check(const struct cddpi_config *config)
{
    const char *words = config->parallel.type != CDDPI_PARALLEL_RANKS
                            ? "where a rank has several devices the optimizer is in the "
                              "processor's memory always: leave this out"
                        : config->parallel.pipeline > 1
                            ? "stages over ranks are on processors: leave this out"
                        : config->train.device != CDDPI_TRAIN_ON_CUDA
                            ? "is for ranks with a GPU each: it needs train.device = \"cuda\""
                        : config->model.type == CDDPI_MODEL_DCGAN
                            ? "dcgan's two optimizers are on its device: leave this out"
                        : cddpi_trainer_has_sync(config)
                            ? "leaves ranks no exchange of statistics of batch_norm (sync): "
                              "leave this out"
                            : NULL;

    return words != NULL ? cddpi_config_fail(config, "train.offload_optimizer", "%s", words)
                         : check_generate(config);
}

cddp_status cddpi_trainer_placed_check(const struct cddpi_config *config)
{
    cddp_status status;

    if (config->parallel.pipeline > 1) {
        return cddpi_config_fail(config, "parallel.pipeline",
                                 "is for stages over ranks, where parallel.type = \"ranks\"");
    }
    if (config->train.device == CDDPI_TRAIN_ON_CUDA) {
        return cddpi_config_fail(config, "train.device",
                                 "with parallel.type = \"model_parallel\" or \"data_parallel\" "
                                 "train.devices or parallel.placement name the GPUs: leave this "
                                 "out");
    }
    status = check_others(config);
    if (status == CDDP_OK) {
        status = config->parallel.type == CDDPI_PARALLEL_DATA ? check_data_parallel(config)
                                                              : check_model_parallel(config);
    }
    return status == CDDP_OK ? check_generate(config) : status;
}
