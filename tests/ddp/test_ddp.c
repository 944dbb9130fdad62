/* test_ddp.c - the gradients of forked ranks become their mean, to the bit, in any memory layout
 * and in any order of becoming ready; weights, micro-batches, unused parameters, rebuilding. */
#include "support/ddp_ranks.h"

/* Many tiny parameters and some that are larger than all of them. */
static const size_t sizes[] = {1, 70000, 3, 17, 64, 1, 2, 9, 40000, 5, 16, 33, 300, 7, 0, 1, 12};
enum { SIZES = sizeof sizes / sizeof *sizes };
static const cddp_type types[] = {CDDP_F32, CDDP_F32, CDDP_F64,  CDDP_F32, CDDP_BF16, CDDP_BF16,
                                  CDDP_F32, CDDP_F64, CDDP_BF16, CDDP_F32, CDDP_F64,  CDDP_BF16,
                                  CDDP_F32, CDDP_F32, CDDP_F32,  CDDP_F64, CDDP_F32};

struct scene {
    enum memory memory;
    bool many_types;
    size_t first_bytes;
    size_t bytes;
    bool shuffled;
    bool declared; /* ready_order is given */
    cddp_hook_fn hook;
    size_t part_bytes;
};

/* Another order of [0, count) for each rank and step. */
static void shuffle(size_t *order, size_t count, int rank, int step)
{
    for (size_t i = 0; i < count; i++) {
        size_t j = (size_t)((noise((unsigned)rank, (unsigned)step, 5, (unsigned)i) + 1.0f) * 0.5f *
                            (float)(i + 1));

        order[i] = order[j];
        order[j] = i;
    }
}

static int run_backward(cddp_ddp *ddp, const struct model *model, const struct scene *scene,
                        int rank, int step)
{
    size_t order[MODEL_MOST];

    for (size_t i = 0; i < model->count; i++) {
        order[i] = model->count - 1 - i;
    }
    if (scene->shuffled) {
        shuffle(order, model->count, rank, step);
    }
    CHECK(begin_mean(ddp, step) == 0);
    for (size_t i = 0; i < model->count; i++) {
        if (model->params[order[i]].flags == 0) {
            write_gradient(ddp, model, rank, step, order[i]);
            CHECK(cddp_ddp_grad_ready(ddp, order[i]) == CDDP_OK);
        }
    }
    return 0;
}

static int steps_give_the_mean(cddp_ddp *ddp, const struct model *model, const struct scene *scene,
                               int rank, int world_size)
{
    for (int step = 0; step < 4; step++) {
        CHECK(run_backward(ddp, model, scene, rank, step) == 0);
        CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        for (size_t p = 0; p < model->count; p++) {
            CHECK(model->params[p].flags != 0 || is_mean(ddp, model, world_size, step, p));
        }
    }
    return 0;
}

static int mean_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    size_t order[SIZES];
    cddp_ddp *ddp;
    struct model model;

    CHECK(group != NULL);
    make_model(&model, rank, scene->memory, SIZES, sizes, scene->many_types ? types : NULL);
    model.options.first_bucket_bytes = scene->first_bytes;
    model.options.bucket_bytes = scene->bytes;
    model.options.part_bytes = scene->part_bytes;
    for (uint32_t i = 0; i < SIZES; i++) {
        order[i] = i * 3 % SIZES;
    }
    model.options.ready_order = scene->declared ? order : NULL;
    CHECK(cddp_ddp_create(group, model.params, model.count, NULL, 0, &model.options, &ddp) ==
          CDDP_OK);
    CHECK(steps_give_the_mean(ddp, &model, scene, rank, world_size) == 0);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void assert_mean(void **state, struct scene scene)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], mean_rank, &scene, NULL), 0);
    }
}

static void owned_gradients_become_the_mean(void **state)
{
    assert_mean(state, (struct scene){.memory = OWNED});
    assert_mean(state, (struct scene){.memory = OWNED, .many_types = true, .shuffled = true});
}

