/* test_ddp_state.c - what a trainer does around steps: broadcasts after a load, gathering sharded
 * parameters and state to save them, several gradients at once, progress, buckets that stay in
 * place. */
#include "group/engine/handles.h"
#include "group/group.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

#include <cddp/process.h>

static const size_t sizes[] = {1, 70000, 3, 17, 64, 40000, 0, 12};
enum { SIZES = sizeof sizes / sizeof *sizes, FROZEN = 4 };
static const cddp_type types[] = {CDDP_F32, CDDP_F32, CDDP_F64, CDDP_F32,
                                  CDDP_F32, CDDP_F64, CDDP_F32, CDDP_BF16};

/* Element i of parameter or buffer @p p as @p rank has loaded it. */
static double loaded(int rank, size_t p, size_t i)
{
    return noise(7, (unsigned)rank, (unsigned)p, (unsigned)i);
}

static void load(const struct model *model, cddp_ddp *ddp, int rank)
{
    for (size_t p = 0; p < SIZES; p++) {
        for (size_t i = 0; i < sizes[p]; i++) {
            put(cddp_ddp_param(ddp, p), model->params[p].type, i, loaded(rank, p, i));
        }
    }
}

static int params_are_of(const struct model *model, cddp_ddp *ddp, int rank)
{
    for (size_t p = 0; p < SIZES; p++) {
        cddp_type type = model->params[p].type;

        for (size_t i = 0; i < sizes[p]; i++) {
            double cell = 0;

            put(&cell, type, 0, loaded(rank, p, i));
            CHECK(get(cddp_ddp_param(ddp, p), type, i) == get(&cell, type, 0));
        }
    }
    return 0;
}

static int broadcast_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const bool *shard = meeting->argument;
    double running[3] = {rank, rank, rank};
    int64_t count = rank;
    uint32_t both = CDDP_BROADCAST_PARAMS | CDDP_BROADCAST_BUFFERS;
    cddp_param buffers[2] = {
        {.name = "running", .type = CDDP_F64, .dims = 1, .shape = {3}, .data = running},
        {.name = "count", .type = CDDP_I64, .data = &count}};
    int root = world_size - 1;
    struct trainer trainer;
    cddp_ddp *ddp;

    CHECK(enter(&trainer, meeting, rank, world_size, OWNED, SIZES, sizes, types) == 0);
    trainer.model.params[FROZEN].flags = CDDP_PARAM_FROZEN;
    trainer.model.options.shard = *shard;
    CHECK(cddp_ddp_create(trainer.group, trainer.model.params, SIZES, buffers, 2,
                          &trainer.model.options, &ddp) == CDDP_OK);
    trainer.ddp = ddp;
    CHECK(running[2] == 0 && count == 0);
    CHECK(cddp_ddp_param_count(ddp) == SIZES && cddp_ddp_param_name(ddp, SIZES) == NULL);
    CHECK(strcmp(cddp_ddp_param_name(ddp, FROZEN), trainer.model.params[FROZEN].name) == 0);
    running[1] = rank + 0.5;
    count = rank + 10;
    load(&trainer.model, ddp, rank);
    CHECK(cddp_ddp_broadcast(ddp, root, CDDP_BROADCAST_BUFFERS) == CDDP_OK);
    CHECK(running[1] == root + 0.5 && count == root + 10);
    CHECK(params_are_of(&trainer.model, ddp, rank) == 0);
    count = rank;
    CHECK(cddp_ddp_broadcast(ddp, root, CDDP_BROADCAST_PARAMS) == CDDP_OK);
    CHECK(params_are_of(&trainer.model, ddp, root) == 0 && count == rank);
    CHECK(cddp_ddp_broadcast(ddp, world_size, both) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_broadcast(ddp, -1, both) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_broadcast(ddp, 0, 0) == CDDP_ERR_ARGUMENT);
    CHECK(failure_is(cddp_ddp_broadcast(ddp, 0, both + 1), CDDP_ERR_ARGUMENT, -1, -1, ""));
    CHECK(last_error_has("the flags are 0x4: give CDDP_BROADCAST_PARAMS"));
    CHECK(begin_mean(ddp, 0) == 0 && cddp_ddp_grad_ready(ddp, 1) == CDDP_OK);
    CHECK(cddp_ddp_broadcast(ddp, 0, both) == CDDP_ERR_INCOMPLETE);
    CHECK(cddp_ddp_grads_ready(ddp, 2, SIZES - 2) == CDDP_OK);
    CHECK(cddp_ddp_grads_ready(ddp, 0, 1) == CDDP_OK);
    CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
    return leave(&trainer);
}

