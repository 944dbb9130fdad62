/* test_rank_pace.c - which ranks are slower than the others, of invented measurements. */
#include "report/rank_pace.h"

#include "support/test.h"

enum { MOST = 150 };

static struct cddpi_rank_pace paces[MOST];
static struct cddpi_pace_result result;

/* Rank @p rank needs @p own_ms by itself for each of 10 steps, of which the update takes 2 ms. */
static void set(int rank, double own_ms, double data_ms, double samples, int part)
{
    paces[rank] = (struct cddpi_rank_pace){.step_ns = 10 * 100e6,
                                           .own_ns = 10 * own_ms * 1e6,
                                           .update_ns = 10 * 2e6,
                                           .data_ns = 10 * data_ms * 1e6,
                                           .samples = samples,
                                           .steps = 10,
                                           .part = part};
}

static void compare(int count)
{
    double room[MOST];

    memset(&result, 0x55, sizeof result);
    cddpi_rank_paces_compare(paces, count, room, &result);
}

static double factor_of(int rank)
{
    for (int i = 0; i < result.count; i++) {
        if (result.slow[i].rank == rank) {
            return result.slow[i].factor;
        }
    }
    return 0;
}

#define assert_about(value, is) assert_true((value) > (is)*0.999 && (value) < (is)*1.001)

static void equal_ranks_are_not_slow(void **state)
{
    (void)state;
    for (int count = 1; count < 5; count++) {
        for (int rank = 0; rank < count; rank++) {
            set(rank, 20 + rank * 0.5, 1, 80, 0);
        }
        compare(count);
        assert_int_equal(result.count, 0);
        assert_int_equal(result.slowest, count - 1);
    }
}

static void a_slow_rank_is_found_among_two_three_and_four(void **state)
{
    (void)state;
    for (int count = 2; count < 5; count++) {
        for (int slow = 0; slow < count; slow++) {
            for (int rank = 0; rank < count; rank++) {
                set(rank, rank == slow ? 50 : 20, 1, 80, 0);
            }
            compare(count);
            assert_int_equal(result.count, 1);
            assert_int_equal(result.slow[0].rank, slow);
            assert_about(result.slow[0].factor, 2.5);
            assert_false(result.slow[0].waits_for_data);
            assert_int_equal(result.slowest, slow);
            assert_about(result.slowest_ms, 50);
            assert_about(result.median_ms, 20);
        }
    }
}

/* Where communication takes nearly all of the time, nobody waits long for a slow rank. */
static void a_rank_that_costs_little_is_not_slow(void **state)
{
    (void)state;
    set(0, 3, 1, 80, 0);
    set(1, 12, 1, 80, 0);
    set(2, 3, 1, 80, 0);
    compare(3);
    assert_int_equal(result.count, 0);
    assert_int_equal(result.slowest, 1);
    set(1, 14, 1, 80, 0);
    compare(3);
    assert_int_equal(result.count, 1);
}

static void half_of_the_ranks_may_be_slow(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        set(rank, rank < 2 ? 60 : 20, 1, 80, 0);
    }
    compare(4);
    assert_int_equal(result.count, 2);
    assert_about(factor_of(0), 3);
    assert_about(factor_of(1), 3);
}

static void what_makes_a_rank_slow_is_told(void **state)
{
    (void)state;
    set(0, 20, 1, 80, 0);
    set(1, 60, 35, 80, 0);
    set(2, 20, 2, 80, 0);
    set(3, 60, 5, 80, 0);
    compare(4);
    assert_int_equal(result.count, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(result.slow[i].waits_for_data == (result.slow[i].rank == 1));
    }
}

/* Four micro-batches of equal work among three ranks: 18 ms each, and the update. */
static void a_rank_with_more_samples_is_not_slow(void **state)
{
    (void)state;
    set(0, 2 * 18 + 2, 2, 160, 0);
    set(1, 18 + 2, 1, 80, 0);
    set(2, 18 + 2, 1, 80, 0);
    compare(3);
    assert_int_equal(result.count, 0);
    set(2, 3 * 18 + 2, 1, 80, 0);
    compare(3);
    assert_int_equal(result.count, 1);
    assert_int_equal(result.slow[0].rank, 2);
}

/* Two replicas of a pipeline whose second stage takes five times as long. */
static void ranks_are_compared_with_those_that_compute_the_same(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        set(rank, rank % 2 == 0 ? 10 : 50, 1, 80, rank % 2);
    }
    compare(4);
    assert_int_equal(result.count, 0);
    set(2, 30, 1, 80, 0);
    compare(4);
    assert_int_equal(result.count, 1);
    assert_int_equal(result.slow[0].rank, 2);
    assert_about(result.slow[0].factor, 3);
}

static void ranks_without_samples_or_measurements_are_left_out(void **state)
{
    (void)state;
    set(0, 20, 1, 80, 0);
    set(1, 50, 1, 0, 0);
    set(2, 50, 1, 80, 0);
    paces[2].steps = 0;
    compare(3);
    assert_int_equal(result.count, 0);
    assert_int_equal(result.slowest, 0);
    memset(paces, 0, sizeof paces);
    compare(3);
    assert_int_equal(result.count, 0);
    assert_int_equal(result.slowest, -1);
}

static void of_many_the_slowest_are_told(void **state)
{
    (void)state;
    for (int rank = 0; rank < MOST; rank++) { /* more slow ones than can be told */
        set(rank, rank < 20 ? 40 + rank : rank < 96 ? 20 : 35, 1, 80, 0);
    }
    compare(MOST);
    assert_int_equal(result.count, CDDPI_REPORT_SLOW_RANKS);
    for (int rank = 0; rank < 20; rank++) {
        assert_true(factor_of(rank) > 0);
    }
}

static void an_interval_counts_without_what_was_waited_for(void **state)
{
    struct cddpi_rank_pace pace = {.steps = 0};
    struct cddpi_interval interval = {.steps = 4,
                                      .step_ns = 1000,
                                      .exposed_ns = 300,
                                      .optimizer_ns = 200,
                                      .norm_ns = 100,
                                      .data_ns = 50};

    (void)state;
    cddpi_rank_pace_add(&pace, &interval);
    assert_true(pace.own_ns == 600 && pace.update_ns == 100 && pace.data_ns == 50);
    assert_true(pace.steps == 4 && pace.step_ns == 1000);
    interval.whole = 2; /* replayed: only the others were measured in parts */
    cddpi_rank_pace_add(&pace, &interval);
    assert_true(pace.own_ns == 600 + 300 && pace.update_ns == 100 + 300);
    for (interval.whole = 3; interval.whole <= 4; interval.whole++) { /* too few were measured */
        cddpi_rank_pace_add(&pace, &interval);
        assert_true(pace.steps == 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ranks_are_not_slow),
        cmocka_unit_test(a_slow_rank_is_found_among_two_three_and_four),
        cmocka_unit_test(a_rank_that_costs_little_is_not_slow),
        cmocka_unit_test(half_of_the_ranks_may_be_slow),
        cmocka_unit_test(what_makes_a_rank_slow_is_told),
        cmocka_unit_test(a_rank_with_more_samples_is_not_slow),
        cmocka_unit_test(ranks_are_compared_with_those_that_compute_the_same),
        cmocka_unit_test(ranks_without_samples_or_measurements_are_left_out),
        cmocka_unit_test(of_many_the_slowest_are_told),
        cmocka_unit_test(an_interval_counts_without_what_was_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
