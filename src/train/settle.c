/* settle.c - results of steps on a device, a step later: what waits for them waits while the device
 * already has the next step's work. */
#include "base/error.h"
#include "train/device_step.h"
#include "train/step_graphs.h"
#include "train/trainer.h"

/* The oldest step whose results were not taken. */
static cddp_status settle_one(struct cddpi_trainer *trainer, double *out_norm)
{
    struct cddpi_interval *interval = &trainer->interval;
    uint64_t step = trainer->at.step - (uint64_t)trainer->unsettled + 1;
    struct cddpi_result result = {0};
    struct cddpi_ended ended = {0};
    cddp_status status = cddpi_model_result(trainer->model, &result);

    if (status == CDDP_OK) {
        status = cddpi_device_step_take(trainer->device_step, &ended);
    }
    if (status != CDDP_OK) {
        return status;
    }
    trainer->unsettled--;
    interval->forward_ns += ended.forward_ns;
    interval->backward_ns += ended.backward_ns;
    interval->optimizer_ns += ended.optimizer_ns;
    interval->loss_sum += result.loss_sum;
    interval->correct += result.correct;
    interval->count += result.count;
    if (ended.skipped && trainer->rank == 0) {
        cddpi_trainer_warn(trainer,
                           "step %llu was skipped: a gradient overflowed; the loss scale is %g now",
                           (unsigned long long)step, (double)trainer->loss_scale.scale);
    }
    if (ended.timed) {
        cddpi_step_graphs_time(trainer->graphs, ended.replayed, ended.step_ns);
    }
    if (out_norm != NULL) {
        *out_norm = ended.norm;
    }
    return cddpi_trainer_check_loss(trainer, step, result.loss_sum);
}

cddp_status cddpi_trainer_settle(struct cddpi_trainer *trainer, int keep, double *out_norm)
{
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && trainer->unsettled > keep) {
        status = settle_one(trainer, out_norm);
    }
    return status;
}