static void any_rank_may_give_all_its_parameters_and_buffers(void **state)
{
    static const bool sharded[] = {false, true};

    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], broadcast_rank, &sharded[0], NULL), 0);
        assert_int_equal(meet(*state, world_sizes[i], broadcast_rank, &sharded[1], NULL), 0);
    }
}

/* Each rank writes into its spans what loaded(0) says; the caller's memory gets it all. */
static int unshard_rank(int rank, int world_size, void *argument)
{
    float *states[SIZES];
    struct trainer trainer;
    const cddp_span *spans;
    size_t count;
    cddp_ddp *ddp;

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, types) == 0);
    trainer.model.params[FROZEN].flags = CDDP_PARAM_FROZEN;
    trainer.model.options.shard = true;
    trainer.model.options.bucket_bytes = 100000;
    CHECK(watch(&trainer) == 0);
    ddp = trainer.ddp;
    for (size_t p = 0; p < SIZES; p++) {
        states[p] = calloc(sizes[p] + 1, sizeof(float));
    }
    spans = cddp_ddp_spans(ddp, rank, &count);
    for (size_t s = 0; s < count; s++) {
        for (size_t i = spans[s].first; i < spans[s].first + spans[s].count; i++) {
            put(cddp_ddp_param(ddp, spans[s].param), types[spans[s].param], i,
                loaded(0, spans[s].param, i));
            states[spans[s].param][i] = (float)loaded(1, spans[s].param, i);
        }
    }
    CHECK(cddp_ddp_params_start(ddp) == CDDP_OK);
    CHECK(cddp_ddp_unshard(ddp) == CDDP_OK);
    for (size_t p = 0; p < SIZES; p++) {
        const float *own = states[p];
        bool has = false;

        if (p == FROZEN) {
            CHECK(cddp_ddp_gather_state(ddp, p, own, CDDP_F32, states[p]) == CDDP_ERR_ARGUMENT);
            continue;
        }
        for (size_t s = 0; s < count; s++) {
            if (spans[s].param == p) {
                own += spans[s].first;
                has = true;
            }
        }
        CHECK(cddp_ddp_gather_state(ddp, p, has ? own : NULL, CDDP_F32, states[p]) == CDDP_OK);
        for (size_t i = 0; i < sizes[p]; i++) {
            double cell = 0;

            put(&cell, types[p], 0, loaded(0, p, i));
            CHECK(get(trainer.model.params[p].data, types[p], i) == get(&cell, types[p], 0));
            CHECK(states[p][i] == (float)loaded(1, p, i));
        }
    }
    CHECK(cddp_ddp_gather_state(ddp, SIZES, NULL, CDDP_F32, states[0]) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_gather_state(ddp, 1, states[1], CDDP_F32, NULL) == CDDP_ERR_ARGUMENT);
    for (size_t p = 0; p < SIZES; p++) {
        free(states[p]);
    }
    return leave(&trainer);
}

static void what_is_sharded_becomes_whole_where_it_was(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], unshard_rank, NULL, NULL), 0);
    }
}

