/* stages_compute.c - owns a step of a pipeline run, and its evaluation batches. Micro-batches are
 * needed several times during a step, so the stages that read inputs or labels copy them. */
#include "base/clock.h"
#include "base/launcher_report.h"
#include "group/watch/group_trace.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"
#include "train/micro_batch.h"

static cddp_status grad_ready(void *context, int chunk, size_t index)
{
    struct cddpi_trainer *trainer = context;
    size_t param = trainer->models[chunk].first + index;

    return cddpi_stages_of(trainer)->is_tied[param] ? CDDP_OK
                                                    : cddp_ddp_grad_ready(trainer->ddp, param);
}

/* After the pipeline has run, sum the gradients of tied parameters, and wait for the means over
 * replicas. */
static cddp_status finish_gradients(struct cddpi_trainer *trainer)
{
    int64_t begun = cddpi_now_ns();
    int64_t ended;
    cddp_status status = cddpi_stages_sum_tied(trainer);

    ended = cddpi_now_ns();
    trainer->records.interval.stages_wait_ns += ended - begun;
    cddpi_trace_add(trainer->group, CDDPI_SPAN_WAIT, begun, ended, -1, 0);
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}

static cddp_status run_pipeline(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_loss_result result = {0, 0, 0};
    struct cddpi_pipeline_times times;
    cddp_step sync = CDDP_STEP_INIT;
    cddp_status status;

    sync.weight = (double)all->share;
    status = cddp_ddp_begin(trainer->ddp, &sync);
    if (status == CDDP_OK) {
        status = cddpi_pipeline_step(cddpi_stages_of(trainer)->pipeline, all->batches, all->scales,
                                     all->count, grad_ready, trainer, &result);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
    }
    times = cddpi_pipeline_times(cddpi_stages_of(trainer)->pipeline);
    interval->forward_ns += times.forward_ns;
    interval->backward_ns += times.backward_ns;
    interval->stages_wait_ns += times.wait_ns;
    interval->loss_sum += result.loss_sum;
    interval->correct += result.correct;
    interval->count += result.count;
    return status == CDDP_OK ? finish_gradients(trainer) : status;
}

/* Only the first rank of a pipeline logs its samples: it reads the inputs, while the last rank
 * reads the labels. */
cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    int multiple = trainer->model_count > 1 ? stages->count : 1;
    cddp_status status;

    cddpi_launcher_report_alive();
    stages->batches.no_data = stages->stage > 0;
    stages->batches.no_labels = !cddpi_pipeline_has_loss(stages->pipeline);
    status = cddpi_step_batches_fetch(trainer, step, multiple, stages->stage == 0,
                                      &stages->batches);
    return status == CDDP_OK ? run_pipeline(trainer, &stages->batches) : status;
}

cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                                  struct cddpi_loss_result *out)
{
    return cddpi_pipeline_evaluate(cddpi_stages_of(trainer)->pipeline, batch, out);
}

void cddpi_stages_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    cddpi_single_add_memory(trainer, all);
    all[0].edges += cddpi_pipeline_edge_bytes(cddpi_stages_of(trainer)->pipeline);
}
