/* test_net_abort.c - how a failure on one host reaches the others. */
#include "base/clock.h"
#include "support/test.h"

#include <cddp/group.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { RANKS = 4, COUNT = 1000 };

struct job {
    _Atomic bool others_know;
    char store[256];
};

static cddp_status join(const struct job *job, int rank, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    setenv("CDDP_HOST_ID", rank < RANKS / 2 ? "test host 0" : "test host 1", 1);
    setenv("CDDP_COMM_THREAD", "0", 1); /* a rank that computes does nothing else */
    setenv("CDDP_CARRIER", "tcp", 1);
    options.rendezvous = job->store;
    options.token = "secret";
    options.job = "test";
    options.rank = rank;
    options.world_size = RANKS;
    options.timeout_ms = 10 * SUPPORT_TIMEOUT_MS;
    options.device = "cpu";
    return cddp_group_create(&options, out);
}

/* Rank 0, its host's leader, computes until the other host knows that rank 1 has failed. */
static int compute(struct job *job)
{
    int64_t deadline_ns = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);

    while (!atomic_load(&job->others_know)) {
        CHECK(cddpi_left_ms(deadline_ns) > 0);
        support_sleep_ms(1);
    }
    return 0;
}

static int abort_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    float data[COUNT] = {0};
    cddp_group *group;
    int result = 0;

    (void)world_size;
    CHECK(join(job, rank, &group) == CDDP_OK);
    if (rank == 0) {
        result = compute(job);
    } else if (rank == 1) {
        cddp_group_abort(group, "its disk is full");
    } else {
        CHECK(cddp_all_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_SUM, NULL) ==
              CDDP_ERR_PEER);
        CHECK(strstr(cddp_last_error(), "rank 1") != NULL);
        CHECK(strstr(cddp_last_error(), "its disk is full") != NULL);
        atomic_store(&job->others_know, true);
    }
    cddp_group_destroy(group);
    return result;
}

static void a_failure_reaches_other_hosts_while_the_leader_computes(void **state)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

    (void)state;
    assert_true(job != MAP_FAILED);
    snprintf(job->store, sizeof job->store, "file://%s/cddp-test-abort-%d", folder, (int)getpid());
    assert_int_equal(run_ranks(RANKS, abort_rank, job), 0);
    munmap(job, sizeof *job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_reaches_other_hosts_while_the_leader_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
