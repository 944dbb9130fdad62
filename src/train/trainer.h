/* trainer.h - one rank of a training run: everything that train.conf describes, put together. */
#ifndef CDDPI_TRAIN_TRAINER_H
#define CDDPI_TRAIN_TRAINER_H

#include "data/loader.h"
#include "data/tokenizer.h"
#include "device/device.h"
#include "nn/model.h"
#include "optim/loss_scale.h"
#include "optim/optim.h"
#include "train/config.h"
#include "train/feed.h"
#include "train/metrics.h"
#include "train/progress.h"

#include <dirent.h>

/* Where a run is. Independent of the number of ranks. */
struct cddpi_cursor {
    uint64_t step;     /* updates done */
    uint64_t epoch;    /* epochs done */
    uint64_t position; /* samples of the epoch under way that were used */
};

/* What was measured since the last line of metrics, on this rank. */
struct cddpi_interval {
    double loss_sum; /* these two without steps that were skipped */
    double correct;
    double count;         /* predictions */
    double skipped_count; /* of these, in steps that were skipped */
    uint64_t skipped;     /* steps */
    int64_t data_ns, forward_ns, backward_ns, exposed_ns, optimizer_ns;
    int64_t step_ns;
    uint64_t steps;
    uint64_t whole;    /* of these, whose parts' times are not known */
    uint64_t replayed; /* of these, that were done by recordings */
};

struct cddpi_trainer {
    const struct cddpi_config *config; /* borrowed */
    cddp_group *group;
    int rank;
    int world_size;
    struct cddpi_device *device; /* where the model is; the group's */

    struct cddpi_dataset train_data, test_data;
    cddp_sampler *sampler, *test_sampler;
    struct cddpi_loader *loader, *test_loader;
    struct cddpi_feed *feed, *test_feed; /* of these */

    struct cddpi_model *model;
    const cddp_param *params, *buffers; /* the model's */
    size_t param_count, buffer_count;
    int heads;       /* gpt2: of attention; 0: another model */
    int predictions; /* of a sample: the tokens of a window; 1 for an image */
    cddp_ddp *ddp;
    void **grads; /* param_count, in the buckets */
    struct cddpi_optim *optim;
    struct cddpi_device_step *device_step; /* NULL: on the processor */
    struct cddpi_step_graphs *graphs;      /* NULL: steps are never replayed */
    struct cddpi_loss_scale loss_scale;    /* fp16 */
    void **mirror;        /* on a device: copies of parameters and buffers; NULL: not held */
    int unsettled;        /* on a device: steps whose results were not taken yet */
    int step_predictions; /* of this rank in the present step */
    double peak_flops;    /* of all ranks' devices together; 0: not known */
    struct cddpi_schedule schedule;

    struct cddpi_cursor at;
    uint64_t last_step;  /* where the run ends: the last epoch's, or train.max_steps */
    uint64_t first_step; /* at.step when this process began */
    bool bound;          /* the gradients' final places are known to the model */
    bool stopped;        /* by a signal */

    /* of the present step */
    double lr;
    bool ends_epoch;
    bool replays; /* by recordings, as far as that can be; whole steps only */
    bool timed;   /* to choose whether steps are replayed */
    struct {
        uint8_t wish;    /* what is to be done after the step: enum cddpi_wish */
        uint8_t stale;   /* recordings are of no use any more */
    } own, agreed;       /* this rank's, and the greatest of all ranks */
    cddp_work *agreeing; /* the collective that finds it, while a step runs */
    bool reported;       /* known once it is found */

    int64_t saved_ns;    /* when the last checkpoint was written or tried */
    uint64_t saved_step; /* and of which step it is; ~0: none */
    char *checkpoints;   /* the folder */
    DIR *run_dir_held;   /* rank 0: keeps other runs out of the run's folder; NULL: not */

    struct cddpi_interval interval;
    uint64_t exposed_before_ns;        /* total of the reducer's statistics at the last line */
    double last_loss;                  /* of the last line */
    uint64_t evaluated_step;           /* ~0: never */
    double test_loss, test_accuracy;   /* then */
    int64_t began_ns;                  /* when this process began */
    struct cddpi_tokenizer *tokenizer; /* rank 0: of generated text; NULL: it is of numbers */
    struct cddpi_metrics *metrics;     /* rank 0 */
    struct cddpi_progress progress;    /* shows on rank 0 only */
    FILE *sample_log;                  /* NULL: not wanted */
    uint64_t *taken;                   /* samples of this rank's present step; NULL: not wanted */
    size_t taken_count;
};

