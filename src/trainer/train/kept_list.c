/* kept_list.c - owns what the state of a run consists of, in host memory: on a device, copies. */
#include "train/kept_list.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "parallel/parallel_memory.h"
#include "train/checkpoint.h"
#include "train/device/host_copy.h"

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

/* What a state must have in common with this run for this run to go on from it. */
uint64_t cddpi_kept_layout(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const uint64_t run[] = {(uint64_t)config->train.seed,
                            (uint64_t)config->train.batch_size,
                            (uint64_t)config->optimizer.type,
                            (uint64_t)config->train.precision,
                            (uint64_t)config->data.order,
                            moments_of(trainer),
                            trainer->data.train.data.count,
                            trainer->params.count,
                            cddpi_tensors_bytes(trainer->buffers.list, trainer->buffers.count)};
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) {
        hash = cddpi_hash_add(hash, run[i]);
    }
    for (size_t i = 0; i < trainer->params.count; i++) {
        const cddp_param *param = &trainer->params.list[i];

        hash = cddpi_hash_add(hash, cddpi_elements(param->dims, param->shape));
        hash = cddpi_hash_add(hash, (param->flags & CDDP_PARAM_FROZEN) != 0);
    }
    return hash;
}

/* A name of the state's array @p kind of tensor @p index. */
static uint64_t name_array(const char *kind, size_t index)
{
    return cddpi_hash_add(cddpi_keep_name(kind), index);
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

/* Keep elements [first, first + count) of what the optimizer updates in @p part. */
static cddp_status keep_part(struct cddpi_trainer *trainer, const struct cddpi_optim_part *part,
                             uint64_t first, uint64_t count)
{
    struct cddpi_kept_state *kept = &trainer->kept;
    struct cddpi_keep_list *keeps = &kept->keep.state.keeps;
    uint64_t at = (part->first + first) * sizeof(float);
    uint64_t bytes = count * sizeof(float);

    CDDPI_TRY(cddpi_keep_add(keeps, name_array("param", part->param), at, bytes,
                             (unsigned char *)kept->model[part->param].data + at));
    for (size_t m = 0; m < moments_of(trainer); m++) {
        CDDPI_TRY(cddpi_keep_add(keeps,
                                 name_array("moment", part->param + m * trainer->params.count), at,
                                 bytes, part->moments[m] + first));
    }
    return CDDP_OK;
}

/* List what this rank keeps: of a sharded optimizer its parts, else its share of all of them. */
static cddp_status list_kept(struct cddpi_trainer *trainer)
{
    size_t count = cddpi_optim_part_count(trainer->step.optim);
    uint64_t all = 0;
    uint64_t at = 0;
    uint64_t begin, end;

    for (size_t i = 0; i < count; i++) {
        all += cddpi_optim_part(trainer->step.optim, i).count;
    }
    find_share(trainer, all, &begin, &end);
    for (size_t i = 0; i < count; i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(trainer->step.optim, i);
        uint64_t from = begin > at ? begin - at : 0;
        uint64_t to = end < at + part.count ? (end > at ? end - at : 0) : part.count;

        at += part.count;
        if (from < to) {
            CDDPI_TRY(keep_part(trainer, &part, from, to - from));
        }
    }
    return CDDP_OK;
}

/* List what this rank needs: all parameters, and those moments that it has. */
static cddp_status list_taken(struct cddpi_trainer *trainer)
{
    struct cddpi_kept_state *kept = &trainer->kept;
    struct cddpi_keep_list *takes = &kept->keep.state.takes;
    size_t count = cddpi_optim_part_count(trainer->step.optim);

    for (size_t i = 0; i < trainer->params.count; i++) {
        const cddp_param *param = &kept->model[i];

        if ((param->flags & CDDP_PARAM_FROZEN) == 0) {
            CDDPI_TRY(cddpi_keep_add(takes, name_array("param", i), 0,
                                     cddpi_tensors_bytes(param, 1), param->data));
        }
    }
    for (size_t i = 0; i < count; i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(trainer->step.optim, i);

        for (size_t m = 0; m < moments_of(trainer); m++) {
            CDDPI_TRY(cddpi_keep_add(
                takes, name_array("moment", part.param + m * trainer->params.count),
                part.first * sizeof(float), part.count * sizeof(float), part.moments[m]));
        }
    }
    return CDDP_OK;
}

/* List tensors that all ranks have whole: rank 0's are kept. */
static cddp_status list_whole(struct cddpi_trainer *trainer, const char *kind,
                              const cddp_param *tensors, size_t count)
{
    struct cddpi_keep_state *state = &trainer->kept.keep.state;

    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = cddpi_tensors_bytes(&tensors[i], 1);

        CDDPI_TRY(cddpi_keep_add(&state->takes, name_array(kind, i), 0, bytes, tensors[i].data));
        if (trainer->rank == 0) {
            CDDPI_TRY(
                cddpi_keep_add(&state->keeps, name_array(kind, i), 0, bytes, tensors[i].data));
        }
    }
    return CDDP_OK;
}

static cddp_status list_all_whole(struct cddpi_trainer *trainer)
{
    size_t count;
    size_t scales = 0;
    const cddp_param *counters = cddpi_optim_tensors(trainer->step.optim, &count);
    const cddp_param *scale = cddpi_loss_scale_tensors(&trainer->step.loss_scale, &scales);
    const cddp_param cursor = {.data = &trainer->cursor,
                               .type = CDDP_U8,
                               .dims = 1,
                               .shape = {(int64_t)sizeof trainer->cursor}};

    CDDPI_TRY(list_whole(trainer, "cursor", &cursor, 1));
    CDDPI_TRY(list_whole(trainer, "counter", counters, cddpi_optim_counters(trainer->step.optim)));
    if (cddpi_checkpoint_has_scale(trainer)) {
        CDDPI_TRY(list_whole(trainer, "scale", scale, scales));
    }
    return list_whole(trainer, "statistic", trainer->kept.model + trainer->params.count,
                      trainer->buffers.count);
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
    const struct cddpi_keep_calls sums = {
        .bytes = sizeof(struct kept_sums), .save = save_sums, .load = load_sums, .owner = trainer};

    cddpi_keep_clear(&kept->keep.state);
    cddpi_free(kept->model);
    CDDPI_TRY(cddpi_trainer_create_host_copy(trainer));
    kept->model = cddpi_trainer_model_tensors(trainer);
    CDDPI_TRY_MEMORY(kept->model != NULL, "no memory for a list of tensors");
    CDDPI_TRY(list_kept(trainer));
    CDDPI_TRY(list_taken(trainer));
    CDDPI_TRY(list_all_whole(trainer));
    cddpi_keep_add_calls(&kept->keep.state, &sums);
    return CDDP_OK;
}
