/* test_ddp_micro_sums.c - a step as one sum over micro-batches: its gradients have the bits of one
 * tree over all of them, whatever the number of ranks and wherever gradients are. */
#include "ddp/copies.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

#include <cddp/sampler.h>

static const size_t sizes[] = {5, 3000, 1, 70};
static const cddp_type doubles[] = {CDDP_F32, CDDP_F64, CDDP_F32, CDDP_F64};
enum { SIZES = sizeof sizes / sizeof *sizes, STEPS = 3, MOST = 19 };

struct scene {
    enum memory memory;
    int micro_batches; /* of the first step; each further one has two more */
    const cddp_type *types;
    bool shard;
    bool late;   /* sharded gradients are reduced when they are read, where that is possible */
    bool unused; /* some micro-batches have no gradient for some parameters */
    bool mixed;  /* one backward for all of a rank's micro-batches: see run_mixed() */
    size_t part_bytes;
};

static int all_of(const struct scene *scene, int step)
{
    return scene->micro_batches + 2 * step;
}

static bool has_gradient(const struct scene *scene, int m, size_t p)
{
    return !scene->unused || (m + (int)p) % 3 != 0;
}

/* The reference: the root of the tree over all micro-batches. */
static double expected(const struct scene *scene, int step, size_t p, size_t i)
{
    bool is_f32 = scene->types == NULL || scene->types[p] == CDDP_F32;
    double values[MOST];

    for (int m = 0; m < all_of(scene, step); m++) {
        values[m] = has_gradient(scene, m, p) ? gradient(m, step, p, i) : 0;
    }
    return tree_sum(values, all_of(scene, step), is_f32);
}

/* Backward of micro-batch @p m, which overwrites the gradients. */
static int write_backward(const struct trainer *trainer, const struct scene *scene, int m, int step)
{
    for (size_t p = SIZES; p-- > 0;) {
        if (has_gradient(scene, m, p)) {
            write_gradient(trainer->ddp, &trainer->model, m, step, p);
            CHECK(cddp_ddp_grad_ready(trainer->ddp, p) == CDDP_OK);
        }
    }
    return 0;
}

/* As in a pipeline, parameters are at different micro-batches at the same time: at random ones, but
 * each has them in their order. */
static int run_mixed(const struct trainer *trainer, const cddp_step *how, cddp_share share,
                     int step)
{
    uint64_t left = SIZES * share.count;
    uint64_t done[SIZES] = {0};
    uint32_t random = 1 + (uint32_t)(share.first * 7) + (uint32_t)step;

    CHECK(cddpi_ddp_begin_run(trainer->ddp, how) == CDDP_OK);
    while (left > 0) {
        size_t p;

        random = random * 1664525 + 1013904223;
        p = (random >> 16) % SIZES;
        if (done[p] < share.count) {
            write_gradient(trainer->ddp, &trainer->model, (int)(share.first + done[p]++), step, p);
            CHECK(cddpi_ddp_run_grad_ready(trainer->ddp, p) == CDDP_OK);
            left--;
        }
    }
    CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
    return 0;
}

static int run_step(const struct trainer *trainer, const struct scene *scene, cddp_share share,
                    int step)
{
    cddp_step how = CDDP_STEP_INIT;

    how.number = 1 + (uint64_t)step;
    how.kind = CDDP_STEP_BY_MICRO_BATCHES;
    how.micro_batches = (uint64_t)all_of(scene, step);
    if (scene->mixed && step != 1) { /* steps of both ways can follow each other */
        return run_mixed(trainer, &how, share, step);
    }
    for (uint64_t m = share.first; m < share.first + share.count; m++) {
        how.micro_batch = m;
        CHECK(cddp_ddp_begin(trainer->ddp, &how) == CDDP_OK);
        CHECK(write_backward(trainer, scene, (int)m, step) == 0);
        CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
    }
    if (share.count == 0) {
        CHECK(cddp_ddp_begin(trainer->ddp, &how) == CDDP_OK);
        CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
    }
    return 0;
}

/* Elements of parameter @p p that this rank must have: [*out_first, *out_end). */
static void own_elements(const struct trainer *trainer, int rank, size_t p, size_t *out_first,
                         size_t *out_end)
{
    size_t count;
    const cddp_span *spans = cddp_ddp_spans(trainer->ddp, rank, &count);

    *out_first = 0;
    *out_end = trainer->model.options.shard ? 0 : sizes[p];
    for (size_t s = 0; s < count; s++) {
        if (spans[s].param == p) {
            *out_first = spans[s].first;
            *out_end = spans[s].first + spans[s].count;
        }
    }
}

static int check_step(const struct trainer *trainer, const struct scene *scene, int rank, int step)
{
    static double scratch[3000];

    for (size_t p = 0; p < SIZES; p++) {
        cddp_type type = trainer->model.params[p].type;
        const void *got;
        size_t first;
        size_t end;

        own_elements(trainer, rank, p, &first, &end);
        got = cddpi_ddp_mean(trainer->ddp, p, first, end - first, scratch);
        CHECK(got != NULL || first == end);
        for (size_t i = first; i < end; i++) {
            CHECK(get(got, type, i - first) == expected(scene, step, p, i));
        }
    }
    return 0;
}

