/* loop.c - the training loop: step by step to the last one or a signal, with evaluation after
 * epochs and checkpoints on the way. */
#include "base/clock.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/device_step.h"
#include "train/step_graphs.h"
#include "train/trainer.h"

#include <math.h>

/* What ranks may wish after a step; the greatest wish is done by all. */
enum cddpi_wish { GO_ON, SAVE, STOP };

static uint64_t epoch_end(const struct cddpi_trainer *trainer)
{
    return trainer->train_data.count;
}

static bool is_finished(const struct cddpi_trainer *trainer)
{
    return trainer->stopped || trainer->at.step >= trainer->last_step ||
           trainer->at.epoch >= (uint64_t)trainer->config->train.epochs;
}

/* Let the loader begin with what is left of the epoch that the cursor is in. */
static cddp_status begin_epoch(struct cddpi_trainer *trainer)
{
    cddp_status status;

    if (trainer->at.epoch >= (uint64_t)trainer->config->train.epochs) {
        return CDDP_OK;
    }
    cddpi_loader_cancel(trainer->loader);
    cddpi_feed_start(trainer->feed, trainer->at.step);
    status = cddp_sampler_set_epoch(trainer->sampler, trainer->at.epoch);
    if (status != CDDP_OK) {
        return status;
    }
    return cddpi_loader_start(trainer->loader, trainer->sampler, trainer->at.epoch,
                              trainer->at.position, epoch_end(trainer),
                              (uint64_t)trainer->config->train.batch_size, trainer->rank,
                              trainer->world_size, true);
}

/* Ask all ranks, while the step computes, what is to be done after it. */
static cddp_status begin_agreement(struct cddpi_trainer *trainer)
{
    double pause = trainer->config->train.checkpoint_seconds;

    trainer->own.stale = cddpi_step_graphs_are_stale(trainer->graphs);
    trainer->own.wish = GO_ON;
    if (cddpi_stop_requested()) {
        trainer->own.wish = STOP;
    } else if (trainer->rank == 0 && pause > 0 &&
               (double)(cddpi_now_ns() - trainer->saved_ns) * 1e-9 >= pause) {
        trainer->own.wish = SAVE;
    }
    return cddp_all_reduce(trainer->group, &trainer->own, &trainer->agreed, sizeof trainer->own,
                           CDDP_U8, CDDP_OP_MAX, &trainer->agreeing);
}

static bool is_reported(const struct cddpi_trainer *trainer)
{
    uint64_t step = trainer->at.step + 1;

    return trainer->ends_epoch || trainer->agreed.wish == STOP || step == 1 ||
           step % (uint64_t)trainer->config->train.log_steps == 0 || step == trainer->last_step;
}

cddp_status cddpi_trainer_agree(struct cddpi_trainer *trainer)
{
    cddp_status status;

    if (trainer->agreeing == NULL) {
        return CDDP_OK;
    }
    status = cddp_work_wait(trainer->agreeing, 0);
    if (status == CDDP_OK) {
        cddp_work_destroy(trainer->agreeing);
        trainer->agreeing = NULL;
        trainer->reported = is_reported(trainer);
        cddpi_step_graphs_heard(trainer->graphs);
    }
    return status;
}

static void log_samples(struct cddpi_trainer *trainer)
{
    if (trainer->sample_log == NULL) {
        return;
    }
    fprintf(trainer->sample_log, "%llu %llu", (unsigned long long)trainer->at.step + 1,
            (unsigned long long)trainer->at.epoch);
    for (size_t i = 0; i < trainer->taken_count; i++) {
        fprintf(trainer->sample_log, " %llu", (unsigned long long)trainer->taken[i]);
    }
    fputc('\n', trainer->sample_log);
    (void)fflush(trainer->sample_log);
}

/* The cursor behind one more step. */
static void advance(struct cddpi_trainer *trainer)
{
    trainer->at.step++;
    trainer->at.position += (uint64_t)trainer->config->train.batch_size;
    if (trainer->ends_epoch) {
        trainer->at.position = 0;
        trainer->at.epoch++;
    }
}

/* The norm of all gradients from this rank's part of its square, rounded to float32: the parts are
 * summed in an order that depends on who holds them, which shows in no more than the last bits of a
 * float64. */
static cddp_status share_norm(struct cddpi_trainer *trainer, double squares, double *out)
{
    cddp_status status = CDDP_OK;

    if (trainer->config->ddp.shard_optimizer) {
        status = cddp_all_reduce(trainer->group, &squares, &squares, 1, CDDP_F64, CDDP_OP_SUM,
                                 NULL);
    }
    *out = (float)sqrt(squares);
    return status;
}