static int at_once_rank(int rank, int world_size, void *argument)
{
    struct trainer trainer;

    CHECK(enter(&trainer, argument, rank, world_size, MIXED, SIZES, sizes, types) == 0);
    trainer.model.params[FROZEN].flags = CDDP_PARAM_FROZEN;
    trainer.model.options.bucket_bytes = 1000;
    CHECK(watch(&trainer) == 0);
    CHECK(cddp_ddp_unshard(trainer.ddp) == CDDP_OK); /* they are there already */
    CHECK(cddp_ddp_progress(trainer.ddp) == CDDP_OK);
    for (int step = 0; step < 3; step++) {
        for (size_t p = 0; p < SIZES; p++) {
            if (p != FROZEN) {
                write_gradient(trainer.ddp, &trainer.model, rank, step, p);
            }
        }
        CHECK(begin_mean(trainer.ddp, step) == 0);
        CHECK(cddp_ddp_grads_ready(trainer.ddp, 3, SIZES - 3) == CDDP_OK);
        CHECK(cddp_ddp_progress(trainer.ddp) == CDDP_OK);
        CHECK(cddp_ddp_grads_ready(trainer.ddp, 1, SIZES) == CDDP_ERR_ARGUMENT);
        CHECK(cddp_ddp_grads_ready(trainer.ddp, 0, 0) == CDDP_OK);
        CHECK(cddp_ddp_grads_ready(trainer.ddp, 0, 3) == CDDP_OK);
        CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
        for (size_t p = 0; p < SIZES; p++) {
            CHECK(p == FROZEN || is_mean(trainer.ddp, &trainer.model, world_size, step, p));
        }
    }
    CHECK(begin_mean(trainer.ddp, 3) == 0);
    CHECK(cddp_ddp_grads_ready(trainer.ddp, 0, 3) == CDDP_OK);
    CHECK(cddp_ddp_grads_ready(trainer.ddp, 2, 3) == CDDP_ERR_STATE); /* 2 was ready */
    CHECK(last_error_has("parameter 2"));
    cddp_ddp_destroy(trainer.ddp);
    trainer.ddp = NULL;
    return leave(&trainer);
}

static void gradients_may_be_ready_many_at_once(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], at_once_rank, NULL, NULL), 0);
    }
}

/* Buckets are reduced in no call but progress: the statistics show an end before wait begins. */
static int progress_rank(int rank, int world_size, void *argument)
{
    cddp_bucket_stats bucket = {.struct_size = sizeof bucket};
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct trainer trainer;
    cddp_work *work;
    bool done = false;
    uint64_t last_end;

    setenv("CDDP_COMM_THREAD", "0", 1);
    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(full_backward(&trainer, rank, 0) == 0);
    /* behind the buckets, so once it is done they are, too; only progress moves them */
    CHECK(cddp_barrier(trainer.group, &work) == CDDP_OK);
    for (int i = 0; i < 4000 && !done; i++) {
        CHECK(cddp_ddp_progress(trainer.ddp) == CDDP_OK);
        support_sleep_ms(i < 100 ? 0 : 50);
        done = work->done == 1;
    }
    CHECK(done);
    cddp_work_destroy(work);
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    CHECK(cddp_ddp_get_stats(trainer.ddp, &stats) == CDDP_OK);
    CHECK(cddp_ddp_get_bucket_stats(trainer.ddp, stats.buckets - 1, &bucket) == CDDP_OK);
    last_end = bucket.end_ns;
    CHECK(last_end > 0);
    CHECK(is_mean(trainer.ddp, &trainer.model, world_size, 0, 1));
    return leave(&trainer);
}

static void progress_alone_moves_the_buckets(void **state)
{
    assert_int_equal(meet(*state, 2, progress_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 3, progress_rank, NULL, NULL), 0);
}

struct move_scene {
    enum memory memory;
    bool may_move;
    bool one_cannot; /* rank 1's gradients are cddp's, so that only they could move */
    bool moves;
    bool rebuilds;
};

static int advice;

