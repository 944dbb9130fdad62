/* trainer.h - owns one rank of a training run, built from train.conf. train_setup.c fills the
 * struct. State that changes during the run is in structs that belong to the files which change it.
 * The current step is not part of the trainer (step.h). */
#ifndef CDDPI_TRAIN_TRAINER_H
#define CDDPI_TRAIN_TRAINER_H

#include "data/data_loader.h"
#include "data/tokenizer/tokenizer.h"
#include "device/device.h"
#include "nn/model.h"
#include "optim/loss_scale.h"
#include "optim/optim.h"
#include "report/arrivals.h"
#include "report/interval.h"
#include "report/metrics.h"
#include "report/rank_pace.h"
#include "report/report_progress.h"
#include "report/sample_log.h"
#include "train/config/config.h"
#include "train/cursor.h"
#include "train/device/prefetcher.h"
#include "train/evaluate.h"
#include "train/kept_state.h"
#include "train/run_dir.h"
#include "train/save_behind.h"

struct cddpi_engine;
struct cddpi_trainer;
struct cddpi_statistics;

/* What a rank may request. All ranks do the greatest request of any rank. */
enum cddpi_request { CDDPI_REQUEST_NONE, CDDPI_REQUEST_SAVE, CDDPI_REQUEST_STOP };

/* Must not move while the group exists: a collective writes into it, even after the run has
 * failed. */
struct cddpi_agreement {
    struct {
        uint8_t request; /* enum cddpi_request */
        uint8_t stale;   /* captured steps are outdated */
        uint8_t keeps;   /* keep the state at the end of the step */
    } own, agreed;       /* this rank's values, and the maximum over all ranks */
    cddp_work *work;     /* the collective that computes agreed; NULL: none is under way */
};

/* One of the model parts on this rank: the whole model, a chunk of a pipeline stage, or the part on
 * one device. */
struct cddpi_trainer_model {
    struct cddpi_model *model;
    size_t first; /* index of its first parameter among the rank's, which are those of all models
                     one after the other */
    struct cddpi_trainer *trainer;
};

struct cddpi_trainer_tensors {
    const cddp_param *list;
    size_t count;
};

/* The models on this rank. */
struct cddpi_trainer_models {
    struct cddpi_trainer_model list[CDDPI_TRAINER_CHUNKS];
    int count;
    void **host_copy; /* on a device: copies of parameters and buffers (host_copy.h) */
    int heads;        /* gpt2: attention heads; 0: another model */
    int predictions;  /* per sample: the tokens of a sequence; 1 for an image */
};

/* Training or test data, and how they reach the model. */
struct cddpi_trainer_set {
    struct cddpi_dataset data;
    cddp_sampler *sampler;
    struct cddpi_data_loader *loader;
    struct cddpi_prefetcher *prefetcher; /* copies the loader's batches to the device */
};

struct cddpi_trainer_data {
    struct cddpi_trainer_set train, test;
    uint64_t digests[CDDPI_DATA_DIGESTS];      /* rank 0: of the training data; 0: unknown */
    struct cddpi_normalization *normalization; /* data.normalize; NULL: none */
    struct cddpi_tokenizer *tokenizer; /* rank 0: for generated text; NULL: text is token numbers */
    bool reads_samples;                /* this rank has the first layers of the model */
};

/* What a step uses besides the models. */
struct cddpi_trainer_step {
    void **grads; /* params.count pointers into the buckets; final after the first step */
    struct cddpi_optim *optim;
    struct cddpi_statistics *statistics; /* NULL: forwards update running statistics (statistics.h)
                                          */
    struct cddpi_device_step *device;    /* NULL: on the processor */
    struct cddpi_step_graphs *graphs;    /* NULL: steps are never replayed */
    struct cddpi_loss_scale loss_scale;  /* fp16: changed by device_step.c */
    struct cddpi_agreement agreement;    /* in the current step or evaluation */
    bool stopped;                        /* by a signal; all ranks have agreed */
};

/* The ranks with the same parameters: the whole group, or in a pipeline the ranks with the same
 * stage. */
struct cddpi_trainer_replicas {
    cddp_group *group;
    int rank, count; /* this rank there, and its size */
};

/* Which steps the run has, and their learning rates. Known before the first step. */
struct cddpi_trainer_plan {
    struct cddpi_lr_schedule schedule;
    uint64_t first_step; /* cursor.step when this process began */
    uint64_t last_step;  /* where the run ends: end of the last epoch, or train.max_steps */
};

