/* placed_engine.h - a run whose ranks have devices of their own, several (parallel.type) or one GPU
 * whose optimizer is on the processor: what parts of the trainer do otherwise then. Each rank has
 * the whole model, in segments on its devices or as a copy on each, and all parameters are in the
 * processor's memory: reducer, optimizer, evaluation and checkpoints are those of one device. */
#ifndef CDDPI_TRAIN_PLACED_PLACED_H
#define CDDPI_TRAIN_PLACED_PLACED_H

#include "parallel/placed/placed.h"
#include "parallel/replicated/replicated.h"
#include "train/step.h"
#include "train/step_batches.h"

struct cddpi_trainer_placed {
    cddp_devices *devices;
    struct cddpi_placed *model;          /* layers on devices; or ... */
    struct cddpi_replicated *replicated; /* ... a copy on each; the other is NULL */
    bool pipelined;                      /* several micro-batches are on their way at once */
    struct cddpi_step_batches batches;
};

/** What parallel.* and train.devices ask for that cannot be, as far as it shows without the model:
 *  CDDP_ERR_CONFIG. */
CDDP_CHECKED cddp_status cddpi_trainer_placed_check(const struct cddpi_config *config);

/** Whether ranks have devices of their own (trainer->placed), while the group's is the processor:
 *  several of them, or one GPU whose optimizer is here. */
static inline bool cddpi_trainer_has_devices(const struct cddpi_config *config)
{
    return config->parallel.type != CDDPI_PARALLEL_RANKS || config->train.offload_optimizer;
}

/** Likewise of train.offload_optimizer, where that is true. */
CDDP_CHECKED cddp_status cddpi_trainer_offload_check(const struct cddpi_config *config);

/** Whether statistics of a layer are taken over ranks. */
bool cddpi_trainer_has_sync(const struct cddpi_config *config);

/** The devices that the configuration names.
 *  @param group  Whose rank the process is; NULL: of none, as in a dry run.
 *  @param out    cddp_devices_destroy().
 *  @return CDDP_OK; CDDP_ERR_CONFIG; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_trainer_open_devices(const struct cddpi_config *config,
                                                    const cddp_group *group, cddp_devices **out);
/** data_parallel: on which of @p devices outputs come together. */
CDDP_CHECKED cddp_status cddpi_trainer_output_device(const struct cddpi_config *config,
                                                     const cddp_devices *devices, int *out);
/** data_parallel: which layers have copies; both 0: all. */
CDDP_CHECKED cddp_status cddpi_trainer_copied_layers(const struct cddpi_config *config,
                                                     const struct cddpi_model_spec *spec,
                                                     struct cddpi_layer_range *out);
/** model_parallel: the devices that the configuration names, and which layers are where.
 *  @param group    Rank 0 measures for it if nothing is said; NULL: this rank does.
 *  @param samples  Of a micro-batch, for that.
 *  @param devices  cddp_devices_destroy(). @param out  cddpi_free().
 *  @return CDDP_OK; CDDP_ERR_CONFIG with the key that is wrong, and where it was given. */
CDDP_CHECKED cddp_status cddpi_trainer_placement(const struct cddpi_config *config,
                                                 const struct cddpi_model_spec *spec,
                                                 cddp_group *group, int samples,
                                                 cddp_devices **devices, struct cddpi_segment **out,
                                                 int *out_count);

/** The model that @p spec describes on this rank's devices, as trainer->placed and trainer->models.
 *  Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_build_placed(struct cddpi_trainer *trainer,
                                                    const struct cddpi_model_spec *spec);
void cddpi_trainer_destroy_placed(struct cddpi_trainer *trainer);

/* What a trainer does with the model, of either kind: as the functions of a model. */

CDDP_CHECKED cddp_status cddpi_trainer_placed_forward(struct cddpi_trainer_placed *placed,
                                                      const struct cddpi_batch *batch,
                                                      bool training, struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_trainer_placed_backward(struct cddpi_trainer_placed *placed,
                                                       double scale, bool accumulate,
                                                       cddpi_grad_ready_fn ready, void *context);
/** As cddpi_placed_late(). */
struct cddpi_loss_result cddpi_trainer_placed_late(const struct cddpi_trainer_placed *placed);
void cddpi_trainer_placed_bind_grads(struct cddpi_trainer_placed *placed, void *const *grads);
void cddpi_trainer_placed_bind_params(struct cddpi_trainer_placed *placed, void *const *data,
                                      cddpi_param_wait_fn wait, void *context);
bool cddpi_trainer_placed_param_decays(const struct cddpi_trainer_placed *placed, size_t index);
/** The device whose memory has the rank's parameter @p index, its gradient and its moments; of a
 *  GPU only a copy, which it computes with: the processor's memory has these. */
int cddpi_trainer_placed_param_device(const struct cddpi_trainer_placed *placed, size_t index);
const uint32_t *cddpi_trainer_placed_ready_order(const struct cddpi_trainer_placed *placed);

/** A step whose micro-batches are on their way at once: all of them, and the mean over ranks. */
CDDP_CHECKED cddp_status cddpi_trainer_placed_compute(struct cddpi_trainer *trainer,
                                                      struct cddpi_train_step *step);

/** Print what is on which device; nothing where each rank has one. */
CDDP_CHECKED cddp_status cddpi_trainer_describe_placed(const struct cddpi_config *config,
                                                       const struct cddpi_model_spec *spec,
                                                       int samples, FILE *file);

#endif