static int create(struct trainer *trainer, const struct scene *scene)
{
    const struct cddpi_ddp_copies late = {.reduce_late = true};
    struct model *model = &trainer->model;

    if (!scene->late) {
        return watch(trainer);
    }
    CHECK(cddpi_ddp_create_with_copies(trainer->group, model->params, model->count, NULL, 0,
                                       &model->options, &late, &trainer->ddp) == CDDP_OK);
    return 0;
}

static int sum_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    struct trainer trainer;

    CHECK(enter(&trainer, meeting, rank, world_size, scene->memory, SIZES, sizes, scene->types) ==
          0);
    trainer.model.options.bucket_bytes = 4096;
    trainer.model.options.part_bytes = scene->part_bytes;
    trainer.model.options.shard = scene->shard;
    trainer.model.options.allow_unused = scene->unused;
    CHECK(create(&trainer, scene) == 0);
    for (int step = 0; step < STEPS; step++) {
        cddp_share share = cddp_share_of(0, (uint64_t)all_of(scene, step), rank, world_size);

        CHECK(run_step(&trainer, scene, share, step) == 0);
        CHECK(check_step(&trainer, scene, rank, step) == 0);
        CHECK(!scene->shard || cddp_ddp_params_start(trainer.ddp) == CDDP_OK); /* all have read */
    }
    return leave(&trainer);
}

static void at_all_sizes(struct meeting *meeting, struct scene scene, const int *counts)
{
    for (int w = 0; w < WORLD_SIZES; w++) {
        for (size_t c = 0; counts[c] > 0; c++) {
            scene.micro_batches = counts[c];
            assert_int_equal(meet(meeting, world_sizes[w], sum_rank, &scene, NULL), 0);
        }
    }
}

static const int many[] = {1, 2, 3, 5, 8, 12, 0};
static const int few[] = {3, 8, 0};

static void any_number_of_ranks_has_the_bits_of_one_tree(void **state)
{
    for (enum memory memory = OWNED; memory < MEMORIES; memory++) {
        at_all_sizes(*state, (struct scene){.memory = memory}, memory == OWNED ? many : few);
    }
}

static void doubles_and_parts_of_gradients_too(void **state)
{
    at_all_sizes(*state, (struct scene){.memory = OWNED, .types = doubles}, few);
    at_all_sizes(*state, (struct scene){.memory = SCATTERED, .part_bytes = 2000}, few);
}

static void sharded_optimizers_too(void **state)
{
    at_all_sizes(*state, (struct scene){.memory = OWNED, .shard = true}, few);
    at_all_sizes(*state, (struct scene){.memory = SCATTERED, .shard = true}, few);
    setenv("CDDP_COMM_THREAD", "0", 1); /* what shares a core reduces late */
    at_all_sizes(*state, (struct scene){.memory = OWNED, .shard = true, .late = true}, few);
    unsetenv("CDDP_COMM_THREAD");
}

static void a_micro_batch_without_a_gradient_adds_zero(void **state)
{
    at_all_sizes(*state, (struct scene){.memory = OWNED, .unused = true}, few);
    at_all_sizes(*state, (struct scene){.memory = MIXED, .unused = true}, few);
}

static void parameters_may_be_at_different_micro_batches(void **state)
{
    at_all_sizes(*state, (struct scene){.memory = OWNED, .mixed = true}, many);
    at_all_sizes(*state, (struct scene){.memory = SCATTERED, .mixed = true, .part_bytes = 2000},
                 few);
    at_all_sizes(*state, (struct scene){.memory = MIXED, .mixed = true, .types = doubles}, few);
    at_all_sizes(*state, (struct scene){.memory = OWNED, .mixed = true, .shard = true}, few);
    setenv("CDDP_COMM_THREAD", "0", 1);
    at_all_sizes(*state,
                 (struct scene){.memory = OWNED, .mixed = true, .shard = true, .late = true}, few);
    unsetenv("CDDP_COMM_THREAD");
}

/* A gradient that comes once too often, or too seldom, in a backward for all micro-batches. */
static int miscounted_rank(int rank, int world_size, void *argument)
{
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;

    how.number = 1;
    how.kind = CDDP_STEP_BY_MICRO_BATCHES;
    how.micro_batches = 4;
    for (int often = 0; often < 2; often++) {
        CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
        CHECK(watch(&trainer) == 0);
        CHECK(cddpi_ddp_begin_run(trainer.ddp, &how) == CDDP_OK);
        for (size_t i = 0; i < 2 * SIZES; i++) {
            CHECK((!often && rank == 1 && i == 2 * SIZES - 1) ||
                  cddpi_ddp_run_grad_ready(trainer.ddp, i % SIZES) == CDDP_OK);
        }
        if (often) {
            CHECK(rank == 1 || cddpi_ddp_run_grad_ready(trainer.ddp, 2) == CDDP_ERR_STATE);
            CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_STATE);
            CHECK(last_error_has("the gradient of parameter 2 (p2) was ready twice"));
        } else {
            CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_INCOMPLETE);
            CHECK(last_error_has("parameter 3 (p3)"));
        }
        CHECK(train_again(&trainer, rank, world_size) == 0);
    }
    return 0;
}

