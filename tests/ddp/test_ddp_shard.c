/* test_ddp_shard.c - a sharded optimizer: spans contain each element once, and parameters that
 * ranks update in shards equal, to the bit, an update of the whole mean on one rank. */
#include "ddp/copies.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

static const size_t sizes[] = {1, 70000, 3, 17, 64, 1, 0, 9, 40000, 5, 16, 33, 300, 7, 12};
enum { SIZES = sizeof sizes / sizeof *sizes, STEPS = 3, FROZEN = 4 };
static const cddp_type types[] = {CDDP_F32, CDDP_F32, CDDP_F64, CDDP_F32, CDDP_F32,
                                  CDDP_F32, CDDP_F64, CDDP_F32, CDDP_F64, CDDP_F32,
                                  CDDP_F64, CDDP_F32, CDDP_F32, CDDP_F32, CDDP_F64};

struct scene {
    enum memory memory;
    bool many_types;
    size_t bytes; /* of a bucket */
    cddp_hook_fn hook;
    bool deferred;
    bool weighted;
    bool thread; /* the group has one of its own */
};

/* How many samples a rank has in a step; the last one has none in the second. */
PURE static int weight_of(const struct scene *scene, int rank, int step)
{
    return !scene->weighted ? -1 : rank == 0 || step != 1 ? 1 + rank * step : 0;
}

PURE static double updated(double param, double mean, cddp_type type)
{
    return type == CDDP_F64 ? param - 0.125 * mean : (float)param - 0.125f * (float)mean;
}

static void update_spans(cddp_ddp *ddp, const struct model *model, int rank)
{
    size_t count;
    const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);

    for (size_t s = 0; s < count; s++) {
        cddp_type type = model->params[spans[s].param].type;
        void *param = cddp_ddp_param(ddp, spans[s].param);
        _Alignas(64) double scratch[500];

        for (size_t at = 0; at < spans[s].count; at += 500) {
            size_t first = spans[s].first + at;
            size_t left = spans[s].count - at < 500 ? spans[s].count - at : 500;
            const void *mean = cddpi_ddp_mean(ddp, spans[s].param, first, left, scratch);

            for (size_t i = 0; i < left; i++) {
                put(param, type, first + i,
                    updated(get(param, type, first + i), get(mean, type, i), type));
            }
        }
    }
}

/* As groups make it: factors in float32, then the tree. */
PURE static double mean_of(const struct scene *scene, double *values, int world_size, int step,
                           cddp_type type)
{
    double total = 0;
    bool equal = true;

    for (int rank = 0; rank < world_size; rank++) {
        int weight = weight_of(scene, rank, step);

        equal = equal && weight == weight_of(scene, 0, step) && weight > 0;
        total += weight;
    }
    if (!scene->weighted || equal) {
        return tree_mean(values, world_size, type);
    }
    for (int rank = 0; rank < world_size; rank++) {
        double factor = weight_of(scene, rank, step) / total;

        values[rank] = type == CDDP_F64 ? values[rank] * factor
                                        : (float)values[rank] * (float)factor;
    }
    return tree_sum(values, world_size, type != CDDP_F64);
}

/* What element i of parameter p is after @p steps updates, each with the mean over ranks. */
PURE static double expected(const struct scene *scene, const struct model *model, int world_size,
                            int steps, size_t p, size_t i)
{
    cddp_type type = model->params[p].type;
    double param = stored(noise(99, 0, (unsigned)p, (unsigned)i), type); /* rank 0's */

    for (int step = 0; step < steps && model->params[p].flags == 0; step++) {
        double values[RANKS_MOST];

        for (int rank = 0; rank < world_size; rank++) {
            values[rank] = stored(gradient(rank, step, p, i), type);
        }
        param = updated(param, mean_of(scene, values, world_size, step, type), type);
    }
    return param;
}

static int params_are(cddp_ddp *ddp, const struct scene *scene, const struct model *model,
                      int world_size, int steps)
{
    for (size_t p = 0; p < model->count; p++) {
        const void *param = cddp_ddp_param(ddp, p);

        for (size_t i = 0; i < model->elements[p]; i++) {
            double is = get(param, model->params[p].type, i);

            if (is != expected(scene, model, world_size, steps, p, i)) {
                fprintf(stderr, "step %d, parameter %zu, element %zu: %.17g, not %.17g\n", steps, p,
                        i, is, expected(scene, model, world_size, steps, p, i));
                return 0;
            }
        }
    }
    return 1;
}

