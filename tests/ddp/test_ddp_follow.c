/* test_ddp_follow.c - ranks that run out of data early take part in the other ranks' steps: the
 * gradients are still the mean on all ranks, and all ranks finish at the same time. */
#include "support/ddp_ranks.h"
#include "support/failure.h"

static const size_t sizes[] = {5, 3000, 1, 70};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct scene {
    enum memory memory;
    cddp_step_kind kind;
    bool shard;
    bool unused; /* parameter 2 is never used */
};

/* Rank r has so many steps; some have none. */
static int steps_of(int rank, int epoch)
{
    return (rank * 2 + 1 + epoch) % 4;
}

static int most_steps(int world_size, int epoch)
{
    int most = 0;

    for (int r = 0; r < world_size; r++) {
        most = steps_of(r, epoch) > most ? steps_of(r, epoch) : most;
    }
    return most;
}

static int samples_of(int rank, int step)
{
    return 1 + rank + step;
}

/* What a step must give: contributions of those that are not through. */
static double expected(const struct scene *scene, int world_size, int epoch, int step, size_t p,
                       size_t i)
{
    double sum = 0;
    double weights = 0;

    for (int r = 0; r < world_size; r++) {
        if (step < steps_of(r, epoch)) {
            double weight = scene->kind == CDDP_STEP_BY_SAMPLES ? samples_of(r, step) : 1;

            sum += weight * gradient(r, 10 * epoch + step, p, i);
            weights += weight;
        }
    }
    return scene->kind == CDDP_STEP_SUM
               ? sum
               : sum / (scene->kind == CDDP_STEP_BY_SAMPLES ? weights : world_size);
}

static int gradients_are(const struct trainer *trainer, const struct scene *scene, int world_size,
                         int epoch, int step)
{
    int rank = cddp_group_rank(trainer->group);
    size_t count = SIZES;
    const cddp_span *spans = scene->shard ? cddp_ddp_spans(trainer->ddp, rank, &count) : NULL;

    for (size_t s = 0; s < count; s++) {
        size_t p = scene->shard ? spans[s].param : s;
        size_t first = scene->shard ? spans[s].first : 0;
        size_t end = scene->shard ? first + spans[s].count : sizes[p];

        for (size_t i = first; i < end; i++) {
            double is = get(cddp_ddp_grad(trainer->ddp, p), CDDP_F32, i);
            double wanted = scene->unused && p == 2
                                ? 42
                                : expected(scene, world_size, epoch, step, p, i);

            if (fabs(is - wanted) > 1e-6) {
                fprintf(stderr, "rank %d, epoch %d, step %d, p%zu[%zu]: %g, not %g\n", rank, epoch,
                        step, p, i, is, wanted);
                return 0;
            }
        }
    }
    return 1;
}

static int begin(cddp_ddp *ddp, const struct scene *scene, int rank, int step)
{
    cddp_step how = CDDP_STEP_INIT;

    how.number = (uint64_t)step;
    how.samples = (uint64_t)samples_of(rank, step);
    how.kind = scene->kind;
    CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
    return 0;
}

static int backward(const struct trainer *trainer, const struct scene *scene, int rank, int step)
{
    for (size_t p = SIZES; p-- > 0;) {
        if (!(scene->unused && p == 2)) {
            write_gradient(trainer->ddp, &trainer->model, rank, step, p);
            CHECK(cddp_ddp_grad_ready(trainer->ddp, p) == CDDP_OK);
        }
    }
    return 0;
}

static int epoch_of(const struct trainer *trainer, const struct scene *scene, int rank,
                    int world_size, int epoch)
{
    int most = most_steps(world_size, epoch);
    bool all = false;
    int step;

    for (step = 0; step < steps_of(rank, epoch); step++) {
        CHECK(begin(trainer->ddp, scene, rank, step) == 0);
        CHECK(backward(trainer, scene, rank, 10 * epoch + step) == 0);
        CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
        CHECK(gradients_are(trainer, scene, world_size, epoch, step));
        CHECK(!scene->shard || cddp_ddp_params_start(trainer->ddp) == CDDP_OK);
    }
    for (;; step++) {
        CHECK(step <= most);
        if (step == 0) { /* this rank does not know the kind from a step before */
            CHECK(begin(trainer->ddp, scene, rank, step) == 0);
        }
        CHECK(cddp_ddp_follow(trainer->ddp, &all) == CDDP_OK);
        CHECK(all == (step == most));
        if (all) {
            return 0;
        }
        CHECK(gradients_are(trainer, scene, world_size, epoch, step));
        CHECK(!scene->shard || cddp_ddp_params_start(trainer->ddp) == CDDP_OK);
    }
}

static int join_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    struct trainer trainer;

    CHECK(enter(&trainer, meeting, rank, world_size, scene->memory, SIZES, sizes, NULL) == 0);
    trainer.model.options.bucket_bytes = 4096;
    trainer.model.options.shard = scene->shard;
    trainer.model.options.allow_unused = scene->unused;
    CHECK(watch(&trainer) == 0);
    if (scene->unused) {
        *(float *)cddp_ddp_grad(trainer.ddp, 2) = 42;
    }
    for (int epoch = 0; epoch < 3; epoch++) {
        CHECK(epoch_of(&trainer, scene, rank, world_size, epoch) == 0);
    }
    return leave(&trainer);
}