/** Join the group, open the data, build the model, and take up an earlier run if the configuration
 * says so. Collective.
 *  @param config  Borrowed, outlives the trainer.
 *  @param out     Set also on failure, as far as it came (so that the group can be told); release
 * with cddpi_trainer_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_trainer_create(const struct cddpi_config *config,
                                              struct cddpi_trainer **out);
void cddpi_trainer_destroy(struct cddpi_trainer *trainer);

/** Train until the last step or a signal, evaluate, write the last checkpoint. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_run(struct cddpi_trainer *trainer);

/** Print what the configuration describes, without joining a group. */
CDDP_CHECKED cddp_status cddpi_trainer_dry_run(const struct cddpi_config *config, FILE *file);

/** What can be wrong with the configuration for @p world_size ranks, as far as it shows without
 * joining a group or reading data: cheap enough to be asked before ranks are started. setup.c */
CDDP_CHECKED cddp_status cddpi_trainer_validate(const struct cddpi_config *config, int world_size);

/* The parts, in their own files. */

/** Samples of a rank's largest micro-batch. setup.c */
int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int world_size);

/** The next step's gradients: the mean over all samples of its batch, on every rank. Collective.
 *  step.c */
CDDP_CHECKED cddp_status cddpi_trainer_compute(struct cddpi_trainer *trainer);

/** Forward and backward of one micro-batch, behind @p done ones of the step. On a device only work
 *  for its streams: also part of a recording. step.c */
CDDP_CHECKED cddp_status cddpi_trainer_run_micro_batch(struct cddpi_trainer *trainer,
                                                       const struct cddpi_fed *fed, uint64_t done);

/** Wait for what all ranks wish; nothing if that is known. Then it is known, too, whether the step
 *  will be reported. loop.c */
CDDP_CHECKED cddp_status cddpi_trainer_agree(struct cddpi_trainer *trainer);

/** CDDP_ERR_STATE unless the losses of step @p step, which was not skipped, are numbers. step.c */
CDDP_CHECKED cddp_status cddpi_trainer_check_loss(const struct cddpi_trainer *trainer,
                                                  uint64_t step, double loss_sum);

/** Add to the text of a failure for want of memory @p what would need less; others are passed on.
 *  step.c */
CDDP_CHECKED cddp_status cddpi_trainer_say_what_helps(cddp_status status, const char *what);

/** On a device: wait for the results of all steps but the last @p keep ones, and add them to the
 *  interval. @p out_norm: of the last of them; NULL: not wanted. Nothing on the processor. settle.c
 */
CDDP_CHECKED cddp_status cddpi_trainer_settle(struct cddpi_trainer *trainer, int keep,
                                              double *out_norm);

/** That the files which the configuration names are there and may be read. setup_data.c */
CDDP_CHECKED cddp_status cddpi_trainer_check_files(const struct cddpi_config *config);
/** Open the data. Collective with a @p group; NULL: alone. Both are to be closed, on failure, too.
 *  setup_data.c */
CDDP_CHECKED cddp_status cddpi_trainer_open_data(const struct cddpi_config *config,
                                                 cddp_group *group, struct cddpi_dataset *train,
                                                 struct cddpi_dataset *test);
/** A line or a few that say how much data there is. setup_data.c */
void cddpi_trainer_print_data(const struct cddpi_dataset *train, const struct cddpi_dataset *test,
                              FILE *file);
/** The orders and loaders of the open data. setup_data.c */
CDDP_CHECKED cddp_status cddpi_trainer_build_data(struct cddpi_trainer *trainer);

/** What the configuration says about the model of @p data; valid as long as both. setup.c */
struct cddpi_model_spec cddpi_trainer_model_spec(const struct cddpi_config *config,
                                                 const struct cddpi_dataset *data);
/** Options of the reducer; hook, order and text stay borrowed. setup.c */
cddp_ddp_options cddpi_trainer_ddp_options(const struct cddpi_config *config,
                                           const struct cddpi_model *model, const char *text);
/* On a device, files and the other ranks get copies of parameters and buffers that the processor
 * can read. On the processor all of these do nothing. mirror.c */

