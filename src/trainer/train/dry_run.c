/* dry_run.c - describes a configuration without training: the model's table, sizes, steps and
 * buckets, all found with a group of one rank. */
#include "train/dry_run.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "base/utf8.h"
#include "parallel/parallel_memory.h"
#include "train/auto_micro_batch.h"
#include "train/batch_sizes.h"
#include "train/engines/engine.h"
#include "train/model_spec.h"
#include "train/setup_data.h"
#include "train/setup_model.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 1024 }; /* ranks in the table of micro-batches */

/* Statistics exist only after a step, so do one with zeros. */
static cddp_status print_buckets(const struct cddpi_config *config, cddp_group *group,
                                 const struct cddpi_model *model, FILE *file)
{
    cddp_ddp_options options = cddpi_trainer_ddp_options(config, model, NULL);
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    cddp_step step = CDDP_STEP_INIT;
    size_t param_count = 0;
    size_t buffer_count = 0;
    const cddp_param *params = cddpi_model_params(model, &param_count);
    const cddp_param *buffers = cddpi_model_buffers(model, &buffer_count);
    cddp_ddp *ddp = NULL;
    char size[CDDPI_SIZE_TEXT];
    cddp_status status;

    step.kind = CDDP_STEP_BY_RANKS;
    CDDPI_TRY(cddp_ddp_create(group, params, param_count, buffers, buffer_count, &options, &ddp));
    CDDPI_TRY_GOTO(end, status, cddp_ddp_begin(ddp, &step));
    for (size_t i = 0; i < param_count; i++) {
        CDDPI_TRY_GOTO(end, status, cddp_ddp_grad_ready(ddp, cddpi_model_ready_order(model)[i]));
    }
    CDDPI_TRY_GOTO(end, status, cddp_ddp_wait(ddp));
    CDDPI_TRY_GOTO(end, status, cddp_ddp_get_stats(ddp, &stats));
    fprintf(file, "gradients: %s in %zu buckets\n", cddpi_print_size(stats.bytes, size),
            stats.buckets);
    for (size_t i = 0; i < stats.buckets; i++) {
        cddp_bucket_stats bucket = {.struct_size = sizeof bucket};

        CDDPI_TRY_GOTO(end, status, cddp_ddp_get_bucket_stats(ddp, i, &bucket));
        fprintf(file, "  bucket %zu: %zu parameters, %s\n", i, bucket.params,
                cddpi_print_size(bucket.bytes, size));
    }
end:
    cddp_ddp_destroy(ddp);
    return status;
}

int cddpi_dry_run_ranks(const struct cddpi_config *config)
{
    int given = config->train.world_size;

    return (int)cddpi_env_integer(CDDPI_ENV_WORLD_SIZE, 1, INT32_MAX,
                                  given > 0 ? given : config->parallel.pipeline);
}

/* Print what model.recompute saves and costs, if any layers can be recomputed. */
static cddp_status print_recompute(struct cddpi_model *model, int share, FILE *file)
{
    struct cddpi_model_estimate kept, again;
    char size[CDDPI_SIZE_TEXT], size_again[CDDPI_SIZE_TEXT];

    CDDPI_TRY(cddpi_model_estimate(model, share, false, &kept));
    CDDPI_TRY(cddpi_model_estimate(model, share, true, &again));
    if (again.extra_work > 0) {
        fprintf(file,
                "  model.recompute = false: %s\n"
                "  model.recompute = true: %s, with %.0f %% of a forward more work\n",
                cddpi_print_size(kept.activation_bytes, size),
                cddpi_print_size(again.activation_bytes, size_again), 100 * again.extra_work);
    }
    return CDDP_OK;
}

/* The data of a checkpoint of @p model, with the moments of its optimizer. */
static uint64_t checkpoint_bytes(const struct cddpi_config *config, const struct cddpi_model *model)
{
    struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(config);
    size_t count = 0;
    const cddp_param *params = cddpi_model_params(model, &count);
    uint64_t bytes = (1 + cddpi_optim_moments_of(&spec)) * cddpi_tensors_bytes(params, count);

    params = cddpi_model_buffers(model, &count);
    return bytes + cddpi_tensors_bytes(params, count);
}

