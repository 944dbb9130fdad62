/* placed_engine.h - owns a run in which each rank has the whole model in segments on its own
 * devices: several (parallel.type = "model_parallel"), or one GPU with the optimizer in host
 * memory. For the files of this folder only. */
#ifndef CDDPI_TRAIN_PLACED_PLACED_H
#define CDDPI_TRAIN_PLACED_PLACED_H

#include "parallel/placed/placed.h"
#include "train/engines/own_devices.h"
#include "train/step_batches.h"

struct cddpi_placed_engine {
    struct cddpi_own_devices own;
    struct cddpi_placed *model;
    bool pipelined; /* several micro-batches are under way at once */
    struct cddpi_step_batches batches;
};

static inline struct cddpi_placed_engine *
cddpi_placed_engine_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

/** Build the model that @p spec describes on this rank's devices. Collective. */
CDDP_CHECKED cddp_status cddpi_placed_engine_build(struct cddpi_trainer *trainer,
                                                   const struct cddpi_model_spec *spec);
/** Print which layers are on which device; nothing with a single GPU. */
CDDP_CHECKED cddp_status cddpi_placed_engine_describe(const struct cddpi_config *config,
                                                      const struct cddpi_model_spec *spec,
                                                      int replicas, int samples, FILE *file);
#endif