static cddp_ddp *make_sharded(cddp_group *group, const struct scene *scene, struct model *model)
{
    const struct cddpi_ddp_copies late = {.reduce_late = scene->deferred};
    cddp_ddp *ddp = NULL;

    make_model(model, cddp_group_rank(group), scene->memory, SIZES, sizes,
               scene->many_types ? types : NULL);
    model->params[FROZEN].flags = CDDP_PARAM_FROZEN;
    model->options.first_bucket_bytes = scene->bytes;
    model->options.bucket_bytes = scene->bytes;
    model->options.shard = true;
    model->options.hook = scene->hook;
    if (cddpi_ddp_create_with_copies(group, model->params, model->count, NULL, 0, &model->options,
                                     &late, &ddp) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
    }
    return ddp;
}

/* @p samples: < 0: the mean over ranks. */
static int run_backward(cddp_ddp *ddp, const struct model *model, int rank, int step, int samples)
{
    cddp_step given = CDDP_STEP_INIT;

    given.number = (uint64_t)step;
    given.kind = samples < 0 ? CDDP_STEP_BY_RANKS : CDDP_STEP_BY_SAMPLES;
    given.samples = samples < 0 ? 0 : (uint64_t)samples;
    CHECK(cddp_ddp_begin(ddp, &given) == CDDP_OK);
    for (size_t p = model->count; p-- > 0;) {
        if (p != FROZEN) {
            write_gradient(ddp, model, rank, step, p);
            CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
        }
    }
    CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
    return 0;
}

/* Whether reductions are left to cddpi_ddp_mean() just where they can and should be. */
static int is_late_as(const struct scene *scene, cddp_ddp *ddp, int rank, int world_size)
{
    bool deferred = scene->deferred && scene->memory == OWNED && !scene->thread && world_size > 1;
    size_t count;
    const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);
    double scratch[1];

    return count == 0 || deferred == (cddpi_ddp_mean(ddp, spans[0].param, spans[0].first, 1,
                                                     scratch) == (const void *)scratch);
}

static int update_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_group *group;
    struct model model;
    cddp_ddp *ddp;

    setenv("CDDP_COMM_THREAD", scene->thread ? "1" : "0", 1);
    group = join_group(meeting, rank, world_size);
    CHECK(group != NULL);
    ddp = make_sharded(group, scene, &model);
    CHECK(ddp != NULL);
    CHECK(cddp_ddp_param(ddp, FROZEN) == model.params[FROZEN].data);
    CHECK(params_are(ddp, scene, &model, world_size, 0));
    for (int step = 0; step < STEPS; step++) {
        CHECK(run_backward(ddp, &model, rank, step, weight_of(scene, rank, step)) == 0);
        CHECK(is_late_as(scene, ddp, rank, world_size));
        update_spans(ddp, &model, rank);
        CHECK(cddp_ddp_params_start(ddp) == CDDP_OK);
        for (size_t p = 0; p < model.count && step == 1; p++) {
            CHECK(cddp_ddp_param_wait(ddp, p) == CDDP_OK);
        }
        CHECK(step == 1 || cddp_ddp_params_wait(ddp) == CDDP_OK);
        CHECK(params_are(ddp, scene, &model, world_size, step + 1));
    }
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void updates_in_shards_are_those_of_the_whole(void **state)
{
    static const struct scene scenes[] = {
        {.memory = OWNED, .bytes = 4096},
        {.memory = OWNED, .bytes = 1 << 20},
        {.memory = OWNED, .many_types = true, .bytes = 300000},
        {.memory = SCATTERED, .many_types = true, .bytes = 64},
        {.memory = MIXED, .many_types = true, .bytes = (size_t)1 << 30},
        {.memory = OWNED, .many_types = true, .bytes = 300000, .weighted = true},
        {.memory = OWNED, .bytes = 4096, .deferred = true},
        {.memory = OWNED, .bytes = 4096, .deferred = true, .thread = true},
        {.memory = OWNED, .many_types = true, .bytes = 300000, .deferred = true, .weighted = true},
        {.memory = MIXED, .many_types = true, .bytes = 300000, .deferred = true, .weighted = true},
    };

    for (size_t w = 0; w < WORLD_SIZES; w++) {
        for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
            assert_int_equal(meet(*state, world_sizes[w], update_rank, &scenes[s], NULL), 0);
        }
    }
}

