/* state.h - what a divided run holds, for the files of this folder. */
#ifndef CDDPI_TRAIN_STAGES_STATE_H
#define CDDPI_TRAIN_STAGES_STATE_H

#include "parallel/pipeline/pipeline.h"
#include "train/stages/stages.h"
#include "train/step_batches.h"

/* Rank 0: the parameters and the optimizer's state of another stage. */
struct cddpi_other_stage {
    struct cddpi_model **models; /* one a chunk */
    cddp_tensor *model;          /* parameters, then buffers */
    size_t model_count;
    struct cddpi_optim *optim;
};

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
    int64_t *steps; /* rank 0: updates of each parameter of the whole model; NULL: none yet */
    struct cddpi_other_stage *others; /* rank 0: count of them, its own is empty */
};

/** What of cddpi_stages_build_model() is for gradients of tied parameters. Collective. */
CDDP_CHECKED cddp_status cddpi_stages_find_tied(struct cddpi_trainer *trainer);
/** Whether another stage before this one has parameter @p index, too. */
bool cddpi_stages_is_later(const struct cddpi_trainer *trainer, size_t index);
/** Rank 0: of all stages' counts of updates make one tensor, in the place of rank 0's own among
 *  @p tensors; or let them have what was read into that. */
CDDP_CHECKED cddp_status cddpi_stages_join_steps(struct cddpi_trainer *trainer,
                                                 cddp_tensor *tensors, size_t count);
CDDP_CHECKED cddp_status cddpi_stages_split_steps(struct cddpi_trainer *trainer);
void cddpi_stages_release_others(struct cddpi_stages *stages);

#endif
