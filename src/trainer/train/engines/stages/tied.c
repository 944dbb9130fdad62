/* tied.c - owns the gradients of parameters that several stages share. For example, GPT-2's
 * embedding table is read by the first and the last layer. Each of these stages has its own copy
 * and a part of the gradient. The first stage adds the parts in the order of the stages and sends
 * the sum to the others, before replicas exchange anything, so that the copies stay equal. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

static uint64_t hash_of(const char *name)
{
    uint64_t hash = cddpi_hash_start;

    for (; *name != '\0'; name++) {
        hash = cddpi_hash_add(hash, (uint32_t)(unsigned char)*name);
    }
    return hash | 1; /* 0 means no parameter */
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

static bool has_other_owners(const struct cddpi_trainer *trainer, size_t index)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    uint64_t hash = hash_of(trainer->params[index].name);
    int owners = 0;

    for (int stage = 0; stage < stages->count; stage++) {
        owners += stage_has(stages, stage, hash) ? 1 : 0;
    }
    return owners > 1;
}

cddp_status cddpi_stages_find_tied(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    int64_t most = (int64_t)trainer->param_count;
    uint64_t *own;
    cddp_status status = cddp_all_reduce(stages->group, &most, &most, 1, CDDP_I64, CDDP_OP_MAX,
                                         NULL);

    if (status != CDDP_OK) {
        return status;
    }
    stages->most = (size_t)most;
    own = cddpi_zalloc_array(stages->most + 1, sizeof *own);
    stages->tied = cddpi_zalloc_array(stages->most * (size_t)stages->count + 1, sizeof *own);
    if (own == NULL || stages->tied == NULL) {
        cddpi_free(own);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu names", stages->most);
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        own[i] = hash_of(trainer->params[i].name);
    }
    status = cddp_all_gather(stages->group, own, stages->tied, stages->most, CDDP_I64, NULL);
    cddpi_free(own);
    stages->is_tied = cddpi_zalloc_array(trainer->param_count + 1, sizeof *stages->is_tied);
    if (status == CDDP_OK && stages->is_tied == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu names", stages->most);
    }
    for (size_t i = 0; status == CDDP_OK && i < trainer->param_count; i++) {
        stages->is_tied[i] = has_other_owners(trainer, i);
    }
    return status;
}

/* The order of whole models, except that tied parameters come last: their sums are ready only after
 * the pipeline, and buckets start in order. */
void cddpi_stages_ready_order(const struct cddpi_trainer *trainer, uint32_t *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    size_t end = trainer->param_count;
    size_t i = 0;

    cddpi_single_ready_order(trainer, out);
    while (i < end) {
        uint32_t param = out[i];

        if (stages->is_tied[param]) {
            memmove(&out[i], &out[i + 1], (trainer->param_count - i - 1) * sizeof *out);
            out[trainer->param_count - 1] = param;
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

bool cddpi_stages_is_later(const struct cddpi_trainer *trainer, size_t index)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);

    return first_owner(stages, hash_of(trainer->params[index].name)) < stages->stage;
}

/* The first stage's part of the exchange for parameter @p index. */
static cddp_status add_parts(struct cddpi_trainer *trainer, size_t index, uint64_t hash)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const cddp_param *param = &trainer->params[index];
    size_t count = cddpi_elements(param->dims, param->shape);
    float *sum = trainer->grads[index];
    float *part = NULL;
    cddp_status status = CDDP_OK;

    for (int stage = stages->stage + 1; status == CDDP_OK && stage < stages->count; stage++) {
        if (!stage_has(stages, stage, hash)) {
            continue;
        }
        part = part != NULL ? part : cddpi_zalloc_array(count, sizeof *part);
        if (part == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for the gradient of %s",
                              param->name);
        }
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
    const cddp_param *param = &trainer->params[index];
    size_t count = cddpi_elements(param->dims, param->shape);
    cddp_status status = cddp_send(cddpi_stages_of(trainer)->group, trainer->grads[index], count,
                                   CDDP_F32, owner, NULL);

    return status == CDDP_OK ? cddp_recv(cddpi_stages_of(trainer)->group, trainer->grads[index],
                                         count, CDDP_F32, owner, NULL)
                             : status;
}

cddp_status cddpi_stages_sum_tied(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    cddp_status status = CDDP_OK;

    for (size_t i = 0; status == CDDP_OK && i < trainer->param_count; i++) {
        uint64_t hash = hash_of(trainer->params[i].name);
        int owner = first_owner(stages, hash);

        if (!stages->is_tied[i]) {
            continue;
        }
        status = owner == stages->stage ? add_parts(trainer, i, hash)
                                        : give_part(trainer, i, owner);
        if (status == CDDP_OK) {
            status = cddp_ddp_grad_ready(trainer->ddp, i);
        }
    }
    return status;
}

cddp_status cddpi_stages_square_sum(struct cddpi_trainer *trainer, const double *known, double *out)
{
    void **grads = cddpi_zalloc_array(trainer->param_count + 1, sizeof *grads);
    double squares;
    cddp_status status;

    (void)known; /* it includes parameters that other stages share */
    if (grads == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu gradients",
                          trainer->param_count);
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        grads[i] = cddpi_stages_is_later(trainer, i) ? NULL : trainer->grads[i];
    }
    squares = cddpi_optim_square_sum(trainer->optim, grads);
    cddpi_free(grads);
    status = cddp_all_reduce(trainer->config->ddp.shard_optimizer ? trainer->group
                                                                  : cddpi_stages_of(trainer)->group,
                             &squares, &squares, 1, CDDP_F64, CDDP_OP_SUM, NULL);
    *out = squares;
    return status;
}
