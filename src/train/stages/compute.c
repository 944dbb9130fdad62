/* compute.c - owns a step of a divided run: its micro-batches go through the pipeline; and batches
 * of test data. */
#include "base/clock.h"
#include "base/launcher_report.h"
#include "train/micro_batch.h"
#include "train/stages/state.h"

static cddp_status grad_ready(void *context, int chunk, size_t index)
{
    struct cddpi_trainer *trainer = context;
    size_t param = trainer->models[chunk].first + index;

    return trainer->stages->is_tied[param] ? CDDP_OK : cddp_ddp_grad_ready(trainer->ddp, param);
}

static cddp_status run(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    struct cddpi_loss_result result = {0, 0, 0};
    cddp_step sync = CDDP_STEP_INIT;
    int64_t begun = cddpi_now_ns();
    cddp_status status;

    sync.weight = (double)all->share;
    status = cddp_ddp_begin(trainer->ddp, &sync);
    if (status == CDDP_OK) {
        status = cddpi_pipeline_step(trainer->stages->pipeline, all->batches, all->scales,
                                     all->count, grad_ready, trainer, &result);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
    }
    if (status == CDDP_OK) {
        status = cddpi_stages_sum_tied(trainer);
    }
    trainer->interval.backward_ns += cddpi_now_ns() - begun;
    trainer->interval.loss_sum += result.loss_sum;
    trainer->interval.correct += result.correct;
    trainer->interval.count += result.count;
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}

/* Of the ranks of a pipeline only the first writes down which samples they have. */
cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer, struct cddpi_step *step)
{
    struct cddpi_stages *stages = trainer->stages;
    int multiple = trainer->model_count > 1 ? stages->count : 1;
    cddp_status status;

    cddpi_launcher_report_alive();
    status = cddpi_step_batches_fetch(trainer, step, multiple, stages->stage == 0,
                                      &stages->batches);
    return status == CDDP_OK ? run(trainer, &stages->batches) : status;
}

cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                                  struct cddpi_loss_result *out)
{
    return cddpi_pipeline_evaluate(trainer->stages->pipeline, batch, out);
}
