/* test_net_leaders.c - several leaders per host: which ranks talk to other hosts, and what sets
 * their number. */
#include "group/join/link.h"
#include "group/net/net.h"
#include "support/failure.h"
#include "support/test.h"

#include <stdlib.h>

enum { RANKS = 4, COUNT = 1 << 20 };

struct job {
    char store[256];
    const char *leaders; /* NULL: unset */
    int expected;        /* 0: measured */
};

static cddp_status join(const struct job *job, int rank, const char *leaders, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    setenv("CDDP_HOST_ID", rank < RANKS / 2 ? "test host 0" : "test host 1", 1);
    if (leaders != NULL) {
        setenv("CDDP_LEADERS", leaders, 1);
    } else {
        unsetenv("CDDP_LEADERS");
    }
    options.rendezvous = job->store;
    options.token = SUPPORT_TOKEN;
    options.job = "test";
    options.rank = rank;
    options.world_size = RANKS;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    options.device = "cpu";
    return cddp_group_create(&options, out);
}

/* Where the ranks of one test meet; the ranks remove it. */
static void name_store(struct job *job)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    static int number;

    snprintf(job->store, sizeof job->store, "file://%s/cddp-test-leaders-%d-%d", folder,
             (int)getpid(), ++number);
}

/* The link is as fast as all leaders together have moved data: measured anew where that is not one,
 * and the same number on all ranks. */
static bool rate_is_of_all(cddp_group *group)
{
    const struct net_backend *net = net_of_const(group->backend);
    double rates[RANKS];
    struct cddpi_group_link link;

    if (cddp_all_gather(group, &net->link.bytes_per_s, rates, 1, CDDP_F64, NULL) != CDDP_OK ||
        !cddpi_group_link(group, CDDP_F32, &link) || link.bytes_per_s != rates[0]) {
        return false;
    }
    for (int r = 0; r < RANKS; r++) {
        if (rates[r] != rates[0] || rates[r] <= 0) {
            return false;
        }
    }
    return (net->leader_count == 1) == (net->link.bytes_per_s == net->link_of_one_bytes_per_s);
}

/* A large sum; then the ranks that have talked to another host are known. */
static int leaders_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    float *data = calloc(COUNT, sizeof *data);
    int32_t counts[RANKS];
    int32_t mine;
    cddp_group *group;

    (void)world_size;
    CHECK(data != NULL);
    CHECK(join(job, rank, job->leaders, &group) == CDDP_OK);
    mine = net_of_const(group->backend)->leader_count;
    CHECK(job->expected == 0 || mine == job->expected);
    CHECK(cddp_all_gather(group, &mine, counts, 1, CDDP_I32, NULL) == CDDP_OK);
    for (int r = 0; r < RANKS; r++) {
        CHECK(counts[r] == mine && mine >= 1 && mine <= 2);
    }
    CHECK(rate_is_of_all(group));
    for (int i = 0; i < COUNT; i++) {
        data[i] = (float)(i % 100 + rank);
    }
    CHECK(cddp_all_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    for (int i = 0; i < COUNT; i++) {
        CHECK(data[i] == (float)(i % 100 * RANKS + 6));
    }
    CHECK(job->expected == 0 || net_of(group->backend)->uses_carrier ==
                                    (net_of(group->backend)->local_rank < job->expected));
    cddp_group_destroy(group);
    free(data);
    return 0;
}

static void run(const char *leaders, int expected)
{
    struct job job = {.leaders = leaders, .expected = expected};

    name_store(&job);
    assert_int_equal(run_ranks(RANKS, leaders_rank, &job), 0);
}

static void one_rank_of_a_host_talks_to_others_if_one_is_to_lead(void **state)
{
    (void)state;
    run("1", 1);
}

static void two_ranks_of_a_host_talk_to_others_if_two_are_to_lead(void **state)
{
    (void)state;
    run("2", 2);
}

static void no_more_lead_than_a_host_has_ranks(void **state)
{
    (void)state;
    run("4", 2);
}

static void all_ranks_choose_as_many_leaders_where_nobody_says_how_many(void **state)
{
    (void)state;
    run(NULL, 0);
}

static int differing_rank(int rank, int world_size, void *argument)
{
    cddp_group *group;

    (void)world_size;
    CHECK(join(argument, rank, rank == 3 ? "1" : "2", &group) == CDDP_ERR_MISMATCH);
    CHECK(last_error_has("CDDP_LEADERS"));
    CHECK(last_error_has("rank 3"));
    return 0;
}

static void numbers_of_leaders_that_differ_are_an_error_on_all_ranks(void **state)
{
    struct job job = {.expected = 0};

    (void)state;
    name_store(&job);
    assert_int_equal(run_ranks(RANKS, differing_rank, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_a_host_talks_to_others_if_one_is_to_lead),
        cmocka_unit_test(two_ranks_of_a_host_talk_to_others_if_two_are_to_lead),
        cmocka_unit_test(no_more_lead_than_a_host_has_ranks),
        cmocka_unit_test(all_ranks_choose_as_many_leaders_where_nobody_says_how_many),
        cmocka_unit_test(numbers_of_leaders_that_differ_are_an_error_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
