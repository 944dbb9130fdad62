/* division.c - owns the division of a model into stages: checks of the parallel.* keys, the choice
 * by name, by time or by memory, and the dry run's table. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/divide.h"
#include "train/batch_sizes.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

/* The shape of a replica's pipeline, with the most micro-batches that it has in a step. */
static struct cddpi_pipeline_shape shape_of(const struct cddpi_config *config, int replicas)
{
    int64_t micro_batches = cddpi_trainer_micro_batches(config, replicas);
    int64_t ranks = config->parallel.pipeline;

    if (config->parallel.chunks > 1) { /* a multiple of the ranks */
        micro_batches = (micro_batches + ranks - 1) / ranks * ranks;
    }
    return (struct cddpi_pipeline_shape){
        .schedule = (enum cddpi_pipeline_schedule)config->parallel.schedule,
        .ranks = config->parallel.pipeline,
        .chunks = config->parallel.chunks,
        .micro_batches = (int)micro_batches};
}

/* How many micro-batches stage @p stage of @p shape holds at once. @p out_kept: for how many it
 * holds what the gradients of parameters need; at least as many. */
static cddp_status count_slots(const struct cddpi_pipeline_shape *shape, int stage, int *out,
                               int *out_kept)
{
    struct cddpi_pipeline_action *actions = NULL;
    size_t count = 0;

    CDDPI_TRY(cddpi_pipeline_plan(shape, stage % shape->ranks, &actions, &count));
    *out = cddpi_pipeline_slots(actions, count, stage / shape->ranks, out_kept);
    cddpi_free(actions);
    return CDDP_OK;
}

/* How often a stage's memory holds each parameter: with gradient and optimizer state. */
static int parameter_copies(const struct cddpi_config *config)
{
    struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(config);

    return 2 + (int)cddpi_optim_moments_of(&spec);
}

/* Check that no rank needs more memory for its @p layers than parallel.memory_bytes. */
static cddp_status check_fit(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                             const struct cddpi_layer_bytes *layers,
                             const struct cddpi_stage_memory *memory,
                             const struct cddpi_layer_range *ranges)
{
    int ranks = config->parallel.pipeline;
    int64_t most = config->parallel.memory_bytes;

    for (int s = 0; s < ranks && most > 0; s++) {
        char first[64] = "";
        size_t bytes = 0;

        for (int stage = s; stage < ranks * config->parallel.chunks; stage += ranks) {
            bytes += cddpi_stage_bytes(layers, ranges[stage], &memory[stage]);
        }
        if (bytes > (uint64_t)most) {
            CDDPI_TRY(cddpi_model_layer_name(spec, ranges[s].first, first, sizeof first));
            return cddpi_config_fail(config, "parallel.memory_bytes",
                                     "stage %d, which begins with \"%s\", alone takes %zu bytes, "
                                     "but a rank may take %lld: let there be more stages, or "
                                     "smaller micro-batches",
                                     s, first, bytes, (long long)most);
        }
    }
    return CDDP_OK;
}

/* Divide by the names in parallel.stages, by measured time, or by memory. */
static cddp_status divide(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                          int replicas, int samples, struct cddpi_stage_memory *memory, int stages,
                          struct cddpi_layer_range *out)
{
    struct cddpi_pipeline_shape shape = shape_of(config, replicas);
    bool by_memory = config->parallel.balance == CDDPI_BALANCE_MEMORY;
    bool named = cddpi_config_names_stages(config);
    struct cddpi_layer_bytes *layers = NULL;
    int count = 0;
    cddp_status status = CDDP_OK;

