/* test_net_cost.c - the predicted time of sums between hosts follows cost.c, and agrees with what
 * the schedules send. */
#include "group/net/net_schedule.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 256 };

static const struct cddpi_link ethernet = {25e-6, 1.25e9, 8e9}; /* 10 Gbit/s */

static struct cddpi_tree equal_hosts(int hosts, int ranks_each)
{
    static int host_of[RANKS * 64];
    struct cddpi_tree tree;

    for (int r = 0; r < hosts * ranks_each; r++) {
        host_of[r] = r / ranks_each;
    }
    assert_true(cddpi_tree_init(hosts * ranks_each, host_of, hosts, &tree));
    return tree;
}

static void assert_seconds(double got, double wanted)
{
    if (fabs(got - wanted) > wanted * 1e-9) {
        fail_msg("%.12g s instead of %.12g s", got, wanted);
    }
}

static void equal_hosts_cost_what_the_textbook_says(void **state)
{
    const struct cddpi_link *link = &ethernet;
    double a = link->latency_s;
    double m = 5e-6;
    double n = 1 << 20;
    double b = 1 / link->bytes_per_s;
    double c = 1 / link->reduce_bytes_per_s;

    (void)state;
    for (int p = 2; p <= 64; p *= 2) {
        struct cddpi_tree tree = equal_hosts(p, 4);
        double lg = log2(p);
        size_t bytes = (size_t)n;

        assert_seconds(cddpi_algorithm_seconds(&tree, link, CDDPI_ALGORITHM_DOUBLING, bytes, bytes),
                       lg * (a + n * b + n * c));
        assert_seconds(cddpi_algorithm_seconds(&tree, link, CDDPI_ALGORITHM_HALVING, bytes, bytes),
                       2 * lg * a + 2 * (p - 1) / (double)p * n * b + (p - 1) / (double)p * n * c);
        assert_seconds(cddpi_algorithm_seconds(&tree, link, CDDPI_ALGORITHM_EXCHANGE, bytes, bytes),
                       a + (p - 2) * m + (p - 1) * n * b + (p - 1) * n * c);
        assert_seconds(cddpi_algorithm_seconds(&tree, link, CDDPI_ALGORITHM_DIRECT, bytes, bytes),
                       2 * (a + (p - 2) * m) + 2 * (p - 1) / (double)p * n * b +
                           (p - 1) / (double)p * n * c);
        cddpi_tree_fini(&tree);
    }
}

/* The bytes of the busiest host in each round, added up; and its messages after the first. */
static double busiest_bytes(const struct cddpi_tree *tree, enum cddpi_algorithm algorithm,
                            size_t bytes)
{
    static double sent[64][2][RANKS]; /* by round, direction and host */
    double total = 0;

    memset(sent, 0, sizeof sent);
    for (int h = 0; h < tree->hosts; h++) {
        struct cddpi_net_schedule schedule;

        assert_true(cddpi_schedule_init(tree, algorithm, h, -1, &schedule));
        for (int s = 0; s < schedule.count; s++) {
            const struct cddpi_net_step *step = &schedule.steps[s];
            bool is_recv = step->kind == CDDPI_STEP_RECV || step->kind == CDDPI_STEP_RECV_DONE;

            if (step->kind != CDDPI_STEP_MERGE && step->kind != CDDPI_STEP_FINISH) {
                sent[step->round][is_recv][h] += (double)bytes * (step->end - step->begin) /
                                                 schedule.ranges;
            }
        }
        cddpi_schedule_fini(&schedule);
    }
    for (int round = 0; round < 64; round++) {
        double most = 0;

        for (int h = 0; h < tree->hosts; h++) {
            most = fmax(most, fmax(sent[round][0][h], sent[round][1][h]));
        }
        total += most;
    }
    return total;
}

/* A wire on which only bytes take time. */
static void the_bytes_are_those_of_the_schedules(void **state)
{
    const struct cddpi_link link = {0, 1, INFINITY};

    (void)state;
    srand(7);
    for (int again = 0; again < 200; again++) {
        int hosts = 2 + rand() % 12;
        int ranks = hosts * (1 + rand() % 6);
        int host_of[RANKS];
        bool in_turn = again % 3 == 0;
        struct cddpi_tree tree;

        for (int r = 0; r < ranks; r++) {
            host_of[r] = r < hosts || in_turn ? r % hosts : rand() % hosts;
        }
        if (again % 2 == 0) {
            tree = equal_hosts(hosts, ranks / hosts);
        } else {
            assert_true(cddpi_tree_init(ranks, host_of, hosts, &tree));
        }
        for (int a = 0; a < CDDPI_ALGORITHMS; a++) {
            enum cddpi_algorithm algorithm = (enum cddpi_algorithm)a;
            double wanted = busiest_bytes(&tree, algorithm, 1 << 20);
            double got = cddpi_algorithm_seconds(&tree, &link, algorithm, 1 << 20, 1 << 20);

            /* most leaves and most sums may be of two hosts */
            if (got < wanted * (1 - 1e-9) || got > wanted * 1.6) {
                fail_msg("%s: %d hosts, %d ranks: %g instead of %g bytes", cddpi_algorithm_names[a],
                         hosts, ranks, got, wanted);
            }
        }
        cddpi_tree_fini(&tree);
    }
}

static enum cddpi_algorithm best(int hosts, const struct cddpi_link *link, size_t bytes)
{
    struct cddpi_tree tree = equal_hosts(hosts, 4);
    double seconds;
    enum cddpi_algorithm algorithm = cddpi_algorithm_choose(&tree, link, bytes, bytes, &seconds);

