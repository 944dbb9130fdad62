/* tied.c - owns what a pipeline run knows of parameters that several stages share (tied weights),
 * and their gradients where these are added once per step. For example, GPT-2's embedding table is
 * read by the first and the last layer. Each of these stages has its own copy and a part of the
 * gradient. The first stage adds the parts in the order of the stages and sends the sum to the
 * others, before replicas exchange anything, so that the copies stay equal.
 *
 * By position (train.micro_batch) parts are added in each micro-batch instead: see tied_table.c. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "kernels/cuda/cuda_kernels.h"
#include "train/batch_sizes.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

/* The parameter's name as a number. 0 means no parameter. */
static uint64_t hash_of(const cddp_param *param)
{
    return cddpi_hash_text(cddpi_hash_start, param->name) | 1;
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
    return status == CDDP_OK && cddpi_trainer_by_position(trainer->config)
               ? cddpi_stages_tie_table(trainer)
               : status;
}

/* The order of whole models, except that tied parameters come last: their sums are ready only after
 * the pipeline, and buckets start in order. By position the first stage has each sum as soon as its
 * own part, and the others none. */
void cddpi_stages_ready_order(const struct cddpi_trainer *trainer, size_t *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    size_t end = trainer->params.count;
    size_t i = 0;

    cddpi_single_ready_order(trainer, out);
    while (i < end) {
        size_t param = out[i];

        if (stages->is_tied[param] &&
            !(stages->table.is_tied && cddpi_stages_owner(trainer, param) == stages->stage)) {
            memmove(&out[i], &out[i + 1], (trainer->params.count - i - 1) * sizeof *out);
            out[trainer->params.count - 1] = param;
            end--;
        } else {
            i++;
        }
    }
}

int cddpi_stages_owner(const struct cddpi_trainer *trainer, size_t index)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    uint64_t hash = hash_of(&trainer->params.list[index]);
    int stage = 0;

    while (!stage_has(stages, stage, hash)) {
        stage++;
    }
    return stage;
}

static cddp_status add_part(struct cddpi_device *device, float *sum, const float *part,
                            size_t count)
{
    if (cddpi_device_is_async(device)) {
        return device->kernels->add(device, CDDP_F32, sum, part, false, count, sum);
    }
    for (size_t i = 0; i < count; i++) {
        sum[i] += part[i];
    }
    return CDDP_OK;
}

/* The first stage's part of the exchange for parameter @p index. */
static cddp_status add_parts(struct cddpi_trainer *trainer, size_t index, uint64_t hash)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const cddp_param *param = &trainer->params.list[index];
    size_t count = cddpi_elements(param->dims, param->shape);
    struct cddpi_device *device = trainer->device;
    float *sum = trainer->step.grads[index];
    void *part = NULL;
    cddp_status status = CDDP_OK;

    for (int stage = stages->stage + 1; status == CDDP_OK && stage < stages->count; stage++) {
        if (!stage_has(stages, stage, hash)) {
            continue;
        }
        if (part == NULL) {
            CDDPI_TRY(device->ops->alloc(device, count * sizeof *sum,
                                         "the gradient of a tied weight", &part));
        }
        status = cddpi_pipeline_exchange(stages->pipeline, part, count, CDDP_F32, stage, true);
        status = status == CDDP_OK ? add_part(device, sum, part, count) : status;
    }
    device->ops->release(device, part);
    for (int stage = stages->stage + 1; status == CDDP_OK && stage < stages->count; stage++) {
        if (stage_has(stages, stage, hash)) {
            status = cddpi_pipeline_exchange(stages->pipeline, sum, count, CDDP_F32, stage, false);
        }
    }
    return status;
}

static cddp_status give_part(struct cddpi_trainer *trainer, size_t index, int owner)
{
    const cddp_param *param = &trainer->params.list[index];
    size_t count = cddpi_elements(param->dims, param->shape);
    struct cddpi_pipeline *pipeline = cddpi_stages_of(trainer)->pipeline;
    void *grad = trainer->step.grads[index];

    CDDPI_TRY(cddpi_pipeline_exchange(pipeline, grad, count, CDDP_F32, owner, false));
    return cddpi_pipeline_exchange(pipeline, grad, count, CDDP_F32, owner, true);
}

cddp_status cddpi_stages_sum_tied(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    for (size_t i = 0; i < trainer->params.count; i++) {
        int owner = cddpi_stages_owner(trainer, i);

        if (stages->is_tied[i]) {
            CDDPI_TRY(owner == stages->stage
                          ? add_parts(trainer, i, hash_of(&trainer->params.list[i]))
                          : give_part(trainer, i, owner));
            CDDPI_TRY(cddp_ddp_grad_ready(trainer->ddp, i));
        }
    }
    return CDDP_OK;
}