/** Make room for the copies. */
CDDP_CHECKED cddp_status cddpi_trainer_hold_mirror(struct cddpi_trainer *trainer);
void cddpi_trainer_drop_mirror(struct cddpi_trainer *trainer);
/** Bring the copies up to date; or the device, from them. Both wait for the device. */
CDDP_CHECKED cddp_status cddpi_trainer_fetch(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_trainer_send(struct cddpi_trainer *trainer);
/** Parameters and buffers (or the copies, where these are held) as tensors for a file; release with
 *  cddpi_free(). NULL: no memory. mirror.c */
cddp_tensor *cddpi_trainer_model_tensors(const struct cddpi_trainer *trainer);

/** Make the group of @p options on the device that the configuration names: group, device, rank
 *  and world_size of @p trainer. setup.c */
CDDP_CHECKED cddp_status cddpi_trainer_join(struct cddpi_trainer *trainer,
                                            cddp_group_options *options);
/** What is needed at the end of steps on a device. setup.c */
CDDP_CHECKED cddp_status cddpi_trainer_build_device(struct cddpi_trainer *trainer);
/** Steps from @p cursor to the end of the last epoch. setup.c */
uint64_t cddpi_trainer_steps_left(const struct cddpi_config *config, uint64_t samples,
                                  const struct cddpi_cursor *cursor);

/** Hold the run's folder, if it is there, until @p held is closed or the process ends, however that
 *  is: nothing is left in the folder. Rank 0. run_dir.c
 *  @param held  NULL at first; what is held already stays.
 *  @return CDDP_OK; CDDP_ERR_STATE when another run holds it, after 2 seconds of asking. */
CDDP_CHECKED cddp_status cddpi_run_dir_hold(const char *dir, DIR **held);
/** Make the run's folder, hold it as above, put an earlier run aside (unless this one resumes),
 *  write train.conf. Rank 0. run_dir.c */
CDDP_CHECKED cddp_status cddpi_run_dir_prepare(const struct cddpi_config *config, bool resumes,
                                               DIR **held, struct cddpi_progress *progress);

/** Bring together on rank 0 what a checkpoint holds, and the parameters from each rank's device to
 *  its processor if they are wanted @p everywhere. Collective, before cddpi_trainer_save().
 *  checkpoint.c */
CDDP_CHECKED cddp_status cddpi_trainer_assemble(struct cddpi_trainer *trainer, bool everywhere);
/** Write a checkpoint of where the run is. Rank 0. checkpoint.c
 *  @return Also CDDP_ERR_STATE: a parameter is not finite; nothing is written then. */
CDDP_CHECKED cddp_status cddpi_trainer_save(struct cddpi_trainer *trainer);
/** Find and load what train.resume names, on rank 0, and share it. Collective. resume.c */
CDDP_CHECKED cddp_status cddpi_trainer_resume(struct cddpi_trainer *trainer);

/** Whether the data are tokens: then losses have a perplexity, and text can be generated. */
bool cddpi_trainer_is_text(const struct cddpi_trainer *trainer);

/** Loss and accuracy over the test data, or as much of it as is wanted, each sample once.
 *  Collective. evaluate.c */
CDDP_CHECKED cddp_status cddpi_trainer_evaluate(struct cddpi_trainer *trainer);

/** Whether text can be generated as the configuration says, and what that needs. generate_run.c */
CDDP_CHECKED cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer);
/** Let the model write a text, shown and put into the metrics. Rank 0. generate_run.c */
CDDP_CHECKED cddp_status cddpi_trainer_write_text(struct cddpi_trainer *trainer);
/** Print @p prompt and what the model of the run's newest checkpoint (or that of train.resume, or
 *  model.weights) adds to it. Without a group. generate_checkpoint.c */
CDDP_CHECKED cddp_status cddpi_trainer_generate(const struct cddpi_config *config,
                                                const char *prompt, FILE *file);
/** The parts of cddpi_trainer_create() that this needs. setup.c */
CDDP_CHECKED cddp_status cddpi_trainer_build_model(struct cddpi_trainer *trainer);
/** The newest checkpoint of the run's folder, or *out NULL: it has none at all; cddpi_free().
 *  resume.c */
CDDP_CHECKED cddp_status cddpi_trainer_find_newest(struct cddpi_trainer *trainer, char **out);
/** The checkpoint that train.resume names: itself, or the newest whole one of the run whose folder
 *  it is; cddpi_free(). resume.c */
CDDP_CHECKED cddp_status cddpi_trainer_find_named(struct cddpi_trainer *trainer, char **out);

/** How fast all devices together could be, for the MFU of the lines below. Collective. report.c */
CDDP_CHECKED cddp_status cddpi_trainer_find_peak(struct cddpi_trainer *trainer);
/** A line of metrics and of progress about the interval, which begins anew. Collective. report.c */
CDDP_CHECKED cddp_status cddpi_trainer_report(struct cddpi_trainer *trainer, double lr,
                                              double grad_norm);
/** The first and the last line of metrics. Rank 0. report.c */
void cddpi_trainer_report_begin(struct cddpi_trainer *trainer);
void cddpi_trainer_report_end(struct cddpi_trainer *trainer);

/** A line on stderr that is shown in every mode. report.c */
void cddpi_trainer_warn(struct cddpi_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Let SIGTERM, SIGINT, SIGHUP and SIGQUIT ask for a stop; a second one kills, but SIGHUP. Those of
 *  the last two that are ignored stay so. stop.c */
void cddpi_stop_install(void);
bool cddpi_stop_requested(void);

#endif