/* Print what train.checkpoint_async takes of rank 0's memory, or of each rank's. */
static void print_copy(const struct cddpi_config *config, const struct cddpi_model *model,
                       FILE *file)
{
    uint64_t bytes = checkpoint_bytes(config, model);
    int ranks = cddpi_dry_run_ranks(config);
    char size[CDDPI_SIZE_TEXT], each[CDDPI_SIZE_TEXT], there[CDDPI_SIZE_TEXT];
    struct cddpi_memory_left left;

    if (config->train.checkpoint_async == CDDPI_ASYNC_FALSE) {
        return;
    }
    cddpi_print_size(bytes, size);
    if (ranks > 1 && cddpi_save_share_is_possible(config)) {
        fprintf(file,
                "memory for a copy of a checkpoint: %s on the machine of rank 0: %s of each of %d "
                "ranks there, on GPUs all of rank 0's",
                size, cddpi_print_size(bytes / (uint64_t)ranks, each), ranks);
    } else {
        fprintf(file, "memory for a copy of a checkpoint: %s on rank 0", size);
    }
    fputs(", from the first one on", file);
    cddpi_memory_left(&left);
    if (config->train.checkpoint_async == CDDPI_ASYNC_AUTO && left.bytes != UINT64_MAX) {
        fprintf(file, ", if twice as much is left then: now %s (%s), which is %s",
                cddpi_print_size(left.bytes, there), left.limit,
                cddpi_save_behind_fits(bytes, left.bytes) ? "enough" : "not enough");
    }
    fputc('\n', file);
}

/* Print what train.recovery takes of each rank's memory, if there is a launcher that starts ranks
 * again. */
static void print_kept(const struct cddpi_config *config, const struct cddpi_model *model,
                       FILE *file)
{
    uint64_t bytes = 2 * checkpoint_bytes(config, model) / (uint64_t)cddpi_dry_run_ranks(config);
    char size[CDDPI_SIZE_TEXT], twice[CDDPI_SIZE_TEXT];

    if (config->train.recovery != CDDPI_RECOVERY_CHECKPOINT) {
        fprintf(file,
                "memory for the state that outlives ranks, in jobs with restarts or members that "
                "come and go: %s per rank; %s on several machines\n",
                cddpi_print_size(bytes, size), cddpi_print_size(2 * bytes, twice));
    }
}

/* Describe @p model, for micro-batches of @p share samples of @p replicas replicas. */
static cddp_status print_all_of(const struct cddpi_config *config,
                                const struct cddpi_model_spec *spec, struct cddpi_model *model,
                                int replicas, int share, cddp_group *group, FILE *file)
{
    const struct cddpi_engine *engine = cddpi_engine_of(config);
    char size[CDDPI_SIZE_TEXT];
    char *table;

    CDDPI_TRY(cddpi_model_prepare(model, share, true));
    table = cddpi_model_describe(model);
    fprintf(file, "\n%s\n", table != NULL ? table : "");
    cddp_free(table);
    fprintf(file, "memory for activations: %s per rank, for %d samples\n",
            cddpi_print_size(cddpi_model_arena_bytes(model), size), share);
    if (config->train.micro_batch > 0) {
        fprintf(
            file, "memory for partial sums of gradients: %s per rank at most\n",
            cddpi_print_size(cddpi_micro_batch_sums_bytes(config, model, replicas, share), size));
    }
    print_copy(config, model, file);
    print_kept(config, model, file);
    CDDPI_TRY(print_recompute(model, share, file));
    if (engine->describe != NULL) {
        CDDPI_TRY(engine->describe(config, spec, replicas, share, file));
    }
    fputc('\n', file);
    CDDPI_TRY(cddpi_model_describe_plan(model, share, file));
    fputc('\n', file);
    return print_buckets(config, group, model, file);
}

