/* trainer.h - one rank of a training run: everything that train.conf describes, put together.
 * train_setup.c fills it. State that changes during the run is in structs of the files that change
 * it; the current step is not part of it (step.h). */
#ifndef CDDPI_TRAIN_TRAINER_H
#define CDDPI_TRAIN_TRAINER_H

#include "data/data_loader.h"
#include "data/digest.h"
#include "data/tokenizer/tokenizer.h"
#include "device/device.h"
#include "nn/model.h"
#include "optim/loss_scale.h"
#include "optim/optim.h"
#include "report/arrivals.h"
#include "report/interval.h"
#include "report/metrics.h"
#include "report/report_progress.h"
#include "report/sample_log.h"
#include "train/config/config.h"
#include "train/cursor.h"
#include "train/device/prefetcher.h"
#include "train/evaluate.h"
#include "train/keep_run_dir.h"
#include "train/train_agree.h"

struct cddpi_engine;
struct cddpi_trainer;

/* One of the parts of the model that a rank has: all of it, a chunk of its stage, or what is on a
 * device. */
struct cddpi_trainer_model {
    struct cddpi_model *model;
    size_t first; /* of its parameters among the rank's, where these are those of all models one
                     after the other */
    struct cddpi_trainer *trainer;
};

/* Data to train or to test on, and their way to the model. */
struct cddpi_trainer_data {
    struct cddpi_dataset data;
    cddp_sampler *sampler;
    struct cddpi_data_loader *loader;
    struct cddpi_prefetcher *prefetcher; /* of the loader's batches */
};

/* Which steps the run has, and how fast it learns: known before the first one. */
struct cddpi_trainer_plan {
    struct cddpi_lr_schedule schedule;
    uint64_t first_step; /* cursor.step when this process began */
    uint64_t last_step;  /* where the run ends: the last epoch's, or train.max_steps */
};

/* What the run writes down, and shows to people. */
struct cddpi_trainer_records {
    int64_t began_ns;                    /* when this process began */
    double peak_flops;                   /* of all ranks' devices together; 0: not known */
    struct cddpi_interval interval;      /* what was measured since the last line of metrics */
    struct cddpi_metrics *metrics;       /* rank 0 */
    struct cddpi_progress progress;      /* shows on rank 0 only */
    struct cddpi_sample_log *sample_log; /* NULL: not wanted */
    struct cddpi_arrivals *arrivals;     /* rank 0; NULL: not wanted */
    bool told_memory;                    /* of the devices: reported once a process */
    int64_t told_broken; /* samples whose replacement a warning named (broken_files.h) */
};

struct cddpi_trainer {
    /* --- fixed for the run --- */
    const struct cddpi_config *config; /* borrowed */
    cddp_group *group;
    int rank;
    int world_size;
    struct cddpi_device *device; /* where the model is; the group's */
    cddp_group *replicas;        /* the ranks with the same parameters: the group, or with stages
                                    those of this rank's stage */
    int replica, replica_count;  /* rank and world size there */
    bool reads_samples;          /* it has the first layers of the model */
    const struct cddpi_engine *engine; /* the way it trains (engines/engine.h) ... */
    void *engine_state;                /* ... and what only that knows */
    struct cddpi_trainer *next;        /* a run may train several models, each with a reducer and an
                                          optimizer of its own: the next of them; NULL: there is none */

    struct cddpi_trainer_data train, test;
    uint64_t data_digests[CDDPI_DATA_DIGESTS]; /* rank 0: of the data to train on; 0: not known */

    struct cddpi_trainer_model models[CDDPI_TRAINER_CHUNKS];
    int model_count;
    struct cddpi_model *model;          /* the first of them */
    const cddp_param *params, *buffers; /* the models' */
    size_t param_count, buffer_count;
    int heads;       /* gpt2: of attention; 0: another model */
    int predictions; /* of a sample: the tokens of a sequence; 1 for an image */
    cddp_ddp *ddp;
    void **grads; /* param_count, in the buckets: at their final places after the first step */
    struct cddpi_optim *optim;
    struct cddpi_device_step *device_step; /* NULL: on the processor */
    struct cddpi_step_graphs *graphs;      /* NULL: steps are never replayed */

    struct cddpi_trainer_plan plan;
    struct cddpi_tokenizer *tokenizer; /* rank 0: of generated text; NULL: it is of numbers */

    /* --- where the run is --- */
    struct cddpi_cursor cursor;         /* moved by step.c */
    bool stopped;                       /* by a signal, as all ranks know */
    struct cddpi_agreement agreement;   /* of the step or evaluation at hand */
    struct cddpi_loss_scale loss_scale; /* fp16: moved by device_step.c */
    struct cddpi_evaluation evaluation; /* the last one */
    struct cddpi_run_folder folder;     /* and what was saved there */
    struct cddpi_trainer_records records;
    void **
        host_copy; /* on a device: copies of parameters and buffers (host_copy.h); NULL: not held */
};

/** Whether the data are tokens: then losses have a perplexity, and text can be generated. */
bool cddpi_trainer_is_text(const struct cddpi_trainer *trainer);

/** What the configuration says about the optimizer. */
struct cddpi_optim_spec cddpi_trainer_optim_spec(const struct cddpi_config *config);

/** A failure of @p trainer's model begins with the name of the configuration's file, if that is
 *  what is wrong. @return @p status */
CDDP_CHECKED cddp_status cddpi_trainer_name_config(const struct cddpi_trainer *trainer,
                                                   cddp_status status);
/** A line on stderr that is shown in every mode. */
void cddpi_trainer_warn(struct cddpi_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