static void dozens_of_buckets_and_shuffled_orders_change_nothing(void **state)
{
    assert_mean(state, (struct scene){.memory = OWNED, .first_bytes = 1, .bytes = 1});
    assert_mean(state, (struct scene){OWNED, true, 1, 64, true, false, NULL, 0});
    assert_mean(state, (struct scene){MIXED, true, 100, 200, true, false, NULL, 0});
}

static void a_lent_block_is_reduced_where_it_lies(void **state)
{
    assert_mean(state, (struct scene){.memory = FLAT});
    assert_mean(state, (struct scene){FLAT, false, 1, 100, true, false, NULL, 0});
    assert_mean(state, (struct scene){FLAT, false, 1, 100, true, true, NULL, 0});
}

static int parts_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const enum memory *memory = meeting->argument;
    static const size_t elements[] = {5000, 10, 3};
    static const size_t expected[] = {52, 5056, 5056, 5056, 4832};
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct trainer t;

    CHECK(enter(&t, meeting, rank, world_size, *memory, 3, elements, NULL) == 0);
    t.model.options.part_bytes = 6000;
    CHECK(watch(&t) == 0);
    for (int step = 0; step < 3; step++) {
        CHECK(full_backward(&t, rank, step) == 0);
        CHECK(cddp_ddp_wait(t.ddp) == CDDP_OK);
        for (size_t p = 0; p < 3; p++) {
            CHECK(is_mean(t.ddp, &t.model, world_size, step, p));
        }
    }
    CHECK(cddp_ddp_get_stats(t.ddp, &stats) == CDDP_OK && stats.buckets == 5);
    for (size_t b = 0; b < 5; b++) {
        cddp_bucket_stats bucket = {sizeof bucket, 0, 0, 0, 0};

        CHECK(cddp_ddp_get_bucket_stats(t.ddp, b, &bucket) == CDDP_OK);
        CHECK(b == 0 || bucket.params == 1);
        CHECK(b == 0 || *memory == FLAT || bucket.bytes == expected[b]);
        CHECK(bucket.end_ns >= bucket.start_ns);
    }
    return leave(&t);
}

static void a_gradient_in_several_buckets_becomes_the_same_mean(void **state)
{
    for (enum memory memory = OWNED; memory < MEMORIES; memory++) {
        struct scene scene = {.memory = memory,
                              .many_types = memory == OWNED || memory == MIXED,
                              .shuffled = true,
                              .bytes = 300,
                              .part_bytes = 20000};

        assert_int_equal(meet(*state, 3, mean_rank, &scene, NULL), 0);
        assert_int_equal(meet(*state, 2, parts_rank, &memory, NULL), 0);
    }
}

static void scattered_gradients_are_copied_in_and_out(void **state)
{
    assert_mean(state, (struct scene){.memory = SCATTERED});
    assert_mean(state, (struct scene){SCATTERED, true, 64, 512, true, false, NULL, 0});
}

static void a_declared_order_is_kept(void **state)
{
    assert_mean(state, (struct scene){OWNED, true, 64, 512, true, true, NULL, 0});
}

/* Parameters and buffers of rank 0 go to all; frozen ones have no gradient. */
static int broadcast_rank(int rank, int world_size, void *argument)
{
    cddp_group *group = join_group(argument, rank, world_size);
    int64_t counter = rank + 5;
    cddp_param buffer = {.name = "counter", .type = CDDP_I64, .data = &counter};
    struct scene scene = {.memory = OWNED};
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    make_model(&model, rank, OWNED, SIZES, sizes, types);
    model.params[1].flags = CDDP_PARAM_FROZEN;
    model.params[4].flags = CDDP_PARAM_FROZEN;
    CHECK(cddp_ddp_create(group, model.params, model.count, &buffer, 1, NULL, &ddp) == CDDP_OK);
    CHECK(counter == 5);
    for (size_t p = 0; p < model.count; p++) {
        for (size_t i = 0; i < model.elements[p]; i++) {
            double cell = 0;

            put(&cell, types[p], 0, noise(99, 0, (unsigned)p, (unsigned)i));
            CHECK(get(model.params[p].data, types[p], i) == get(&cell, types[p], 0));
        }
    }
    CHECK(cddp_ddp_grad(ddp, 1) == NULL);
    CHECK(cddp_ddp_grad(ddp, model.count) == NULL);
    CHECK(((uintptr_t)cddp_ddp_grad(ddp, 2)) % 64 == 0);
    CHECK(steps_give_the_mean(ddp, &model, &scene, rank, world_size) == 0);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void rank_0s_parameters_and_buffers_are_broadcast(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], broadcast_rank, NULL, NULL), 0);
    }
}