    for (int s = 0; status == CDDP_OK && s < stages; s++) {
        int slots = 0;

        memory[s].parameter_copies = parameter_copies(config);
        status = count_slots(&shape, s, &slots, &memory[s].micro_batches);
    }
    if (status == CDDP_OK && (by_memory || config->parallel.memory_bytes > 0)) {
        status = cddpi_model_layer_bytes(spec, samples, &layers, &count);
    }
    if (status == CDDP_OK) {
        status = by_memory ? cddpi_divide_by_memory(layers, count, memory, stages, out)
                 : named ? cddpi_stages_from_names(spec, config->parallel.stages.values, stages - 1,
                                                   out)
                         : cddpi_stages_measured(spec, samples, stages, out);
    }
    status = cddpi_config_name_key(config, named ? "parallel.stages" : "parallel.pipeline", status);
    if (status == CDDP_OK) {
        status = check_fit(config, spec, layers, memory, out);
    }
    cddpi_free(layers);
    return status;
}

/* By position, the last stage does not update a table that it shares with the first one, so it
 * needs a layer that learns besides: where stages are chosen, let it begin with one. */
static cddp_status let_last_learn(const struct cddpi_config *config,
                                  const struct cddpi_model_spec *spec, int samples, int stages,
                                  struct cddpi_layer_range *ranges)
{
    struct cddpi_layer_range *last = &ranges[stages - 1];
    struct cddpi_layer_bytes *layers = NULL;
    size_t own = 0;
    int count = 0;

    if (!cddpi_trainer_by_position(config) || cddpi_config_names_stages(config)) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_model_layer_bytes(spec, samples, &layers, &count));
    for (int i = last->first; i < last->end; i++) {
        own += layers[i].parameters; /* a table counts where it is owned */
    }
    while (own == 0 && stages > 1 && last->first > last[-1].first + 1) {
        last[-1].end = --last->first;
        own = layers[last->first].parameters;
    }
    cddpi_free(layers);
    return CDDP_OK;
}

cddp_status cddpi_stages_divide(const struct cddpi_config *config,
                                const struct cddpi_model_spec *spec, int replicas, int samples,
                                struct cddpi_layer_range *out)
{
    int stages = config->parallel.pipeline * config->parallel.chunks;
    struct cddpi_stage_memory *memory = cddpi_zalloc_array((size_t)stages, sizeof *memory);
    cddp_status status;

    CDDPI_TRY_MEMORY(memory != NULL, "pipeline: no memory for %d stages", stages);
    status = divide(config, spec, replicas, samples, memory, stages, out);
    cddpi_free(memory);
    return status == CDDP_OK ? let_last_learn(config, spec, samples, stages, out) : status;
}

