/* test_pipeline_schedule.c - the order of a pipeline's actions, simulated with a counting clock: no
 * rank waits for ever, and the bubble and the memory match the papers. */
#include "base/alloc.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "support/failure.h"
#include "support/test.h"

#include <string.h>

/* What passes take: a backward makes the gradients of parameters, too, unless they come later. */
enum { RANKS = 8, CHUNKS = 4, MICRO = 64, FORWARD = 1, BACKWARD = 2, INPUTS = 1, WEIGHTS = 1 };

struct simulation {
    struct cddpi_pipeline_shape shape;
    struct cddpi_pipeline_action *actions[RANKS];
    size_t count, next[RANKS];
    int clock[RANKS];
    int done[3][RANKS * CHUNKS][MICRO]; /* when, by pass; 0: not yet */
};

/* When the input of an action is there; 0: not yet. */
static int input_of(const struct simulation *s, const struct cddpi_pipeline_action *a, int stage)
{
    int last = s->shape.ranks * s->shape.chunks - 1;

    if (a->pass == CDDPI_PASS_FORWARD) {
        return stage == 0 ? 1 : s->done[0][stage - 1][a->micro_batch];
    }
    if (a->pass == CDDPI_PASS_WEIGHTS) {
        return s->done[1][stage][a->micro_batch];
    }
    return stage == last ? s->done[0][stage][a->micro_batch]
                         : s->done[1][stage + 1][a->micro_batch];
}

static int length_of(const struct simulation *s, const struct cddpi_pipeline_action *a)
{
    bool split = s->shape.schedule == CDDPI_PIPELINE_ZERO_BUBBLE;

    return a->pass == CDDPI_PASS_FORWARD   ? FORWARD
           : a->pass == CDDPI_PASS_WEIGHTS ? WEIGHTS
           : split                         ? INPUTS
                                           : BACKWARD;
}

static bool advance(struct simulation *s, int rank)
{
    const struct cddpi_pipeline_action *a;
    int stage, input;

    if (s->next[rank] == s->count) {
        return false;
    }
    a = &s->actions[rank][s->next[rank]];
    stage = a->chunk * s->shape.ranks + rank;
    input = input_of(s, a, stage);
    if (input == 0) {
        return false;
    }
    assert_int_equal(s->done[a->pass][stage][a->micro_batch], 0);
    s->clock[rank] = (input > s->clock[rank] ? input : s->clock[rank]) + length_of(s, a);
    s->done[a->pass][stage][a->micro_batch] = s->clock[rank];
    s->next[rank]++;
    return true;
}

/* The time of the whole step; its clock begins at 1. */
static int simulate(struct simulation *s, enum cddpi_pipeline_schedule schedule, int ranks,
                    int chunks, int micro_batches)
{
    int passes = schedule == CDDPI_PIPELINE_ZERO_BUBBLE ? 3 : 2;
    bool moved = true;
    int end = 0;

    memset(s, 0, sizeof *s);
    s->shape = (struct cddpi_pipeline_shape){schedule, ranks, chunks, micro_batches};
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(cddpi_pipeline_plan(&s->shape, r, &s->actions[r], &s->count), CDDP_OK);
        assert_int_equal(s->count, passes * chunks * micro_batches);
        s->clock[r] = 1;
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < ranks; r++) {
            moved = advance(s, r) || moved;
        }
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(s->next[r], s->count); /* else ranks wait for each other */
        end = s->clock[r] > end ? s->clock[r] : end;
    }
    return end - 1;
}

static void fini(struct simulation *s)
{
    for (int r = 0; r < s->shape.ranks; r++) {
        cddpi_free(s->actions[r]);
    }
}

static void every_schedule_ends_and_its_bubble_is_that_of_the_theory(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        for (int m = 1; m <= MICRO; m += m < 9 ? 1 : 11) {
            for (int schedule = CDDPI_PIPELINE_1F1B; schedule <= CDDPI_PIPELINE_GPIPE; schedule++) {
                struct simulation s;
                int time = simulate(&s, schedule, ranks, 1, m);

                assert_int_equal(time, (m + ranks - 1) * (FORWARD + BACKWARD));
                assert_true(cddpi_pipeline_bubble(&s.shape) ==
                            (double)(ranks - 1) / (m + ranks - 1));
                fini(&s);
            }
        }
    }
}