/* Rank r has r * 3 samples; rank 0 none, and garbage instead of a gradient. */
static int weighted_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    bool with_backward = *(const bool *)meeting->argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    static const size_t elements[] = {100, 3, 5000};
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    make_model(&model, rank, MIXED, 3, elements, NULL);
    CHECK(cddp_ddp_create(group, model.params, 3, NULL, 0, NULL, &ddp) == CDDP_OK);
    for (int step = 0; step < 3; step++) {
        cddp_step how = CDDP_STEP_INIT;

        how.samples = (uint64_t)rank * 3;
        CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
        for (size_t p = 3; p-- > 0;) {
            write_gradient(ddp, &model, rank, step, p);
            for (size_t i = 0; rank == 0 && i < elements[p]; i++) {
                ((float *)cddp_ddp_grad(ddp, p))[i] = NAN;
            }
            if (rank > 0 || with_backward) {
                CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
            }
        }
        if (world_size == 1) { /* nobody has samples */
            CHECK(cddp_ddp_wait(ddp) == CDDP_ERR_STATE);
            break;
        }
        CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        for (size_t p = 0; p < 3; p++) {
            for (size_t i = 0; i < elements[p]; i++) {
                double sum = 0;
                double weights = 0;

                for (int r = 1; r < world_size; r++) {
                    sum += r * 3 * gradient(r, step, p, i);
                    weights += r * 3;
                }
                CHECK(fabs(((float *)cddp_ddp_grad(ddp, p))[i] - sum / weights) < 1e-6);
            }
        }
    }
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void weights_make_the_mean_over_samples_and_0_contributes_nothing(void **state)
{
    for (int i = 1; i < WORLD_SIZES; i++) { /* alone nobody would contribute */
        bool with_backward = true;

        assert_int_equal(meet(*state, world_sizes[i], weighted_rank, &with_backward, NULL), 0);
    }
}

static void a_rank_without_samples_may_leave_out_backward(void **state)
{
    for (int i = 1; i < WORLD_SIZES; i++) { /* alone nobody would contribute */
        bool with_backward = false;

        assert_int_equal(meet(*state, world_sizes[i], weighted_rank, &with_backward, NULL), 0);
    }
}

/* What each rank has is its part of the mean already. */
static int sum_rank(int rank, int world_size, void *argument)
{
    static const size_t elements[] = {100, 3, 5000};
    const struct meeting *meeting = argument;
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    cddp_group *group = join_group(argument, rank, world_size);
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    options.hook = *(const cddp_hook_fn *)meeting->argument;
    make_model(&model, rank, MIXED, 3, elements, NULL);
    CHECK(cddp_ddp_create(group, model.params, 3, NULL, 0, &options, &ddp) == CDDP_OK);
    for (int step = 0; step < 3; step++) {
        cddp_step how = CDDP_STEP_INIT;

        how.kind = step != 1 ? CDDP_STEP_SUM : CDDP_STEP_BY_RANKS;
        how.samples = (uint64_t)rank; /* of no meaning */
        CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
        for (size_t p = 3; p-- > 0;) {
            write_gradient(ddp, &model, rank, step, p);
            CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
        }
        CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        for (size_t p = 0; p < 3; p++) {
            for (size_t i = 0; i < elements[p]; i++) {
                double sum = 0;
                double bound = 1e-5;

                for (int r = 0; r < world_size; r++) {
                    sum += gradient(r, step, p, i);
                    bound += options.hook != NULL ? fabs(gradient(r, step, p, i)) / 100 : 0;
                }
                sum /= step == 1 ? world_size : 1;
                CHECK(fabs(((float *)cddp_ddp_grad(ddp, p))[i] - sum) < bound);
            }
        }
    }
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void gradients_that_are_parts_of_the_mean_are_added_up(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        cddp_hook_fn hook = i % 2 != 0 ? cddp_hook_bf16 : NULL;

        assert_int_equal(meet(*state, world_sizes[i], sum_rank, &hook, NULL), 0);
    }
}

