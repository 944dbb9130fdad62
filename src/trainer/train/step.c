/* step.c - owns a step from plan to report: the micro-batches one by one, the reduction over ranks
 * during the last one, and the update. Meanwhile, ranks agree on what follows. */
#include "train/step.h"

#include "base/clock.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "group/join/group_agree.h"
#include "group/watch/group_trace.h"
#include "train/device/step_graphs.h"
#include "train/engines/engine.h"
#include "train/save_request.h"
#include "train/setup_model.h"
#include "train/telemetry/train_report.h"

#include <assert.h>
#include <cddp/process.h>

/* Barriers in a row. From each, the program that merges traces knows that no rank left before all
 * had entered, so the clock offsets are known as precisely as the fastest barrier allows. */
enum { CLOCK_BARRIERS = 8 };

/* The next step begins. At the start of a trace, ranks measure their clock offsets. */
static cddp_status trace_step(struct cddpi_trainer *trainer)
{
    bool begins = false;

    cddpi_trace_step(trainer->group, trainer->cursor.step + 1, &begins);
    for (int i = 0; begins && i < CLOCK_BARRIERS; i++) {
        CDDPI_TRY(cddp_barrier(trainer->group, NULL));
    }
    return CDDP_OK;
}

/* Set what is known before the step. If the choice whether to replay is due now, first collect the
 * times of all earlier steps. */
static cddp_status plan_step(struct cddpi_trainer *trainer, struct cddpi_train_step *out)
{
    uint64_t end = trainer->cursor.position + (uint64_t)trainer->config->train.batch_size;
    bool is_whole = end <= trainer->data.train.data.count;

    *out = (struct cddpi_train_step){
        .begun = cddpi_moment_now(trainer),
        .lr = cddpi_schedule_lr(&trainer->plan.schedule, (int64_t)trainer->cursor.step),
        .ends_epoch = end >= trainer->data.train.data.count,
    };
    if (cddpi_step_graphs_chooses(trainer->step.graphs, is_whole)) {
        CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL));
    }
    CDDPI_TRY(cddpi_step_graphs_decide(trainer->step.graphs, is_whole, &out->mode));
    out->replayed = out->mode.replays;
    return CDDP_OK;
}

static bool take_save_request(struct cddpi_trainer *trainer)
{
    bool is_there = cddpi_save_request_take();

    trainer->behind.is_asked = trainer->behind.is_asked || is_there;
    return is_there;
}

/* While the step computes, start asking all ranks what to do after it. */
static cddp_status begin_agreement(struct cddpi_trainer *trainer)
{
    double pause = trainer->config->train.checkpoint_seconds;
    const struct cddpi_run_folder *folder = &trainer->folder;
    enum cddpi_request request = CDDPI_REQUEST_NONE;

    if (cddp_stop_requested()) {
        request = CDDPI_REQUEST_STOP;
    } else if (trainer->rank == 0 &&
               (take_save_request(trainer) || folder->lost ||
                (pause > 0 && trainer->behind.saving == NULL &&
                 (double)(cddpi_now_ns() - folder->saved_ns) * 1e-9 >= pause))) {
        request = CDDPI_REQUEST_SAVE;
    }
    trainer->step.agreement.own.keeps = cddpi_kept_state_is_due(trainer);
    return cddpi_agreement_begin(&trainer->step.agreement, trainer->group, request,
                                 cddpi_step_graphs_are_stale(trainer->step.graphs));
}

/* Wait for the answer of all ranks; does nothing if it is known. */
static cddp_status end_agreement(struct cddpi_trainer *trainer, struct cddpi_train_step *out)
{
    struct cddpi_agreement *agreement = &trainer->step.agreement;
    uint64_t step = trainer->cursor.step + 1;

    if (agreement->work == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_agreement_end(agreement));
    out->request = (enum cddpi_request)agreement->agreed.request;
    out->keeps = agreement->agreed.keeps != 0;
    out->reported = out->ends_epoch || out->request == CDDPI_REQUEST_STOP || step == 1 ||
                    step % (uint64_t)trainer->config->train.log_steps == 0 ||
                    step == trainer->plan.last_step;
    if (agreement->agreed.stale != 0 && agreement->own.stale == 0) {
        cddpi_step_graphs_drop(trainer->step.graphs);
    }
    return CDDP_OK;
}

/* The addresses of gradients are final after the first wait. If the parameters of a sharded
 * optimizer have moved, too, the optimizer is made again; it has no state yet. */
cddp_status cddpi_trainer_bind_again(struct cddpi_trainer *trainer)
{
    cddp_status status;

    if (trainer->cursor.step > trainer->plan.first_step) {
        return CDDP_OK;
    }
    for (size_t i = 0; i < trainer->params.count; i++) {
        trainer->step.grads[i] = cddp_ddp_grad(trainer->ddp, i);
    }
    trainer->engine->bind_grads(trainer);
    if (!cddpi_ddp_has_moved(trainer->ddp)) {
        return CDDP_OK;
    }
    status = cddpi_trainer_bind_params(trainer);
    cddpi_optim_destroy(trainer->step.optim);
    trainer->step.optim = NULL;
    status = status == CDDP_OK ? cddpi_trainer_build_optimizer(trainer) : status;
    return cddpi_agree(trainer->group, status);
}

