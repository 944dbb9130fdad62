/* test_ddp_step.c - a step of several micro-batches, which ranks share as cddp_share_of() says: the
 * result is that of one sum over all of them, and a rank without any follows. */
#include "support/ddp_ranks.h"
#include "support/failure.h"

#include <cddp/sampler.h>

static const size_t sizes[] = {5, 3000, 1, 70};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct scene {
    enum memory memory;
    cddp_step_kind kind;
    int micro_batches;
    bool lazy; /* the last micro-batch of each rank has no backward */
};

/* Micro-batch m has so many samples. */
static int samples_of(int m)
{
    return 1 + m % 3;
}

static int samples_of_share(cddp_share share)
{
    int samples = 0;

    for (uint64_t m = share.first; m < share.first + share.count; m++) {
        samples += samples_of((int)m);
    }
    return samples;
}

static bool has_backward(const struct scene *scene, cddp_share share, uint64_t m)
{
    return !scene->lazy || m == share.first || m + 1 < share.first + share.count;
}

/* What rank @p rank has after its micro-batches: a mean over its samples; for a sum, its part of
 * that over all. */
static double own(const struct scene *scene, int rank, int world_size, int step, size_t p, size_t i)
{
    uint64_t all = (uint64_t)scene->micro_batches;
    cddp_share share = cddp_share_of(0, all, rank, world_size);
    int samples = samples_of_share(scene->kind == CDDP_STEP_SUM ? (cddp_share){0, all} : share);
    double sum = 0;

    for (uint64_t m = share.first; m < share.first + share.count; m++) {
        sum += has_backward(scene, share, m) ? samples_of((int)m) * gradient((int)m, step, p, i)
                                             : 0;
    }
    return share.count > 0 ? sum / samples : 0;
}

/* The reference: what the kind says of what all ranks have. */
static double expected(const struct scene *scene, int world_size, int step, size_t p, size_t i)
{
    double sum = 0;
    double weights = 0;

    for (int r = 0; r < world_size; r++) {
        cddp_share share = cddp_share_of(0, (uint64_t)scene->micro_batches, r, world_size);
        double weight = scene->kind == CDDP_STEP_BY_SAMPLES ? samples_of_share(share) : 1;

        sum += weight * own(scene, r, world_size, step, p, i);
        weights += weight;
    }
    return scene->kind == CDDP_STEP_SUM ? sum : sum / weights;
}

/* Backward of micro-batch @p m, which adds to the gradients; @p scale: of its mean. */
static int add_backward(const struct trainer *trainer, int m, int step, double scale)
{
    for (size_t p = SIZES; p-- > 0;) {
        float *grad = cddp_ddp_grad(trainer->ddp, p);

        for (size_t i = 0; i < sizes[p]; i++) {
            grad[i] += (float)(scale * gradient(m, step, p, i));
        }
        CHECK(cddp_ddp_grad_ready(trainer->ddp, p) == CDDP_OK);
    }
    return 0;
}

static int run_share(const struct trainer *trainer, const struct scene *scene, cddp_share share,
                     int step)
{
    uint64_t all = (uint64_t)scene->micro_batches;
    int samples = samples_of_share(scene->kind == CDDP_STEP_SUM ? (cddp_share){0, all} : share);
    cddp_step how = CDDP_STEP_INIT;

    how.number = 10 + (uint64_t)step;
    how.kind = scene->kind;
    how.micro_batches = all;
    for (uint64_t m = share.first; m < share.first + share.count; m++) {
        how.micro_batch = m;
        how.samples = m + 1 < share.first + share.count ? 999 : (uint64_t)samples; /* read last */
        CHECK(cddp_ddp_begin(trainer->ddp, &how) == CDDP_OK);
        CHECK(!has_backward(scene, share, m) ||
              add_backward(trainer, (int)m, step, samples_of((int)m) / (double)samples) == 0);
        CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
    }
    return 0;
}

static int follow(const struct trainer *trainer, const struct scene *scene, int step)
{
    cddp_step how = CDDP_STEP_INIT;
    bool all = true;

    how.kind = scene->kind;
    if (step == 0 && scene->kind != CDDP_STEP_BY_SAMPLES) {
        CHECK(cddp_ddp_begin(trainer->ddp, &how) == CDDP_OK);
    }
    CHECK(cddp_ddp_follow(trainer->ddp, &all) == CDDP_OK && !all);
    return 0;
}

static int share_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_share share = cddp_share_of(0, (uint64_t)scene->micro_batches, rank, world_size);
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct trainer trainer;

    CHECK(enter(&trainer, meeting, rank, world_size, scene->memory, SIZES, sizes, NULL) == 0);
    trainer.model.options.bucket_bytes = 4096;
    CHECK(watch(&trainer) == 0);
    for (int step = 0; step < 3; step++) {
        for (size_t p = 0; p < SIZES; p++) {
            memset(cddp_ddp_grad(trainer.ddp, p), 0, sizes[p] * sizeof(float));
        }
        CHECK((share.count > 0 ? run_share(&trainer, scene, share, step)
                               : follow(&trainer, scene, step)) == 0);
        for (size_t p = 0; p < SIZES; p++) {
            for (size_t i = 0; i < sizes[p]; i++) {
                double is = ((const float *)cddp_ddp_grad(trainer.ddp, p))[i];

                CHECK(fabs(is - expected(scene, world_size, step, p, i)) < 1e-6);
            }
        }
    }
    CHECK(cddp_ddp_get_stats(trainer.ddp, &stats) == CDDP_OK && stats.steps == 3);
    return leave(&trainer);
}

