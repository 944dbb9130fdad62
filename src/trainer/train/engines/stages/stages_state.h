/* stages_state.h - owns the state of a run with pipeline stages (parallel.pipeline), for the files
 * of this folder only. Ranks 0 to P - 1 are the stages of the first replica of the model, and so
 * on: rank r is stage r mod P of replica r / P.
 *
 * A step's micro-batches pass through the stages of a replica. Each stage has its own reducer,
 * which averages its gradients over replicas, or adds up micro-batches (train.micro_batch). Rank 0
 * writes and reads checkpoints of the whole model, so that a run with any other division, or
 * without stages, can read them. Rank 0 knows names and shapes of the other stages' tensors, but
 * holds only one of those tensors at a time. The ranks of the first replica take part in saving and
 * loading; in other replicas these functions do nothing. */
#ifndef CDDPI_TRAIN_STAGES_STATE_H
#define CDDPI_TRAIN_STAGES_STATE_H

#include "base/shape.h"
#include "parallel/pipeline/pipeline.h"
#include "train/engines/engine.h"
#include "train/step_batches.h"

/* The files of a checkpoint. */
enum cddpi_stages_file { CDDPI_STAGES_MODEL_FILE, CDDPI_STAGES_OPTIMIZER_FILE, CDDPI_STAGES_FILES };

/* The tensors of one stage, in its order. */
struct cddpi_stage_list {
    cddp_param *tensors; /* data NULL: in another process */
    int *chunks;         /* the chunk of each tensor; -1: the optimizer's */
    bool *is_buffer;     /* running statistics and the like; else a parameter */
    size_t count;
    char *names; /* names received in messages; NULL: tensors of this process */
};

/* Where one tensor of a checkpoint is. */
struct cddpi_stages_place {
    int stage;
    size_t index; /* in that stage's list */
};

/* The tensors of a file, in its order. */
struct cddpi_stages_order {
    cddp_param *tensors; /* data NULL: in another process */
    struct cddpi_stages_place *places;
    size_t count;
    size_t params; /* in the model's file: parameters, which come first */
};

/* A file being written. */
struct cddpi_stages_written {
    const struct cddpi_stages *stages;
    enum cddpi_stages_file file;
};

/* A part of a gradient on its way to another stage. */
struct cddpi_stages_part {
    float *data;
    cddp_work *work; /* its message; NULL: the memory is free */
    uint64_t number; /* of the message */
};

/* By position (train.micro_batch): the table that two stages share; see tied_table.c. */
struct cddpi_stages_table {
    bool is_tied;      /* there is one in the pipeline ... */
    bool is_here;      /* ... and this rank has it, */
    bool is_later;     /* in the later of the two stages */
    bool is_old;       /* the first stage has updated it since the later one got it */
    cddp_group *group; /* the pipeline's ranks, for parts and the table */
    int other;         /* the rank with the other stage */
    int chunk;         /* of this rank */
    size_t param;      /* of this rank */
    size_t elements;
    /* --- the later stage --- */
    float *data; /* the table */
    struct cddpi_stages_part *parts;
    int part_count, most_parts;
    int current;    /* the part that backward writes */
    uint64_t given; /* parts so far */
};

struct cddpi_stages_source; /* the files being loaded */

struct cddpi_stages {
    int count;                        /* ranks per pipeline */
    int stage;                        /* of this rank */
    cddp_group *group;                /* the ranks of this pipeline */
    struct cddpi_model_spec spec;     /* of the whole model; borrows the configuration's strings */
    struct cddpi_layer_range *ranges; /* count x chunks ranges */
    struct cddpi_pipeline *pipeline;
    cddp_param *params, *buffers; /* of this rank's chunks, one after the other */
    uint64_t *tied;               /* hashes of all ranks' parameter names; 0: none */
    bool *is_tied;                /* per parameter of this rank: other stages share it */
    size_t most;                  /* the most parameters of any rank: row length of tied */
    struct cddpi_stages_table table;
    struct cddpi_step_batches batches;

    /* --- rank 0 only --- */
    struct cddpi_stage_list *lists[CDDPI_STAGES_FILES]; /* count of them; NULL: not exchanged yet */
    struct cddpi_stages_order order[CDDPI_STAGES_FILES];
    int64_t *steps; /* update counts of the whole model's parameters */
    struct cddpi_stages_written written[CDDPI_STAGES_FILES];
    struct cddpi_stages_source *source; /* NULL: no file is open */
};

static inline struct cddpi_stages *cddpi_stages_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

static inline size_t cddpi_stages_bytes_of(const cddp_param *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * cddp_type_bytes(tensor->type);
}

/* Functions of this engine's row (engine.h). */

CDDP_CHECKED cddp_status cddpi_stages_check(const struct cddpi_config *config, int world_size);
CDDP_CHECKED cddp_status cddpi_stages_check_batch(const struct cddpi_config *config, int replicas);
/** Print each stage's layers, its parameters, its measured part of a micro-batch's time, the
 *  balance of the division, and how many micro-batches its rank holds. */
CDDP_CHECKED cddp_status cddpi_stages_describe(const struct cddpi_config *config,
                                               const struct cddpi_model_spec *spec, int replicas,
                                               int samples, FILE *file);
CDDP_CHECKED cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer,
                                              struct cddpi_train_step *step);
CDDP_CHECKED cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer,
                                               const struct cddpi_batch *batch,
                                               struct cddpi_loss_result *out);
void cddpi_stages_ready_order(const struct cddpi_trainer *trainer, size_t *out);
CDDP_CHECKED cddp_status cddpi_stages_square_sum(struct cddpi_trainer *trainer,
                                                 const struct cddpi_exact_sum *known, double *out);
