/* micro_batch.c - owns how one micro-batch contributes to the gradients of a step.
 *
 * A step's gradient is that of the mean loss over all samples of the global batch, for any number
 * of micro-batches and ranks. Each micro-batch is scaled by 1 / (this rank's predictions), and each
 * rank's mean is weighted by its number of samples (is_sum() tells when this is done differently).
 * By position (train.micro_batch), each is scaled by 1 / (all ranks' predictions). Then the reducer
 * adds them up in one order for any number of ranks; or, where bits may depend on ranks, it adds up
 * the ranks' sums.
 * A rank without samples, in a short last batch or micro-batch, takes part with zeros, and in the
 * collectives of layers. */
#include "train/step.h"

#include "base/error.h"
#include "base/launcher_report.h"
#include "group/watch/group_trace.h"
#include "train/batch_sizes.h"
#include "train/engines/engine.h"
#include "train/statistics.h"

#include <math.h>
#include <stdio.h>

cddp_status cddpi_trainer_grad_ready(void *context, size_t index)
{
    struct cddpi_trainer *trainer = context;

    cddpi_arrivals_note(trainer->records.arrivals, index);
    return cddp_ddp_grad_ready(trainer->ddp, index);
}

cddp_status cddpi_trainer_check_loss(const struct cddpi_trainer *trainer, uint64_t step,
                                     double loss_sum)
{
    if (isfinite(loss_sum)) {
        return CDDP_OK;
    }
    cddpi_keep_refuse(&trainer->kept.keep);
    return cddpi_fail_rank(
        CDDP_ERR_STATE, trainer->rank,
        "the loss of step %llu is %g: the learning rate may be too high%s",
        (unsigned long long)step, loss_sum,
        trainer->config->train.precision == CDDPI_PRECISION_FP16
            ? ", or activations are larger than fp16 holds (65504): bf16 holds them"
            : "");
}

cddp_status cddpi_trainer_add_advice(cddp_status status, const char *what)
{
    return status == CDDP_ERR_NO_MEMORY ? cddpi_fail_suffix(status, "; %s", what) : status;
}

/* Advise smaller micro-batches: their memory depends on the number of samples. */
static cddp_status advise_smaller_micro_batches(const struct cddpi_trainer *trainer,
                                                cddp_status status)
{
    int64_t samples = cddpi_trainer_micro_batch(trainer->config, trainer->replicas.count);
    char text[160];

    if (samples == 1) {
        return status;
    }
    if (cddpi_trainer_by_position(trainer->config)) {
        return cddpi_trainer_add_advice(
            status, "a smaller train.micro_batch needs less (and gives other bits)");
    }
    snprintf(text, sizeof text,
             "a larger train.accumulate (now %lld) makes micro-batches smaller (now %lld samples)",
             (long long)trainer->config->train.accumulate, (long long)samples);
    return cddpi_trainer_add_advice(status, text);
}

/* Whether the mean over ranks can be part of the loss scale: if all ranks have equally many samples
 * and sums may be in any order. Then GPUs exchange plain sums without weights, which NCCL and
 * NVLink switches add in transit. */
static bool is_sum(const struct cddpi_trainer *trainer, const struct cddpi_micro_batch *micro_batch)
{
    return micro_batch->even && cddpi_device_is_async(trainer->device) &&
           !trainer->config->ddp.deterministic;
}

cddp_step cddpi_trainer_step_of(const struct cddpi_trainer *trainer,
                                const struct cddpi_micro_batch *micro_batch, uint64_t done)
{
    uint64_t each = micro_batch->micro_batches;
    cddp_step step = CDDP_STEP_INIT;

    step.number = trainer->cursor.step + 1;
    if (micro_batch->of > 0) {
        step.kind = cddpi_trainer_has_same_bits(trainer) ? CDDP_STEP_BY_MICRO_BATCHES
                                                         : CDDP_STEP_SUM;
        step.micro_batch = micro_batch->number;
        step.micro_batches = micro_batch->of;
        return step;
    }
    step.samples = micro_batch->share;
    step.kind = is_sum(trainer, micro_batch) ? CDDP_STEP_SUM : CDDP_STEP_BY_SAMPLES;
    step.micro_batch = (uint64_t)trainer->replicas.rank * each + done;
    step.micro_batches = (uint64_t)trainer->replicas.count * each;
    return step;
}

/* In a replayed step, parts are not timed. */
static cddp_status mark(const struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                        enum cddpi_mark part)
{
    return step->mode.replays ? CDDP_OK : cddpi_device_step_mark(trainer->step.device, part);
}

