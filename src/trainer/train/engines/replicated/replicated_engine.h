/* replicated_engine.h - a run whose ranks have a copy of the model on each of several devices
 * (parallel.type = "data_parallel"), for the files of this folder. */
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
/** Make a copy of the model that @p spec describes on each device of this rank. */
CDDP_CHECKED cddp_status cddpi_replicated_engine_build(struct cddpi_trainer *trainer,
                                                       const struct cddpi_model_spec *spec);
/** Print which devices have a copy, and of what. */
CDDP_CHECKED cddp_status cddpi_replicated_engine_describe(const struct cddpi_config *config,
                                                          const struct cddpi_model_spec *spec,
                                                          int samples, FILE *file);

#endif