static void interleaving_shortens_the_bubble_by_the_number_of_chunks(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        for (int chunks = 2; chunks <= CHUNKS; chunks++) {
            for (int groups = 1; groups * ranks <= MICRO; groups += 3) {
                struct simulation s;
                int m = groups * ranks;
                int time = simulate(&s, CDDPI_PIPELINE_INTERLEAVED, ranks, chunks, m);

                assert_int_equal(time, (m * chunks + ranks - 1) * (FORWARD + BACKWARD));
                fini(&s);
            }
        }
    }
}

static void rank_s_of_1f1b_holds_no_more_micro_batches_than_ranks_follow(void **state)
{
    int kept;

    (void)state;
    for (int m = 1; m < 20; m++) {
        struct simulation s;

        simulate(&s, CDDPI_PIPELINE_1F1B, 4, 1, m);
        for (int r = 0; r < 4; r++) {
            int most = m < 4 - r ? m : 4 - r;

            assert_int_equal(cddpi_pipeline_slots(s.actions[r], s.count, 0, &kept), most);
        }
        fini(&s);
        simulate(&s, CDDPI_PIPELINE_GPIPE, 4, 1, m);
        assert_int_equal(cddpi_pipeline_slots(s.actions[0], s.count, 0, &kept), m);
        fini(&s);
    }
}

/* Qi et al. 2023, table 1 with one length of all passes: a bubble of P - 1 such, where 1f1b has
 * 3 (P - 1). Of fewer micro-batches than ranks, the way of each there and back is longer. */
static void zero_bubble_waits_a_third_of_what_1f1b_does(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        for (int m = 1; m <= MICRO; m += m < 9 ? 1 : 11) {
            struct simulation s;
            int time = simulate(&s, CDDPI_PIPELINE_ZERO_BUBBLE, ranks, 1, m);
            int work = m * (FORWARD + INPUTS + WEIGHTS);

            assert_int_equal(time, m >= ranks ? work + ranks - 1 : 2 * m + 2 * ranks - 1);
            assert_true(cddpi_pipeline_bubble(&s.shape) == (double)(time - work) / time);
            fini(&s);
        }
    }
}

static void
rank_s_of_zero_bubble_holds_as_many_as_in_1f1b_and_of_all_ranks_what_weights_need(void **state)
{
    int kept;

    (void)state;
    for (int m = 1; m < 20; m++) {
        struct simulation s;

        simulate(&s, CDDPI_PIPELINE_ZERO_BUBBLE, 4, 1, m);
        for (int r = 0; r < 4; r++) {
            int most = m < 4 - r ? m : 4 - r;
            int grads = 0;

            for (size_t i = 0; i < s.count; i++) {
                grads = s.actions[r][i].grads >= grads ? s.actions[r][i].grads + 1 : grads;
            }
            assert_int_equal(cddpi_pipeline_slots(s.actions[r], s.count, 0, &kept), most);
            assert_int_equal(kept, m < 4 ? m : 4);
            assert_int_equal(grads, m < r + 1 ? m : r + 1);
        }
        fini(&s);
    }
}

static void expect_in_order(const struct simulation *s, enum cddpi_pipeline_pass pass)
{
    for (int r = 0; r < s->shape.ranks; r++) {
        int next[CHUNKS] = {0};

        for (size_t i = 0; i < s->count; i++) {
            const struct cddpi_pipeline_action *a = &s->actions[r][i];

            if (a->pass == pass) {
                assert_int_equal(a->micro_batch, next[a->chunk]++);
            }
        }
        for (int chunk = 0; chunk < s->shape.chunks; chunk++) {
            assert_int_equal(next[chunk], s->shape.micro_batches);
        }
    }
}

static void backwards_of_a_chunk_come_in_the_order_of_micro_batches(void **state)
{
    struct simulation s;

    (void)state;
    simulate(&s, CDDPI_PIPELINE_INTERLEAVED, 4, 3, 16);
    expect_in_order(&s, CDDPI_PASS_BACKWARD);
    fini(&s);
    for (int m = 1; m < 12; m++) {
        simulate(&s, CDDPI_PIPELINE_ZERO_BUBBLE, 4, 1, m);
        expect_in_order(&s, CDDPI_PASS_BACKWARD);
        expect_in_order(&s, CDDPI_PASS_WEIGHTS);
        fini(&s);
    }
}