    for (int a = 0; a < CDDPI_ALGORITHMS; a++) {
        size_t piece = a == CDDPI_ALGORITHM_EXCHANGE ? bytes
                                                     : cddpi_piece_bytes(link, hosts, bytes);

        assert_true(seconds <= cddpi_pieces_seconds(&tree, link, (enum cddpi_algorithm)a, bytes,
                                                    bytes, piece));
    }
    cddpi_tree_fini(&tree);
    return algorithm;
}

static void small_messages_take_few_rounds_and_large_ones_few_bytes(void **state)
{
    (void)state;
    for (int hosts = 2; hosts <= 4; hosts++) {
        assert_int_equal(best(hosts, &ethernet, 1024), CDDPI_ALGORITHM_EXCHANGE);
    }
    assert_int_equal(best(1024, &ethernet, 1024), CDDPI_ALGORITHM_DOUBLING);
    assert_int_equal(best(2, &ethernet, 64 << 20), CDDPI_ALGORITHM_DIRECT);
    assert_int_equal(best(5, &ethernet, 64 << 20), CDDPI_ALGORITHM_DIRECT);
    assert_int_equal(best(1024, &ethernet, 1 << 20), CDDPI_ALGORITHM_HALVING);
    assert_int_equal(best(1, &ethernet, 1 << 20), CDDPI_ALGORITHM_EXCHANGE);
}

static void pieces_are_whole_lines_within_bounds(void **state)
{
    const struct cddpi_link links[] = {
        ethernet, {0, 1e10, 1e10}, {0.05, 1.25e9, 8e9}, {5e-6, 12.5e6, 8e9}};

    (void)state;
    for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
        for (int hosts = 1; hosts <= 4096; hosts *= 4) {
            size_t before = 0;

            for (size_t bytes = 0; bytes < (size_t)1 << 33; bytes = bytes * 3 + 1) {
                size_t piece = cddpi_piece_bytes(&links[l], hosts, bytes);

                assert_true(piece % 64 == 0 && piece > 0 && piece < bytes + 64 + (bytes == 0));
                assert_true(piece >= before);
                before = piece;
            }
        }
    }
    /* two pieces hide the latency of a line around the world */
    assert_true((double)cddpi_piece_bytes(&links[2], 2, (size_t)1 << 32) >= 0.1 * 1.25e9);
}

static void pieces_hide_latency_and_processor_behind_the_wire(void **state)
{
    struct cddpi_tree tree = equal_hosts(4, 4);
    size_t bytes = 64 << 20;
    size_t piece = cddpi_piece_bytes(&ethernet, 4, bytes);
    double wire_s = 1.5 * (double)bytes / ethernet.bytes_per_s;
    double seconds = cddpi_pieces_seconds(&tree, &ethernet, CDDPI_ALGORITHM_DIRECT, bytes, bytes,
                                          piece);

    (void)state;
    assert_true(seconds > wire_s && seconds < wire_s * 1.05);
    assert_true(seconds <
                cddpi_algorithm_seconds(&tree, &ethernet, CDDPI_ALGORITHM_DIRECT, bytes, bytes));
    assert_seconds(
        cddpi_pieces_seconds(&tree, &ethernet, CDDPI_ALGORITHM_DIRECT, bytes, bytes, bytes),
        cddpi_algorithm_seconds(&tree, &ethernet, CDDPI_ALGORITHM_DIRECT, bytes, bytes) +
            2 * (double)bytes / ethernet.reduce_bytes_per_s);
    cddpi_tree_fini(&tree);
}

/* An exchange is one piece, so nothing hides its merges: a latency that was measured on a busy
 * machine is no reason for one. */
static void large_messages_are_not_exchanged_for_their_latency(void **state)
{
    struct cddpi_tree tree = equal_hosts(2, 1);

    (void)state;
    for (double latency_s = 1e-6; latency_s < 2e-3; latency_s *= 2) {
        for (double bytes_per_s = 1e8; bytes_per_s < 2e9; bytes_per_s *= 2) {
            struct cddpi_link link = {latency_s, bytes_per_s, 8e9};

            assert_int_not_equal(cddpi_algorithm_choose(&tree, &link, 64 << 20, 64 << 20, NULL),
                                 CDDPI_ALGORITHM_EXCHANGE);
        }
    }
    cddpi_tree_fini(&tree);
}

/* 60 KiB and MPI's headers are what Open MPI sends over TCP without asking first; a link so fast
 * that copies are not hidden behind it gets whole transfers. */
static void transfers_are_cut_where_the_link_is_slower_than_copies(void **state)
{
    (void)state;
    for (double gbit = 0.01; gbit <= 10; gbit *= 10) {
        assert_int_equal(cddpi_cut_bytes(&(struct cddpi_link){1e-4, gbit * 1.25e8, 8e9}), 61440);
    }
    assert_int_equal(cddpi_cut_bytes(&(struct cddpi_link){7e-6, 4e9, 1e10}), 0);
    assert_int_equal(cddpi_cut_bytes(&(struct cddpi_link){2e-6, 12.5e9, 1e10}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_hosts_cost_what_the_textbook_says),
        cmocka_unit_test(the_bytes_are_those_of_the_schedules),
        cmocka_unit_test(small_messages_take_few_rounds_and_large_ones_few_bytes),
        cmocka_unit_test(pieces_are_whole_lines_within_bounds),
        cmocka_unit_test(large_messages_are_not_exchanged_for_their_latency),
        cmocka_unit_test(transfers_are_cut_where_the_link_is_slower_than_copies),
        cmocka_unit_test(pieces_hide_latency_and_processor_behind_the_wire),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
