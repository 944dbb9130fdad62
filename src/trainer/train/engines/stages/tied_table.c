/* tied_table.c - owns a table that two stages share, by position (train.micro_batch).
 *
 * In each micro-batch the later stage (GPT-2: of the head) sends its part of the gradient to the
 * first one (of the embedding), whose backward adds to it. So the gradient of a micro-batch has the
 * order of sums, and the bits, that it has in the whole model. Only the first stage adds up
 * micro-batches, exchanges sums with replicas, and updates the table; before the later stage reads
 * the table again, it gets the updated one. So a step sends the table once for each micro-batch,
 * and once more. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/parallel_memory.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

static struct cddpi_trainer_model *model_of_table(struct cddpi_trainer *trainer)
{
    return &trainer->models.list[cddpi_stages_of(trainer)->table.chunk];
}

bool cddpi_stages_lends(const struct cddpi_trainer *trainer, size_t param)
{
    const struct cddpi_stages_table *table = &cddpi_stages_of(trainer)->table;

    return table->is_later && table->param == param;
}

size_t cddpi_stages_part_bytes(const struct cddpi_trainer *trainer)
{
    const struct cddpi_stages_table *table = &cddpi_stages_of(trainer)->table;

    return (size_t)table->part_count * table->elements * sizeof(float);
}

/* --- setup --- */

static cddp_status refuse(const struct cddpi_trainer *trainer, const char *why)
{
    return cddpi_config_fail(trainer->config, "train.micro_batch",
                             "%s: leave out train.micro_batch or parallel.pipeline", why);
}

/* Find the parameter that two ranks have, in the hashes of all ranks' parameters; 0: there is none.
 * All ranks find the same. */
static cddp_status find_shared(const struct cddpi_trainer *trainer, uint64_t *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    size_t all = stages->most * (size_t)stages->count;

    *out = 0;
    for (size_t i = 0; i < all; i++) {
        size_t others = 0;
        size_t last = i;

        for (size_t k = i + 1; k < all && stages->tied[i] != 0; k++) {
            if (stages->tied[k] == stages->tied[i]) {
                others++;
                last = k;
            }
        }
        if (others > 1 || (others == 1 && last / stages->most == i / stages->most) ||
            (others == 1 && *out != 0)) {
            return refuse(trainer, "a pipeline adds up parts of one weight only, which two layers "
                                   "on two ranks share");
        }
        *out = others == 1 ? stages->tied[i] : *out;
    }
    return CDDP_OK;
}

/* How many parameters rank @p stage has, and which of them has the hash @p hash. */
static size_t count_params(const struct cddpi_stages *stages, int stage, uint64_t hash,
                           bool *out_has, size_t *out_index)
{
    const uint64_t *row = stages->tied + stages->most * (size_t)stage;
    size_t count = 0;

    *out_has = false;
    for (size_t i = 0; i < stages->most && row[i] != 0; i++) {
        if (row[i] == hash) {
            *out_has = true;
            *out_index = i;
        }
        count++;
    }
    return count;
}

/* Find the ranks that have the parameter with this hash, and where this rank has it. */
static cddp_status find_ranks(struct cddpi_trainer *trainer, uint64_t hash)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_table *table = &stages->table;
    size_t count = 0;
    int later = 0;

    for (int stage = 0; stage < stages->count; stage++) {
        bool has;
        size_t index = 0;
        size_t all = count_params(stages, stage, hash, &has, &index);

        if (has && stage == stages->stage) {
            table->is_here = true;
            table->param = index;
        } else if (has) {
            table->other = stage;
        }
        later = has ? stage : later;
        count = has ? all : count;
    }
    if (count == 1) {
        return cddpi_config_fail(trainer->config, "parallel.stages",
                                 "with train.micro_batch, an earlier stage updates the table that "
                                 "is all that rank %d has: let its stage begin with an earlier "
                                 "layer that learns",
                                 later);
    }
    table->is_later = table->is_here && later == stages->stage;
    while (table->is_here && table->chunk + 1 < trainer->models.count &&
           trainer->models.list[table->chunk + 1].first <= table->param) {
        table->chunk++;
    }
    return CDDP_OK;
}

static cddp_status add_part(struct cddpi_stages_table *table)
{
    struct cddpi_stages_part *part = &table->parts[table->part_count];

    part->data = cddpi_alloc_aligned(table->elements * sizeof *part->data + 1);
    CDDPI_TRY_MEMORY(part->data != NULL, "pipeline: no memory for %zu elements of a gradient",
                     table->elements);
    table->current = table->part_count++;
    return CDDP_OK;
}

/* The later stage: the table is in memory of its own, since the reducer knows it as frozen. */
static cddp_status prepare_later(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_table *table = &stages->table;
    cddp_param *param = &stages->params[table->param];
    struct cddpi_trainer_model *own = model_of_table(trainer);

    /* a rank is that far behind, with chunks its whole group of micro-batches */
    table->most_parts = trainer->models.count > 1 ? 2 * stages->count : stages->count + 1;
    table->parts = cddpi_zalloc_array((size_t)table->most_parts, sizeof *table->parts);
    table->data = cddpi_alloc_aligned(table->elements * sizeof *table->data + 1);
    CDDPI_TRY_MEMORY(table->data != NULL && table->parts != NULL,
                     "pipeline: no memory for another %s", param->name);
    memcpy(table->data, param->data, table->elements * sizeof *table->data);
    cddpi_model_place_param(own->model, table->param - own->first, table->data);
    param->data = table->data;
    param->flags |= CDDP_PARAM_FROZEN;
    return add_part(table);
}

