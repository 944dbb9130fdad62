/* test_ddp_moved.c - a sharded optimizer's plan follows the order in which the gradients of the
 * first backward arrive, if the caller allows it. Each rank is on its own "host", since sizes are
 * chosen only for a measured link. */
#include "ddp/copies.h"
#include "ddp/ddp.h"
#include "support/group.h"
#include "support/test.h"

enum { RANKS = 3, PARAMS = 6, STEPS = 3 };

static const size_t counts[PARAMS] = {1000, 70000, 3, 300000, 20000, 500};

struct job {
    char store[256];
    bool follows;
    bool keeps; /* cddpi_ddp_keep_plan() */
    bool own_grads;
    cddp_hook_fn hook;
};

/* What rank @p rank contributes to element @p i of parameter @p p in a step: its mean is exact. */
static float part(int rank, int step, size_t p, size_t i)
{
    return (float)((int)(i % 50 + p * 7 + (size_t)step) + (rank - 1) * 2);
}

static float mean(int step, size_t p, size_t i)
{
    return part(1, step, p, i);
}

static float initial(size_t p, size_t i)
{
    return (float)(i % 1000 + p * 10000);
}

/* In the order of registration, which is not the one that is assumed. */
static int backward(cddp_ddp *ddp, int rank, int step)
{
    cddp_step how = CDDP_STEP_INIT;

    how.kind = CDDP_STEP_BY_RANKS;
    CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
    for (size_t p = 0; p < PARAMS; p++) {
        float *grad = cddp_ddp_grad(ddp, p);

        for (size_t i = 0; i < counts[p]; i++) {
            grad[i] = part(rank, step, p, i);
        }
        CHECK(cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
    }
    CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
    return 0;
}

/* Add the mean gradient to this rank's spans. */
static int update(cddp_ddp *ddp, int rank, int step)
{
    size_t count;
    const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);

    for (size_t s = 0; s < count; s++) {
        const float *grad = cddp_ddp_grad(ddp, spans[s].param);
        float *data = cddp_ddp_param(ddp, spans[s].param);

        for (size_t i = spans[s].first; i < spans[s].first + spans[s].count; i++) {
            CHECK(grad[i] == mean(step, spans[s].param, i));
            data[i] += grad[i];
        }
    }
    CHECK(cddp_ddp_params_start(ddp) == CDDP_OK);
    CHECK(cddp_ddp_params_wait(ddp) == CDDP_OK);
    return 0;
}

static int check_params(cddp_ddp *ddp, int steps)
{
    for (size_t p = 0; p < PARAMS; p++) {
        const float *data = cddp_ddp_param(ddp, p);

        for (size_t i = 0; i < counts[p]; i++) {
            float expected = initial(p, i);

            for (int step = 0; step < steps; step++) {
                expected += mean(step, p, i);
            }
            CHECK(data[i] == expected);
        }
    }
    return 0;
}

/* Each element of each parameter is in one rank's span. */
static int check_spans(cddp_ddp *ddp)
{
    size_t covered[PARAMS] = {0};

    for (int rank = 0; rank < RANKS; rank++) {
        size_t count;
        const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);

        for (size_t s = 0; s < count; s++) {
            CHECK(spans[s].first == covered[spans[s].param]);
            covered[spans[s].param] += spans[s].count;
        }
    }
    for (size_t p = 0; p < PARAMS; p++) {
        CHECK(covered[p] == counts[p]);
    }
    return 0;
}

static int create(const struct job *job, cddp_group *group, float **memory, cddp_ddp **out)
{
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e", "f"};
    static const size_t none[PARAMS] = {0};
    struct cddpi_ddp_copies copies = {CDDP_BF16, none, job->follows, false};
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    cddp_param params[PARAMS] = {{0}};

    for (size_t p = 0; p < PARAMS; p++) {
        params[p].name = names[p];
        params[p].dims = 1;
        params[p].shape[0] = (int64_t)counts[p];
        params[p].type = CDDP_F32;
        params[p].data = memory[p];
        params[p].grad = job->own_grads ? memory[p] + counts[p] : NULL;
        for (size_t i = 0; i < counts[p]; i++) {
            memory[p][i] = initial(p, i);
        }
    }
    options.shard = true;
    options.may_move_grads = true;
    options.hook = job->hook;
    CHECK(cddpi_ddp_create_with_copies(group, params, PARAMS, NULL, 0, &options, &copies, out) ==
          CDDP_OK);
    return 0;
}

static int follow_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    bool moves = job->follows && !job->keeps;
    float *memory[PARAMS];
    cddp_group *group;
    cddp_ddp *ddp = NULL;

    (void)world_size;
    for (size_t p = 0; p < PARAMS; p++) {
        memory[p] = calloc(2 * counts[p], sizeof **memory);
        CHECK(memory[p] != NULL);
    }
    CHECK(group_join_on(rank, job->store, rank, RANKS, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(create(job, group, memory, &ddp) == 0);
    CHECK(ddp->planning.chooses_sizes && check_spans(ddp) == 0);
    if (job->keeps) {
        cddpi_ddp_keep_plan(ddp);
    }
    for (int step = 0; step < STEPS; step++) {
        CHECK(backward(ddp, rank, step) == 0);
        CHECK(cddpi_ddp_has_moved(ddp) == (step == 0 && moves));
        CHECK(check_spans(ddp) == 0 && check_params(ddp, step) == 0);
        CHECK(update(ddp, rank, step) == 0);
    }
    CHECK(check_params(ddp, STEPS) == 0);
    /* the first that is ready lies first; as long as nobody knows, the last that was registered */
    CHECK(ddp->layout.plan->offsets[moves ? 0 : PARAMS - 1] == 0);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    for (size_t p = 0; p < PARAMS; p++) {
        free(memory[p]);
    }
    return 0;
}

static void run(struct job job)
{
    char *folder = support_mkdtemp();

    snprintf(job.store, sizeof job.store, "file://%.200s/store", folder);
    assert_int_equal(run_ranks(RANKS, follow_rank, &job), 0);
    support_rmdir(folder);
}

static void a_sharded_plan_follows_the_first_backward_where_the_caller_lets_it(void **state)
{
    (void)state;
    run((struct job){.follows = true});
    run((struct job){.follows = true, .hook = cddp_hook_bf16});
    run((struct job){.follows = true, .own_grads = true});
}

static void a_sharded_plan_stays_where_state_depends_on_it(void **state)
{
    (void)state;
    run((struct job){.follows = false});
    run((struct job){.follows = true, .keeps = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sharded_plan_follows_the_first_backward_where_the_caller_lets_it),
        cmocka_unit_test(a_sharded_plan_stays_where_state_depends_on_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
