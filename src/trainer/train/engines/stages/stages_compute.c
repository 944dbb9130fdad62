/* stages_compute.c - owns a step of a pipeline run, its evaluation batches, and the gradients of
 * parameters that several stages share (tied weights). For example, GPT-2's embedding table is read
 * by the first and the last layer. Each of these stages has its own copy and a part of the
 * gradient. The first stage adds the parts in the order of the stages and sends the sum to the
 * others, before replicas exchange anything, so that the copies stay equal. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/launcher_report.h"
#include "base/shape.h"
#include "ddp/copies.h"
#include "group/watch/group_trace.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

/* The parameter's name as a number. 0 means no parameter. */
static uint64_t hash_of(const cddp_param *param)
{
    uint64_t hash = cddpi_hash_start;

    for (const char *name = param->name; *name != '\0'; name++) {
        hash = cddpi_hash_add(hash, (uint32_t)(unsigned char)*name);
    }
    return hash | 1;
}

/* Whether @p stage has the parameter with this hash. */
static bool stage_has(const struct cddpi_stages *stages, int stage, uint64_t hash)
{
    const uint64_t *row = stages->tied + stages->most * (size_t)stage;

    for (size_t i = 0; i < stages->most; i++) {
        if (row[i] == hash) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_stages_find_tied(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    int64_t most = (int64_t)trainer->params.count;
    uint64_t *own;
    cddp_status status;

    CDDPI_TRY(cddp_all_reduce(stages->group, &most, &most, 1, CDDP_I64, CDDP_OP_MAX, NULL));
    stages->most = (size_t)most;
    own = cddpi_zalloc_array(stages->most + 1, sizeof *own);
    stages->tied = cddpi_zalloc_array(stages->most * (size_t)stages->count + 1, sizeof *own);
    if (own == NULL || stages->tied == NULL) {
        cddpi_free(own);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu names", stages->most);
    }
    for (size_t i = 0; i < trainer->params.count; i++) {
        own[i] = hash_of(&trainer->params.list[i]);
    }
    status = cddp_all_gather(stages->group, own, stages->tied, stages->most, CDDP_I64, NULL);
    cddpi_free(own);
    stages->is_tied = cddpi_zalloc_array(trainer->params.count + 1, sizeof *stages->is_tied);
    if (status == CDDP_OK && stages->is_tied == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu names", stages->most);
    }
    for (size_t i = 0; status == CDDP_OK && i < trainer->params.count; i++) {
        uint64_t hash = hash_of(&trainer->params.list[i]);
        int owners = 0;

        for (int stage = 0; stage < stages->count; stage++) {
            owners += stage_has(stages, stage, hash) ? 1 : 0;
        }
        stages->is_tied[i] = owners > 1;
    }
    return status;
}

/* The order of whole models, except that tied parameters come last: their sums are ready only after
 * the pipeline, and buckets start in order. */
void cddpi_stages_ready_order(const struct cddpi_trainer *trainer, size_t *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    size_t end = trainer->params.count;
    size_t i = 0;

    cddpi_single_ready_order(trainer, out);
    while (i < end) {
        size_t param = out[i];

        if (stages->is_tied[param]) {
            memmove(&out[i], &out[i + 1], (trainer->params.count - i - 1) * sizeof *out);
            out[trainer->params.count - 1] = param;
            end--;
        } else {
            i++;
        }
    }
}

static int first_owner(const struct cddpi_stages *stages, uint64_t hash)
{
    int stage = 0;

    while (!stage_has(stages, stage, hash)) {
        stage++;
    }
    return stage;
}

/* The first stage's part of the exchange for parameter @p index. */
static cddp_status add_parts(struct cddpi_trainer *trainer, size_t index, uint64_t hash)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const cddp_param *param = &trainer->params.list[index];
    size_t count = cddpi_elements(param->dims, param->shape);
    float *sum = trainer->step.grads[index];
    float *part = NULL;
    cddp_status status = CDDP_OK;

    for (int stage = stages->stage + 1; status == CDDP_OK && stage < stages->count; stage++) {
        if (!stage_has(stages, stage, hash)) {
            continue;
        }
        part = part != NULL ? part : cddpi_zalloc_array(count, sizeof *part);
        CDDPI_TRY_MEMORY(part != NULL, "pipeline: no memory for the gradient of %s", param->name);
        status = cddp_recv(stages->group, part, count, CDDP_F32, stage, NULL);
        for (size_t i = 0; status == CDDP_OK && i < count; i++) {
            sum[i] += part[i];
        }
    }
    cddpi_free(part);
    for (int stage = stages->stage + 1; status == CDDP_OK && stage < stages->count; stage++) {
        if (stage_has(stages, stage, hash)) {
            status = cddp_send(stages->group, sum, count, CDDP_F32, stage, NULL);
        }
    }
    return status;
}

static cddp_status give_part(struct cddpi_trainer *trainer, size_t index, int owner)
{
    const cddp_param *param = &trainer->params.list[index];
    size_t count = cddpi_elements(param->dims, param->shape);
    cddp_group *group = cddpi_stages_of(trainer)->group;

    CDDPI_TRY(cddp_send(group, trainer->step.grads[index], count, CDDP_F32, owner, NULL));
    return cddp_recv(group, trainer->step.grads[index], count, CDDP_F32, owner, NULL);
}

static cddp_status sum_tied(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    for (size_t i = 0; i < trainer->params.count; i++) {
        uint64_t hash = hash_of(&trainer->params.list[i]);
        int owner = first_owner(stages, hash);

        if (stages->is_tied[i]) {
            CDDPI_TRY(owner == stages->stage ? add_parts(trainer, i, hash)
                                             : give_part(trainer, i, owner));
            CDDPI_TRY(cddp_ddp_grad_ready(trainer->ddp, i));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_square_sum(struct cddpi_trainer *trainer,
                                    const struct cddpi_exact_sum *known, double *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    void **grads = cddpi_zalloc_array(trainer->params.count + 1, sizeof *grads);
    struct cddpi_exact_sum sum = {{0}};

    (void)known; /* it includes parameters that other stages share */
    CDDPI_TRY_MEMORY(grads != NULL, "pipeline: no memory for %zu gradients", trainer->params.count);
    for (size_t i = 0; i < trainer->params.count; i++) {
        bool is_later = first_owner(stages, hash_of(&trainer->params.list[i])) < stages->stage;

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
    cddp_status status = sum_tied(trainer);
    int64_t ended = cddpi_now_ns();

    trainer->records.interval.exposed_ns += ended - begun;
    cddpi_trace_add(trainer->group, CDDPI_SPAN_WAIT, begun, ended, -1, 0);
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status; /* it counts by itself */
}

static cddp_status run_pipeline(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_loss_result result = {0};
    struct cddpi_pipeline_times times;
    cddp_step sync = CDDP_STEP_INIT;
    cddp_status status;

    sync.number = trainer->cursor.step + 1;
    sync.samples = all->share;
    /* waits for updated parameters, before any forward */
    CDDPI_TRY_GOTO(end, status, cddp_ddp_begin(trainer->ddp, &sync));
    status = cddpi_pipeline_step(cddpi_stages_of(trainer)->pipeline, all->batches, all->scales,
                                 all->count, grad_ready, trainer, &result);
    CDDPI_TRY_GOTO(end, status, status);
    status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
end:
    times = cddpi_pipeline_times(cddpi_stages_of(trainer)->pipeline);
    interval->forward_ns += times.forward_ns;
    interval->backward_ns += times.backward_ns;
    interval->exposed_ns += times.wait_ns;
    cddpi_exact_add(&interval->loss_sum, result.loss_sum);
    interval->correct += result.correct;
    interval->count += result.count;
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
