/* compute.c - owns a step of a divided run: of its micro-batches the stages that read data or
 * labels keep copies, for they wait for several turns, and all go through the pipeline; and batches
 * of test data. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "group/trace.h"
#include "train/batch_sizes.h"
#include "train/micro_batch.h"
#include "train/stages/state.h"

#include <string.h>

void cddpi_stages_release_batches(struct cddpi_stages *stages)
{
    for (int m = 0; m < stages->batch_count; m++) {
        cddpi_free(stages->batches[m].input);
        cddpi_free(stages->batches[m].tokens);
        cddpi_free(stages->batches[m].label);
        cddpi_free(stages->batches[m].ids);
    }
    cddpi_free(stages->batches);
    stages->batches = NULL;
    stages->batch_count = 0;
}

/* What this rank keeps of a sample: the first stage reads data, the last one labels. */
struct sizes {
    size_t input, tokens, labels; /* elements */
};

static struct sizes sizes_of(const struct cddpi_trainer *trainer)
{
    const struct cddpi_dataset *data = &trainer->train_data;
    bool is_text = cddpi_trainer_is_text(trainer);
    struct sizes sizes = {0, 0, 0};

    if (trainer->stages->stage == 0) {
        sizes.tokens = is_text ? (size_t)data->context : 0;
        sizes.input = is_text ? 0
                              : (size_t)data->channels * (size_t)data->height * (size_t)data->width;
    }
    if (cddpi_pipeline_has_loss(trainer->stages->pipeline)) {
        sizes.labels = is_text ? (size_t)data->context : 1;
    }
    return sizes;
}

static cddp_status allocate(const struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = trainer->stages;
    struct sizes sizes = sizes_of(trainer);
    size_t samples = (size_t)cddpi_trainer_micro_batch(trainer->config, trainer->replica_count);
    int count = (int)cddpi_trainer_micro_batches(trainer->config) + stages->count;

    stages->batches = cddpi_zalloc_array((size_t)count, sizeof *stages->batches);
    stages->batch_count = stages->batches != NULL ? count : 0;
    for (int m = 0; m < stages->batch_count; m++) {
        struct cddpi_stored_batch *batch = &stages->batches[m];

        batch->room = samples;
        batch->input = cddpi_alloc_aligned(samples * sizes.input * sizeof *batch->input + 1);
        batch->tokens = cddpi_alloc_aligned(samples * sizes.tokens * sizeof *batch->tokens + 1);
        batch->label = cddpi_alloc_aligned(samples * sizes.labels * sizeof *batch->label + 1);
        batch->ids = cddpi_alloc_aligned(samples * sizeof *batch->ids + 1);
        if (batch->input == NULL || batch->tokens == NULL || batch->label == NULL ||
            batch->ids == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d micro-batches",
                              count);
        }
    }
    return stages->batches != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d micro-batches", count);
}

static struct cddpi_batch store(const struct cddpi_trainer *trainer, int m,
                                const struct cddpi_micro_batch *from)
{
    struct cddpi_stored_batch *to = &trainer->stages->batches[m];
    struct sizes sizes = sizes_of(trainer);
    struct cddpi_batch batch = cddpi_prefetcher_batch(from);
    size_t count = (size_t)batch.count;

    if (count > 0) {
        memcpy(to->ids, batch.sample_ids, count * sizeof *to->ids);
    }
    if (count > 0 && sizes.labels > 0) {
        memcpy(to->label, batch.label, count * sizes.labels * sizeof *to->label);
    }
    if (count > 0 && sizes.tokens > 0) {
        memcpy(to->tokens, batch.tokens, count * sizes.tokens * sizeof *to->tokens);
    }
    if (count > 0 && sizes.input > 0) {
        memcpy(to->input, batch.input, count * sizes.input * sizeof *to->input);
    }
    batch.input = sizes.input > 0 ? to->input : NULL;
    batch.tokens = sizes.tokens > 0 ? to->tokens : NULL;
    batch.label = sizes.labels > 0 ? to->label : NULL;
    batch.sample_ids = to->ids;
    return batch;
}

static void trace_batch(const struct cddpi_trainer *trainer, const struct cddpi_micro_batch *batch)
{
    int64_t now = cddpi_trace_is_on(trainer->group) ? cddpi_now_ns() : 0;

    cddpi_trace_add(trainer->group, CDDPI_SPAN_DATA, now - batch->waited_ns, now, -1, 0);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_LOADER, batch->begun_ns, batch->made_ns, -1, 0);
}