/* Two backward passes accumulate, the third reduces; parameter 1 is used in the first one only. */
static int accumulate_rank(int rank, int world_size, void *argument)
{
    cddp_group *group = join_group(argument, rank, world_size);
    static const size_t elements[] = {10, 20, 30, 40};
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    make_model(&model, rank, rank % 2 == 0 ? OWNED : SCATTERED, 4, elements, NULL);
    model.options.part_bytes = world_size % 2 == 0 ? 64 : 0;
    CHECK(cddp_ddp_create(group, model.params, 4, NULL, 0, &model.options, &ddp) == CDDP_OK);
    for (int round = 0; round < 2; round++) {
        cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
        double expected[RANKS_MOST];

        for (int micro = 0; micro < 3; micro++) {
            cddp_step how = CDDP_STEP_INIT;

            how.number = (uint64_t)round;
            how.kind = CDDP_STEP_BY_RANKS;
            how.micro_batch = (uint64_t)(rank * 3 + micro);
            how.micro_batches = (uint64_t)world_size * 3;
            CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
            for (size_t p = 4; p-- > 0;) {
                float *grad = cddp_ddp_grad(ddp, p);

                if (p == 1 && micro > 0) {
                    continue;
                }
                for (size_t i = 0; i < elements[p]; i++) {
                    grad[i] = (float)(rank + 1) * (float)(i + p) + (micro > 0 ? grad[i] : 0.0f);
                }
                CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
            }
            CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        }
        for (size_t p = 0; p < 4; p++) {
            for (size_t i = 0; i < elements[p]; i++) {
                for (int r = 0; r < world_size; r++) {
                    expected[r] = (r + 1) * (double)(i + p) * (p == 1 ? 1 : 3);
                }
                CHECK(((float *)cddp_ddp_grad(ddp, p))[i] ==
                      (float)tree_mean(expected, world_size, CDDP_F32));
            }
        }
        CHECK(cddp_ddp_get_stats(ddp, &stats) == CDDP_OK);
        CHECK(stats.steps == (uint64_t)round + 1);
    }
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void micro_batches_accumulate_until_the_last_one_of_a_step(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], accumulate_rank, NULL, NULL), 0);
    }
}

