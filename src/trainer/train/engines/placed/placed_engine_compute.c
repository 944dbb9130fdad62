/* placed_engine_compute.c - owns a step with micro-batches on several devices at once. */
#include "base/clock.h"
#include "base/launcher_report.h"
#include "train/engines/placed/placed_engine.h"
#include "train/micro_batch.h"

static cddp_status grad_ready(void *context, size_t index)
{
    const struct cddpi_trainer *trainer = context;

    return cddp_ddp_grad_ready(trainer->ddp, index);
}

cddp_status cddpi_placed_engine_pipeline(struct cddpi_trainer *trainer,
                                         struct cddpi_train_step *step)
{
    struct cddpi_step_batches *all = &cddpi_placed_engine_of(trainer)->batches;
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;
    int64_t begun;
    cddp_status status;

    cddpi_launcher_report_alive();
    status = cddpi_step_batches_fetch(trainer, step, 1, true, all);
    begun = cddpi_now_ns();
    sync.weight = (double)all->share;
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(trainer->ddp, &sync);
    }
    if (status == CDDP_OK) {
        status = cddpi_placed_step(cddpi_placed_engine_of(trainer)->model, all->batches,
                                   all->scales, all->count, grad_ready, trainer, &result);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
    }
    trainer->records.interval.backward_ns += cddpi_now_ns() - begun;
    trainer->records.interval.loss_sum += result.loss_sum;
    trainer->records.interval.correct += result.correct;
    trainer->records.interval.count += result.count;
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}