static cddp_status run_forward(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                               const struct cddpi_batch *batch, struct cddpi_loss_result *out)
{
    CDDPI_TRY(mark(trainer, step, CDDPI_MARK_FORWARD));
    CDDPI_TRY(trainer->engine->forward(trainer, batch, true, out));
    return cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, out->loss_sum);
}

static cddp_status run_backward(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                                const cddp_step *sync, double scale, bool accumulate,
                                struct cddpi_loss_result *out)
{
    CDDPI_TRY(mark(trainer, step, CDDPI_MARK_BACKWARD));
    CDDPI_TRY(cddp_ddp_begin(trainer->ddp, sync));
    return trainer->engine->backward(trainer, scale, accumulate, cddpi_trainer_grad_ready, trainer,
                                     out);
}

/* By what the loss of a micro-batch is multiplied. */
static double scale_of(const struct cddpi_trainer *trainer,
                       const struct cddpi_micro_batch *micro_batch, cddp_step_kind kind)
{
    bool by_position = micro_batch->of > 0;
    double samples = (double)(by_position ? micro_batch->samples : micro_batch->share);
    double parts = kind == CDDP_STEP_SUM && !by_position ? trainer->world_size : 1;

    return samples > 0 ? 1.0 / (samples * trainer->models.predictions * parts) : 1.0;
}

/* Take part in a step whose micro-batches other ranks have. */
static cddp_status run_idle(struct cddpi_trainer *trainer, const cddp_step *sync)
{
    cddp_step followed = *sync;
    bool all_follow;

    if (sync->kind == CDDP_STEP_SUM) {
        followed.micro_batch = 0;
        followed.micro_batches = 0; /* tells only the kind */
        CDDPI_TRY(cddp_ddp_begin(trainer->ddp, &followed));
        return cddp_ddp_follow(trainer->ddp, &all_follow);
    }
    CDDPI_TRY(cddp_ddp_begin(trainer->ddp, sync));
    CDDPI_TRY(cddp_ddp_wait(trainer->ddp));
    return cddpi_statistics_add(trainer->step.statistics, sync);
}

/* Either the reducer adds up the gradients of a step's micro-batches, or they are added to those of
 * the previous @p done ones here. */
cddp_status cddpi_trainer_run_micro_batch(struct cddpi_trainer *trainer,
                                          const struct cddpi_train_step *step,
                                          const struct cddpi_micro_batch *micro_batch,
                                          uint64_t done)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_batch batch = cddpi_prefetcher_batch(micro_batch);
    cddp_step sync = cddpi_trainer_step_of(trainer, micro_batch, done);
    struct cddpi_loss_result result = {0};
    bool accumulate = done > 0 && sync.kind != CDDP_STEP_BY_MICRO_BATCHES;
    double scale = scale_of(trainer, micro_batch, sync.kind);
    struct cddpi_moment begun = cddpi_moment_now(trainer);
    struct cddpi_moment forwarded;
    struct cddpi_moment ended;
    cddp_status status;

    if (micro_batch->of > 0 && micro_batch->count == 0) {
        return run_idle(trainer, &sync);
    }
    cddpi_arrivals_begin(trainer->records.arrivals);
    cddpi_launcher_report_alive(); /* a step of many micro-batches may take long */
    status = run_forward(trainer, step, &batch, &result);
    forwarded = cddpi_moment_now(trainer);
    cddpi_arrivals_forward_end(trainer->records.arrivals);
    if (status == CDDP_OK) {
        status = run_backward(trainer, step, &sync, scale, accumulate, &result);
    }
    cddpi_arrivals_backward_end(trainer->records.arrivals);
    ended = cddpi_moment_now(trainer);
    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_FORWARD, begun.now_ns, forwarded.now_ns, -1);
    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_BACKWARD, forwarded.now_ns, ended.now_ns, -1);
    if (!cddpi_device_is_async(trainer->device)) { /* on a device, the device's times count */
        interval->forward_ns += cddpi_moment_work_ns(&begun, &forwarded);
        interval->backward_ns += cddpi_moment_work_ns(&forwarded, &ended);
        cddpi_exact_add(&interval->loss_sum, result.loss_sum);
        interval->correct += result.correct;
        interval->count += result.count;
    }
    if (status != CDDP_OK) {
        return advise_smaller_micro_batches(trainer, status);
    }
    CDDPI_TRY(cddp_ddp_wait(trainer->ddp));
    CDDPI_TRY(cddpi_statistics_add(trainer->step.statistics, &sync));
    return micro_batch->last ? cddpi_arrivals_end(trainer->records.arrivals, trainer->ddp)
                             : CDDP_OK;
}
