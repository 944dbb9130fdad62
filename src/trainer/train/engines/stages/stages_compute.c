/* stages_compute.c - owns a step of a pipeline run, and its evaluation batches. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "ddp/copies.h"
#include "group/watch/group_trace.h"
#include "train/device/device_step.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"
#include "train/statistics.h"

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
    CDDPI_TRY(cddpi_single_add_parts(
        trainer, trainer->config->ddp.shard_optimizer ? trainer->group : stages->group, &sum));
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

/* By position: the gradient of a micro-batch. */
static cddp_status part_ready(void *context, int chunk, size_t index)
{
    struct cddpi_trainer *trainer = context;
    size_t param = trainer->models.list[chunk].first + index;

    return cddpi_stages_lends(trainer, param) ? cddpi_stages_give_part(trainer)
                                              : cddpi_ddp_run_grad_ready(trainer->ddp, param);
}

/* By position: the statistics of a micro-batch. */
static cddp_status forwarded(void *context, int chunk)
{
    const struct cddpi_trainer *trainer = context;

    return cddpi_statistics_forwarded(trainer->step.statistics, chunk);
}

/* This rank has waited for other stages since @p begun. */
static void note_wait(struct cddpi_trainer *trainer, int64_t begun)
{
    int64_t ended = cddpi_now_ns();

    trainer->records.interval.exposed_ns += ended - begun;
    cddpi_trace_add(trainer->group, CDDPI_SPAN_WAIT, begun, ended, -1, 0);
}

/* After the pipeline has run, sum the gradients of tied parameters, and wait for the means over
 * replicas. */
static cddp_status finish_gradients(struct cddpi_trainer *trainer,
                                    const struct cddpi_step_batches *all)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status = all->of > 0 ? cddpi_stages_finish_parts(trainer)
                                     : cddpi_stages_sum_tied(trainer);

    note_wait(trainer, begun);
    CDDPI_TRY(status);
    return cddpi_step_batches_wait(trainer, all); /* the reducer counts by itself */
}

/* Wait for updated parameters, before any forward. */
static cddp_status begin_gradients(struct cddpi_trainer *trainer,
                                   const struct cddpi_step_batches *all)
{
    int64_t begun;
    cddp_status status;

    CDDPI_TRY(cddpi_step_batches_begin(trainer, all));
    if (all->of == 0) {
        return CDDP_OK;
    }
    begun = cddpi_now_ns();
    status = cddpi_stages_renew_table(trainer);
    note_wait(trainer, begun);
    return status;
}

/* On a device: mark where its time goes. Passes of one kind in a row count as one. */
static cddp_status mark_pass(void *context, int chunk, enum cddpi_pipeline_pass pass)
{
    const struct cddpi_trainer *trainer = context;

    (void)chunk;
    return cddpi_device_step_mark(trainer->step.device, pass == CDDPI_PASS_FORWARD
                                                            ? CDDPI_MARK_FORWARD
                                                            : CDDPI_MARK_BACKWARD);
}

static cddp_status run_passes(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    struct cddpi_pipeline_work work = {.batches = all->batches,
                                       .scales = all->scales,
                                       .count = all->count,
                                       .separate = all->of > 0,
                                       .ready = all->of > 0 ? part_ready : grad_ready,
                                       .forwarded = all->of > 0 ? forwarded : NULL,
                                       .context = trainer};

    if (cddpi_stages_of(trainer)->table.is_tied) {
        work.before = cddpi_stages_prepare_part;
    } else if (cddpi_device_is_async(trainer->device)) {
        work.before = mark_pass;
    }
    return cddpi_pipeline_step(cddpi_stages_of(trainer)->pipeline, &work, all->results);
}

static void note_times(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_pipeline_times times = cddpi_pipeline_times(cddpi_stages_of(trainer)->pipeline);

    if (all->count == 0) {
        return;
    }
    interval->forward_ns += times.forward_ns;
    interval->backward_ns += times.backward_ns;
    interval->exposed_ns += times.wait_ns;
}

static cddp_status run_pipeline(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    CDDPI_TRY(begin_gradients(trainer, all));
    if (all->count > 0) { /* else, by position, other replicas have all micro-batches */
        CDDPI_TRY(run_passes(trainer, all));
    }
    if (!cddpi_device_is_async(trainer->device)) { /* a device tells times and losses later */
        note_times(trainer, all);
        CDDPI_TRY(cddpi_step_batches_note(trainer, all));
    }
    return finish_gradients(trainer, all);
}

/* Only the first rank of a pipeline logs its samples: it reads the inputs, while the last rank
 * reads the labels. */
cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    int multiple = trainer->models.count > 1 ? stages->count : 1;

    cddpi_launcher_report_alive();
    CDDPI_TRY(cddpi_pipeline_settle(stages->pipeline));
    stages->batches.no_data = stages->stage > 0;
    stages->batches.no_labels = !cddpi_pipeline_has_loss(stages->pipeline);
    CDDPI_TRY(
        cddpi_step_batches_fetch(trainer, step, multiple, stages->stage == 0, &stages->batches));
    return run_pipeline(trainer, &stages->batches);
}

cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                                  struct cddpi_loss_result *out)
{
    CDDPI_TRY(cddpi_stages_renew_table(trainer));
    return cddpi_pipeline_evaluate(cddpi_stages_of(trainer)->pipeline, batch, out);
}

void cddpi_stages_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    cddpi_single_add_memory(trainer, all);
    all[0].edges += cddpi_pipeline_edge_bytes(cddpi_stages_of(trainer)->pipeline) +
                    cddpi_stages_part_bytes(trainer);
}