/* Sum what ranks have and give it to all, in one collective of the whole bucket. */
static cddp_status reduce_whole(void *state, const cddp_bucket *bucket, int stage,
                                cddp_work **out_work)
{
    void *data = bucket->data;

    (void)state;
    *out_work = NULL;
    return stage > 0 ? CDDP_OK
                     : cddp_all_reduce(bucket->group, data, data, bucket->count, bucket->type,
                                       CDDP_OP_MEAN, out_work);
}

/* Parameter 1 after one update with the mean of what @p hook sends of each rank. */
static float updated_by(cddp_hook_fn hook, int world_size, size_t i)
{
    double values[RANKS_MOST];

    for (int rank = 0; rank < world_size; rank++) {
        float exact = (float)gradient(rank, 0, 1, i);

        values[rank] = hook == cddp_hook_bf16   ? round_bf16(exact)
                       : hook == cddp_hook_fp16 ? round_f16(exact)
                                                : exact;
    }
    return (float)updated(noise(99, 0, 1, (unsigned)i),
                          tree_mean(values, world_size,
                                    hook == cddp_hook_bf16   ? CDDP_BF16
                                    : hook == cddp_hook_fp16 ? CDDP_F16
                                                             : CDDP_F32),
                          CDDP_F32);
}

static int hook_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    ddp = make_sharded(group, scene, &model);
    CHECK(ddp != NULL);
    CHECK(run_backward(ddp, &model, rank, 0, -1) == 0);
    update_spans(ddp, &model, rank);
    CHECK(cddp_ddp_params_start(ddp) == CDDP_OK && cddp_ddp_params_wait(ddp) == CDDP_OK);
    for (size_t i = 0; i < sizes[1]; i++) {
        float is = (float)get(cddp_ddp_param(ddp, 1), CDDP_F32, i);

        CHECK(is == updated_by(scene->hook, world_size, i));
    }
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void what_a_hook_reduces_is_updated_in_shards(void **state)
{
    static const cddp_hook_fn hooks[] = {reduce_whole, cddp_hook_bf16, cddp_hook_fp16};

    for (size_t h = 0; h < sizeof hooks / sizeof *hooks; h++) {
        struct scene scene = {.memory = OWNED, .bytes = 4096, .hook = hooks[h]};

        for (size_t w = 0; w < WORLD_SIZES; w++) {
            assert_int_equal(meet(*state, world_sizes[w], hook_rank, &scene, NULL), 0);
        }
    }
}

/* The last rank leaves; the others say what they waited in. */
static int left_alone_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct model model;
    cddp_status status = CDDP_OK;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    ddp = make_sharded(group, meeting->argument, &model);
    CHECK(ddp != NULL);
    if (rank == world_size - 1) {
        _exit(0);
    }
    CHECK(begin_mean(ddp, 0) == 0);
    for (size_t p = model.count; status == CDDP_OK && p-- > 0;) {
        status = p != FROZEN ? cddp_ddp_grad_ready(ddp, p) : CDDP_OK;
    }
    status = status == CDDP_OK ? cddp_ddp_wait(ddp) : status;
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, world_size - 1, "reduce_scatter"));
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

/* Half of what an all_reduce sends is what nobody would read. */
static void a_rank_receives_only_its_shard_in_16_bits_too(void **state)
{
    static const cddp_hook_fn hooks[] = {NULL, cddp_hook_bf16, cddp_hook_fp16};

    for (size_t h = 0; h < sizeof hooks / sizeof *hooks; h++) {
        struct scene scene = {.memory = OWNED, .bytes = 4096, .hook = hooks[h]};

        assert_int_equal(meet(*state, 2, left_alone_rank, &scene, NULL), 0);
    }
}

/* Rank 1 updates late, for longer and longer until rank 0 has waited for it even on the slowest
 * machine. */
static int late_update_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    uint64_t exposed = 0;
    uint8_t seen = 0;
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    ddp = make_sharded(group, meeting->argument, &model);
    CHECK(ddp != NULL);
    for (int step = 0; step < 10 && seen == 0; step++) {
        CHECK(run_backward(ddp, &model, rank, step, -1) == 0);
        CHECK(cddp_ddp_get_stats(ddp, &stats) == CDDP_OK);
        exposed += stats.exposed_ns;
        CHECK(stats.total_exposed_ns == exposed);
        seen = step > 0 && stats.exposed_ns > (10000000ULL << step) / 2;
        CHECK(cddp_broadcast(group, &seen, 1, CDDP_U8, 0, NULL) == CDDP_OK);
        if (rank == 1) {
            support_sleep_ms(20L << step);
        }
        CHECK(cddp_ddp_params_start(ddp) == CDDP_OK);
        CHECK(cddp_ddp_param_wait(ddp, 1) == CDDP_OK);
        CHECK(cddp_ddp_params_wait(ddp) == CDDP_OK);
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    }
    CHECK(seen == 1);
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void waiting_for_updated_parameters_is_exposed(void **state)
{
    static const struct scene scenes[] = {{.memory = OWNED, .bytes = 4096},
                                          {.memory = OWNED, .bytes = 4096, .thread = true}};

    assert_int_equal(meet(*state, 2, late_update_rank, &scenes[0], NULL), 0);
    assert_int_equal(meet(*state, 2, late_update_rank, &scenes[1], NULL), 0);
}