/* Parameter 0 is used by all, 1 by rank 0 only, 2 by nobody (and holds a NaN pattern). */
static int unused_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    static const size_t elements[] = {1000, 77, 5};
    static const uint32_t odd_bits = 0x7fc12345;
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    make_model(&model, rank, *(const enum memory *)meeting->argument, 3, elements, NULL);
    model.options.allow_unused = true;
    model.options.first_bucket_bytes = 64;
    model.options.part_bytes = world_size % 2 == 0 ? 64 : 0; /* 308 bytes are 5 parts */
    CHECK(cddp_ddp_create(group, model.params, 3, NULL, 0, &model.options, &ddp) == CDDP_OK);
    for (int step = 0; step < 3; step++) {
        for (size_t p = 0; p < 3; p++) {
            write_gradient(ddp, &model, rank, step, p);
        }
        for (size_t i = 0; i < elements[2]; i++) {
            memcpy((uint32_t *)cddp_ddp_grad(ddp, 2) + i, &odd_bits, 4);
        }
        CHECK(begin_mean(ddp, step) == 0);
        if (rank == 0) {
            CHECK(cddp_ddp_grad_ready(ddp, 1) == CDDP_OK);
        }
        CHECK(cddp_ddp_grad_ready(ddp, 0) == CDDP_OK);
        CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        CHECK(is_mean(ddp, &model, world_size, step, 0));
        for (size_t i = 0; i < elements[1]; i++) {
            double values[RANKS_MOST] = {gradient(0, step, 1, i)};

            CHECK(((float *)cddp_ddp_grad(ddp, 1))[i] ==
                  (float)tree_mean(values, world_size, CDDP_F32));
        }
        for (size_t i = 0; i < elements[2]; i++) {
            CHECK(memcmp((uint32_t *)cddp_ddp_grad(ddp, 2) + i, &odd_bits, 4) == 0);
        }
    }
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void unused_parameters_count_as_zero_and_stay_if_nobody_uses_them(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        for (enum memory memory = OWNED; memory < MEMORIES; memory++) {
            assert_int_equal(meet(*state, world_sizes[i], unused_rank, &memory, NULL), 0);
        }
    }
}

/* Each rank has its own order; in memory, the first wait brings rank 0's. */
static int rebuild_rank(int rank, int world_size, void *argument)
{
    cddp_group *group = join_group(argument, rank, world_size);
    static const size_t elements[] = {16, 16, 16, 16, 16, 16};
    static const size_t rank_0s[] = {2, 0, 5, 1, 4, 3};
    struct model model;
    cddp_ddp *ddp;
    char *before[6];

    CHECK(group != NULL);
    make_model(&model, rank, OWNED, 6, elements, NULL);
    model.options.may_move_grads = true;
    CHECK(cddp_ddp_create(group, model.params, 6, NULL, 0, &model.options, &ddp) == CDDP_OK);
    for (size_t p = 0; p < 6; p++) {
        before[p] = cddp_ddp_grad(ddp, p);
        CHECK(((float *)(void *)before[p])[15] == 0);
        CHECK(p == 0 || before[p] + 64 == before[p - 1]); /* reverse registration */
    }
    for (int step = 0; step < 3; step++) {
        CHECK(begin_mean(ddp, step) == 0);
        for (size_t i = 0; i < 6; i++) {
            size_t p = rank == 0 ? rank_0s[i] : (i + (size_t)rank) % 6;

            write_gradient(ddp, &model, rank, step, p);
            CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
        }
        CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        for (size_t i = 0; i < 6; i++) {
            CHECK(is_mean(ddp, &model, world_size, step, i));
            if (world_size == 1) { /* nothing is sent, so nothing moves */
                CHECK(cddp_ddp_grad(ddp, i) == before[i]);
            } else if (i > 0) {
                CHECK((char *)cddp_ddp_grad(ddp, rank_0s[i]) ==
                      (char *)cddp_ddp_grad(ddp, rank_0s[i - 1]) + 64);
            }
        }
    }
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void buckets_are_rebuilt_once_in_rank_0s_order(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], rebuild_rank, NULL, NULL), 0);
    }
}

/* Whether every rank says so. */
static bool on_all_ranks(cddp_group *group, bool here)
{
    unsigned char all = here;

    return cddp_all_reduce(group, &all, &all, 1, CDDP_U8, CDDP_OP_MIN, NULL) == CDDP_OK && all != 0;
}

/* The last rank sleeps before its backward ends, longer and longer, until on any machine it is the
 * slowest, and the others' wait is their wait for it. */
