/* stages_state.h - what a divided run holds, for the files of this folder. */
#ifndef CDDPI_TRAIN_STAGES_STATE_H
#define CDDPI_TRAIN_STAGES_STATE_H

#include "parallel/pipeline/pipeline.h"
#include "train/engines/stages/stages.h"
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
    cddp_param *params, *buffers; /* of all chunks of this rank, one behind the other */
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

/** What of cddpi_stages_build_model() is for gradients of tied parameters. Collective. */
CDDP_CHECKED cddp_status cddpi_stages_find_tied(struct cddpi_trainer *trainer);
/** Whether another stage before this one has parameter @p index, too. */
bool cddpi_stages_is_later(const struct cddpi_trainer *trainer, size_t index);

/** This rank's tensors; cddpi_stages_release_list(), which is also for what a failure leaves. */
CDDP_CHECKED cddp_status cddpi_stages_list_own(const struct cddpi_trainer *trainer,
                                               enum cddpi_stages_file file,
                                               struct cddpi_stage_list *out);
void cddpi_stages_release_list(struct cddpi_stage_list *list);
/** Rank 0 gets to know which tensors the other stages of the first replica have, once there is the
 *  model, or the optimizer. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_exchange_lists(struct cddpi_trainer *trainer,
                                                     enum cddpi_stages_file file);
void cddpi_stages_release_lists(struct cddpi_stages *stages);
/** Rank 0: end with what cddpi_stages_open_snapshot() has opened. */
void cddpi_stages_close_source(struct cddpi_stages *stages);

/* Rank 0: of all stages' counts of updates a checkpoint has one tensor. */

bool cddpi_stages_is_steps(const cddp_tensor *tensor);
/** Room for it, in the place of rank 0's own in the order of tensors. */
CDDP_CHECKED cddp_status cddpi_stages_create_steps(struct cddpi_trainer *trainer);
/** The numbers of stage @p stage at @p own to the whole tensor, or back. */
void cddpi_stages_move_steps(const struct cddpi_trainer *trainer, int stage, int64_t *own,
                             bool joins);

#endif
