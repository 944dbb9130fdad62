/* placed_engine.h - a run whose ranks have devices of their own, several (parallel.type =
 * "model_parallel") or one GPU whose optimizer is on the processor: each rank has the whole model,
 * in segments on its devices. For the files of this folder; cddpi_trainer_open_devices() is for
 * copies of the model (replicated/), too. */
#ifndef CDDPI_TRAIN_PLACED_PLACED_H
#define CDDPI_TRAIN_PLACED_PLACED_H

#include "parallel/placed/placed.h"
#include "train/engines/own_devices.h"
#include "train/step_batches.h"

struct cddpi_placed_engine {
    struct cddpi_own_devices own;
    struct cddpi_placed *model;
    bool pipelined; /* several micro-batches are on their way at once */
    struct cddpi_step_batches batches;
};

static inline struct cddpi_placed_engine *
cddpi_placed_engine_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

CDDP_CHECKED cddp_status cddpi_placed_engine_check(const struct cddpi_config *config,
                                                   int world_size);

/** The devices that the configuration names.
 *  @param group  Whose rank the process is; NULL: of none, as in a dry run.
 *  @param out    cddp_devices_destroy().
 *  @return CDDP_OK; CDDP_ERR_CONFIG; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_trainer_open_devices(const struct cddpi_config *config,
                                                    const cddp_group *group, cddp_devices **out);
/** The devices that the configuration names, and which layers are where.
 *  @param group    Rank 0 measures for it if nothing is said; NULL: this rank does.
 *  @param samples  Of a micro-batch, for that.
 *  @param devices  cddp_devices_destroy(). @param out  cddpi_free().
 *  @return CDDP_OK; CDDP_ERR_CONFIG with the key that is wrong, and where it was given. */
CDDP_CHECKED cddp_status cddpi_trainer_placement(const struct cddpi_config *config,
                                                 const struct cddpi_model_spec *spec,
                                                 cddp_group *group, int samples,
                                                 cddp_devices **devices, struct cddpi_segment **out,
                                                 int *out_count);

/** Make the model that @p spec describes on this rank's devices. Collective. */
CDDP_CHECKED cddp_status cddpi_placed_engine_build(struct cddpi_trainer *trainer,
                                                   const struct cddpi_model_spec *spec);
/** Print which layers are on which device; nothing where there is one GPU. */
CDDP_CHECKED cddp_status cddpi_placed_engine_describe(const struct cddpi_config *config,
                                                      const struct cddpi_model_spec *spec,
                                                      int samples, FILE *file);
/** A step whose micro-batches are on their way at once: all of them, and the mean over ranks. */
CDDP_CHECKED cddp_status cddpi_placed_engine_pipeline(struct cddpi_trainer *trainer,
                                                      struct cddpi_train_step *step);

#endif