/* All micro-batches of the step. Of the ranks of a pipeline only the first writes down which
 * samples they have. */
static cddp_status fetch(struct cddpi_trainer *trainer, struct cddpi_step *step,
                         struct cddpi_batch *batches, int *out_count, uint64_t *out_share)
{
    struct cddpi_micro_batch batch = {.last = false};
    cddp_status status = CDDP_OK;
    int count = 0;

    while (status == CDDP_OK && !batch.last) {
        status = cddpi_prefetcher_next(trainer->prefetcher, &batch);
        if (status == CDDP_OK) {
            trainer->interval.data_ns += batch.waited_ns;
            trace_batch(trainer, &batch);
            if (trainer->stages->stage == 0) {
                cddpi_sample_log_take(trainer->sample_log, batch.sample_ids, (size_t)batch.count);
            }
            step->predictions += batch.count * trainer->predictions;
            batches[count] = store(trainer, count, &batch);
            count++;
            status = cddpi_prefetcher_release(trainer->prefetcher);
        }
    }
    while (trainer->model_count > 1 && count % trainer->stages->count != 0) {
        batches[count] = batches[0];
        batches[count++].count = 0;
    }
    *out_count = count;
    *out_share = batch.share;
    return status;
}

static cddp_status grad_ready(void *context, int chunk, size_t index)
{
    struct cddpi_trainer *trainer = context;
    size_t param = trainer->models[chunk].first + index;

    return trainer->stages->is_tied[param] ? CDDP_OK : cddp_ddp_grad_ready(trainer->ddp, param);
}

/* Behind the pipeline: tied parameters get their sums, and replicas' means are waited for. */
static cddp_status finish(struct cddpi_trainer *trainer)
{
    int64_t begun = cddpi_now_ns();
    int64_t ended;
    cddp_status status = cddpi_stages_sum_tied(trainer);

    ended = cddpi_now_ns();
    trainer->interval.stages_wait_ns += ended - begun;
    cddpi_trace_add(trainer->group, CDDPI_SPAN_WAIT, begun, ended, -1, 0);
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}

static cddp_status run(struct cddpi_trainer *trainer, const struct cddpi_batch *batches,
                       const double *scales, int count, uint64_t share)
{
    struct cddpi_interval *interval = &trainer->interval;
    struct cddpi_loss_result result = {0, 0, 0};
    struct cddpi_pipeline_times times;
    cddp_step sync = CDDP_STEP_INIT;
    cddp_status status;

    sync.weight = (double)share;
    status = cddp_ddp_begin(trainer->ddp, &sync);
    if (status == CDDP_OK) {
        status = cddpi_pipeline_step(trainer->stages->pipeline, batches, scales, count, grad_ready,
                                     trainer, &result);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
    }
    times = cddpi_pipeline_times(trainer->stages->pipeline);
    interval->forward_ns += times.forward_ns;
    interval->backward_ns += times.backward_ns;
    interval->stages_wait_ns += times.wait_ns;
    interval->loss_sum += result.loss_sum;
    interval->correct += result.correct;
    interval->count += result.count;
    return status == CDDP_OK ? finish(trainer) : status;
}

cddp_status cddpi_stages_compute(struct cddpi_trainer *trainer, struct cddpi_step *step)
{
    struct cddpi_stages *stages = trainer->stages;
    cddp_status status = stages->batches == NULL ? allocate(trainer) : CDDP_OK;
    struct cddpi_batch *batches = cddpi_zalloc_array((size_t)stages->batch_count + 1,
                                                     sizeof *batches);
    double *scales = cddpi_zalloc_array((size_t)stages->batch_count + 1, sizeof *scales);
    uint64_t share = 0;
    int count = 0;

    if (status == CDDP_OK && (batches == NULL || scales == NULL)) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for a step");
    }
    cddpi_launcher_report_alive();
    if (status == CDDP_OK) {
        status = fetch(trainer, step, batches, &count, &share);
    }
    for (int m = 0; m < count; m++) {
        scales[m] = share > 0 ? 1.0 / ((double)share * trainer->predictions) : 1.0;
    }
    if (status == CDDP_OK) {
        status = run(trainer, batches, scales, count, share);
    }
    cddpi_free(batches);
    cddpi_free(scales);
    return status;
}

cddp_status cddpi_stages_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                                  struct cddpi_loss_result *out)
{
    return cddpi_pipeline_evaluate(trainer->stages->pipeline, batch, out);
}
