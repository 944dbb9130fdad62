/* engine.h - defines the interface of a training engine: the whole model on one device, divided
 * among ranks, placed on several devices of each rank, copied to each of them, or the two networks
 * of a GAN.
 *
 * An engine is a folder here and a row: one struct cddpi_engine in the list of engines.c. The rest
 * of the trainer calls the row's functions and never asks which engine it has. An engine that does
 * something in the same way as the whole model on one device puts that function (single/single.h)
 * in its row; where there is nothing to do, a function marked "optional" is NULL. */
#ifndef CDDPI_TRAIN_ENGINES_ENGINE_H
#define CDDPI_TRAIN_ENGINES_ENGINE_H

#include "checkpoint/snapshot.h"
#include "parallel/parallel_memory.h"
#include "train/step.h"

struct cddpi_report_line;

struct cddpi_engine {
    /* --- the configuration alone --- */

    /* Whether the engine can train @p config; NULL: any. The first matching row of the list is
     * taken. */
    bool (*fits)(const struct cddpi_config *config);
    /* CDDP_ERR_CONFIG: this engine does not support the configuration for this world size; for a
     * batch that is divided among @p replicas of the model. */
    cddp_status (*check)(const struct cddpi_config *config, int world_size);
    cddp_status (*check_batch)(const struct cddpi_config *config, int replicas);
    /* Print the engine's part of a dry run. Optional.
     * @param replicas  Of the model, if as many ranks are started as the dry run is for.
     * @param samples   Of a micro-batch. */
    cddp_status (*describe)(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                            int replicas, int samples, FILE *file);
    bool owns_devices;  /* ranks open their own devices; the group is on the processor, whatever
                           train.device says */
    bool replays;       /* a step on a device can be captured and replayed */
    bool uploads;       /* copies batches to its device itself: the loader's stay in CPU memory */
    int forwards;       /* of a micro-batch before an update; 0: 1 */
    bool has_one_model; /* of each rank, whole and on one device */
    const char *refuses_arrivals; /* why CDDP_ARRIVALS is not supported; NULL: it is */

    /* --- from the group to the first step, called in this order --- */

    /* The trainer has its group: make further groups, and set the trainer's replicas. Optional.
     * Collective. */
    cddp_status (*join)(struct cddpi_trainer *trainer);
    /* Build the model that @p spec describes: set engine_state, model, models, params and buffers.
     * Collective. */
    cddp_status (*build)(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec);
    /* Load model.weights on rank 0. The reducer broadcasts them to replicas. Collective. */
    cddp_status (*load_weights)(struct cddpi_trainer *trainer);
    /* The trainer has made its optimizer, or a new one. Optional. Collective. */
    cddp_status (*optimizer_made)(struct cddpi_trainer *trainer);
    /* The trainer has its model, reducer and optimizer: make whatever else the engine needs.
     * Optional. Collective. */
    cddp_status (*complete)(struct cddpi_trainer *trainer);
    /* The cursor and the learning rate have their first values. Optional. */
    void (*begin)(struct cddpi_trainer *trainer);
    /* Release what the functions above made, even if only some were called or succeeded. */
    void (*destroy)(struct cddpi_trainer *trainer);

    /* --- the rank's parameters --- */

    /* Make backward write gradients to trainer->step.grads. */
    void (*bind_grads)(struct cddpi_trainer *trainer);
    /* Make the models read their parameters at @p data, and 16-bit copies of them at @p copies. */
    void (*bind_params)(struct cddpi_trainer *trainer, void *const *data, void *const *copies);
    bool (*param_decays)(const struct cddpi_trainer *trainer, size_t index);
    /* Write the order in which backward completes the gradients to @p out. */
    void (*ready_order)(const struct cddpi_trainer *trainer, size_t *out);
    bool remakes_shards; /* can bind all parameters again after the reducer has moved them */

    /* --- a step --- */

