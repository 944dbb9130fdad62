/* stages_state.h - a run whose model is divided into stages (parallel.pipeline), for the files of
 * this folder. Ranks 0 to P - 1 are the stages of the first replica of the model, and so on: rank r
 * is stage r mod P of replica r / P.
 *
 * A step's micro-batches go through the stages of a replica; each stage's gradients are averaged
 * over replicas by a reducer of its own. Rank 0 writes and reads checkpoints of the whole model, so
 * that they can be read with any other division, or none: it knows names and shapes of the other
 * stages' tensors, but holds no more than one of them at a time. The first replica's ranks take
 * part in that; in others these functions do nothing. */
#ifndef CDDPI_TRAIN_STAGES_STATE_H
#define CDDPI_TRAIN_STAGES_STATE_H

#include "parallel/pipeline/pipeline.h"
#include "train/engines/engine.h"
#include "train/step_batches.h"

/* The files of a checkpoint. */
enum cddpi_stages_file { CDDPI_STAGES_MODEL_FILE, CDDPI_STAGES_OPTIMIZER_FILE, CDDPI_STAGES_FILES };

/* Tensors of one stage, in its order. */
struct cddpi_stage_list {
    cddp_tensor *tensors; /* data NULL: of another process */
    int *chunks;          /* of each; -1: the optimizer's */
    bool *is_buffer;      /* running statistics and the like; else a parameter */
    size_t count;
    char *names; /* that came by message; those of this process have theirs elsewhere */
};

/* Where a tensor of a checkpoint is. */
struct cddpi_stages_place {
    int stage;
    size_t index; /* in that stage's list */
};

/* What a file has, in its order. */
struct cddpi_stages_order {
    cddp_tensor *tensors; /* data NULL: of another process */
    struct cddpi_stages_place *places;
    size_t count;
    size_t params; /* of the model: the first so many are parameters */
};

/* A file that is being written. */
struct cddpi_stages_written {
    const struct cddpi_stages *stages;
    enum cddpi_stages_file file;
};

struct cddpi_stages_source; /* files that are being taken up */

struct cddpi_stages {
    int count;                        /* of ranks in a pipeline */
    int stage;                        /* this rank there */
    cddp_group *group;                /* the pipeline */
    struct cddpi_model_spec spec;     /* of the whole model; its strings are the configuration's */
    struct cddpi_layer_range *ranges; /* count x chunks */
    struct cddpi_pipeline *pipeline;
    cddp_param *params, *buffers; /* of all chunks of this rank, one after the other */
    uint64_t *tied;               /* hashes of all ranks' names; 0: none */
    bool *is_tied;                /* one a parameter of this rank: other stages have it, too */
    size_t most;                  /* parameters of a rank: the length of a row of these */
    struct cddpi_step_batches batches;

    /* rank 0 only */
    struct cddpi_stage_list *lists[CDDPI_STAGES_FILES]; /* count of them; NULL: not yet */
    struct cddpi_stages_order order[CDDPI_STAGES_FILES];
    int64_t *steps; /* updates of each parameter of the whole model */
    struct cddpi_stages_written written[CDDPI_STAGES_FILES];
    struct cddpi_stages_source *source; /* NULL: none is open */
};

static inline struct cddpi_stages *cddpi_stages_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

/* Functions of the row (engine.h). */

CDDP_CHECKED cddp_status cddpi_stages_check(const struct cddpi_config *config, int world_size);
CDDP_CHECKED cddp_status cddpi_stages_check_batch(const struct cddpi_config *config, int replicas);
/** Print which layers each stage has, its parameters, the part of a micro-batch's time that it
 *  takes here, how evenly that is divided, and how many micro-batches its rank keeps. */
CDDP_CHECKED cddp_status cddpi_stages_describe(const struct cddpi_config *config,
                                               const struct cddpi_model_spec *spec, int samples,
                                               FILE *file);
CDDP_CHECKED cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer,
                                              struct cddpi_train_step *step);
CDDP_CHECKED cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer,
                                               const struct cddpi_batch *batch,
                                               struct cddpi_loss_result *out);
void cddpi_stages_ready_order(const struct cddpi_trainer *trainer, uint32_t *out);
CDDP_CHECKED cddp_status cddpi_stages_square_sum(struct cddpi_trainer *trainer, const double *known,
                                                 double *out);
void cddpi_stages_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all);
/** The file stays open until the other stages have their parts. */
CDDP_CHECKED cddp_status cddpi_stages_load_weights(struct cddpi_trainer *trainer);
/** Tensors of other stages have no data. */
CDDP_CHECKED cddp_status cddpi_stages_list_tensors(struct cddpi_trainer *trainer,
                                                   cddp_snapshot *out);
CDDP_CHECKED cddp_status cddpi_stages_prepare_save(struct cddpi_trainer *trainer,
                                                   struct cddpi_snapshot_source *out);
/** Rank 0 lets the others go on; these hand out tensors until then. */
CDDP_CHECKED cddp_status cddpi_stages_end_save(struct cddpi_trainer *trainer);
/** Rank 0 takes its own tensors. The file stays open until the others have theirs. */
CDDP_CHECKED cddp_status cddpi_stages_load(struct cddpi_trainer *trainer, const char *path);
CDDP_CHECKED cddp_status cddpi_stages_scatter(struct cddpi_trainer *trainer);

/** Parameters that several stages have (tied weights) get the sum of their gradients on each, and
 *  are ready then. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_sum_tied(struct cddpi_trainer *trainer);
/** What of building the model is for gradients of tied parameters. Collective. */
CDDP_CHECKED cddp_status cddpi_stages_find_tied(struct cddpi_trainer *trainer);
/** Whether another stage before this one has parameter @p index, too. */
bool cddpi_stages_is_later(const struct cddpi_trainer *trainer, size_t index);

/** This rank's tensors; cddpi_stages_release_list(), which is also for what a failure leaves. */
CDDP_CHECKED cddp_status cddpi_stages_list_own(const struct cddpi_trainer *trainer,
                                               enum cddpi_stages_file file,
                                               struct cddpi_stage_list *out);
void cddpi_stages_release_list(struct cddpi_stage_list *list);
/** Rank 0: its own tensors in the order of the files have moved since that was made. */
CDDP_CHECKED cddp_status cddpi_stages_refresh(struct cddpi_trainer *trainer);
/** Rank 0 gets to know which tensors the other stages of the first replica have, once there is the
 *  model, or the optimizer. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_exchange_lists(struct cddpi_trainer *trainer,
                                                     enum cddpi_stages_file file);
void cddpi_stages_release_lists(struct cddpi_stages *stages);
/** Rank 0: close the files that are being loaded. */
void cddpi_stages_close_source(struct cddpi_stages *stages);

/* Rank 0: of all stages' counts of updates a checkpoint has one tensor. */

bool cddpi_stages_is_steps(const cddp_tensor *tensor);
/** Make room for that one tensor. In the order of tensors it takes the place of rank 0's own. */
CDDP_CHECKED cddp_status cddpi_stages_create_steps(struct cddpi_trainer *trainer);
/** Copy the numbers of stage @p stage from @p own to the whole tensor (@p joins), or back. */
void cddpi_stages_move_steps(const struct cddpi_trainer *trainer, int stage, int64_t *own,
                             bool joins);

#endif