/* The capture of a step's last micro-batch includes the update, which must know whether the step is
 * reported. */
static cddp_status replay_micro_batch(struct cddpi_trainer *trainer, struct cddpi_train_step *step,
                                      const struct cddpi_micro_batch *batch, uint64_t done)
{
    enum cddpi_replay replay = CDDPI_REPLAYED;

    if (batch->last) {
        CDDPI_TRY(end_agreement(trainer, step));
    }
    CDDPI_TRY(cddpi_step_graphs_micro_batch(trainer->step.graphs, step, batch, done, &replay));
    step->replayed = step->replayed && replay != CDDPI_NOT_REPLAYED;
    step->mode.timed = step->mode.timed && replay == CDDPI_REPLAYED;
    return CDDP_OK;
}

cddp_status cddpi_trainer_compute_micro_batch(struct cddpi_trainer *trainer,
                                              struct cddpi_train_step *step,
                                              const struct cddpi_micro_batch *batch, uint64_t done)
{
    return step->mode.replays ? replay_micro_batch(trainer, step, batch, done)
                              : cddpi_trainer_run_micro_batch(trainer, step, batch, done);
}

cddp_status cddpi_trainer_take_batch(struct cddpi_trainer *trainer, struct cddpi_train_step *step,
                                     bool logs, struct cddpi_micro_batch *out)
{
    int64_t now;

    CDDPI_TRY(cddpi_prefetcher_next(trainer->data.train.prefetcher, out));
    assert(out->label != NULL); /* there are as many batches as steps */
    now = cddpi_trace_is_on(trainer->group) ? cddpi_now_ns() : 0;
    cddpi_trace_add(trainer->group, CDDPI_SPAN_DATA, now - out->waited_ns, now, -1, 0);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_LOADER, out->begun_ns, out->made_ns, -1, 0);
    trainer->records.interval.data_ns += out->waited_ns;
    if (logs) {
        cddpi_sample_log_take(trainer->records.sample_log, out->sample_ids, (size_t)out->count);
    }
    step->predictions += out->count * trainer->models.predictions;
    return CDDP_OK;
}

/* All ranks take equally many, so that these alternate in the same way between the prefetcher's
 * slots: what is replayed is captured for each slot, on all ranks in the same step. */
cddp_status cddpi_trainer_skip_batches(struct cddpi_trainer *trainer,
                                       const struct cddpi_micro_batch *last, uint64_t taken)
{
    struct cddpi_micro_batch skipped;

    for (; taken < last->micro_batches; taken++) {
        CDDPI_TRY(cddpi_prefetcher_next(trainer->data.train.prefetcher, &skipped));
        CDDPI_TRY(cddpi_prefetcher_release(trainer->data.train.prefetcher));
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_each_micro_batch(struct cddpi_trainer *trainer,
                                           struct cddpi_train_step *step,
                                           cddpi_micro_batch_fn compute)
{
    struct cddpi_micro_batch batch = {.last = false};
    uint64_t done;

    for (done = 0; !batch.last; done++) {
        CDDPI_TRY(cddpi_trainer_take_batch(trainer, step, true, &batch));
        CDDPI_TRY(compute(trainer, step, &batch, done));
        CDDPI_TRY(cddpi_prefetcher_release(trainer->data.train.prefetcher));
    }
    return cddpi_trainer_skip_batches(trainer, &batch, done);
}

/* Update, advance the cursor, report. */
static cddp_status finish_step(struct cddpi_trainer *trainer, const struct cddpi_train_step *step)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_moment ended;
    double norm = 0;
    cddp_status status;

    cddpi_sample_log_end_step(trainer->records.sample_log, trainer->cursor.step + 1,
                              trainer->cursor.epoch);
    trainer->cursor.step++;
    trainer->cursor.position += (uint64_t)trainer->config->train.batch_size;
    if (step->ends_epoch) {
        trainer->cursor.position = 0;
        trainer->cursor.epoch++;
    }
    status = trainer->engine->update(trainer, step, &norm);
    interval->steps++;
    trainer->records.pace.added_samples += step->predictions;
    interval->whole += step->mode.replays;
    interval->replayed += step->replayed;
    ended = cddpi_moment_now(trainer);
    interval->step_ns += ended.now_ns - step->begun.now_ns;
    interval->exposed_ns += (int64_t)(ended.exposed_ns - step->begun.exposed_ns);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_STEP, step->begun.now_ns, ended.now_ns, -1, 0);
    CDDPI_TRY(status);
    return step->reported ? cddpi_trainer_report(trainer, step->lr, norm) : CDDP_OK;
}

cddp_status cddpi_trainer_step(struct cddpi_trainer *trainer, struct cddpi_train_step *out)
{
    CDDPI_TRY(trace_step(trainer));
    CDDPI_TRY(plan_step(trainer, out));
    CDDPI_TRY(begin_agreement(trainer));
    CDDPI_TRY(trainer->engine->compute(trainer, out));
    CDDPI_TRY(cddpi_trainer_bind_again(trainer));
    CDDPI_TRY(end_agreement(trainer, out));
    return finish_step(trainer, out);
}
