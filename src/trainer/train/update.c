/* update.c - owns the end of a step: gradients are clipped, and parameters updated. */
#include "train/update.h"

#include "base/clock.h"
#include "group/watch/group_trace.h"
#include "train/device/collect_results.h"
#include "train/engines/stages/stages.h"

#include <math.h>

/* The norm of all gradients, rounded to float32: its square is summed in an order that depends on
 * who holds which part, which shows in no more than the last bits of a float64.
 * @p squares  This rank's part, where that is known already; NULL: not yet. */
static cddp_status find_norm(struct cddpi_trainer *trainer, const double *squares, double *out)
{
    double sum = squares != NULL ? *squares : 0;
    cddp_status status = CDDP_OK;

    if (trainer->stages != NULL) {
        status = cddpi_stages_square_sum(trainer, &sum);
    } else if (squares == NULL) {
        sum = cddpi_optim_square_sum(trainer->optim, trainer->grads);
    }
    if (status == CDDP_OK && trainer->stages == NULL && trainer->config->ddp.shard_optimizer) {
        status = cddp_all_reduce(trainer->group, &sum, &sum, 1, CDDP_F64, CDDP_OP_SUM, NULL);
    }
    *out = (float)sqrt(sum);
    return status;
}

/* Update all parameters, clipped where that is asked for. @p out_norm: only if clipped or @p
 * reported. A whole model's norm is found on the way where nothing is clipped. */
static cddp_status update_on_processor(struct cddpi_trainer *trainer, double lr, bool reported,
                                       double *out_norm)
{
    double clip = trainer->config->train.clip_norm;
    bool before = clip > 0 || (reported && trainer->stages != NULL);
    double squares = 0;
    double scale = 1;
    cddp_status status = before ? find_norm(trainer, NULL, out_norm) : CDDP_OK;

    if (status != CDDP_OK) {
        return status;
    }
    scale = clip > 0 && *out_norm > clip ? clip / *out_norm : 1;
    cddpi_optim_step(trainer->optim, trainer->grads, lr, scale,
                     before || !reported ? NULL : &squares);
    if (trainer->config->ddp.shard_optimizer) {
        status = cddp_ddp_updated(trainer->ddp);
    }
    return status == CDDP_OK && reported && !before ? find_norm(trainer, &squares, out_norm)
                                                    : status;
}

/* The same on a device: everything but the report is work for its streams. A report waits for the
 * step; else the step before is what is waited for, while the device computes. A step of dcgan has
 * two updates, and what its passes found is taken behind the last (gan/). */
static cddp_status update_on_device(struct cddpi_trainer *trainer,
                                    const struct cddpi_train_step *step, double *out_norm)
{
    bool alone = trainer->gan == NULL;
    cddp_status status = alone ? cddpi_model_collect(trainer->model, step->predictions) : CDDP_OK;

    if (status == CDDP_OK) {
        status = step->mode.replays
                     ? cddpi_device_step_end(trainer->device_step, step->reported, step->mode)
                     : cddpi_device_step_update(trainer->device_step, step->lr, step->reported,
                                                step->mode.timed);
    }
    return status == CDDP_OK && alone
               ? cddpi_trainer_collect_results(trainer, step->reported ? 0 : 1, out_norm)
               : status;
}

cddp_status cddpi_trainer_update(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                                 double *out_norm)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status;

    if (cddpi_device_is_async(trainer->device)) {
        status = update_on_device(trainer, step, out_norm);
        cddpi_trace_add(trainer->group, CDDPI_SPAN_OPTIMIZER, begun, cddpi_now_ns(), -1, 0);
        return status;
    }
    status = update_on_processor(trainer, step->lr, step->reported, out_norm);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_OPTIMIZER, begun, cddpi_now_ns(), -1, 0);
    trainer->interval.optimizer_ns += cddpi_now_ns() - begun;
    return status;
}