void cddpi_stages_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all);
/* stages_gpu.c */

/** Refuse what pipelines on GPUs do not support. */
CDDP_CHECKED cddp_status cddpi_stages_check_gpu(const struct cddpi_config *config);
CDDP_CHECKED cddp_status cddpi_stages_complete(struct cddpi_trainer *trainer);
cddp_group *cddpi_stages_norm_group(const struct cddpi_trainer *trainer);
/** Zeros on ranks without the loss. */
CDDP_CHECKED cddp_status cddpi_stages_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                                  struct cddpi_loss_result *out);

/** The file stays open until the other stages have received their parts. */
CDDP_CHECKED cddp_status cddpi_stages_load_weights(struct cddpi_trainer *trainer);
/** Tensors of other stages have data NULL. */
CDDP_CHECKED cddp_status cddpi_stages_list_tensors(struct cddpi_trainer *trainer,
                                                   struct cddpi_snapshot_params *out);
CDDP_CHECKED cddp_status cddpi_stages_prepare_save(struct cddpi_trainer *trainer,
                                                   struct cddpi_snapshot_source *out);
/** Rank 0 tells the other ranks that saving is over; until then they send the tensors that it
 *  requests. */
CDDP_CHECKED cddp_status cddpi_stages_end_save(struct cddpi_trainer *trainer);
/** Rank 0 loads its own tensors. The file stays open until the other ranks have theirs. */
CDDP_CHECKED cddp_status cddpi_stages_load(struct cddpi_trainer *trainer, const char *path);
CDDP_CHECKED cddp_status cddpi_stages_scatter(struct cddpi_trainer *trainer);

/** Divide as parallel.stages says, or by parallel.balance, which may measure. Check that no rank
 *  needs more than parallel.memory_bytes.
 *  @param samples  Of a micro-batch.
 *  @param out      One range per stage.
 *  @return CDDP_OK, CDDP_ERR_CONFIG, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_stages_divide(const struct cddpi_config *config,
                                             const struct cddpi_model_spec *spec, int replicas,
                                             int samples, struct cddpi_layer_range *out);

/** Find the tied parameters, and prepare to sum their gradients. Part of building the model.
 *  Collective. */
CDDP_CHECKED cddp_status cddpi_stages_find_tied(struct cddpi_trainer *trainer);
/** The first stage that has parameter @p index of this rank. */
int cddpi_stages_owner(const struct cddpi_trainer *trainer, size_t index);
/** After the passes of a step, sum the parts of tied gradients. Not by position. */
CDDP_CHECKED cddp_status cddpi_stages_sum_tied(struct cddpi_trainer *trainer);

/* tied_table.c: by position */

/** Prepare to share the tied parameter, if there is one. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_tie_table(struct cddpi_trainer *trainer);
void cddpi_stages_release_table(struct cddpi_stages *stages);
/** Whether another stage has the gradient of @p param, of which this one gives a part. */
bool cddpi_stages_lends(const struct cddpi_trainer *trainer, size_t param);
/** Before a pass of a chunk: get the later stage's part of the tied gradient, or memory for it. */
CDDP_CHECKED cddp_status cddpi_stages_prepare_part(void *trainer, int chunk,
                                                   enum cddpi_pipeline_pass pass);
/** Send this stage's part, which is complete. */
CDDP_CHECKED cddp_status cddpi_stages_give_part(struct cddpi_trainer *trainer);
/** After the passes of a step: wait until all parts are sent. */
CDDP_CHECKED cddp_status cddpi_stages_finish_parts(struct cddpi_trainer *trainer);
/** Send the updated table to the later stage, unless it has it. */
CDDP_CHECKED cddp_status cddpi_stages_renew_table(struct cddpi_trainer *trainer);
/** Bytes of the parts on this rank. */
size_t cddpi_stages_part_bytes(const struct cddpi_trainer *trainer);
void cddpi_stages_bind_grads(struct cddpi_trainer *trainer);

/** List this rank's tensors. Release with cddpi_stages_release_list(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_stages_list_own(struct cddpi_trainer *trainer,
                                               enum cddpi_stages_file file,
                                               struct cddpi_stage_list *out);
void cddpi_stages_release_list(struct cddpi_stage_list *list);
/** Rank 0: update the addresses of its own tensors in the order of the files, after they have
 *  moved. */
CDDP_CHECKED cddp_status cddpi_stages_refresh(struct cddpi_trainer *trainer);
/** As cddpi_stages_refresh(), for one file. */
CDDP_CHECKED cddp_status cddpi_stages_refresh_file(struct cddpi_trainer *trainer,
                                                   enum cddpi_stages_file file);
/** Send rank 0 the tensor lists of the other stages of the first replica, once the model (or the
 *  optimizer) exists. Collective in the pipeline. */
CDDP_CHECKED cddp_status cddpi_stages_exchange_lists(struct cddpi_trainer *trainer,
                                                     enum cddpi_stages_file file);
void cddpi_stages_release_lists(struct cddpi_stages *stages);
/** Rank 0: close the files that are being loaded. */
void cddpi_stages_close_source(struct cddpi_stages *stages);

/* Rank 0: a checkpoint has one tensor of the update counts of all stages. */

bool cddpi_stages_is_steps(const cddp_param *tensor);
/** Copy the counts of stage @p stage from @p own to the whole tensor (@p joins), or back. */
void cddpi_stages_move_steps(const struct cddpi_trainer *trainer, int stage, int64_t *own,
                             bool joins);

#endif