static int spans_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    unsigned char *seen[SIZES];
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    ddp = make_sharded(group, meeting->argument, &model);
    CHECK(ddp != NULL);
    for (size_t p = 0; p < SIZES; p++) {
        seen[p] = calloc(sizes[p] + 1, 1);
    }
    for (int r = 0; r < world_size; r++) {
        size_t count;
        const cddp_span *spans = cddp_ddp_spans(ddp, r, &count);

        for (size_t s = 0; s < count; s++) {
            CHECK(spans[s].count > 0 && spans[s].first + spans[s].count <= sizes[spans[s].param]);
            CHECK(s == 0 || spans[s].param > spans[s - 1].param);
            for (size_t i = 0; i < spans[s].count; i++) {
                CHECK(seen[spans[s].param][spans[s].first + i]++ == 0);
            }
        }
    }
    for (size_t p = 0; p < SIZES; p++) {
        for (size_t i = 0; i < sizes[p]; i++) {
            CHECK(seen[p][i] == (p != FROZEN));
        }
        free(seen[p]);
    }
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void spans_hold_each_element_once(void **state)
{
    static const struct scene scenes[] = {{.memory = OWNED, .many_types = true, .bytes = 5000},
                                          {.memory = OWNED, .bytes = (size_t)1 << 30}};

    for (size_t w = 0; w < WORLD_SIZES; w++) {
        assert_int_equal(meet(*state, world_sizes[w], spans_rank, &scenes[w % 2], NULL), 0);
    }
}

static int misuse_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct model model;
    size_t count = 1;
    cddp_ddp *ddp = NULL;

    CHECK(group != NULL);
    make_model(&model, rank, FLAT, SIZES, sizes, NULL);
    model.options.shard = true;
    CHECK(failure_is(cddp_ddp_create(group, model.params, SIZES, NULL, 0, &model.options, &ddp),
                     CDDP_ERR_ARGUMENT, 0, 0, ""));
    CHECK(last_error_has("shard and flat_grads exclude each other"));
    model.options.shard = false;
    CHECK(cddp_ddp_create(group, model.params, SIZES, NULL, 0, &model.options, &ddp) == CDDP_OK);
    CHECK(failure_is(cddp_ddp_params_start(ddp), CDDP_ERR_ARGUMENT, -1, -1, ""));
    CHECK(last_error_has("the optimizer is not sharded"));
    CHECK(cddp_ddp_param(ddp, 1) == model.params[1].data && cddp_ddp_param(ddp, SIZES) == NULL);
    CHECK(cddp_ddp_spans(ddp, rank, &count) == NULL && count == 0);
    CHECK(cddpi_ddp_mean(ddp, 1, 3, 1, NULL) == (const float *)model.params[1].grad + 3);
    CHECK(cddpi_ddp_mean(ddp, SIZES, 0, 1, NULL) == NULL);
    cddp_ddp_destroy(ddp);
    free_model(&model);

    ddp = make_sharded(group, &(struct scene){.memory = OWNED, .bytes = 4096}, &model);
    CHECK(ddp != NULL);
    CHECK(cddp_ddp_param_wait(ddp, SIZES) == CDDP_ERR_ARGUMENT);
    CHECK(begin_mean(ddp, 7) == 0 && cddp_ddp_grad_ready(ddp, 0) == CDDP_OK);
    CHECK(failure_is(cddp_ddp_params_start(ddp), CDDP_ERR_INCOMPLETE, -1, -1, ""));
    CHECK(last_error_has("ddp: params_start "));
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void wrong_use_is_told(void **state)
{
    assert_int_equal(meet(*state, 2, misuse_rank, NULL, NULL), 0);
}

