/* update.c - owns the end of a step: clips gradients and updates parameters; and collects the
 * results of steps on a device one step later, so that the device has the next step's work while
 * the host waits. */
#include "train/step.h"

#include "base/error.h"
#include "group/watch/group_trace.h"
#include "train/device/device_step.h"
#include "train/device/step_graphs.h"
#include "train/engines/engine.h"

#include <math.h>

/* Record that a step was skipped, which all ranks know. As with torch.amp.GradScaler, the run
 * continues, unless the loss scale cannot get any smaller. */
static cddp_status note_skipped(struct cddpi_trainer *trainer, uint64_t step,
                                const struct cddpi_loss_result *result)
{
    const struct cddpi_loss_scale *scale = &trainer->step.loss_scale;

    trainer->records.interval.skipped++;
    trainer->records.interval.skipped_count += result->count;
    if (trainer->rank == 0) {
        cddpi_trainer_warn(
            trainer, "step %llu was skipped: %s overflowed; the loss scale is %g now",
            (unsigned long long)step, isfinite(result->loss_sum) ? "a gradient" : "activations",
            (double)scale->scale);
    }
    if (cddpi_loss_scale_helps(scale)) {
        return CDDP_OK;
    }
    return cddpi_fail_rank(
        CDDP_ERR_STATE, trainer->rank,
        "step %llu is the %lldth in a row that was skipped because it "
        "overflowed, and the loss scale is down to %g: the learning rate may be too "
        "high, or activations are larger than fp16 holds (65504): bf16 holds them",
        (unsigned long long)step, -(long long)scale->good_steps, (double)scale->scale);
}

/* Collect the results of the oldest step. */
static cddp_status collect_one(struct cddpi_trainer *trainer, double *out_norm)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    uint64_t step = trainer->cursor.step + 1 -
                    (uint64_t)cddpi_device_step_pending(trainer->step.device);
    struct cddpi_loss_result result = {0};
    struct cddpi_step_result ended = {0};

    CDDPI_TRY(trainer->engine->take_result(trainer, step, &result));
    CDDPI_TRY(cddpi_device_step_take(trainer->step.device, &ended));
    interval->forward_ns += ended.forward_ns;
    interval->backward_ns += ended.backward_ns;
    interval->optimizer_ns += ended.optimizer_ns;
    interval->count += result.count;
    if (ended.mode.timed) {
        cddpi_step_graphs_time(trainer->step.graphs, ended.mode.replays, ended.step_ns);
    }
    if (out_norm != NULL) {
        *out_norm = ended.norm;
    }
    if (ended.skipped) {
        return note_skipped(trainer, step, &result);
    }
    if (result.exact != NULL) { /* of several micro-batches; else the engine has added it */
        cddpi_exact_merge(&interval->loss_sum, result.exact);
    }
    interval->correct += result.correct;
    return cddpi_trainer_check_loss(trainer, step, result.loss_sum);
}

cddp_status cddpi_trainer_collect_results(struct cddpi_trainer *trainer, int keep, double *out_norm)
{
    while (cddpi_device_step_pending(trainer->step.device) > keep) {
        CDDPI_TRY(collect_one(trainer, out_norm));
    }
    return CDDP_OK;
}

/* The norm of all gradients, whichever rank holds which part.
 * @param known  This rank's part of the sum of squares, if the update has computed it; else
 *               NULL. */
static cddp_status find_norm(struct cddpi_trainer *trainer, const struct cddpi_exact_sum *known,
                             double *out)
{
    double sum = 0;

    CDDPI_TRY(trainer->engine->square_sum(trainer, known, &sum));
    *out = sqrt(sum);
    return CDDP_OK;
}

/* Update all parameters, clipped if configured. @p out_norm: set only if clipped or @p reported.
 * Without clipping, the update may compute the norm itself. */
static cddp_status update_on_processor(struct cddpi_trainer *trainer, double lr, bool reported,
                                       double *out_norm)
{
    double clip = trainer->config->train.clip_norm;
    bool before = clip > 0 || (reported && !trainer->engine->update_finds_squares);
    struct cddpi_exact_sum squares = {{0}};
    double scale;

    if (before) {
        CDDPI_TRY(find_norm(trainer, NULL, out_norm));
    }
    scale = clip > 0 && *out_norm > clip ? clip / *out_norm : 1;
    cddpi_optim_step(trainer->step.optim, trainer->step.grads, lr, scale,
                     before || !reported ? NULL : &squares);
    if (trainer->config->ddp.shard_optimizer) {
        CDDPI_TRY(cddp_ddp_params_start(trainer->ddp));
    }
    return reported && !before ? find_norm(trainer, &squares, out_norm) : CDDP_OK;
}

/* The same on a device: everything but the report is enqueued in its streams. A step that is
 * reported waits for its own results; otherwise the host waits for the previous step's, while the
 * device computes. */
static cddp_status update_on_device(struct cddpi_trainer *trainer,
                                    const struct cddpi_train_step *step, bool collects,
                                    double *out_norm)
{
    int count = trainer->models.count;
    struct cddpi_model *last = count > 1 ? trainer->models.list[count - 1].model : trainer->model;

    if (collects && cddpi_model_has_loss(last)) {
        CDDPI_TRY(cddpi_model_collect(last, step->predictions));
    }
    CDDPI_TRY(step->mode.replays
                  ? cddpi_device_step_end(trainer->step.device, step->reported, step->mode)
                  : cddpi_device_step_update(trainer->step.device, step->lr, step->reported,
                                             step->mode.timed));
    return collects ? cddpi_trainer_collect_results(trainer, step->reported ? 0 : 1, out_norm)
                    : CDDP_OK;
}

cddp_status cddpi_trainer_update(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                                 bool collects, double *out_norm)
{
    bool on_device = cddpi_device_is_async(trainer->device);
    struct cddpi_moment begun = cddpi_moment_now(trainer);
    cddp_status status = on_device
                             ? update_on_device(trainer, step, collects, out_norm)
                             : update_on_processor(trainer, step->lr, step->reported, out_norm);
    struct cddpi_moment ended = cddpi_moment_now(trainer);

    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_OPTIMIZER, begun.now_ns, ended.now_ns, -1);
    trainer->records.interval.optimizer_ns += on_device ? 0 : cddpi_moment_work_ns(&begun, &ended);
    return status;
}
