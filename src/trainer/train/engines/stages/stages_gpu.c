/* stages_gpu.c - owns what a pipeline run does otherwise on GPUs, one for each rank: what is
 * refused, which gradients count for the norm, and when the losses are known. */
#include "base/alloc.h"
#include "base/error.h"
#include "train/batch_sizes.h"
#include "train/engines/stages/stages_state.h"

cddp_status cddpi_stages_check_gpu(const struct cddpi_config *config)
{
    const struct cddpi_config_rule rules[] = {
        {config->parallel.schedule == CDDPI_PIPELINE_ZERO_BUBBLE, "parallel.schedule",
         "zero_bubble is for CPUs: on GPUs, choose 1f1b, gpipe or interleaved"},
        {cddpi_trainer_by_position(config), "train.micro_batch",
         "pipelines on GPUs do not cut the batch by position: leave this out; "
         "parallel.micro_batches makes micro-batches"},
    };

    return cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules);
}

/* An earlier stage counts the squares of tied parameters. */
static cddp_status uncount_tied(struct cddpi_trainer *trainer)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    bool *skips = cddpi_zalloc_array(trainer->params.count + 1, sizeof *skips);
    bool any = false;
    cddp_status status;

    CDDPI_TRY_MEMORY(skips != NULL, "pipeline: no memory for %zu parameters",
                     trainer->params.count);
    for (size_t i = 0; i < trainer->params.count; i++) {
        skips[i] = cddpi_stages_owner(trainer, i) < stages->stage;
        any = any || skips[i];
    }
    status = any ? cddpi_optim_device_uncount(trainer->step.optim, skips) : CDDP_OK;
    cddpi_free(skips);
    return status;
}

cddp_status cddpi_stages_complete(struct cddpi_trainer *trainer)
{
    return cddpi_device_is_async(trainer->device) ? uncount_tied(trainer) : CDDP_OK;
}

cddp_group *cddpi_stages_norm_group(const struct cddpi_trainer *trainer)
{
    return trainer->config->ddp.shard_optimizer ? trainer->group : cddpi_stages_of(trainer)->group;
}

cddp_status cddpi_stages_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                     struct cddpi_loss_result *out)
{
    struct cddpi_model *last = trainer->models.list[trainer->models.count - 1].model;

    (void)step;
    *out = (struct cddpi_loss_result){0};
    return cddpi_model_has_loss(last) ? cddpi_model_result(last, out) : CDDP_OK;
}