/* Update all parameters, clipped where that is asked for. @p out_norm: only if clipped or @p
 * reported.
 */
static cddp_status update(struct cddpi_trainer *trainer, double lr, bool reported, double *out_norm)
{
    double clip = trainer->config->train.clip_norm;
    double squares = 0;
    double scale = 1;
    cddp_status status = CDDP_OK;

    if (clip > 0) {
        squares = cddpi_optim_square_sum(trainer->optim, trainer->grads);
        status = share_norm(trainer, squares, out_norm);
        scale = *out_norm > clip ? clip / *out_norm : 1;
    }
    if (status != CDDP_OK) {
        return status;
    }
    cddpi_optim_step(trainer->optim, trainer->grads, lr, scale,
                     clip > 0 || !reported ? NULL : &squares);
    if (trainer->config->ddp.shard_optimizer) {
        status = cddp_ddp_updated(trainer->ddp);
    }
    return status == CDDP_OK && reported && !(clip > 0) ? share_norm(trainer, squares, out_norm)
                                                        : status;
}

/* The same on a device: everything but the report is work for its streams. A report waits for the
 * step; else the step before is what is waited for, while the device computes. */
static cddp_status update_on_device(struct cddpi_trainer *trainer, double *out_norm)
{
    cddp_status status = cddpi_model_collect(trainer->model, trainer->step_predictions);

    if (status == CDDP_OK) {
        status = trainer->replays ? cddpi_device_step_end(trainer->device_step, trainer->reported)
                                  : cddpi_device_step_update(trainer->device_step, trainer->lr,
                                                             trainer->reported);
    }
    trainer->unsettled++;
    return status == CDDP_OK ? cddpi_trainer_settle(trainer, trainer->reported ? 0 : 1, out_norm)
                             : status;
}

/* Clip, update, move the cursor, report. */
static cddp_status finish_step(struct cddpi_trainer *trainer, int64_t begun)
{
    double norm = 0;
    int64_t waited = cddpi_now_ns();
    cddp_status status;

    log_samples(trainer);
    advance(trainer);
    if (trainer->device_step != NULL) {
        status = update_on_device(trainer, &norm);
    } else {
        status = update(trainer, trainer->lr, trainer->reported, &norm);
        trainer->interval.optimizer_ns += cddpi_now_ns() - waited;
    }
    trainer->interval.steps++;
    trainer->interval.whole += trainer->replays;
    trainer->interval.replayed += cddpi_step_graphs_replayed(trainer->graphs);
    trainer->interval.step_ns += cddpi_now_ns() - begun;
    if (status != CDDP_OK) {
        return status;
    }
    return trainer->reported ? cddpi_trainer_report(trainer, trainer->lr, norm) : CDDP_OK;
}

/* What is known of the step before it begins. */
static cddp_status plan_step(struct cddpi_trainer *trainer)
{
    uint64_t end = trainer->at.position + (uint64_t)trainer->config->train.batch_size;

    trainer->lr = cddpi_schedule_lr(&trainer->schedule, (int64_t)trainer->at.step);
    trainer->ends_epoch = end >= epoch_end(trainer);
    return cddpi_step_graphs_begin(trainer->graphs, end <= epoch_end(trainer));
}

static cddp_status run_step(struct cddpi_trainer *trainer)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status = plan_step(trainer);

    if (status == CDDP_OK) {
        status = begin_agreement(trainer);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_compute(trainer);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_agree(trainer);
    }
    return status == CDDP_OK ? finish_step(trainer, begun) : status;
}

/* A checkpoint on the way: that it cannot be written is told, and training goes on. */
static cddp_status save_on_the_way(struct cddpi_trainer *trainer)
{
    cddp_status status = cddpi_trainer_assemble(trainer, false);

    if (status == CDDP_OK && trainer->rank == 0 && cddpi_trainer_save(trainer) != CDDP_OK) {
        cddpi_trainer_warn(trainer, "%s; training goes on", cddp_last_error());
    }
    return status;
}

/* The others wait in their next collective meanwhile. */
static cddp_status write_text(struct cddpi_trainer *trainer, bool at_end)
{
    uint64_t steps = (uint64_t)trainer->config->train.generate_steps;
    cddp_status status;

    if (trainer->rank != 0 || steps == 0 || (!at_end && trainer->at.step % steps != 0)) {
        return CDDP_OK;
    }
    status = cddpi_trainer_settle(trainer, 0, NULL); /* the model's results come in their order */
    return status == CDDP_OK ? cddpi_trainer_write_text(trainer) : status;
}

