/* kept_list.c - owns what the state of a run consists of, in host memory: on a device, copies. */
#include "train/kept_list.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "group/join/group_agree.h"
#include "parallel/parallel_memory.h"
#include "train/checkpoint.h"
#include "train/device/host_copy.h"
#include "train/engines/engine.h"

#include <string.h>

/* What this rank has added up for the next line of metrics, and since when the newest checkpoint is
 * there. */
struct kept_sums {
    struct cddpi_exact_sum loss;
    double correct, count, skipped_count;
    uint64_t skipped;
    int64_t unsaved_ns;
};

/* How many moments each parameter has. */
static size_t moments_of(const struct cddpi_trainer *trainer)
{
    const struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(trainer->config);

    return cddpi_optim_moments_of(&spec);
}

/* A name of the state's arrays: what it is of tensor @p tensor, and a number if there are several.
 */
static uint64_t name_array(const char *kind, const char *tensor, size_t number)
{
    uint64_t hash = cddpi_hash_add(cddpi_hash_text(cddpi_hash_start, kind), '.');

    return cddpi_hash_add(cddpi_hash_text(hash, tensor), number);
}

/* Whether this rank, or a replica of it, keeps parameter @p index: of stages that share one, one
 * does. */
static bool owns(const struct cddpi_trainer *each, size_t index)
{
    return each->engine->owns_param == NULL || each->engine->owns_param(each, index);
}

/* The tensors of this rank's models, whatever their order: ranks may have other parts of the model
 * than those before them. */
static uint64_t hash_tensors(const struct cddpi_trainer *trainer)
{
    uint64_t sum = 0;

    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        for (size_t i = 0; i < each->params.count; i++) {
            const cddp_param *param = &each->params.list[i];

            sum += owns(each, i) ? name_array("param", param->name, cddpi_tensors_bytes(param, 1))
                                 : 0;
        }
        for (size_t i = 0; i < each->buffers.count; i++) {
            const cddp_param *buffer = &each->buffers.list[i];

            sum += name_array("statistic", buffer->name, cddpi_tensors_bytes(buffer, 1));
        }
    }
    return sum;
}

/* What a state must have in common with this run for this run to go on from it. Collective: each
 * part of the model counts once. */
cddp_status cddpi_kept_layout(const struct cddpi_trainer *trainer, uint64_t *out)
{
    const struct cddpi_config *config = trainer->config;
    const uint64_t own = trainer->replicas.rank == 0 ? hash_tensors(trainer) : 0;
    uint64_t run[] = {(uint64_t)config->train.seed,     (uint64_t)config->train.batch_size,
                      (uint64_t)config->optimizer.type, (uint64_t)config->train.precision,
                      (uint64_t)config->data.order,     moments_of(trainer),
                      trainer->data.train.data.count,   0};
    void *all = NULL;

    CDDPI_TRY(cddpi_all_gather_bytes(trainer->group, &own, sizeof own, &all));
    for (int rank = 0; rank < trainer->world_size; rank++) {
        run[sizeof run / sizeof run[0] - 1] += ((const uint64_t *)all)[rank];
    }
    cddpi_free(all);
    *out = cddpi_hash_start;
    for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) {
        *out = cddpi_hash_add(*out, run[i]);
    }
    return CDDP_OK;
}

/* This rank's share of @p count elements of which others have the rest, as [begin, end). */
static void find_share(const struct cddpi_trainer *trainer, uint64_t count, uint64_t *begin,
                       uint64_t *end)
{
    uint64_t rank = (uint64_t)trainer->replicas.rank;
    uint64_t ranks = (uint64_t)trainer->replicas.count;

    *begin = trainer->config->ddp.shard_optimizer ? 0 : count * rank / ranks;
    *end = trainer->config->ddp.shard_optimizer ? count : count * (rank + 1) / ranks;
}

/* One of the run's models, while its state is listed. */
struct listed {
    struct cddpi_trainer *each;
    const cddp_param *model; /* its parameters and statistics in host memory */
    size_t index;            /* among the models */
    struct cddpi_kept_state *kept;
    struct cddpi_keep_contents *state; /* of kept */
};

/* On a device, what is kept of @p tensor is first copied to @p copy, its copy in host memory. */
static cddp_status add_copy(const struct listed *listed, const cddp_param *tensor,
                            const cddp_param *copy, uint64_t first, uint64_t bytes)
{
    struct cddpi_kept_state *kept = listed->kept;
    struct cddpi_kept_copy *more;

    if (!cddpi_device_is_async(listed->each->device)) {
        return CDDP_OK;
    }
    more = cddpi_grow(kept->copies, &kept->copy_room, kept->copy_count + 1, sizeof *more);
    CDDPI_TRY_MEMORY(more != NULL, "no memory for a list of %zu copies", kept->copy_count + 1);
    kept->copies = more;
    more[kept->copy_count++] = (struct cddpi_kept_copy){(const unsigned char *)tensor->data + first,
                                                        (unsigned char *)copy->data + first,
                                                        (size_t)bytes};
    return CDDP_OK;
}