static void no_two_micro_batches_share_a_slot(void **state)
{
    struct simulation s;

    (void)state;
    simulate(&s, CDDPI_PIPELINE_INTERLEAVED, 4, 3, 16);
    for (int r = 0; r < 4; r++) {
        int holds[CHUNKS][MICRO] = {{0}};

        for (size_t i = 0; i < s.count; i++) {
            const struct cddpi_pipeline_action *a = &s.actions[r][i];
            int *held = &holds[a->chunk][a->slot];
            bool backward = a->pass == CDDPI_PASS_BACKWARD;

            assert_int_equal(*held, backward ? a->micro_batch + 1 : 0);
            *held = backward ? 0 : a->micro_batch + 1;
        }
    }
    fini(&s);
}

/* A place of one kind, which a micro-batch has from its pass @p from to its pass @p to. */
static void expect_held(int *held, const struct cddpi_pipeline_action *a,
                        enum cddpi_pipeline_pass from, enum cddpi_pipeline_pass to)
{
    if (a->pass >= from && a->pass <= to) {
        assert_int_equal(*held, a->pass == from ? 0 : a->micro_batch + 1);
        *held = a->pass == to ? 0 : a->micro_batch + 1;
    }
}

static void no_two_micro_batches_of_zero_bubble_share_a_place(void **state)
{
    struct simulation s;

    (void)state;
    simulate(&s, CDDPI_PIPELINE_ZERO_BUBBLE, 4, 1, 16);
    for (int r = 0; r < 4; r++) {
        int slots[MICRO] = {0};
        int kept[MICRO] = {0};
        int grads[MICRO] = {0};

        for (size_t i = 0; i < s.count; i++) {
            const struct cddpi_pipeline_action *a = &s.actions[r][i];

            expect_held(&slots[a->slot], a, CDDPI_PASS_FORWARD, CDDPI_PASS_BACKWARD);
            expect_held(&kept[a->kept], a, CDDPI_PASS_FORWARD, CDDPI_PASS_WEIGHTS);
            expect_held(&grads[a->grads], a, CDDPI_PASS_BACKWARD, CDDPI_PASS_WEIGHTS);
        }
    }
    fini(&s);
}

static void expect_refused(struct cddpi_pipeline_shape shape, const char *text)
{
    struct cddpi_pipeline_action *actions;
    size_t count;

    assert_true(failure_is(cddpi_pipeline_plan(&shape, 0, &actions, &count), CDDP_ERR_ARGUMENT, -1,
                           -1, ""));
    assert_true(last_error_has(text));
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    expect_refused((struct cddpi_pipeline_shape){CDDPI_PIPELINE_1F1B, 2, 1, 0}, "not possible");
    expect_refused((struct cddpi_pipeline_shape){CDDPI_PIPELINE_1F1B, 2, 2, 4},
                   "only the schedule interleaved");
    expect_refused((struct cddpi_pipeline_shape){CDDPI_PIPELINE_ZERO_BUBBLE, 2, 2, 4},
                   "only the schedule interleaved");
    expect_refused((struct cddpi_pipeline_shape){CDDPI_PIPELINE_INTERLEAVED, 4, 2, 6},
                   "in multiples of its 4 ranks, not 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_ends_and_its_bubble_is_that_of_the_theory),
        cmocka_unit_test(interleaving_shortens_the_bubble_by_the_number_of_chunks),
        cmocka_unit_test(rank_s_of_1f1b_holds_no_more_micro_batches_than_ranks_follow),
        cmocka_unit_test(zero_bubble_waits_a_third_of_what_1f1b_does),
        cmocka_unit_test(
            rank_s_of_zero_bubble_holds_as_many_as_in_1f1b_and_of_all_ranks_what_weights_need),
        cmocka_unit_test(backwards_of_a_chunk_come_in_the_order_of_micro_batches),
        cmocka_unit_test(no_two_micro_batches_share_a_slot),
        cmocka_unit_test(no_two_micro_batches_of_zero_bubble_share_a_place),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
