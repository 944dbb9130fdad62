/* loop.c - runs the training loop to the last step or a signal, with evaluations and
 * checkpoints. */
#include "train/train_setup.h"

#include "base/clock.h"
#include "base/error.h"
#include "group/watch/group_trace.h"
#include "train/checkpoint.h"
#include "train/engines/engine.h"
#include "train/evaluate.h"
#include "train/generate/generate_model.h"
#include "train/replicas.h"
#include "train/step.h"
#include "train/telemetry/train_report.h"

static bool is_finished(const struct cddpi_trainer *trainer)
{
    return trainer->step.stopped || trainer->cursor.step >= trainer->plan.last_step ||
           trainer->cursor.epoch >= (uint64_t)trainer->config->train.epochs;
}

/* Start the loader on the rest of the cursor's epoch. */
static cddp_status begin_epoch(struct cddpi_trainer *trainer)
{
    const struct cddpi_trainer_set *train = &trainer->data.train;

    if (trainer->cursor.epoch >= (uint64_t)trainer->config->train.epochs) {
        return CDDP_OK;
    }
    cddpi_data_loader_cancel(train->loader);
    cddpi_prefetcher_start(train->prefetcher, trainer->cursor.step);
    CDDPI_TRY(cddp_sampler_set_epoch(train->sampler, trainer->cursor.epoch));
    return cddpi_data_loader_start(train->loader, train->sampler, trainer->cursor.epoch,
                                   trainer->cursor.position, train->data.count,
                                   (uint64_t)trainer->config->train.batch_size,
                                   trainer->replicas.rank, trainer->replicas.count, true);
}

/* Write a checkpoint during the run, or begin it: a thread may write it behind the next steps. If
 * that fails, print a warning and continue training. */
static cddp_status save_on_the_way(struct cddpi_trainer *trainer)
{
    int64_t began_ns = cddpi_now_ns();
    enum cddpi_save_again why_again;
    bool is_shared = false;
    cddp_status status;

    CDDPI_TRY(cddpi_save_behind_settle(trainer, CDDPI_TRAINING_GOES_ON));
    trainer->behind.is_asked = false;
    trainer->behind.began_ns = began_ns;
    trainer->behind.stood_ns = 0;
    CDDPI_TRY(cddpi_save_share_plan(trainer, &is_shared));
    CDDPI_TRY_GOTO(end, status,
                   is_shared ? cddpi_save_share_take(trainer)
                             : cddpi_trainer_assemble(trainer, false));
    if (trainer->rank == 0 && cddpi_trainer_save(trainer, false, &why_again) != CDDP_OK) {
        cddpi_save_behind_tell_failure(trainer, CDDPI_TRAINING_GOES_ON);
    }
    cddpi_save_share_help(trainer);
    status = cddpi_engine_call(trainer->engine->end_save, trainer);
end:
    cddpi_trainer_end_assembled(trainer);
    trainer->behind.stood_ns = cddpi_now_ns() - began_ns;
    return status;
}

/* Generate a text on rank 0; meanwhile the other ranks wait in their next collective. */
static cddp_status write_text(struct cddpi_trainer *trainer, bool at_end)
{
    uint64_t steps = (uint64_t)trainer->config->train.generate_steps;

    if (trainer->rank != 0 || steps == 0 || (!at_end && trainer->cursor.step % steps != 0)) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL)); /* results are taken in order */
    return cddpi_trainer_write_text(trainer);
}

static bool is_evaluated(const struct cddpi_trainer *trainer)
{
    uint64_t steps = (uint64_t)trainer->config->train.eval_steps;

    if (is_finished(trainer)) {
        return false; /* finish_run() does it, after the last checkpoint */
    }
    return steps > 0
               ? trainer->cursor.step % steps == 0
               : trainer->cursor.position == 0 &&
                     trainer->cursor.epoch % (uint64_t)trainer->config->train.eval_epochs == 0;
}

/* Evaluate now if the run ended between a checkpoint and the evaluation of the same step. Only the
 * metrics show that, and only rank 0 has them. */