static int disagreeing_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct model model;
    cddp_ddp *ddp = NULL;

    CHECK(group != NULL);
    make_model(&model, rank, OWNED, SIZES, sizes, NULL);
    model.options.shard = rank == 1;
    CHECK(failure_is(cddp_ddp_create(group, model.params, SIZES, NULL, 0, &model.options, &ddp),
                     CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has("shard"));
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_that_disagree_about_shards_hear_of_it(void **state)
{
    assert_int_equal(meet(*state, 3, disagreeing_rank, NULL, NULL), 0);
}

/* Where reductions come late no collective would find it: rank 0 takes a mean over samples, the
 * others over ranks. */
static int other_kind_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_step how = CDDP_STEP_INIT;
    cddp_group *group;
    struct model model;
    cddp_ddp *ddp;

    setenv("CDDP_COMM_THREAD", "0", 1);
    group = join_group(meeting, rank, world_size);
    CHECK(group != NULL);
    ddp = make_sharded(group, meeting->argument, &model);
    CHECK(ddp != NULL);
    CHECK(is_late_as(meeting->argument, ddp, rank, world_size));
    how.number = 3;
    how.samples = 5;
    how.kind = rank == 0 ? CDDP_STEP_BY_SAMPLES : CDDP_STEP_BY_RANKS;
    CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
    for (size_t p = model.count; p-- > 0;) {
        CHECK(p == FROZEN || cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
    }
    CHECK(failure_is(cddp_ddp_wait(ddp), CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has("ranks disagree about step 3: rank 0 has begun it as "
                         "CDDP_STEP_BY_SAMPLES, rank 1 as CDDP_STEP_BY_RANKS"));
    CHECK(cddp_ddp_begin(ddp, NULL) == CDDP_ERR_BROKEN);
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_that_disagree_about_the_kind_of_step_hear_of_it(void **state)
{
    static const struct scene scene = {.memory = OWNED, .bytes = 4096, .deferred = true};

    assert_int_equal(meet(*state, 3, other_kind_rank, &scene, NULL), 0);
}

/* Rank 1 ends between its backward and its update. */
static int deserted_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct model model;
    cddp_status status;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    ddp = make_sharded(group, meeting->argument, &model);
    CHECK(ddp != NULL);
    CHECK(run_backward(ddp, &model, rank, 0, -1) == 0);
    if (rank == 1) {
        _exit(0);
    }
    status = cddp_ddp_params_start(ddp);
    if (status == CDDP_OK) {
        status = cddp_ddp_params_wait(ddp);
    }
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, 1, NULL));
    CHECK(last_error_has("updated parameters of bucket"));
    CHECK(cddp_ddp_begin(ddp, NULL) == CDDP_ERR_BROKEN);
    cddp_ddp_destroy(ddp);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_ends_before_its_update_is_named(void **state)
{
    static const struct scene scene = {.memory = OWNED, .bytes = 4096};

    assert_int_equal(meet(*state, 3, deserted_rank, &scene, NULL), 0);
    assert_int_equal(meet(*state, 2, deserted_rank, &scene, NULL), 0);
}

/* The trainer's last update is still on its way when the handle is destroyed. */
static int early_end_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    ddp = make_sharded(group, meeting->argument, &model);
    CHECK(ddp != NULL);
    CHECK(run_backward(ddp, &model, rank, 0, -1) == 0);
    CHECK(cddp_ddp_params_start(ddp) == CDDP_OK);
    cddp_ddp_destroy(ddp);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    free_model(&model);
    cddp_group_destroy(group);
    return 0;
}

static void the_end_of_a_handle_waits_for_the_last_update(void **state)
{
    static const struct scene scene = {.memory = OWNED, .bytes = 4096};

    assert_int_equal(meet(*state, 3, early_end_rank, &scene, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(updates_in_shards_are_those_of_the_whole),
        RANKS_TEST(what_a_hook_reduces_is_updated_in_shards),
        RANKS_TEST(a_rank_receives_only_its_shard_in_16_bits_too),
        RANKS_TEST(waiting_for_updated_parameters_is_exposed),
        RANKS_TEST(spans_hold_each_element_once),
        RANKS_TEST(wrong_use_is_told),
        RANKS_TEST(ranks_that_disagree_about_shards_hear_of_it),
        RANKS_TEST(ranks_that_disagree_about_the_kind_of_step_hear_of_it),
        RANKS_TEST(a_rank_that_ends_before_its_update_is_named),
        RANKS_TEST(the_end_of_a_handle_waits_for_the_last_update),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
