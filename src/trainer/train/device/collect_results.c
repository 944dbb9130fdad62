/* collect_results.c - collects the results of steps on a device one step later, so that the device
 * has the next step's work while the host waits. */
#include "train/device/collect_results.h"

#include "base/error.h"
#include "train/device/device_step.h"
#include "train/device/step_graphs.h"
#include "train/engines/engine.h"
#include "train/micro_batch.h"

#include <math.h>

/* Record that a step was skipped, which all ranks know. As with torch.amp.GradScaler, the run
 * continues, unless the loss scale cannot get any smaller. */
static cddp_status note_skipped(struct cddpi_trainer *trainer, uint64_t step,
                                const struct cddpi_loss_result *result)
{
    const struct cddpi_loss_scale *scale = &trainer->loss_scale;

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
                    (uint64_t)cddpi_device_step_pending(trainer->device_step);
    struct cddpi_loss_result result = {0};
    struct cddpi_step_result ended = {0};

    CDDPI_TRY(trainer->engine->take_result(trainer, step, &result));
    CDDPI_TRY(cddpi_device_step_take(trainer->device_step, &ended));
    interval->forward_ns += ended.forward_ns;
    interval->backward_ns += ended.backward_ns;
    interval->optimizer_ns += ended.optimizer_ns;
    interval->count += result.count;
    if (ended.mode.timed) {
        cddpi_step_graphs_time(trainer->graphs, ended.mode.replays, ended.step_ns);
    }
    if (out_norm != NULL) {
        *out_norm = ended.norm;
    }
    if (ended.skipped) {
        return note_skipped(trainer, step, &result);
    }
    interval->loss_sum += result.loss_sum;
    interval->correct += result.correct;
    return cddpi_trainer_check_loss(trainer, step, result.loss_sum);
}

cddp_status cddpi_trainer_collect_results(struct cddpi_trainer *trainer, int keep, double *out_norm)
{
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && cddpi_device_step_pending(trainer->device_step) > keep) {
        status = collect_one(trainer, out_norm);
    }
    return status;
}