static void the_micro_batches_of_all_ranks_give_one_mean(void **state)
{
    static const int counts[] = {1, 2, 3, 4, 5, 7};

    for (int world_size = 1; world_size <= 3; world_size++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int kind = 0; kind < 3; kind++) {
                struct scene scene = {(enum memory)((c + (size_t)kind) % MEMORIES),
                                      (cddp_step_kind)kind, counts[c], false};

                assert_int_equal(meet(*state, world_size, share_rank, &scene, NULL), 0);
            }
        }
    }
}

static void a_later_micro_batch_needs_no_backward(void **state)
{
    for (enum memory memory = OWNED; memory < MEMORIES; memory++) {
        struct scene scene = {memory, CDDP_STEP_BY_SAMPLES, 7, true};

        assert_int_equal(meet(*state, 3, share_rank, &scene, NULL), 0);
    }
}

/* Whether a begin with these numbers is refused with @p text. */
static bool refuses(cddp_ddp *ddp, uint64_t number, uint64_t micro_batch, uint64_t micro_batches,
                    const char *text)
{
    cddp_step how = CDDP_STEP_INIT;

    how.number = number;
    how.samples = 1;
    how.micro_batch = micro_batch;
    how.micro_batches = micro_batches;
    return cddp_ddp_begin(ddp, &how) == CDDP_ERR_ARGUMENT && last_error_has(text);
}

/* Four micro-batches of step 5 on two ranks: each has two. */
static int order_rank(int rank, int world_size, void *argument)
{
    struct scene scene = {OWNED, CDDP_STEP_BY_SAMPLES, 4, false};
    cddp_share share = cddp_share_of(0, 4, rank, world_size);
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;
    bool all = true;

    CHECK(enter(&trainer, argument, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(refuses(trainer.ddp, 5, share.first + 1, 4,
                  rank == 0 ? "step 5: micro-batch 1 of 4, but rank 0 has 0 to 1 (see "
                              "cddp_share_of()), and 0 comes next"
                            : "rank 1 has 2 to 3"));
    CHECK(refuses(trainer.ddp, 5, 2 - share.first, 4, "comes next")); /* the other rank's */
    CHECK(refuses(trainer.ddp, 5, 4, 4, "micro-batch 4 of 4"));
    CHECK(refuses(trainer.ddp, 5, 1, 0, "micro_batch is 1, but micro_batches 0"));
    CHECK(rank == 0 || refuses(trainer.ddp, 5, 0, 1,
                               "1 micro-batches for 2 ranks, so rank 1 has none: it calls "
                               "cddp_ddp_follow() instead"));
    how.number = 5;
    how.micro_batch = share.first;
    how.micro_batches = 4;
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_OK);
    CHECK(add_backward(&trainer, (int)share.first, 5, 0.5) == 0);
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    CHECK(refuses(trainer.ddp, 5, share.first, 4, "comes next")); /* again */
    CHECK(refuses(trainer.ddp, 6, share.first + 1, 4, "step 6 (kind 0, 4 micro-batches) in the "));
    CHECK(refuses(trainer.ddp, 5, share.first + 1, 6, "of step 5 (kind 0, 4 micro-batches), of"));
    CHECK(refuses(trainer.ddp, 5, 0, 0, "step 5"));
    CHECK(cddp_ddp_follow(trainer.ddp, &all) == CDDP_ERR_INCOMPLETE && all);
    CHECK(last_error_has("has begun 1 of its micro-batches"));
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_STATE); /* none of which has begun anything */
    how.micro_batch++;
    how.samples = 2;
    CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_OK);
    CHECK(add_backward(&trainer, (int)share.first + 1, 5, 0.5) == 0);
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    for (size_t i = 0; i < sizes[1]; i++) {
        double mean = 0;

        for (int m = 0; m < scene.micro_batches; m++) {
            mean += gradient(m, 5, 1, i) / scene.micro_batches;
        }
        CHECK(fabs(((const float *)cddp_ddp_grad(trainer.ddp, 1))[i] - mean) < 1e-6);
    }
    return leave(&trainer);
}

static void micro_batches_out_of_order_are_refused_and_harmless(void **state)
{
    assert_int_equal(meet(*state, 2, order_rank, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(the_micro_batches_of_all_ranks_give_one_mean),
        RANKS_TEST(a_later_micro_batch_needs_no_backward),
        RANKS_TEST(micro_batches_out_of_order_are_refused_and_harmless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
