/* stages_check.c - checks the parallel.* keys for pipeline stages over ranks. */
#include "base/error.h"
#include "train/batch_sizes.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/division.h"
#include "train/engines/stages/stages_state.h"

static cddp_status check_world(const struct cddpi_config *config, int world_size)
{
    if (world_size % config->parallel.pipeline != 0) {
        return cddpi_config_fail(config, "parallel.pipeline",
                                 "%d stages do not divide a world size of %d: start a multiple of "
                                 "%d ranks",
                                 config->parallel.pipeline, world_size, config->parallel.pipeline);
    }
    return CDDP_OK;
}

static cddp_status check_stages(const struct cddpi_config *config)
{
    int named = cddpi_stages_are_named(config) ? config->parallel.stages.count : 0;
    int stages = config->parallel.pipeline * config->parallel.chunks;

    if (config->parallel.chunks > 1 && config->parallel.schedule != CDDPI_PIPELINE_INTERLEAVED) {
        return cddpi_config_fail(config, "parallel.chunks",
                                 "only parallel.schedule = \"interleaved\" has several chunks a "
                                 "rank");
    }
    if (named > 0 && named != stages - 1) {
        return cddpi_config_fail(config, "parallel.stages",
                                 "names %d layers that begin a stage, but behind the first of %d "
                                 "stages there are %d",
                                 named, stages, stages - 1);
    }
    if (named > 0 && config->parallel.balance != 0) {
        return cddpi_config_fail(config, "parallel.balance",
                                 "is for stages that are chosen, but parallel.stages names them: "
                                 "leave one of the two out");
    }
    for (int i = 0; i < config->parallel.recompute.count; i++) {
        if (config->parallel.recompute.values[i] >= stages) {
            return cddpi_config_fail(config, "parallel.recompute",
                                     "there is no stage %d: stages are 0 to %d",
                                     config->parallel.recompute.values[i], stages - 1);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_check(const struct cddpi_config *config, int world_size)
{
    if (config->train.offload_optimizer) {
        return cddpi_config_fail(config, "train.offload_optimizer",
                                 "stages over ranks are on processors: leave this out");
    }
    CDDPI_TRY(cddpi_single_check_stage_names(config));
    CDDPI_TRY(check_world(config, world_size));
    CDDPI_TRY(cddpi_trainer_check_pipeline_batches(config));
    CDDPI_TRY(check_stages(config));
    return config->train.generate_steps == 0
               ? CDDP_OK
               : cddpi_config_fail(config, "train.generate_steps",
                                   "text cannot be generated on the way by a model that is divided "
                                   "into stages (parallel.pipeline); a checkpoint of it can: "
                                   "cddp-train --generate");
}

/* A pipeline's schedule is made for the number of micro-batches in the configuration, so each share
 * must have that many. The smallest share of a full step has the fewest. */
static cddp_status check_division(const struct cddpi_config *config, int replicas)
{
    int64_t asked = cddpi_trainer_micro_batches(config);
    int64_t share = config->train.batch_size / replicas;
    int64_t samples = cddpi_trainer_micro_batch(config, replicas);
    int64_t made = (share + samples - 1) / samples;

    if (made == asked) {
        return CDDP_OK;
    }
    return cddpi_config_fail(
        config, config->parallel.micro_batches > 0 ? "parallel.micro_batches" : "train.accumulate",
        "a pipeline's share of train.batch_size = %lld is %lld, which makes %lld micro-batches of "
        "%lld samples, but not %lld: let their number divide the share",
        (long long)config->train.batch_size, (long long)share, (long long)made, (long long)samples,
        (long long)asked);
}

cddp_status cddpi_stages_check_batch(const struct cddpi_config *config, int replicas)
{
    CDDPI_TRY(cddpi_trainer_check_batch(config, replicas, "a number of replicas"));
    return check_division(config, replicas);
}
