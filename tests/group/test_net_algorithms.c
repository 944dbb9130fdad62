/* test_net_algorithms.c - sums between hosts by each algorithm. Which one is taken depends on the
 * link as it was measured, so that some of them hardly ever run in other tests. */
#include "group/net/net.h"
#include "support/group_cases.h"

enum { MOST = 8, LAYOUTS = 6 };

/* By rank: its host. */
struct layout {
    int ranks;
    int host_of[MOST];
};

static const struct layout layouts[LAYOUTS] = {
    {4, {0, 1, 2, 3}},          {8, {0, 1, 2, 3, 4, 5, 6, 7}}, {7, {0, 1, 2, 3, 4, 5, 6}},
    {7, {0, 0, 1, 2, 2, 2, 3}}, {8, {0, 1, 2, 3, 0, 1, 2, 3}}, {6, {0, 1, 1, 2, 3, 3}},
};

/* What a rank is told. */
struct job {
    char store[256];
    const struct layout *layout;
    enum cddpi_algorithm algorithm;
};

/* Let the group believe in a link on which @p algorithm is the fastest for so many bytes. Returns
 * false if there is none. */
static bool prefer(struct net_backend *net, enum cddpi_algorithm algorithm, size_t leaf, size_t sum)
{
    for (double latency = 1e-9; latency < 2; latency *= 10) {
        for (double rate = 1e3; rate < 1e13; rate *= 10) {
            struct cddpi_link link = {latency, rate, 1e10};

            if (cddpi_algorithm_choose(&net->tree, &link, leaf, sum, NULL) == algorithm) {
                net->link = link;
                return true;
            }
        }
    }
    return false;
}

static int sum_once(cddp_group *group, cddp_type type, cddp_op op, size_t count, bool in_place,
                    const double *weights)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    size_t bytes = count * cddp_type_bytes(type);
    char *in = malloc(bytes);
    char *out = in_place ? in : malloc(bytes);

    CHECK(in != NULL && out != NULL);
    fill_rank(in, rank, 0, count, type);
    CHECK((weights == NULL ? cddp_all_reduce(group, in, out, count, type, op, NULL)
                           : cddp_all_reduce_weighted(group, in, out, count, type, weights[rank],
                                                      NULL)) == CDDP_OK);
    CHECK(compare_reduced(out, 0, count, n, type, op, weights) == 0);
    if (!in_place) {
        free(out);
    }
    free(in);
    return 0;
}

/* Sums of each type, and a mean, which some types sum in a wider one. */
static int sums_rank(int rank, int n, void *argument)
{
    static const size_t counts[] = {200, 1000, 5000, 70001};
    static const double uneven[] = {3, 1, 0, 7.5, 2, 0.25, 0, 5};
    const struct job *job = argument;
    cddp_group *group;
    struct net_backend *net;

    CHECK(group_join_on(job->layout->host_of[rank], job->store, rank, n, SUPPORT_TIMEOUT_MS,
                        &group) == CDDP_OK);
    net = net_of(group->backend);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            size_t leaf = counts[c] * cddp_type_bytes(types[t]);
            bool in_place = (t + c) % 2 == 0;

            for (int op = CDDP_OP_SUM; op <= CDDP_OP_MEAN; op++) {
                size_t sum = cddp_type_bytes(cddpi_reduce_sum_type(types[t], (cddp_op)op));

                if (prefer(net, job->algorithm, leaf, counts[c] * sum)) {
                    CHECK(sum_once(group, types[t], (cddp_op)op, counts[c], in_place, NULL) == 0);
                    CHECK(net->plans[job->algorithm].is_made);
                }
            }
            if (t < 4) {
                CHECK(sum_once(group, types[t], CDDP_OP_SUM, counts[c], in_place, uneven) == 0);
            }
        }
    }
    CHECK(job->layout->ranks != MOST || net->plans[job->algorithm].is_made);
    cddp_group_destroy(group);
    return 0;
}

static void run(enum cddpi_algorithm algorithm)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";

    for (int l = 0; l < LAYOUTS; l++) {
        struct job job = {.layout = &layouts[l], .algorithm = algorithm};

        snprintf(job.store, sizeof job.store, "file://%s/cddp-test-algorithms-%d-%d-%d", folder,
                 (int)getpid(), algorithm, l);
        assert_int_equal(run_ranks(layouts[l].ranks, sums_rank, &job), 0);
    }
}

static void an_exchange_has_the_bits_of_the_tree(void **state)
{
    (void)state;
    run(CDDPI_ALGORITHM_EXCHANGE);
}

static void doubling_has_the_bits_of_the_tree(void **state)
{
    (void)state;
    run(CDDPI_ALGORITHM_DOUBLING);
}

static void direct_shares_have_the_bits_of_the_tree(void **state)
{
    (void)state;
    run(CDDPI_ALGORITHM_DIRECT);
}

static void halving_has_the_bits_of_the_tree(void **state)
{
    (void)state;
    run(CDDPI_ALGORITHM_HALVING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_has_the_bits_of_the_tree),
        cmocka_unit_test(doubling_has_the_bits_of_the_tree),
        cmocka_unit_test(direct_shares_have_the_bits_of_the_tree),
        cmocka_unit_test(halving_has_the_bits_of_the_tree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
