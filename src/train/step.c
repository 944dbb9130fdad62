/* step.c - the gradients of one step: forward and backward of one micro-batch after the other, the
 * mean over ranks during the last one's.
 *
 * The gradients of a step are those of the mean loss of all samples of the global batch, in
 * however many micro-batches and on however many ranks: each micro-batch is scaled by 1 / (this
 * rank's predictions), and the rank's mean has its samples as weight (see is_sum() for another
 * way). A rank without samples, in a short last batch or micro-batch, takes part too: with zeros,
 * and in collectives of layers. */
#include "base/at_work.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/device_step.h"
#include "train/step_graphs.h"
#include "train/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

static cddp_status grad_ready(void *context, size_t index)
{
    return cddp_ddp_grad_ready(((struct cddpi_trainer *)context)->ddp, index);
}

/* The gradients' places are final after the first wait. */
static void bind_again(struct cddpi_trainer *trainer)
{
    if (trainer->bound) {
        return;
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        trainer->grads[i] = cddp_ddp_grad(trainer->ddp, i);
    }
    cddpi_model_bind_grads(trainer->model, trainer->grads);
    trainer->bound = true;
}

cddp_status cddpi_trainer_check_loss(const struct cddpi_trainer *trainer, uint64_t step,
                                     double loss_sum)
{
    if (isfinite(loss_sum)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_STATE,
                      "rank %d: the loss of step %llu is %g: the learning rate may be too high%s",
                      trainer->rank, (unsigned long long)step, loss_sum,
                      trainer->config->train.precision == CDDPI_PRECISION_FP16
                          ? ", or activations are larger than fp16 holds (65504): bf16 holds them"
                          : "");
}

cddp_status cddpi_trainer_say_what_helps(cddp_status status, const char *what)
{
    char text[1024];

    if (status != CDDP_ERR_NO_MEMORY) {
        return status;
    }
    snprintf(text, sizeof text, "%s", cddp_last_error());
    return cddpi_fail(status, "%s; %s", text, what);
}

/* What a micro-batch takes depends on how many samples it has. */
static cddp_status say_what_micro_batches_take(const struct cddpi_trainer *trainer,
                                               cddp_status status)
{
    int64_t samples = cddpi_trainer_micro_batch(trainer->config, trainer->world_size);
    char text[160];

    if (samples == 1) {
        return status;
    }
    snprintf(text, sizeof text,
             "a larger train.accumulate (now %lld) makes micro-batches smaller (now %lld samples)",
             (long long)trainer->config->train.accumulate, (long long)samples);
    return cddpi_trainer_say_what_helps(status, text);
}

/* Where all ranks have as many samples and sums may have any order, the mean over ranks is in the
 * scale of the loss: so what goes between GPUs are plain sums, which NCCL and NVLink's switches do
 * on the way, and no weights. */
static bool is_sum(const struct cddpi_trainer *trainer, const struct cddpi_fed *fed)
{
    return fed->even && cddpi_is_cuda(trainer->device) && !trainer->config->ddp.deterministic;
}

/* The gradients are added to those of the @p done micro-batches before it. */
cddp_status cddpi_trainer_run_micro_batch(struct cddpi_trainer *trainer,
                                          const struct cddpi_fed *fed, uint64_t done)
{
    struct cddpi_interval *interval = &trainer->interval;
    cddp_step step = CDDP_STEP_INIT;
    struct cddpi_result result = {0};
    double predictions = (double)fed->share * trainer->predictions;
    bool sum = is_sum(trainer, fed);
    double parts = sum ? trainer->world_size : 1;
    double scale = predictions > 0 ? 1.0 / (predictions * parts) : 1.0;
    int64_t begun = cddpi_now_ns();
    int64_t forwarded;
    cddp_status status = cddpi_device_step_mark(trainer->device_step, CDDPI_MARK_FORWARD);

    cddpi_at_work_tell(); /* a step of many micro-batches takes its time */
    step.weight = (double)fed->share;
    step.no_sync = !fed->last;
    step.sum = sum;
    if (status == CDDP_OK) {
        status = cddpi_model_forward(trainer->model, &fed->batch, true, &result);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->at.step + 1, result.loss_sum);
    }
    forwarded = cddpi_now_ns();
    if (status == CDDP_OK) {
        status = cddpi_device_step_mark(trainer->device_step, CDDPI_MARK_BACKWARD);
    }
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(trainer->ddp, &step);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(trainer->model, scale, done > 0, grad_ready, trainer);
    }
    if (trainer->device_step == NULL) { /* else the device's times are taken */
        interval->forward_ns += forwarded - begun;
        interval->backward_ns += cddpi_now_ns() - forwarded;
        interval->loss_sum += result.loss_sum;
        interval->correct += result.correct;
        interval->count += result.count;
    }
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp)
                             : say_what_micro_batches_take(trainer, status);
}

static void keep_samples(struct cddpi_trainer *trainer, const struct cddpi_batch *batch)
{
    for (int i = 0; trainer->taken != NULL && i < batch->count; i++) {
        trainer->taken[trainer->taken_count++] = batch->sample_ids[i];
    }
}

cddp_status cddpi_trainer_compute(struct cddpi_trainer *trainer)
{
    struct cddpi_fed fed = {.last = false};
    cddp_status status = CDDP_OK;

    trainer->taken_count = 0;
    trainer->step_predictions = 0;
    for (uint64_t done = 0; status == CDDP_OK && !fed.last; done++) {
        status = cddpi_feed_next(trainer->feed, &fed);
        if (status == CDDP_OK) {
            assert(fed.batch.label != NULL); /* as many batches as steps */
            trainer->interval.data_ns += fed.waited_ns;
            keep_samples(trainer, &fed.batch);
            trainer->step_predictions += fed.batch.count * trainer->predictions;
            status = trainer->replays ? cddpi_step_graphs_micro_batch(trainer->graphs, &fed, done)
                                      : cddpi_trainer_run_micro_batch(trainer, &fed, done);
        }
        if (status == CDDP_OK) {
            status = cddpi_feed_used(trainer->feed);
        }
    }
    if (status == CDDP_OK) {
        bind_again(trainer);
    }
    return status;
}