static int stats_rank(int rank, int world_size, void *argument)
{
    cddp_group *group = join_group(argument, rank, world_size);
    static const size_t elements[] = {999, 2000, 3001}; /* there is padding between them */
    static const size_t order[] = {2, 1, 0};
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    uint64_t exposed = 0;
    uint64_t peers = 0;
    int slowest = world_size == 1 ? -1 : world_size - 1;
    bool seen = false;
    int steps = 0;
    struct model model;
    cddp_ddp *ddp;

    CHECK(group != NULL);
    make_model(&model, rank, OWNED, 3, elements, NULL);
    model.options.first_bucket_bytes = 4000;
    model.options.bucket_bytes = 4000;
    model.options.ready_order = order;
    CHECK(cddp_ddp_create(group, model.params, 3, NULL, 0, &model.options, &ddp) == CDDP_OK);
    CHECK(cddp_ddp_get_stats(ddp, &stats) == CDDP_OK);
    CHECK(stats.steps == 0 && stats.slowest_rank == -1);
    for (; steps < 3 || (steps < 12 && !seen); steps++) {
        uint64_t slept_ns = 15000000ULL << steps;

        CHECK(begin_mean(ddp, steps) == 0);
        for (size_t p = 3; p-- > 0;) {
            write_gradient(ddp, &model, rank, steps, p);
            if (p == 0 && rank == world_size - 1) {
                support_sleep_ms(15L << steps);
            }
            CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
        }
        CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
        CHECK(cddp_ddp_get_stats(ddp, &stats) == CDDP_OK);
        exposed += stats.exposed_ns;
        peers += stats.peer_wait_ns;
        CHECK(stats.peer_wait_ns + stats.transfer_ns == stats.exposed_ns);
        seen = stats.slowest_rank == slowest &&
               (rank == world_size - 1) == (stats.peer_wait_ns < slept_ns / 2);
        seen = on_all_ranks(group, seen);
    }
    CHECK(seen);
    CHECK(stats.total_peer_wait_ns == peers && stats.total_transfer_ns == exposed - peers);
    CHECK(world_size > 1 || peers == 0);
    CHECK(stats.steps == (uint64_t)steps);
    CHECK(stats.buckets == 3);
    CHECK(stats.bytes == 24000);
    CHECK(stats.comm_ns > 0);
    CHECK(stats.total_exposed_ns == exposed);
    CHECK(stats.slowest_rank == slowest);
    for (size_t b = 0; b < 3; b++) {
        cddp_bucket_stats bucket = {sizeof bucket, 0, 0, 0, 0};

        CHECK(cddp_ddp_get_bucket_stats(ddp, b, &bucket) == CDDP_OK);
        CHECK(bucket.params == 1);
        CHECK(bucket.bytes == elements[2 - b] * 4);
        CHECK(bucket.end_ns >= bucket.start_ns);
    }
    CHECK(cddp_ddp_get_bucket_stats(ddp, 3,
                                    &(cddp_bucket_stats){sizeof(cddp_bucket_stats), 0, 0, 0, 0}) ==
          CDDP_ERR_ARGUMENT);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free_model(&model);
    return 0;
}

static void statistics_name_costs_and_the_slowest_rank(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], stats_rank, NULL, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(owned_gradients_become_the_mean),
        RANKS_TEST(dozens_of_buckets_and_shuffled_orders_change_nothing),
        RANKS_TEST(a_lent_block_is_reduced_where_it_lies),
        RANKS_TEST(a_gradient_in_several_buckets_becomes_the_same_mean),
        RANKS_TEST(scattered_gradients_are_copied_in_and_out),
        RANKS_TEST(a_declared_order_is_kept),
        RANKS_TEST(rank_0s_parameters_and_buffers_are_broadcast),
        RANKS_TEST(weights_make_the_mean_over_samples_and_0_contributes_nothing),
        RANKS_TEST(a_rank_without_samples_may_leave_out_backward),
        RANKS_TEST(gradients_that_are_parts_of_the_mean_are_added_up),
        RANKS_TEST(micro_batches_accumulate_until_the_last_one_of_a_step),
        RANKS_TEST(unused_parameters_count_as_zero_and_stay_if_nobody_uses_them),
        RANKS_TEST(buckets_are_rebuilt_once_in_rank_0s_order),
        RANKS_TEST(statistics_name_costs_and_the_slowest_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