cddp_status cddpi_stages_tie_table(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_table *table = &stages->table;
    uint64_t hash = 0;
    const cddp_param *param;

    CDDPI_TRY(find_shared(trainer, &hash));
    if (hash == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(find_ranks(trainer, hash));
    CDDPI_TRY(cddp_group_split(stages->group, 0, stages->stage, &table->group));
    cddpi_pipeline_set_beside(stages->pipeline, table->group);
    table->is_tied = true;
    if (!table->is_here) {
        return CDDP_OK;
    }
    param = &trainer->params.list[table->param];
    table->elements = cddpi_elements(param->dims, param->shape);
    if (table->is_later) {
        return prepare_later(trainer);
    }
    cddpi_model_begin_grad(model_of_table(trainer)->model,
                           table->param - model_of_table(trainer)->first);
    return CDDP_OK;
}

void cddpi_stages_release_table(struct cddpi_stages *stages)
{
    struct cddpi_stages_table *table = &stages->table;

    for (int i = 0; i < table->part_count; i++) {
        cddp_work_destroy(table->parts[i].work);
        cddpi_free(table->parts[i].data);
    }
    cddpi_free(table->parts);
    cddpi_free(table->data);
    cddp_group_destroy(table->group);
}

void cddpi_stages_bind_grads(struct cddpi_trainer *trainer)
{
    const struct cddpi_stages_table *table = &cddpi_stages_of(trainer)->table;

    if (table->is_later) {
        trainer->step.grads[table->param] = table->parts[table->current].data;
    }
    cddpi_single_bind_grads(trainer);
}

/* --- in each micro-batch --- */

/* Choose memory whose last part was sent: if there is none, more of it, up to a limit. */
static cddp_status choose_part(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_table *table = &stages->table;
    int oldest = 0;

    for (int i = 0; i < table->part_count; i++) {
        struct cddpi_stages_part *part = &table->parts[i];
        bool done = part->work == NULL;

        CDDPI_TRY(done ? CDDP_OK : cddp_work_test(part->work, &done));
        if (done) {
            table->current = i;
            return cddpi_message_finish(&part->work);
        }
        oldest = part->number < table->parts[oldest].number ? i : oldest;
    }
    if (table->part_count < table->most_parts) {
        return add_part(table);
    }
    table->current = oldest;
    return cddpi_pipeline_finish(stages->pipeline, &table->parts[oldest].work);
}

static cddp_status receive_part(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_table *table = &stages->table;
    cddp_work *work = NULL;

    CDDPI_TRY(cddp_recv(table->group, trainer->step.grads[table->param], table->elements, CDDP_F32,
                        table->other, &work));
    return cddpi_pipeline_finish(stages->pipeline, &work);
}

cddp_status cddpi_stages_prepare_part(void *context, int chunk, enum cddpi_pipeline_pass pass)
{
    struct cddpi_trainer *trainer = context;
    const struct cddpi_stages_table *table = &cddpi_stages_of(trainer)->table;
    bool is_split = trainer->config->parallel.schedule == CDDPI_PIPELINE_ZERO_BUBBLE;

    if (!table->is_here || chunk != table->chunk ||
        pass != (is_split ? CDDPI_PASS_WEIGHTS : CDDPI_PASS_BACKWARD)) {
        return CDDP_OK;
    }
    if (!table->is_later) {
        return receive_part(trainer);
    }
    CDDPI_TRY(choose_part(trainer));
    cddpi_stages_bind_grads(trainer);
    return CDDP_OK;
}

cddp_status cddpi_stages_give_part(struct cddpi_trainer *trainer)
{
    struct cddpi_stages_table *table = &cddpi_stages_of(trainer)->table;
    struct cddpi_stages_part *part = &table->parts[table->current];

    part->number = ++table->given;
    return cddp_send(table->group, part->data, table->elements, CDDP_F32, table->other,
                     &part->work);
}

/* --- once per step --- */

cddp_status cddpi_stages_finish_parts(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_table *table = &stages->table;

    for (int i = 0; i < table->part_count; i++) {
        CDDPI_TRY(cddpi_pipeline_finish(stages->pipeline, &table->parts[i].work));
    }
    table->is_old = table->is_here;
    return CDDP_OK;
}

cddp_status cddpi_stages_renew_table(struct cddpi_trainer *trainer)
{
    struct cddpi_stages_table *table = &cddpi_stages_of(trainer)->table;

    if (!table->is_old) {
        return CDDP_OK;
    }
    table->is_old = false;
    if (table->is_later) {
        return cddp_recv(table->group, table->data, table->elements, CDDP_F32, table->other, NULL);
    }
    if (trainer->config->ddp.shard_optimizer) {
        CDDPI_TRY(cddp_ddp_param_wait(trainer->ddp, table->param));
    }
    return cddp_send(table->group, trainer->params.list[table->param].data, table->elements,
                     CDDP_F32, table->other, NULL);
}
