/* test_straggler.c - ranks for which others wait are named, while all ranks are alive. */
#include "base/clock.h"
#include "support/group.h"
#include "support/test.h"

#include <cddp/group.h>

#include <fcntl.h>

enum { RANKS = 3, LATE = 1 };

struct job {
    char store[256];
    char log[256];     /* what rank 0 prints */
    bool is_one_host;  /* else each rank is on one of its own */
    const char *limit; /* CDDP_STRAGGLER_MS */
    const char *text;  /* rank LATE comes when this is in the log; NULL: a little late */
};

/* Whether @p path has @p text by now. */
static bool has_text(const char *path, const char *text)
{
    static char read[65536];
    FILE *file = fopen(path, "r");
    size_t bytes = file != NULL ? fread(read, 1, sizeof read - 1, file) : 0;

    if (file != NULL) {
        fclose(file);
    }
    read[bytes] = '\0';
    return strstr(read, text) != NULL;
}

static int come_late(const struct job *job)
{
    int64_t deadline_ns = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);

    if (job->text == NULL) {
        support_sleep_ms(300);
    }
    while (job->text != NULL && !has_text(job->log, job->text)) {
        CHECK(cddpi_left_ms(deadline_ns) > 0);
        support_sleep_ms(10);
    }
    return 0;
}

static int late_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    cddp_group *group;
    float x = 1;
    int fd;

    (void)world_size;
    if (rank == 0) {
        fd = open(job->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    }
    setenv("CDDP_STRAGGLER_MS", job->limit, 1);
    setenv("CDDP_LOG", "warn", 1);
    CHECK(group_join_on(job->is_one_host ? 0 : rank, job->store, rank, RANKS, SUPPORT_TIMEOUT_MS,
                        &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    CHECK(rank != LATE || come_late(job) == 0);
    CHECK(cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(x == RANKS);
    cddp_group_destroy(group);
    return 0;
}

/* Whether rank 0 named rank LATE, or has said nothing. */
static void run(struct job *job)
{
    char *folder = support_mkdtemp();

    snprintf(job->store, sizeof job->store, "file://%.200s/store", folder);
    snprintf(job->log, sizeof job->log, "%.200s/log", folder);
    assert_int_equal(run_ranks(RANKS, late_rank, job), 0);
    assert_true(job->text != NULL || !has_text(job->log, "waiting"));
    support_rmdir(folder);
}

static void the_rank_that_a_host_waits_for_is_named(void **state)
{
    struct job job = {
        .is_one_host = true, .limit = "200", .text = "all_reduce #2 has been waiting for "};

    (void)state;
    run(&job);
    job.text = " s for rank 1 (pid ";
    run(&job);
}

static void the_rank_on_another_host_is_named_with_its_host(void **state)
{
    struct job job = {.limit = "200", .text = " s for rank 1 on host "};

    (void)state;
    run(&job);
    job.text = "; its host answers";
    run(&job);
}

static void nobody_is_named_within_the_limit_or_without_one(void **state)
{
    struct job job = {.limit = "300000"};

    (void)state;
    run(&job);
    job.limit = "0";
    run(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_a_host_waits_for_is_named),
        cmocka_unit_test(the_rank_on_another_host_is_named_with_its_host),
        cmocka_unit_test(nobody_is_named_within_the_limit_or_without_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