static void a_gradient_that_comes_too_often_or_too_seldom_is_an_error(void **state)
{
    assert_int_equal(meet(*state, 2, miscounted_rank, NULL, NULL), 0);
}

/* Begins that are refused, and change nothing. */
static int refused_rank(int rank, int world_size, void *argument)
{
    static const cddp_type narrow[] = {CDDP_F32, CDDP_BF16, CDDP_F32, CDDP_F32};
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;
    bool all;

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    how.number = 7;
    how.kind = CDDP_STEP_BY_MICRO_BATCHES;
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_ERR_ARGUMENT);
    CHECK(last_error_has("step 7 is a sum over micro-batches, but micro_batches is 0"));
    how.micro_batches = 4;
    how.micro_batch = rank == 0 ? 3 : 0;
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_ERR_ARGUMENT);
    how.micro_batch = (uint64_t)rank * 2;
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_OK);
    CHECK(cddp_ddp_follow(trainer.ddp, &all) == CDDP_ERR_ARGUMENT);
    CHECK(last_error_has("a rank without any begins it and waits"));
    CHECK(train_again(&trainer, rank, world_size) == 0);

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, narrow) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("p1 is of type bf16: partial sums would be rounded"));
    CHECK(leave(&trainer) == 0);

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    trainer.model.options.hook = cddp_hook_bf16;
    CHECK(watch(&trainer) == 0);
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("with a hook, bits depend on the number of ranks"));
    CHECK(leave(&trainer) == 0);

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    trainer.model.options.allow_unused = true;
    CHECK(watch(&trainer) == 0);
    CHECK(cddpi_ddp_begin_run(trainer.ddp, &how) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("with allow_unused, a parameter's next gradient may be of any"));
    how.kind = CDDP_STEP_SUM;
    CHECK(cddpi_ddp_begin_run(trainer.ddp, &how) == CDDP_ERR_ARGUMENT);
    return leave(&trainer);
}

static void what_would_depend_on_the_number_of_ranks_is_refused(void **state)
{
    assert_int_equal(meet(*state, 2, refused_rank, NULL, NULL), 0);
}

/* Without allow_unused, a gradient that comes in no micro-batch of a rank is an error on all. */
static int missing_rank(int rank, int world_size, void *argument)
{
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;
    struct scene scene = {.micro_batches = 5};

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(run_step(&trainer, &scene, cddp_share_of(0, 5, rank, world_size), 0) == 0);
    how.number = 2;
    how.kind = CDDP_STEP_BY_MICRO_BATCHES;
    how.micro_batches = (uint64_t)world_size;
    how.micro_batch = (uint64_t)rank;
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_OK);
    for (size_t p = SIZES; p-- > 0;) {
        CHECK((rank == 1 && p == 2) || cddp_ddp_grad_ready(trainer.ddp, p) == CDDP_OK);
    }
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_INCOMPLETE);
    return train_again(&trainer, rank, world_size);
}

/* A rank without a micro-batch has no gradients to report; the step goes on. */
static int idle_rank(int rank, int world_size, void *argument)
{
    static const struct scene scene = {.micro_batches = 1};
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    if (rank == 0) {
        CHECK(run_step(&trainer, &scene, (cddp_share){0, 1}, 0) == 0);
    } else {
        how.number = 1;
        how.kind = CDDP_STEP_BY_MICRO_BATCHES;
        how.micro_batches = 1;
        CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_OK);
        CHECK(cddp_ddp_grad_ready(trainer.ddp, 0) == CDDP_ERR_ARGUMENT);
        CHECK(last_error_has("1 micro-batches for 2 ranks, so rank 1 has none, and no gradients"));
        CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    }
    CHECK(check_step(&trainer, &scene, rank, 0) == 0);
    return leave(&trainer);
}

static void a_rank_without_a_micro_batch_reports_no_gradients(void **state)
{
    assert_int_equal(meet(*state, 2, idle_rank, NULL, NULL), 0);
}

static void a_gradient_that_never_comes_is_an_error_on_all_ranks(void **state)
{
    assert_int_equal(meet(*state, 3, missing_rank, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(any_number_of_ranks_has_the_bits_of_one_tree),
        RANKS_TEST(doubles_and_parts_of_gradients_too),
        RANKS_TEST(sharded_optimizers_too),
        RANKS_TEST(a_micro_batch_without_a_gradient_adds_zero),
        RANKS_TEST(parameters_may_be_at_different_micro_batches),
        RANKS_TEST(a_gradient_that_comes_too_often_or_too_seldom_is_an_error),
        RANKS_TEST(what_would_depend_on_the_number_of_ranks_is_refused),
        RANKS_TEST(a_rank_without_a_micro_batch_reports_no_gradients),
        RANKS_TEST(a_gradient_that_never_comes_is_an_error_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
