/* replicated_engine.h - owns a run in which each rank has copies of the model on several devices
 * (parallel.type = "data_parallel"), for the files of this folder only. */
#ifndef CDDPI_TRAIN_REPLICATED_REPLICATED_ENGINE_H
#define CDDPI_TRAIN_REPLICATED_REPLICATED_ENGINE_H

#include "parallel/replicated/replicated.h"
#include "train/engines/own_devices.h"

struct cddpi_replicated_engine {
    struct cddpi_own_devices own;
    struct cddpi_replicated *model;
};

static inline struct cddpi_replicated_engine *
cddpi_replicated_engine_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

CDDP_CHECKED cddp_status cddpi_replicated_engine_check(const struct cddpi_config *config,
                                                       int world_size);
/** Copy the model that @p spec describes to each device of this rank. */
CDDP_CHECKED cddp_status cddpi_replicated_engine_build(struct cddpi_trainer *trainer,
                                                       const struct cddpi_model_spec *spec);
/** Print the devices and which layers are copied to them. */
CDDP_CHECKED cddp_status cddpi_replicated_engine_describe(const struct cddpi_config *config,
                                                          const struct cddpi_model_spec *spec,
                                                          int samples, FILE *file);

#endif