static bool is_evaluated(const struct cddpi_trainer *trainer, bool epoch_ended)
{
    uint64_t steps = (uint64_t)trainer->config->train.eval_steps;

    if (is_finished(trainer)) {
        return false; /* that is done at the end, once the run is saved */
    }
    return steps > 0 ? trainer->at.step % steps == 0
                     : epoch_ended &&
                           trainer->at.epoch % (uint64_t)trainer->config->train.eval_epochs == 0;
}

static cddp_status after_step(struct cddpi_trainer *trainer)
{
    bool epoch_ended = trainer->ends_epoch;
    const struct cddpi_config *config = trainer->config;
    uint64_t every = (uint64_t)config->train.checkpoint_steps;
    cddp_status status = CDDP_OK;

    trainer->stopped = trainer->agreed.wish == STOP;
    if (!is_finished(trainer) &&
        (trainer->agreed.wish == SAVE || (every > 0 && trainer->at.step % every == 0))) {
        status = save_on_the_way(trainer);
    }
    if (status == CDDP_OK && epoch_ended) {
        status = begin_epoch(trainer); /* so that batches are there after the evaluation */
    }
    if (status == CDDP_OK && is_evaluated(trainer, epoch_ended)) {
        status = cddpi_trainer_evaluate(trainer);
    }
    if (status == CDDP_OK && !is_finished(trainer)) {
        status = write_text(trainer, false);
    }
    return status;
}

/* A number that tells different parameters apart (FNV-1a over their 32-bit words). */
static int64_t parameters_hash(const struct cddpi_trainer *trainer)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < trainer->param_count; i++) {
        const cddp_param *param = &trainer->params[i];
        const uint32_t *words = trainer->mirror != NULL ? trainer->mirror[i] : param->data;
        size_t count = cddpi_elements(param->dims, param->shape) * cddp_type_bytes(param->type) /
                       sizeof *words;

        for (size_t k = 0; k < count; k++) {
            hash = (hash ^ words[k]) * 0x100000001b3u;
        }
    }
    return (int64_t)hash;
}

/* Replicas that are not the same bit for bit would go unnoticed otherwise: only rank 0's are kept.
 */
static cddp_status check_replicas(struct cddpi_trainer *trainer)
{
    int64_t hash = parameters_hash(trainer);
    int64_t bounds[2] = {hash, ~hash}; /* the least, and the complement of the greatest */
    cddp_status status = cddp_all_reduce(trainer->group, bounds, bounds, 2, CDDP_I64, CDDP_OP_MIN,
                                         NULL);

    if (status == CDDP_OK && bounds[0] != ~bounds[1]) {
        status = cddpi_fail(CDDP_ERR_MISMATCH,
                            "rank %d: after step %llu the parameters differ between ranks",
                            trainer->rank, (unsigned long long)trainer->at.step);
    }
    return status;
}

/* The last checkpoint: all ranks leave together once it is written, or fail if it cannot be. */
static cddp_status save_last(struct cddpi_trainer *trainer)
{
    cddp_status status = cddpi_trainer_assemble(trainer, true);

    if (status == CDDP_OK) {
        status = check_replicas(trainer);
    }
    if (status == CDDP_OK && trainer->rank == 0 && trainer->config->train.checkpoint_at_end &&
        trainer->saved_step != trainer->at.step) {
        status = cddpi_trainer_save(trainer);
    }
    return status == CDDP_OK ? cddp_barrier(trainer->group, NULL) : status;
}

cddp_status cddpi_trainer_run(struct cddpi_trainer *trainer)
{
    cddp_status status = CDDP_OK;

    cddpi_trainer_report_begin(trainer);
    if (!is_finished(trainer)) {
        status = begin_epoch(trainer);
    }
    while (status == CDDP_OK && !is_finished(trainer)) {
        status = run_step(trainer);
        if (status == CDDP_OK) {
            status = after_step(trainer);
        }
    }
    cddpi_loader_cancel(trainer->loader);
    if (status == CDDP_OK) {
        status = save_last(trainer);
    }
    if (status == CDDP_OK && !trainer->stopped && trainer->evaluated_step != trainer->at.step) {
        status = cddpi_trainer_evaluate(trainer);
    }
    if (status == CDDP_OK && !trainer->stopped) {
        status = write_text(trainer, true);
    }
    cddpi_trainer_report_end(trainer);
    return status;
}
