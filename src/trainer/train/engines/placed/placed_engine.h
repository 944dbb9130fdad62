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

CDDP_CHECKED cddp_status cddpi_placed_engine_check(const struct cddpi_config *config,
                                                   int world_size);

/** Open the configured devices, and decide which layers are on which of them.
 *  @param group    If nothing is configured, rank 0 measures for the group; NULL: this rank
 *                  measures.
 *  @param samples  Of a micro-batch, for measuring.
 *  @param devices  Release with cddp_devices_destroy().
 *  @param out      Release with cddpi_free().
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the text has the faulty key and where it was set. */
CDDP_CHECKED cddp_status cddpi_trainer_placement(const struct cddpi_config *config,
                                                 const struct cddpi_model_spec *spec,
                                                 cddp_group *group, int samples,
                                                 cddp_devices **devices, struct cddpi_segment **out,
                                                 int *out_count);

/** Build the model that @p spec describes on this rank's devices. Collective. */
CDDP_CHECKED cddp_status cddpi_placed_engine_build(struct cddpi_trainer *trainer,
                                                   const struct cddpi_model_spec *spec);
/** Print which layers are on which device; nothing with a single GPU. */
CDDP_CHECKED cddp_status cddpi_placed_engine_describe(const struct cddpi_config *config,
                                                      const struct cddpi_model_spec *spec,
                                                      int samples, FILE *file);
/** Run a step with all its micro-batches in a pipeline, and average the gradients over ranks. */
CDDP_CHECKED cddp_status cddpi_placed_engine_pipeline(struct cddpi_trainer *trainer,
                                                      struct cddpi_train_step *step);

#endif