static cddp_status evaluate_if_missing(struct cddpi_trainer *trainer)
{
    int64_t is_missing;

    if (trainer->cursor.step == 0 || !is_evaluated(trainer)) {
        return CDDP_OK;
    }
    is_missing = trainer->rank == 0 && !cddpi_metrics_has_evaluation(trainer->records.metrics);
    CDDPI_TRY(cddp_broadcast(trainer->group, &is_missing, 1, CDDP_I64, 0, NULL));
    return is_missing != 0 ? cddpi_trainer_evaluate(trainer) : CDDP_OK;
}

/* A checkpoint was due, or being written by a thread, when the process before this one ended, and
 * this one goes on from later steps: write it now. */
static cddp_status save_if_missing(struct cddpi_trainer *trainer)
{
    uint64_t every = (uint64_t)trainer->config->train.checkpoint_steps;
    uint64_t due = every > 0 ? trainer->cursor.step / every * every : 0;
    uint8_t is_missing;

    if (trainer->kept.keep.restored.step == 0 || due == 0 || is_finished(trainer)) {
        return CDDP_OK;
    }
    is_missing = trainer->rank == 0 &&
                 (trainer->folder.saved_step == ~(uint64_t)0 || trainer->folder.saved_step < due);
    CDDPI_TRY(cddp_broadcast(trainer->group, &is_missing, 1, CDDP_U8, 0, NULL));
    return is_missing != 0 ? save_on_the_way(trainer) : CDDP_OK;
}

static cddp_status after_step(struct cddpi_trainer *trainer, const struct cddpi_train_step *step)
{
    uint64_t every = (uint64_t)trainer->config->train.checkpoint_steps;
    bool saves = step->request == CDDPI_REQUEST_SAVE ||
                 (every > 0 && trainer->cursor.step % every == 0);

    trainer->step.stopped = step->request == CDDPI_REQUEST_STOP;
    cddpi_save_behind_look(trainer);
    if (!is_finished(trainer)) { /* else finish_run() does it */
        CDDPI_TRY(cddpi_replicas_check(trainer, saves));
    }
    if (step->keeps && !(is_finished(trainer) && trainer->config->train.check_replicas > 0)) {
        CDDPI_TRY(cddpi_kept_state_step(trainer));
    }
    if (saves && !is_finished(trainer)) { /* else finish_run() does it, too */
        CDDPI_TRY(save_on_the_way(trainer));
    }
    if (step->ends_epoch) {
        CDDPI_TRY(begin_epoch(trainer)); /* so that batches are ready after the evaluation */
    }
    if (is_evaluated(trainer)) {
        CDDPI_TRY(cddpi_trainer_evaluate(trainer));
    }
    return is_finished(trainer) ? CDDP_OK : write_text(trainer, false);
}

/* Run all steps from the first one, or from where an earlier process ended, to the last. */
static cddp_status take_steps(struct cddpi_trainer *trainer)
{
    if (!is_finished(trainer)) {
        CDDPI_TRY(begin_epoch(trainer));
    }
    CDDPI_TRY(save_if_missing(trainer));
    CDDPI_TRY(evaluate_if_missing(trainer));
    while (!is_finished(trainer)) {
        struct cddpi_train_step step;

        CDDPI_TRY(cddpi_trainer_step(trainer, &step));
        CDDPI_TRY(after_step(trainer, &step));
    }
    return CDDP_OK;
}

/* The last checkpoint is written first, so that nothing that follows can prevent it. */
static cddp_status finish_run(struct cddpi_trainer *trainer)
{
    CDDPI_TRY(cddpi_trainer_save_last(trainer));
    CDDPI_TRY(cddpi_arrivals_write(trainer->records.arrivals));
    if (!trainer->step.stopped && trainer->evaluation.step != trainer->cursor.step) {
        CDDPI_TRY(cddpi_trainer_evaluate(trainer));
    }
    if (!trainer->step.stopped) {
        CDDPI_TRY(write_text(trainer, true));
    }
    return cddpi_trainer_tell_broken(trainer);
}

cddp_status cddpi_trainer_run(struct cddpi_trainer *trainer)
{
    cddp_status status;

    cddpi_trainer_report_begin(trainer);
    cddpi_replicas_warn(trainer);
    status = take_steps(trainer);
    cddpi_data_loader_cancel(trainer->data.train.loader);
    cddpi_trace_close(trainer->group);
    status = status == CDDP_OK ? finish_run(trainer) : status;
    cddpi_trainer_report_end(trainer, status != CDDP_OK);
    return status;
}
