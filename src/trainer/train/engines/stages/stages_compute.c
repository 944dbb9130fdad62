/* stages_compute.c - owns a step of a pipeline run, and its evaluation batches. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "group/watch/group_trace.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

cddp_status cddpi_stages_square_sum(struct cddpi_trainer *trainer,
                                    const struct cddpi_exact_sum *known, double *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    void **grads = cddpi_zalloc_array(trainer->params.count + 1, sizeof *grads);
    struct cddpi_exact_sum sum = {{0}};

    (void)known; /* it includes parameters that other stages share */
    CDDPI_TRY_MEMORY(grads != NULL, "pipeline: no memory for %zu gradients", trainer->params.count);
    for (size_t i = 0; i < trainer->params.count; i++) {
        bool is_later = cddpi_stages_owner(trainer, i) < stages->stage;

        grads[i] = is_later ? NULL : trainer->step.grads[i]; /* an earlier stage counts it */
    }
    cddpi_optim_add_squares(trainer->step.optim, grads, &sum);
    cddpi_free(grads);
    CDDPI_TRY(cddpi_interval_add_ranks(
        trainer->config->ddp.shard_optimizer ? trainer->group : stages->group, &sum));
    *out = cddpi_exact_value(&sum);
    return CDDP_OK;
}

static cddp_status grad_ready(void *context, int chunk, size_t index)
{
    struct cddpi_trainer *trainer = context;
    size_t param = trainer->models.list[chunk].first + index;

    return cddpi_stages_of(trainer)->is_tied[param] ? CDDP_OK
                                                    : cddp_ddp_grad_ready(trainer->ddp, param);
}

/* After the pipeline has run, sum the gradients of tied parameters, and wait for the means over
 * replicas. */
static cddp_status finish_gradients(struct cddpi_trainer *trainer)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status = cddpi_stages_sum_tied(trainer);
    int64_t ended = cddpi_now_ns();

    trainer->records.interval.exposed_ns += ended - begun;
    cddpi_trace_add(trainer->group, CDDPI_SPAN_WAIT, begun, ended, -1, 0);
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status; /* it counts by itself */
}

static cddp_status run_pipeline(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    const struct cddpi_pipeline_work work = {.batches = all->batches,
                                             .scales = all->scales,
                                             .count = all->count,
                                             .ready = grad_ready,
                                             .context = trainer};
    struct cddpi_pipeline_times times;
    double loss_sum = 0;
    cddp_step sync = CDDP_STEP_INIT;
    cddp_status status;

    sync.number = trainer->cursor.step + 1;
    sync.samples = all->share;
    /* waits for updated parameters, before any forward */
    CDDPI_TRY_GOTO(end, status, cddp_ddp_begin(trainer->ddp, &sync));
    status = cddpi_pipeline_step(cddpi_stages_of(trainer)->pipeline, &work, all->results);
    for (int m = 0; status == CDDP_OK && m < all->count; m++) {
        cddpi_exact_add(&interval->loss_sum, all->results[m].loss_sum);
        interval->correct += all->results[m].correct;
        interval->count += all->results[m].count;
        loss_sum += all->results[m].loss_sum;
    }
    CDDPI_TRY_GOTO(end, status, status);
    status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, loss_sum);
end:
    times = cddpi_pipeline_times(cddpi_stages_of(trainer)->pipeline);
    interval->forward_ns += times.forward_ns;
    interval->backward_ns += times.backward_ns;
    interval->exposed_ns += times.wait_ns;
    return status == CDDP_OK ? finish_gradients(trainer) : status;
}

/* Only the first rank of a pipeline logs its samples: it reads the inputs, while the last rank
 * reads the labels. */
cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    int multiple = trainer->models.count > 1 ? stages->count : 1;

    cddpi_launcher_report_alive();
    stages->batches.no_data = stages->stage > 0;
    stages->batches.no_labels = !cddpi_pipeline_has_loss(stages->pipeline);
    CDDPI_TRY(
        cddpi_step_batches_fetch(trainer, step, multiple, stages->stage == 0, &stages->batches));
    return run_pipeline(trainer, &stages->batches);
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