/* Print what train.micro_batch = "auto" would be on the processors of this machine. */
static cddp_status print_choice(struct cddpi_config *config, struct cddpi_model *model,
                                int replicas, FILE *file)
{
    struct cddpi_auto_micro_batch found;
    struct cddpi_memory_left left;
    uint64_t budget;
    char needed[CDDPI_SIZE_TEXT], fits[CDDPI_SIZE_TEXT];

    cddpi_memory_left(&left);
    budget = cddpi_auto_micro_batch_budget(false, left.bytes, replicas);
    CDDPI_TRY(cddpi_auto_micro_batch_find(config, model, replicas, budget, &found));
    config->train.micro_batch = found.samples;
    fprintf(
        file,
        "train.micro_batch = \"auto\" would be %lld on the processors of this machine, if it has "
        "all ranks (%d): %s of the %s that fit. GPUs have other memory\n",
        (long long)found.samples, replicas, cddpi_print_size(found.bytes, needed),
        cddpi_print_size(budget, fits));
    return CDDP_OK;
}

/* Replaces an "auto" of @p config by what is chosen. */
static cddp_status print_model(struct cddpi_config *config, const struct cddpi_dataset *data,
                               cddp_group *group, FILE *file)
{
    struct cddpi_model_spec spec = cddpi_trainer_model_spec(config, data);
    struct cddpi_model *model = NULL;
    int replicas = cddpi_dry_run_ranks(config) / config->parallel.pipeline;
    cddp_status status = cddpi_model_create(&spec, (uint64_t)config->train.seed, group, &model);

    if (status != CDDP_OK) {
        return status == CDDP_ERR_CONFIG ? cddpi_fail_prefix(status, "%s", config->path) : status;
    }
    if (config->train.micro_batch == CDDPI_AUTO) {
        status = print_choice(config, model, replicas, file);
    }
    if (status == CDDP_OK) {
        status = print_all_of(config, &spec, model, replicas,
                              (int)cddpi_trainer_micro_batch(config, replicas), group, file);
    }
    cddpi_model_destroy(model);
    return status;
}

static void print_sequences(const struct cddpi_dataset *data, const char *use, FILE *file)
{
    fprintf(file,
            "data to %s: %llu tokens in %llu sequences of %d, %llu left over; vocabulary %d\n", use,
            (unsigned long long)data->token_count, (unsigned long long)data->count, data->context,
            (unsigned long long)data->unused_count, data->classes);
    for (size_t i = 0; i < data->shard_count; i++) {
        const struct cddpi_token_shard *shard = &data->shards[i];
        uint64_t behind = i + 1 < data->shard_count ? data->shards[i + 1].first_sequence
                                                    : data->count;

        fprintf(file, "  %s: %llu tokens, %llu sequences\n", shard->path,
                (unsigned long long)shard->token_count,
                (unsigned long long)(behind - shard->first_sequence));
    }
}

void cddpi_trainer_print_data(const struct cddpi_dataset *train, const struct cddpi_dataset *test,
                              FILE *file)
{
    if (train->kind == CDDPI_DATASET_TOKENS) {
        print_sequences(train, "train on", file);
        print_sequences(test, "evaluate on", file);
    } else if (train->target_count > 0) {
        fprintf(
            file,
            "data: %llu samples of %d x %d x %d with %d real target%s each, %llu for evaluation\n",
            (unsigned long long)train->count, train->channels, train->height, train->width,
            train->target_count, train->target_count == 1 ? "" : "s",
            (unsigned long long)test->count);
    } else {
        fprintf(file, "data: %llu %s of %d x %d x %d in %d classes, %llu for evaluation\n",
                (unsigned long long)train->count,
                train->files != NULL ? "files, samples" : "samples", train->channels, train->height,
                train->width, train->classes, (unsigned long long)test->count);
    }
}