static void ranks_that_are_through_take_part_until_all_are(void **state)
{
    static const struct scene scenes[] = {
        {.memory = OWNED, .kind = CDDP_STEP_BY_SAMPLES},
        {.memory = OWNED, .kind = CDDP_STEP_BY_RANKS},
        {.memory = SCATTERED, .kind = CDDP_STEP_BY_SAMPLES},
        {.memory = SCATTERED, .kind = CDDP_STEP_BY_RANKS},
        {.memory = FLAT, .kind = CDDP_STEP_SUM},
        {.memory = OWNED, .kind = CDDP_STEP_BY_RANKS, .shard = true},
        {.memory = OWNED, .kind = CDDP_STEP_BY_SAMPLES, .shard = true},
        {.memory = OWNED, .kind = CDDP_STEP_BY_RANKS, .unused = true},
        {.memory = SCATTERED, .kind = CDDP_STEP_BY_SAMPLES, .unused = true},
    };

    for (size_t w = 0; w < WORLD_SIZES; w++) {
        for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
            assert_int_equal(meet(*state, world_sizes[w], join_rank, &scenes[s], NULL), 0);
        }
    }
}

/* A follower takes the step for one as its last one was: here it was not. */
static int other_kind_rank(int rank, int world_size, void *argument)
{
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;
    cddp_status status;
    bool all = true;

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(cddp_ddp_follow(trainer.ddp, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_follow(NULL, &all) == CDDP_ERR_ARGUMENT);
    CHECK(full_backward(&trainer, rank, 0) == 0);
    CHECK(failure_is(cddp_ddp_follow(trainer.ddp, &all), CDDP_ERR_INCOMPLETE, -1, -1, ""));
    CHECK(last_error_has("step 0: 4 of 4"));
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    how.number = 1;
    how.samples = 3;
    if (rank == 0) {
        status = cddp_ddp_begin(trainer.ddp, &how);
        status = status == CDDP_OK ? cddp_ddp_grads_ready(trainer.ddp, 0, SIZES) : status;
        status = status == CDDP_OK ? cddp_ddp_wait(trainer.ddp) : status;
    } else {
        status = cddp_ddp_follow(trainer.ddp, &all);
    }
    CHECK(status == CDDP_ERR_MISMATCH && all);
    CHECK(last_error_has("step 1")); /* of its bucket, or of its end */
    CHECK(last_error_has("rank 1: all_reduce mean"));
    return leave(&trainer);
}

static void a_step_of_another_kind_is_not_followed(void **state)
{
    assert_int_equal(meet(*state, 2, other_kind_rank, NULL, NULL), 0);
}

/* Who has a step more than the others, and how those end. */
struct early {
    bool all_but_last;
    bool exits;
};

/* Says what helps, once. */
static bool advises(const char *text)
{
    static const char advice[] = "; if its data ended before the others', let each rank call "
                                 "cddp_ddp_follow() after its last step";
    const char *first = strstr(text, advice);

    return strstr(text, "has left the group") != NULL && first != NULL &&
           strstr(first + 1, advice) == NULL;
}

static int leave_early_rank(int rank, int world_size, void *argument)
{
    const struct early *early = ((const struct meeting *)argument)->argument;
    struct trainer trainer;

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(full_backward(&trainer, rank, 0) == 0);
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    if (early->all_but_last ? rank < world_size - 1 : rank == 0) {
        CHECK(begin_mean(trainer.ddp, 1) == 0);
        for (size_t i = trainer.model.count; i-- > 0;) {
            write_gradient(trainer.ddp, &trainer.model, rank, 1, i);
            (void)!cddp_ddp_grad_ready(trainer.ddp, i); /* may fail already */
        }
        CHECK(cddp_ddp_wait(trainer.ddp) != CDDP_OK);
        CHECK(advises(cddp_last_error()));
        CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_BROKEN);
        CHECK(advises(cddp_last_error()));
    } else if (early->exits) {
        exit(0);
    }
    cddp_ddp_destroy(trainer.ddp);
    cddp_group_destroy(trainer.group);
    free_model(&trainer.model);
    return 0;
}

static void a_rank_whose_data_ended_is_told_with_what_helps(void **state)
{
    for (int i = 0; i < 4; i++) {
        const struct early early = {i % 2 != 0, i / 2 != 0};

        assert_int_equal(meet(*state, 2, leave_early_rank, &early, NULL), 0);
        assert_int_equal(meet(*state, 3, leave_early_rank, &early, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(ranks_that_are_through_take_part_until_all_are),
        RANKS_TEST(a_step_of_another_kind_is_not_followed),
        RANKS_TEST(a_rank_whose_data_ended_is_told_with_what_helps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