static void count_advice(void *state, const cddp_log_record *record)
{
    (void)state;
    advice += record->level == CDDP_LOG_INFO &&
              strstr(record->line, "options.may_move_grads allows it") != NULL;
}

static int move_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct move_scene *scene = meeting->argument;
    cddp_bucket_stats first = CDDP_BUCKET_STATS_INIT;
    struct trainer trainer;
    void *before[SIZES];
    bool moved = false;

    cddp_log_set_level(CDDP_LOG_INFO);
    cddp_log_set_sink(count_advice, NULL);
    CHECK(enter(&trainer, argument, rank, world_size,
                scene->one_cannot && rank == 1 ? OWNED : scene->memory, SIZES, sizes, NULL) == 0);
    trainer.model.options.may_move_grads = scene->may_move;
    trainer.model.options.bucket_bytes = 1000;
    CHECK(watch(&trainer) == 0);
    for (size_t p = 0; p < SIZES; p++) {
        before[p] = cddp_ddp_grad(trainer.ddp, p);
    }
    for (int step = 0; step < 2; step++) {
        CHECK(begin_mean(trainer.ddp, step) == 0);
        for (size_t p = 0; p < SIZES; p++) { /* the other way round */
            write_gradient(trainer.ddp, &trainer.model, rank, step, p);
            CHECK(cddp_ddp_grad_ready(trainer.ddp, p) == CDDP_OK);
        }
        CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
        for (size_t p = 0; p < SIZES; p++) {
            moved = moved || before[p] != cddp_ddp_grad(trainer.ddp, p);
            CHECK(is_mean(trainer.ddp, &trainer.model, world_size, step, p));
        }
    }
    CHECK(moved == scene->moves);
    CHECK(cddp_ddp_get_bucket_stats(trainer.ddp, 0, &first) == CDDP_OK);
    CHECK((first.bytes > sizes[1] * 4) == scene->rebuilds); /* parameters 0 and 1 come first */
    CHECK(advice == (rank == 0 && !scene->rebuilds));
    return leave(&trainer);
}

static void gradients_move_only_if_they_may(void **state)
{
    static const struct move_scene scenes[] = {
        {OWNED, false, false, false, false},    {OWNED, true, false, true, true},
        {MIXED, false, false, false, false},    {SCATTERED, false, false, false, true},
        {SCATTERED, false, true, false, false},
    };

    for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
        assert_int_equal(meet(*state, 3, move_rank, (void *)(uintptr_t)&scenes[s], NULL), 0);
    }
}

/* One rank's own gradients are neither copied nor moved, whatever they were. */
static int alone_rank(int rank, int world_size, void *argument)
{
    static const size_t large[] = {3, 1 << 20};
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct trainer trainer;
    void *own;

    CHECK(enter(&trainer, argument, rank, world_size, SCATTERED, 2, large, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    own = cddp_ddp_grad(trainer.ddp, 1);
    CHECK(own == trainer.model.params[1].grad);
    for (int step = 0; step < 3; step++) {
        CHECK(full_backward(&trainer, rank, step) == 0);
        CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
        CHECK(cddp_ddp_grad(trainer.ddp, 1) == own);
        CHECK(is_mean(trainer.ddp, &trainer.model, 1, step, 1));
    }
    CHECK(cddp_ddp_get_stats(trainer.ddp, &stats) == CDDP_OK && stats.steps == 3);
    return leave(&trainer);
}

static void a_lone_rank_keeps_its_gradients_where_they_are(void **state)
{
    assert_int_equal(meet(*state, 1, alone_rank, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(any_rank_may_give_all_its_parameters_and_buffers),
        RANKS_TEST(what_is_sharded_becomes_whole_where_it_was),
        RANKS_TEST(gradients_may_be_ready_many_at_once),
        RANKS_TEST(progress_alone_moves_the_buckets),
        RANKS_TEST(gradients_move_only_if_they_may),
        RANKS_TEST(a_lone_rank_keeps_its_gradients_where_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