static void print_steps(const struct cddpi_config *config, uint64_t samples, FILE *file)
{
    struct cddpi_cursor start = {0, 0, 0};
    uint64_t total = cddpi_trainer_steps_left(config, samples, &start);
    uint64_t epochs = (uint64_t)config->train.epochs;
    uint64_t most = (uint64_t)config->train.max_steps;

    fprintf(file, "steps: %llu per epoch, %llu in %llu epochs",
            (unsigned long long)(total / epochs), (unsigned long long)total,
            (unsigned long long)epochs);
    if (most > 0 && most < total) {
        fprintf(file, ", ending after %llu (train.max_steps)", (unsigned long long)most);
    }
    fputc('\n', file);
}

/* 1 to 4, and then two numbers of each doubling. */
static bool is_round(int64_t count)
{
    int64_t top = count;

    while (top > 4 && top % 2 == 0) {
        top /= 2;
    }
    return top <= 4;
}

/* Print what numbers of ranks cost: all wait for the one with most micro-batches. */
static void print_micro_batches(const struct cddpi_config *config, FILE *file)
{
    int64_t all = cddpi_trainer_all_micro_batches(config, config->train.batch_size);
    int64_t ranks = cddpi_dry_run_ranks(config);
    int64_t here = ranks / config->parallel.pipeline;
    const char *name = here < ranks ? "replicas" : "ranks";
    /* on GPUs, which a job may find, only in one order */
    bool same_bits = config->ddp.deterministic || config->train.device == CDDPI_TRAIN_ON_CPU;

    fprintf(file,
            "micro-batches: %lld of %lld samples in a step; %s any number of %s up to %lld\n"
            "%10s %12s %11s\n",
            (long long)all, (long long)config->train.micro_batch,
            same_bits ? "the same bits on" : "they fit", name, (long long)all, name, "longest run",
            "efficiency");
    for (int64_t count = 1; count <= all && count <= MOST_SHOWN; count++) {
        int64_t longest = (all + count - 1) / count;

        if (is_round(count) || count == here || count == all) {
            fprintf(file, "%10lld %12lld %9.0f %%%s\n", (long long)count, (long long)longest,
                    100.0 * (double)all / (double)(count * longest),
                    count == here ? "  (this job)" : "");
        }
    }
}

/* Print text from the file, which may come from anybody, so that it is harmless on a terminal. */
static cddp_status put_clean(const char *text, FILE *file)
{
    size_t room = 6 * strlen(text) + 1; /* room for the longest escape */
    char *shown = cddpi_zalloc(room);

    CDDPI_TRY_MEMORY(shown != NULL, "configuration: no memory");
    memcpy(shown, text, strlen(text));
    cddpi_text_clean(shown, room, false);
    fputs(shown, file);
    cddpi_free(shown);
    return CDDP_OK;
}

static cddp_status describe(const struct cddpi_config *config, cddp_group *group,
                            struct cddpi_dataset *train, struct cddpi_dataset *test, FILE *file)
{
    struct cddpi_config chosen = *config; /* borrows what the configuration owns */
    char note[2048];

    CDDPI_TRY(cddpi_trainer_open_data(config, NULL, train, test));
    CDDPI_TRY(print_model(&chosen, train, group, file));
    cddpi_trainer_print_data(train, test, file);
    cddpi_trainer_note_classes(config, train, note, sizeof note);
    if (note[0] != '\0') {
        fprintf(file, "warning: %s\n", note);
    }
    print_steps(config, train->count, file);
    if (cddpi_trainer_by_position(config)) {
        print_micro_batches(&chosen, file);
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_dry_run(const struct cddpi_config *config, FILE *file)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    struct cddpi_dataset train = {0};
    struct cddpi_dataset test = {0};
    cddp_group *group = NULL;
    char *text = cddpi_config_text(config, false);
    cddp_status status;

    CDDPI_TRY_MEMORY(text != NULL, "configuration: no memory");
    status = put_clean(text, file);
    free(text);
    CDDPI_TRY(status);
    options.backend = "solo";
    options.world_size = 1;
    CDDPI_TRY(cddp_group_create(&options, &group));
    status = describe(config, group, &train, &test, file);
    cddpi_dataset_close(&test);
    cddpi_dataset_close(&train);
    cddp_group_destroy(group);
    return status;
}
