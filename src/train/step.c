/* step.c - the gradients of one step: forward and backward of one micro-batch after the other, the
 * mean over ranks during the last one's.
 *
 * The gradients of a step are those of the mean loss of all samples of the global batch, in
 * however many micro-batches and on however many ranks: each micro-batch is scaled by 1 / (this
 * rank's predictions), and the rank's mean has its samples as weight. A rank without samples, in a
 * short last batch or micro-batch, takes part too: with zeros, and in collectives of layers. */
#include "base/clock.h"
#include "base/error.h"
#include "train/trainer.h"

#include <assert.h>
#include <math.h>

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

static cddp_status check_loss(const struct cddpi_trainer *trainer, double loss_sum)
{
    if (isfinite(loss_sum)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_STATE,
                      "rank %d: the loss of step %llu is %g: the learning rate may be too high",
                      trainer->rank, (unsigned long long)trainer->at.step + 1, loss_sum);
}

/* Forward and backward of one micro-batch; the gradients are added to those of the @p done ones
 * before it. */
static cddp_status compute_micro_batch(struct cddpi_trainer *trainer,
                                       const struct cddpi_loaded *loaded, uint64_t done)
{
    struct cddpi_interval *interval = &trainer->interval;
    struct cddpi_batch batch = {.input = loaded->input,
                                .tokens = loaded->tokens,
                                .label = loaded->label,
                                .count = loaded->count,
                                .step = trainer->at.step,
                                .sample_ids = loaded->sample_ids};
    cddp_step step = CDDP_STEP_INIT;
    struct cddpi_result result = {0};
    double predictions = (double)loaded->share * trainer->predictions;
    double scale = predictions > 0 ? 1.0 / predictions : 1.0;
    int64_t begun = cddpi_now_ns();
    int64_t forwarded;
    cddp_status status;

    step.weight = (double)loaded->share;
    step.no_sync = !loaded->last;
    status = cddpi_model_forward(trainer->model, &batch, true, &result);
    if (status == CDDP_OK) {
        status = check_loss(trainer, result.loss_sum);
    }
    forwarded = cddpi_now_ns();
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(trainer->ddp, &step);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(trainer->model, scale, done > 0, grad_ready, trainer);
    }
    interval->forward_ns += forwarded - begun;
    interval->backward_ns += cddpi_now_ns() - forwarded;
    interval->loss_sum += result.loss_sum;
    interval->correct += result.correct;
    interval->count += result.count;
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}

static void keep_samples(struct cddpi_trainer *trainer, const struct cddpi_loaded *loaded)
{
    for (int i = 0; trainer->taken != NULL && i < loaded->count; i++) {
        trainer->taken[trainer->taken_count++] = loaded->sample_ids[i];
    }
}

cddp_status cddpi_trainer_compute(struct cddpi_trainer *trainer)
{
    struct cddpi_loaded loaded = {0};
    cddp_status status = CDDP_OK;

    trainer->taken_count = 0;
    for (uint64_t done = 0; status == CDDP_OK && !loaded.last; done++) {
        int64_t waited = 0;

        status = cddpi_loader_next(trainer->loader, &loaded, &waited);
        trainer->interval.data_ns += waited;
        if (status == CDDP_OK) {
            assert(loaded.label != NULL); /* as many batches as steps */
            keep_samples(trainer, &loaded);
            status = compute_micro_batch(trainer, &loaded, done);
        }
    }
    if (status == CDDP_OK) {
        bind_again(trainer);
    }
    return status;
}