/* Keep elements [first, first + count) of what the optimizer updates in @p part. */
static cddp_status keep_part(const struct listed *listed, const struct cddpi_optim_part *part,
                             uint64_t first, uint64_t count)
{
    const cddp_param *param = &listed->model[part->param];
    struct cddpi_keep_list *keeps = &listed->state->keeps;
    uint64_t at = (part->first + first) * sizeof(float);
    uint64_t bytes = count * sizeof(float);

    CDDPI_TRY(add_copy(listed, &listed->each->params.list[part->param], param, at, bytes));
    CDDPI_TRY(cddpi_keep_add(keeps, name_array("param", param->name, 0), at, bytes,
                             (unsigned char *)param->data + at));
    for (size_t m = 0; m < moments_of(listed->each); m++) {
        CDDPI_TRY(cddpi_keep_add(keeps, name_array("moment", param->name, m), at, bytes,
                                 part->moments[m] + first));
    }
    return CDDP_OK;
}

/* List what this rank keeps: of a sharded optimizer its parts, else its share of all of them. */
static cddp_status list_kept(const struct listed *listed)
{
    const struct cddpi_optim *optim = listed->each->step.optim;
    size_t count = cddpi_optim_part_count(optim);
    uint64_t all = 0;
    uint64_t at = 0;
    uint64_t begin, end;

    for (size_t i = 0; i < count; i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(optim, i);

        all += owns(listed->each, part.param) ? part.count : 0;
    }
    find_share(listed->each, all, &begin, &end);
    for (size_t i = 0; i < count; i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(optim, i);
        uint64_t from = begin > at ? begin - at : 0;
        uint64_t to = end < at + part.count ? (end > at ? end - at : 0) : part.count;

        if (!owns(listed->each, part.param)) {
            continue;
        }
        at += part.count;
        if (from < to) {
            CDDPI_TRY(keep_part(listed, &part, from, to - from));
        }
    }
    return CDDP_OK;
}

/* List what this rank needs: all parameters, and those moments that it has. */
static cddp_status list_taken(const struct listed *listed)
{
    const struct cddpi_trainer *each = listed->each;
    struct cddpi_keep_list *takes = &listed->state->takes;

    for (size_t i = 0; i < each->params.count; i++) {
        const cddp_param *param = &listed->model[i];

        CDDPI_TRY(cddpi_keep_add(takes, name_array("param", param->name, 0), 0,
                                 cddpi_tensors_bytes(param, 1), param->data));
    }
    for (size_t i = 0; i < cddpi_optim_part_count(each->step.optim); i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(each->step.optim, i);
        const char *name = listed->model[part.param].name;

        for (size_t m = 0; m < moments_of(each); m++) {
            CDDPI_TRY(cddpi_keep_add(takes, name_array("moment", name, m),
                                     part.first * sizeof(float), part.count * sizeof(float),
                                     part.moments[m]));
        }
    }
    return CDDP_OK;
}

/* List an array that ranks have whole; @p keeps: this one's is kept. */
static cddp_status list_whole(struct cddpi_keep_contents *state, uint64_t name, void *data,
                              size_t bytes, bool keeps)
{
    CDDPI_TRY(cddpi_keep_add(&state->takes, name, 0, bytes, data));
    return keeps ? cddpi_keep_add(&state->keeps, name, 0, bytes, data) : CDDP_OK;
}

static cddp_status list_tensors(const struct listed *listed, const char *kind,
                                const cddp_param *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(list_whole(listed->state, name_array(kind, tensors[i].name, listed->index),
                             tensors[i].data, cddpi_tensors_bytes(&tensors[i], 1),
                             listed->each->rank == 0));
    }
    return CDDP_OK;
}

/* How often each parameter was updated, in the order of those that the optimizer has. */
static cddp_status list_steps(const struct listed *listed, const cddp_param *steps)
{
    const struct cddpi_trainer *each = listed->each;
    int64_t *next = steps->data;

    for (size_t i = 0; i < each->params.count; i++) {
        const cddp_param *param = &each->params.list[i];

        if ((param->flags & CDDP_PARAM_FROZEN) != 0) {
            continue;
        }
        CDDPI_TRY(list_whole(listed->state, name_array("steps", param->name, 0), next, sizeof *next,
                             each->replicas.rank == 0 && owns(each, i)));
        next++;
    }
    return CDDP_OK;
}