/* What this rank's device measures (telemetry/device_report.h). */
struct cddpi_device_records {
    struct cddpi_device_meters meters; /* the newest; `throttle`: all since ranks told theirs */
    bool are_known;
    int64_t told_ns; /* when they did; 0: never */
    bool *named;     /* rank 0: by rank, whether the user knows that it is throttled; NULL: none */
};

/* What the run logs and prints. */
struct cddpi_trainer_records {
    int64_t began_ns;               /* when this process began */
    double peak_flops;              /* of all ranks' devices together; 0: unknown */
    struct cddpi_interval interval; /* measurements since the last line of metrics */
    struct cddpi_rank_pace pace;    /* of this rank since ranks compared theirs */
    struct cddpi_device_records devices;
    struct cddpi_metrics *metrics;       /* rank 0 */
    struct cddpi_progress progress;      /* printed on rank 0 only */
    struct cddpi_sample_log *sample_log; /* NULL: not configured */
    struct cddpi_arrivals *arrivals;     /* rank 0; NULL: not configured */
    bool told_memory;                    /* the devices' memory was reported (once per process) */
    int64_t told_broken;                 /* replaced samples covered by warnings (evaluate.h) */
};

struct cddpi_trainer {
    /* --- fixed for the run --- */
    const struct cddpi_config *config; /* borrowed */
    struct cddpi_config *choices;      /* the same, for what the configuration leaves to choose */
    cddp_group *group;
    int rank;
    int world_size;
    struct cddpi_device *device; /* the group's, on which the model is */
    struct cddpi_trainer_replicas replicas;
    const struct cddpi_engine *engine; /* how the model is trained (engines/engine.h) ... */
    void *engine_state;                /* ... and that engine's private state */
    struct cddpi_trainer *next; /* the next of several models in the run, each with its own reducer
                                   and optimizer; NULL: no more */
    struct cddpi_trainer_data data;
    struct cddpi_trainer_models models;
    struct cddpi_trainer_tensors params, buffers; /* of all models, one after the other */
    struct cddpi_model *model;                    /* the first of models */
    cddp_ddp *ddp;
    struct cddpi_trainer_plan plan;

    /* --- the state of the run --- */
    struct cddpi_cursor cursor; /* advanced by step.c */
    struct cddpi_trainer_step step;
    struct cddpi_evaluation evaluation; /* the last one */
    struct cddpi_run_folder folder;     /* and the state of its checkpoints */
    struct cddpi_save_behind behind;    /* the checkpoint that is being written */
    struct cddpi_kept_state kept;       /* what outlives this process */
    struct cddpi_trainer_records records;
};

/** Whether the data are tokens: then losses have a perplexity, and the model can generate text. */
bool cddpi_trainer_is_text(const struct cddpi_trainer *trainer);

/** In how many parts the ranks hold the model: ranks r, r + parts, r + 2 parts ... have the same
 *  one. */
int cddpi_trainer_parts(const struct cddpi_trainer *trainer);
/** Whether the batch is cut by position (cddpi_trainer_by_position()) and nothing else makes bits
 *  depend on the number of ranks: not on a device where sums may be in any order. Known from when
 *  the trainer has its group. */
bool cddpi_trainer_has_same_bits(const struct cddpi_trainer *trainer);

/** The model that has parameter @p index of this rank, and its number there. */
struct cddpi_model *cddpi_trainer_model_of(const struct cddpi_trainer *trainer, size_t index,
                                           size_t *out_own);
/** As cddpi_model_params_changed(), for all models of this rank. */
void cddpi_trainer_params_changed(const struct cddpi_trainer *trainer, bool copies_written);

/** Whether samples have real targets: then there is no accuracy, but an error. */
bool cddpi_trainer_is_regression(const struct cddpi_trainer *trainer);

/** The optimizer that the configuration describes. */
struct cddpi_optim_spec cddpi_trainer_optim_spec(const struct cddpi_config *config);

/** Print a line to stderr in every progress mode. */
void cddpi_trainer_warn(struct cddpi_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* While they compute, ranks agree on whether to save, to stop, and to drop captured steps. */

/** Start the collective. Collective. */
CDDP_CHECKED cddp_status cddpi_agreement_begin(struct cddpi_agreement *agreement, cddp_group *group,
                                               enum cddpi_request request, bool stale);
/** Wait for the collective; then agreement->agreed is set. */
CDDP_CHECKED cddp_status cddpi_agreement_end(struct cddpi_agreement *agreement);
/** Release a collective that is under way; accepts a zeroed agreement. */
void cddpi_agreement_fini(struct cddpi_agreement *agreement);

#endif