static cddp_status check_stages(const struct cddpi_config *config)
{
    int named = cddpi_config_names_stages(config) ? config->parallel.stages.count : 0;
    int stages = config->parallel.pipeline * config->parallel.chunks;

    if (config->parallel.chunks > 1 && config->parallel.schedule != CDDPI_PIPELINE_INTERLEAVED) {
        return cddpi_config_fail(config, "parallel.chunks",
                                 "only parallel.schedule = \"interleaved\" has several chunks a "
                                 "rank");
    }
    if (named > 0 && named != stages - 1) {
        return cddpi_config_fail(
            config, "parallel.stages",
            "names %d layers that begin a stage, but %d stages need %d of them", named, stages,
            stages - 1);
    }
    if (named > 0 && config->parallel.balance != 0) {
        return cddpi_config_fail(config, "parallel.balance",
                                 "is for stages that are chosen, but parallel.stages names them: "
                                 "leave one of the two out");
    }
    for (int i = 0; i < config->parallel.recompute.count; i++) {
        if (config->parallel.recompute.values[i] >= stages) {
            return cddpi_config_fail(config, "parallel.recompute",
                                     "there is no stage %d: stages are 0 to %d",
                                     config->parallel.recompute.values[i], stages - 1);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_check(const struct cddpi_config *config, int world_size)
{
    const struct cddpi_config_rule rules[] = {
        {config->train.offload_optimizer, "train.offload_optimizer",
         "stages over ranks (parallel.pipeline) update on their own devices: leave this out"},
        {config->train.cuda_graph == CDDPI_GRAPH_ALWAYS, "train.cuda_graph",
         "steps of a pipeline are not captured, since messages between stages cannot be: leave "
         "this out"},
    };

    CDDPI_TRY(cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules));
    if (config->train.device == CDDPI_TRAIN_ON_CUDA) { /* else known when the group exists */
        CDDPI_TRY(cddpi_stages_check_gpu(config));
    }
    CDDPI_TRY(cddpi_single_check_stage_names(config));
    if (world_size % config->parallel.pipeline != 0) {
        return cddpi_config_fail(config, "parallel.pipeline",
                                 "%d stages do not divide a world size of %d: start a multiple of "
                                 "%d ranks",
                                 config->parallel.pipeline, world_size, config->parallel.pipeline);
    }
    CDDPI_TRY(cddpi_trainer_check_pipeline_batches(config));
    CDDPI_TRY(check_stages(config));
    return config->train.generate_steps == 0
               ? CDDP_OK
               : cddpi_config_fail(
                     config, "train.generate_steps",
                     "a model that is divided into stages (parallel.pipeline) cannot generate text "
                     "during training. Use cddp-train --generate with a checkpoint");
}

/* A pipeline's schedule is made for the number of micro-batches in the configuration, so each share
 * must have that many. The smallest share of a full step has the fewest. */
static cddp_status check_division(const struct cddpi_config *config, int replicas)
{
    int64_t asked = cddpi_trainer_micro_batches(config, replicas);
    int64_t share = config->train.batch_size / replicas;
    int64_t samples = cddpi_trainer_micro_batch(config, replicas);
    int64_t made = (share + samples - 1) / samples;

    if (made == asked) {
        return CDDP_OK;
    }
    return cddpi_config_fail(
        config, config->parallel.micro_batches > 0 ? "parallel.micro_batches" : "train.accumulate",
        "a pipeline's share of train.batch_size = %lld is %lld, which makes %lld micro-batches of "
        "%lld samples, but not %lld: let their number divide the share",
        (long long)config->train.batch_size, (long long)share, (long long)made, (long long)samples,
        (long long)asked);
}

/* By position, replicas may have different numbers of micro-batches, but gpipe keeps all of them.
 */
static cddp_status check_positions(const struct cddpi_config *config, int replicas)
{
    int64_t count = cddpi_trainer_micro_batches(config, replicas);

    return config->parallel.schedule != CDDPI_PIPELINE_GPIPE || count <= CDDPI_MODEL_SLOTS
               ? CDDP_OK
               : cddpi_config_fail(
                     config, "train.micro_batch",
                     "gpipe keeps all %lld micro-batches of a replica at once, and at "
                     "most %d are possible: use 1f1b",
                     (long long)count, CDDPI_MODEL_SLOTS);
}

cddp_status cddpi_stages_check_batch(const struct cddpi_config *config, int replicas)
{
    CDDPI_TRY(cddpi_trainer_check_batch(config, replicas, "a number of replicas"));
    return cddpi_trainer_by_position(config) ? check_positions(config, replicas)
                                             : check_division(config, replicas);
}

static cddp_status count_parameters(const struct cddpi_model_spec *spec,
                                    struct cddpi_layer_range range, size_t *out)
{
    struct cddpi_model_spec part = *spec;
    struct cddpi_model *model = NULL;
    const cddp_param *params;
    size_t count;

    part.part = range;
    CDDPI_TRY(cddpi_model_create(&part, 0, NULL, &model));
    params = cddpi_model_params(model, &count);
    *out = 0;
    for (size_t i = 0; i < count; i++) {
        *out += cddpi_elements(params[i].dims, params[i].shape);
    }
    cddpi_model_destroy(model);
    return CDDP_OK;
}

static double sum_of(const double *costs, struct cddpi_layer_range range)
{
    double sum = 0;

    for (int i = range.first; i < range.end; i++) {
        sum += costs[i];
    }
    return sum;
}

static cddp_status print_stage(const struct cddpi_model_spec *spec,
                               const struct cddpi_pipeline_shape *shape, int stage,
                               struct cddpi_layer_range range, double part, FILE *file)
{
    char first[64] = "";
    char last[64] = "";
    size_t parameters = 0;
    char more[64] = "";
    int slots = 0;
    int kept = 0;

    CDDPI_TRY(count_slots(shape, stage, &slots, &kept));
    CDDPI_TRY(count_parameters(spec, range, &parameters));
    CDDPI_TRY(cddpi_model_layer_name(spec, range.first, first, sizeof first));
    CDDPI_TRY(cddpi_model_layer_name(spec, range.end - 1, last, sizeof last));
    if (kept > slots) {
        snprintf(more, sizeof more, ", and what gradients are made of for %d", kept);
    }
    fprintf(file,
            "  stage %d on rank %d: %s to %s, %zu parameters, %.0f %% of the time, keeps %d "
            "micro-batch%s%s\n",
            stage, stage % shape->ranks, first, last, parameters, 100 * part, slots,
            slots == 1 ? "" : "es", more);
    return CDDP_OK;
}

/* How many micro-batches a replica has, in words. */
static void name_micro_batches(const struct cddpi_config *config,
                               const struct cddpi_pipeline_shape *shape, int replicas, char *out,
                               size_t bytes)
{
    int64_t most = cddpi_trainer_micro_batches(config, replicas);
    int64_t all;

    if (!cddpi_trainer_by_position(config)) { /* with those that only fill up a schedule */
        snprintf(out, bytes, "%d micro-batches", shape->micro_batches);
        return;
    }
    all = cddpi_trainer_all_micro_batches(config, config->train.batch_size);
    snprintf(out, bytes, "%lld micro-batches over %d replica%s, at most %lld on each",
             (long long)all, replicas, replicas == 1 ? "" : "s", (long long)most);
}

static cddp_status print_all(const struct cddpi_model_spec *spec,
                             const struct cddpi_pipeline_shape *shape,
                             const struct cddpi_layer_range *ranges, const char *micro_batches,
                             const double *costs, int layers, FILE *file)
{
    double all = sum_of(costs, (struct cddpi_layer_range){0, layers});
    double longest = 0;
    int stages = shape->ranks * shape->chunks;

    for (int s = 0; s < stages; s++) {
        double part = sum_of(costs, ranges[s]) / all;

        longest = part > longest ? part : longest;
    }
    fprintf(
        file,
        "pipeline: %d stages, %s; ranks wait %.0f %% of the time for the first "
        "and last ones, and all for the longest stage, which makes %.2f of a perfect division\n",
        stages, micro_batches, 100 * cddpi_pipeline_bubble(shape), 1 / (longest * stages));
    for (int s = 0; s < stages; s++) {
        CDDPI_TRY(print_stage(spec, shape, s, ranges[s], sum_of(costs, ranges[s]) / all, file));
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_describe(const struct cddpi_config *config,
                                  const struct cddpi_model_spec *spec, int replicas, int samples,
                                  FILE *file)
{
    struct cddpi_pipeline_shape shape = shape_of(config, replicas);
    int stages = shape.ranks * shape.chunks;
    struct cddpi_layer_range *ranges = cddpi_zalloc_array((size_t)stages, sizeof *ranges);
    double *costs = NULL;
    int layers = 0;
    char micro_batches[128];
    cddp_status status;

    CDDPI_TRY_MEMORY(ranges != NULL, "pipeline: no memory for %d stages", stages);
    CDDPI_TRY_GOTO(end, status, cddpi_model_measure_layers(spec, samples, &costs, &layers));
    CDDPI_TRY_GOTO(end, status, cddpi_stages_divide(config, spec, replicas, samples, ranges));
    if (!cddpi_config_names_stages(config) && config->parallel.balance == CDDPI_BALANCE_TIME) {
        /* by the times in the table */
        CDDPI_TRY_GOTO(end, status, cddpi_divide_by_time(spec, costs, layers, stages, ranges));
        CDDPI_TRY_GOTO(end, status, let_last_learn(config, spec, samples, stages, ranges));
    }
    name_micro_batches(config, &shape, replicas, micro_batches, sizeof micro_batches);
    status = print_all(spec, &shape, ranges, micro_batches, costs, layers, file);
end:
    cddpi_free(costs);
    cddpi_free(ranges);
    return status;
}