static cddp_status list_counters(const struct listed *listed)
{
    size_t count;
    const cddp_param *counters = cddpi_optim_tensors(listed->each->step.optim, &count);

    CDDPI_TRY(list_tensors(listed, "counter", counters, 1));
    return cddpi_optim_counters(listed->each->step.optim) > 1 ? list_steps(listed, &counters[1])
                                                              : CDDP_OK;
}

static cddp_status list_statistics(const struct listed *listed)
{
    const struct cddpi_trainer *each = listed->each;

    for (size_t i = 0; i < each->buffers.count; i++) {
        const cddp_param *buffer = &listed->model[each->params.count + i];

        uint64_t bytes = cddpi_tensors_bytes(buffer, 1);
        bool keeps = each->replicas.rank == 0;

        CDDPI_TRY(list_whole(listed->state, name_array("statistic", buffer->name, 0), buffer->data,
                             bytes, keeps));
        CDDPI_TRY(keeps ? add_copy(listed, &each->buffers.list[i], buffer, 0, bytes) : CDDP_OK);
    }
    return CDDP_OK;
}

static cddp_status list_scale(const struct listed *listed)
{
    size_t count = 0;
    const cddp_param *scale = cddpi_loss_scale_tensors(&listed->each->step.loss_scale, &count);

    return cddpi_checkpoint_has_scale(listed->each) ? list_tensors(listed, "scale", scale, count)
                                                    : CDDP_OK;
}

static cddp_status list_model(const struct listed *listed)
{
    CDDPI_TRY(list_kept(listed));
    CDDPI_TRY(list_taken(listed));
    CDDPI_TRY(list_counters(listed));
    CDDPI_TRY(list_scale(listed));
    return list_statistics(listed);
}

static cddp_status save_sums(void *owner, void *to)
{
    const struct cddpi_trainer *trainer = owner;
    const struct cddpi_interval *interval = &trainer->records.interval;
    const struct kept_sums sums = {.loss = interval->loss_sum,
                                   .correct = interval->correct,
                                   .count = interval->count,
                                   .skipped_count = interval->skipped_count,
                                   .skipped = interval->skipped,
                                   .unsaved_ns = cddpi_now_ns() - trainer->folder.whole_ns};

    memcpy(to, &sums, sizeof sums);
    return CDDP_OK;
}

/* Rank 0 goes on with the sums of all parts: the next line of metrics is that of an undisturbed
 * run. */
static cddp_status load_sums(void *owner, const void *from, int part, int parts)
{
    struct cddpi_trainer *trainer = owner;
    struct cddpi_interval *interval = &trainer->records.interval;
    struct kept_sums sums;

    (void)parts;
    memcpy(&sums, from, sizeof sums);
    if (part == 0) { /* a checkpoint is due as if these processes had begun it */
        trainer->folder.whole_ns = cddpi_now_ns() - sums.unsaved_ns;
        trainer->folder.saved_ns = trainer->folder.whole_ns;
    }
    if (trainer->rank == 0) {
        cddpi_exact_merge(&interval->loss_sum, &sums.loss);
        interval->correct += sums.correct;
        interval->count += sums.count;
        interval->skipped_count += sums.skipped_count;
        interval->skipped += sums.skipped;
    }
    return CDDP_OK;
}

cddp_status cddpi_kept_list(void *self)
{
    struct cddpi_trainer *trainer = self;
    struct cddpi_kept_state *kept = &trainer->kept;
    struct cddpi_keep_contents *state = &kept->keep.state;
    struct listed listed = {.kept = kept, .state = state};
    struct cddpi_keep_calls calls = {
        .bytes = sizeof(struct kept_sums), .save = save_sums, .load = load_sums, .owner = trainer};

    cddpi_keep_clear(state);
    kept->copy_count = 0;
    cddpi_free(kept->model);
    kept->model = NULL;
    CDDPI_TRY(cddpi_trainer_create_host_copy(trainer));
    kept->model = cddpi_trainer_model_tensors(trainer);
    CDDPI_TRY_MEMORY(kept->model != NULL, "no memory for a list of tensors");
    listed.model = kept->model;
    for (listed.each = trainer; listed.each != NULL; listed.each = listed.each->next) {
        CDDPI_TRY(list_model(&listed));
        listed.model += listed.each->params.count + listed.each->buffers.count;
        listed.index++;
    }
    CDDPI_TRY(list_whole(state, cddpi_hash_text(cddpi_hash_start, "cursor"), &trainer->cursor,
                         sizeof trainer->cursor, trainer->rank == 0));
    cddpi_keep_add_calls(state, &calls);
    if (trainer->engine->keep_sums != NULL) {
        trainer->engine->keep_sums(trainer, &calls);
        cddpi_keep_add_calls(state, &calls);
    }
    return CDDP_OK;
}
