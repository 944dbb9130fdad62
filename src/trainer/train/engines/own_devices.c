/* own_devices.c - owns checks and reports for engines whose ranks open several devices. */
#include "train/engines/own_devices.h"

#include "base/error.h"
#include "train/micro_batch.h"
#include "train/telemetry/device_memory.h"

bool cddpi_trainer_has_sync(const struct cddpi_config *config)
{
    bool sync = config->model.sync_batch_norm;

    for (int i = 0; i < config->model.layers.count; i++) {
        sync = sync || config->model.layers.values[i].sync;
    }
    return sync;
}

/* Refuse keys that only pipelines over ranks read. */
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

cddp_status cddpi_own_devices_check(const struct cddpi_config *config)
{
    if (config->train.offload_optimizer) {
        return cddpi_config_fail(config, "train.offload_optimizer",
                                 "where a rank has several devices the optimizer is in the "
                                 "processor's memory always: leave this out");
    }
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
    return check_others(config);
}

cddp_status cddpi_own_devices_check_generate(const struct cddpi_config *config)
{
    return config->train.generate_steps > 0
               ? cddpi_config_fail(config, "train.generate_steps",
                                   "text cannot be generated on the way by a model on several "
                                   "devices, or whose optimizer is not on its GPU; from a "
                                   "checkpoint of it it can: cddp-train --generate")
               : CDDP_OK;
}

cddp_status cddpi_own_devices_add_late(const struct cddpi_trainer *trainer,
                                       struct cddpi_loss_result late, struct cddpi_loss_result *out)
{
    out->loss_sum += late.loss_sum;
    out->correct += late.correct;
    return cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, late.loss_sum);
}

cddp_status cddpi_own_devices_param_wait(void *ddp, size_t index)
{
    return cddp_ddp_param_wait(ddp, index);
}

int cddpi_own_devices_count(const struct cddpi_trainer *trainer)
{
    const cddp_devices *devices = cddpi_own_devices_of(trainer);

    return devices->count + (cddpi_devices_have_gpu(devices) ? 1 : 0);
}

void cddpi_own_devices_name(const struct cddpi_trainer *trainer, int device, char *out,
                            size_t bytes)
{
    const cddp_devices *devices = cddpi_own_devices_of(trainer);

    snprintf(out, bytes, "%s", device == devices->count ? "process" : devices->cores[device].name);
}

/* A parameter is reduced and updated where it is. For a GPU, that is host memory, and the GPU has
 * only a copy. */
void cddpi_own_devices_add_param(const struct cddpi_trainer *trainer, size_t index, int device,
                                 struct cddpi_held_memory *all)
{
    const cddp_devices *devices = cddpi_own_devices_of(trainer);

    if (cddpi_device_is_async(devices->cores[device].device)) {
        device = devices->count;
        all[device].parameters += cddpi_tensors_bytes(&trainer->params[index], 1);
    }
    cddpi_trainer_add_param_memory(trainer, index, &all[device]);
}
