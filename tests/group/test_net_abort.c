/* test_net_abort.c - what reaches other hosts while a rank computes: failures and data. */
#include "base/clock.h"
#include "support/failure.h"
#include "support/test.h"

#include <cddp/group.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { RANKS = 4, COUNT = 1000, MANY = 8 << 20 };

struct job {
    _Atomic bool others_know;
    const char *thread; /* CDDP_COMM_THREAD; NULL: unset */
    char store[256];
};

static cddp_status join(const struct job *job, int rank, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    setenv("CDDP_HOST_ID", rank < RANKS / 2 ? "test host 0" : "test host 1", 1);
    if (job->thread != NULL) {
        setenv("CDDP_COMM_THREAD", job->thread, 1);
    }
    setenv("CDDP_CARRIER", "tcp", 1);
    options.rendezvous = job->store;
    options.token = SUPPORT_TOKEN;
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
        CHECK(failure_is(cddp_all_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_SUM, NULL),
                         CDDP_ERR_PEER, 1, 1, NULL));
        atomic_store(&job->others_know, true);
    }
    cddp_group_destroy(group);
    return result;
}

/* More than connections hold goes to and from rank 0, which has begun the operation and computes.
 */
static int carry_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    float *data = calloc(MANY, sizeof *data);
    cddp_work *work = NULL;
    cddp_group *group;
    int result = 0;

    CHECK(data != NULL && join(job, rank, &group) == CDDP_OK);
    data[MANY - 1] = (float)rank;
    CHECK(cddp_all_reduce(group, data, data, MANY, CDDP_F32, CDDP_OP_SUM, &work) == CDDP_OK);
    if (rank == 0) {
        result = compute(job);
    }
    CHECK(cddp_work_wait(work) == CDDP_OK);
    CHECK(data[MANY - 1] == (float)(world_size * (world_size - 1) / 2));
    if (rank == world_size - 1) {
        atomic_store(&job->others_know, true);
    }
    cddp_work_destroy(work);
    cddp_group_destroy(group);
    free(data);
    return result;
}

static void run_job(rank_fn body, const char *thread)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

    assert_true(job != MAP_FAILED);
    job->thread = thread;
    snprintf(job->store, sizeof job->store, "file://%s/cddp-test-abort-%d", folder, (int)getpid());
    assert_int_equal(run_ranks(RANKS, body, job), 0);
    munmap(job, sizeof *job);
}

static void a_failure_reaches_other_hosts_while_the_leader_computes(void **state)
{
    (void)state;
    run_job(abort_rank, "0");
    run_job(abort_rank, NULL);
}

static void data_move_on_while_a_rank_computes(void **state)
{
    (void)state;
    run_job(carry_rank, NULL);
    run_job(carry_rank, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_reaches_other_hosts_while_the_leader_computes),
        cmocka_unit_test(data_move_on_while_a_rank_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