    /* Compute the step's gradients: the mean over all samples of its batch, on every rank. */
    cddp_status (*compute)(struct cddpi_trainer *trainer, struct cddpi_train_step *step);
    /* cddpi_trainer_run_micro_batch() calls these, which work as a model's functions. backward adds
     * the loss that only it returns to @p out. NULL: compute does not use
     * cddpi_trainer_run_micro_batch(). */
    cddp_status (*forward)(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                           bool training, struct cddpi_loss_result *out);
    cddp_status (*backward)(struct cddpi_trainer *trainer, double scale, bool accumulate,
                            cddpi_grad_ready_fn ready, void *context,
                            struct cddpi_loss_result *out);
    /* Clip the gradients and update. The cursor has advanced past @p step already. */
    cddp_status (*update)(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                          double *out_norm);
    /* The sum of squares of the whole model's gradients. Collective.
     * @param known  This rank's part, if an update has computed it; else NULL. */
    cddp_status (*square_sum)(struct cddpi_trainer *trainer, const struct cddpi_exact_sum *known,
                              double *out);
    bool update_finds_squares; /* for all parameters, each counted once */
    /* On a device: the ranks whose squares (cddpi_optim_device_squares()) add up to those of the
     * whole model. NULL: with a sharded optimizer all ranks, otherwise this one alone. */
    cddp_group *(*norm_group)(const struct cddpi_trainer *trainer);
    /* On a device: wait for the results of step @p step (from 1), the oldest not taken. */
    cddp_status (*take_result)(struct cddpi_trainer *trainer, uint64_t step,
                               struct cddpi_loss_result *out);

    /* --- evaluation and reports --- */

    /* Evaluate one batch of test data. @p out is zero on ranks without the loss. */
    cddp_status (*evaluate)(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                            struct cddpi_loss_result *out);
    /* Print trainer->evaluation for the user. */
    cddp_status (*show_evaluation)(struct cddpi_trainer *trainer, uint64_t epoch);
    /* Add the means since the last report that only this engine has. Optional. Collective. */
    cddp_status (*add_metrics)(struct cddpi_trainer *trainer, struct cddpi_report_line *line);
    /* Print the last line of a run. */
    void (*print_result)(const struct cddpi_trainer *trainer, FILE *file);
    /* The model that reads the loader's batches. */
    struct cddpi_model *(*reader)(const struct cddpi_trainer *trainer);
    /* The devices of this rank: how many, their names, and the memory held on each. */
    int (*device_count)(const struct cddpi_trainer *trainer);
    void (*name_device)(const struct cddpi_trainer *trainer, int device, char *out, size_t bytes);
    void (*add_memory)(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all);

    /* --- checkpoints --- */

    /* Rank 0: list a checkpoint's tensors, to write or to load into. Release with
     * cddpi_checkpoint_release(). */
    cddp_status (*list_tensors)(struct cddpi_trainer *trainer, struct cddpi_snapshot_params *out);
    /* Rank 0, before it writes: @p out supplies the tensors that have no data in this process.
     * Optional. */
    cddp_status (*prepare_save)(struct cddpi_trainer *trainer, struct cddpi_snapshot_source *out);
    /* All ranks, after rank 0 has tried to write. Optional. Collective. */
    cddp_status (*end_save)(struct cddpi_trainer *trainer);
    /* Rank 0: load the checkpoint at @p path, including the optimizer's full state. */
    cddp_status (*load)(struct cddpi_trainer *trainer, const char *path);
    /* Send what rank 0 has loaded to the ranks of the first replica. Optional. Collective. */
    cddp_status (*scatter)(struct cddpi_trainer *trainer);

    /* --- kept states (kept_state.h) --- */

    /* Of the ranks of a replica that have parameter @p index, this one's is kept. NULL: no other
     * has it. */
    bool (*owns_param)(const struct cddpi_trainer *trainer, size_t index);
    /* The sums since the last report that only this engine has. Optional. */
    void (*keep_sums)(struct cddpi_trainer *trainer, struct cddpi_keep_calls *out);
};

/** Call @p hook, an optional member of the trainer's engine. */
static inline cddp_status cddpi_engine_call(cddp_status (*hook)(struct cddpi_trainer *trainer),
                                            struct cddpi_trainer *trainer)
{
    return hook != NULL ? hook(trainer) : CDDP_OK;
}

/** The engine that trains @p config. Only this function chooses an engine. */
const struct cddpi_engine *cddpi_engine_of(const struct cddpi_config *config);

/* The rows of all engines. */
extern const struct cddpi_engine cddpi_engine_single, cddpi_engine_stages, cddpi_engine_placed,
    cddpi_engine_replicated, cddpi_engine_gan;

#endif
