/* engine.h - a way to train: the model whole on one device, divided among ranks, placed on several
 * devices of each rank, copied to each of them, or the two networks of a GAN.
 *
 * An engine is a folder here and a row: one struct cddpi_engine, which engines.c lists. The rest of
 * the trainer calls the row's functions and never asks which engine it has. An engine that does
 * something as a whole model on one device names that function (single/single.h) in its row. */
#ifndef CDDPI_TRAIN_ENGINES_ENGINE_H
#define CDDPI_TRAIN_ENGINES_ENGINE_H

#include "checkpoint/snapshot.h"
#include "parallel/parallel_memory.h"
#include "train/step.h"

struct cddpi_report_line;

struct cddpi_engine {
    /* --- the configuration alone --- */

    /* Whether it trains what @p config describes; the first row of the list that does is taken. */
    bool (*fits)(const struct cddpi_config *config);
    /* CDDP_ERR_CONFIG: what the configuration asks for and this engine cannot do, for a world size;
     * for a batch that is divided among @p replicas of the model. */
    cddp_status (*check)(const struct cddpi_config *config, int world_size);
    cddp_status (*check_batch)(const struct cddpi_config *config, int replicas);
    /* Print what a dry run tells of it; @p samples: of a micro-batch. */
    cddp_status (*describe)(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                            int samples, FILE *file);
    bool owns_devices;            /* ranks open devices of their own: the group is on the processor
                                     whatever train.device is */
    bool replays;                 /* a step on a device may be captured and replayed */
    int forwards;                 /* before an update; 0: as train.accumulate says */
    const char *refuses_arrivals; /* why CDDP_ARRIVALS cannot be written; NULL: it can */

    /* --- from the group to the first step, in this order --- */

    /* The trainer has its group: make others, and the trainer's replicas. Collective. */
    cddp_status (*join)(struct cddpi_trainer *trainer);
    /* Make the model that @p spec describes: engine_state, model, models, params and buffers.
     * Collective. */
    cddp_status (*build)(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec);
    /* Load model.weights on rank 0; replicas get them by the reducer's broadcast. Collective. */
    cddp_status (*load_weights)(struct cddpi_trainer *trainer);
    /* The trainer has an optimizer, the first or another. Collective. */
    cddp_status (*optimizer_made)(struct cddpi_trainer *trainer);
    /* The trainer has model, reducer and optimizer: make what else there is. Collective. */
    cddp_status (*complete)(struct cddpi_trainer *trainer);
    /* The cursor and the learning rate are those with which the run begins. */
    void (*begin)(struct cddpi_trainer *trainer);
    /* Release what these made, also after only some of them were called or succeeded. */
    void (*destroy)(struct cddpi_trainer *trainer);

    /* --- the rank's parameters --- */

    /* Let backward write gradients to trainer->grads. */
    void (*bind_grads)(struct cddpi_trainer *trainer);
    /* Let the models read parameters at @p data, and 16-bit copies of them at @p copies. */
    void (*bind_params)(struct cddpi_trainer *trainer, void *const *data, void *const *copies);
    bool (*param_decays)(const struct cddpi_trainer *trainer, size_t index);
    /* In which order backward completes their gradients, into @p out. */
    void (*ready_order)(const struct cddpi_trainer *trainer, uint32_t *out);
    bool remakes_shards; /* it can bind all parameters again once the reducer has moved them */

    /* --- a step --- */

    /* The step's gradients: the mean over all samples of its batch, on every rank. */
    cddp_status (*compute)(struct cddpi_trainer *trainer, struct cddpi_train_step *step);
    /* What cddpi_trainer_run_micro_batch() calls, as the functions of a model; backward adds to
     * @p out what it alone finds of the loss. NULL: compute does not call that function. */
    cddp_status (*forward)(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                           bool training, struct cddpi_loss_result *out);
    cddp_status (*backward)(struct cddpi_trainer *trainer, double scale, bool accumulate,
                            cddpi_grad_ready_fn ready, void *context,
                            struct cddpi_loss_result *out);
    /* Clip and update. The cursor has moved past @p step already. */
    cddp_status (*update)(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                          double *out_norm);
    /* The sum of squares of the whole model's gradients. @p known: this rank's part, if an update
     * has found it; NULL: it has not. Collective. */
    cddp_status (*square_sum)(struct cddpi_trainer *trainer, const double *known, double *out);
    bool update_finds_squares; /* of all parameters, none of them twice */
    /* On a device: wait for what step @p step (from 1) found, the oldest one not taken. */
    cddp_status (*take_result)(struct cddpi_trainer *trainer, uint64_t step,
                               struct cddpi_loss_result *out);

    /* --- evaluation and reports --- */

    /* One batch of test data; @p out is zero on ranks that have no losses. */
    cddp_status (*evaluate)(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                            struct cddpi_loss_result *out);
    /* Tell people what trainer->evaluation found. */
    cddp_status (*show_evaluation)(struct cddpi_trainer *trainer, uint64_t epoch);
    /* Add means since the last report that only this engine has. Collective. */
    cddp_status (*add_metrics)(struct cddpi_trainer *trainer, struct cddpi_report_line *line);
    /* The last line of a run. */
    void (*print_result)(const struct cddpi_trainer *trainer, FILE *file);
    /* The model that reads the loader's batches. */
    struct cddpi_model *(*reader)(const struct cddpi_trainer *trainer);
    /* What this rank trains with: how many devices, their names, and what each holds. */
    int (*device_count)(const struct cddpi_trainer *trainer);
    void (*name_device)(const struct cddpi_trainer *trainer, int device, char *out, size_t bytes);
    void (*add_memory)(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all);

    /* --- checkpoints --- */

    /* Rank 0: what a checkpoint has; cddpi_checkpoint_release(). */
    cddp_status (*list_tensors)(struct cddpi_trainer *trainer, cddp_snapshot *out);
    /* Rank 0, before it writes: @p out says where tensors come from that have no data here. */
    cddp_status (*prepare_save)(struct cddpi_trainer *trainer, struct cddpi_snapshot_source *out);
    /* All ranks, once rank 0 has tried to write. Collective. */
    cddp_status (*end_save)(struct cddpi_trainer *trainer);
    /* Rank 0: load the checkpoint at @p path, the optimizer's into its full state. */
    cddp_status (*load)(struct cddpi_trainer *trainer, const char *path);
    /* The first replica gets what rank 0 has loaded for other ranks of it. Collective. */
    cddp_status (*scatter)(struct cddpi_trainer *trainer);
};

/** The engine that trains what @p config describes: the only place that chooses. */
const struct cddpi_engine *cddpi_engine_of(const struct cddpi_config *config);

/* The rows. */
extern const struct cddpi_engine cddpi_engine_single, cddpi_engine_stages, cddpi_engine_placed,
    cddpi_engine_replicated, cddpi_engine_gan;

#endif
