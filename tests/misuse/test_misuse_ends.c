/* test_misuse_ends.c - ranks that end early in every way, never arrive, or arrive twice: each other
 * rank gets a status with a message that names the rank. */
#include "base/clock.h"
#include "group/group.h"
#include "support/failure.h"
#include "support/misuse.h"

#include <sys/mman.h>

enum end { EXIT, EXIT_EARLY, UNDERSCORE_EXIT, KILLED, DESTROYED, ENDS };

static void end_rank(enum end how, cddp_group *group)
{
    switch (how) {
    case EXIT:
        exit(0);
    case EXIT_EARLY:
        exit(3);
    case UNDERSCORE_EXIT:
        _exit(0);
    case KILLED:
        raise(SIGKILL);
        break;
    default:
        cddp_group_destroy(group);
    }
}

/* How many ranks have the result of the last operation that all take part in; shared by them. */
static _Atomic int *finished;

static int await_finished(int ranks)
{
    int64_t deadline = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);

    while (atomic_load(finished) < ranks) {
        CHECK(cddpi_now_ns() < deadline);
        usleep(1000);
    }
    return 0;
}

/* On a device a failure comes with one of the next calls. */
static cddp_status call_until_failure(struct misuse_model *model, bool by_ddp)
{
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK) {
        status = by_ddp ? (cddp_status)misuse_begin(model) : CDDP_OK;
        for (size_t p = MISUSE_PARAMS; by_ddp && p-- > 0 && status == CDDP_OK;) {
            status = cddp_ddp_grad_ready(model->ddp, p);
        }
        if (status == CDDP_OK) {
            status = by_ddp ? cddp_ddp_wait(model->ddp) : cddp_barrier(model->group, NULL);
        }
    }
    return status;
}

static int end_early_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    enum end how = (enum end)(misuse->which % ENDS);
    bool is_silent = how == UNDERSCORE_EXIT || how == KILLED;
    bool by_ddp = misuse->which >= ENDS;
    struct misuse_model model;
    cddp_group *group;
    cddp_status status;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK);
    CHECK(misuse_step(&model) == 0);
    CHECK(misuse_reduce(group) == 0);
    if (rank == size - 1) {
        /* it cannot say what its device has done just before, so it would be missed for that */
        CHECK(!is_silent || !cddpi_group_has_device(group) || await_finished(size - 1) == 0);
        cddp_ddp_destroy(model.ddp);
        end_rank(how, group);
        return 0;
    }
    /* who finds the rank missing ends the group for all, with what they have under way */
    atomic_fetch_add(finished, 1);
    CHECK(await_finished(size - 1) == 0);
    status = call_until_failure(&model, by_ddp);
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, size - 1, NULL));
    if (how == EXIT || how == EXIT_EARLY || how == DESTROYED) {
        CHECK(strstr(cddp_last_error(), "died") == NULL && last_error_has("has left"));
    }
    CHECK(!is_silent || !cddpi_last_failure()->has_left); /* the system tells of it */
    CHECK(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, ANY_RANK, size - 1, NULL));
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_ends_early_is_named(void **state)
{
    finished = mmap(NULL, sizeof *finished, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0);
    assert_ptr_not_equal(finished, MAP_FAILED);
    for (int which = 0; which < 2 * ENDS; which++) {
        int size = 2 + which % 2;
        int statuses[3] = {0};

        atomic_store(finished, 0);
        (void)misuse_run(*state, size, end_early_rank, which, statuses);
        for (int rank = 0; rank < size - 1; rank++) {
            assert_int_equal(statuses[rank], 0);
        }
    }
    munmap(finished, sizeof *finished);
}

/* A rank that stands still is waited for until the deadline, and then named. */
static int stopped_rank(int rank, int size, void *argument)
{
    struct misuse *misuse = argument;
    struct misuse_model model;
    cddp_group *group;
    cddp_status status;
    pid_t pid = getpid();

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK);
    CHECK(misuse_step(&model) == 0);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    CHECK(cddp_group_set_timeout(group, 3000) == CDDP_OK); /* it is what is waited for */
    if (rank == size - 1) {
        CHECK(write(misuse->signal[1], &pid, sizeof pid) == sizeof pid);
        raise(SIGSTOP);
        return 0;
    }
    status = call_until_failure(&model, false);
    if (rank == 0) { /* let it end */
        CHECK(read(misuse->signal[0], &pid, sizeof pid) == sizeof pid);
        kill(pid, SIGKILL);
    }
    CHECK(status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_PEER); /* who says it first */
    CHECK(last_error_has(size == 2 ? "rank 1" : "rank 2"));
    CHECK(cddp_barrier(group, NULL) == CDDP_ERR_BROKEN);
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_is_stopped_is_named_at_the_deadline(void **state)
{
    for (int size = 2; size <= 3; size++) {
        int statuses[3] = {0};

        (void)misuse_run(*state, size, stopped_rank, 0, statuses);
        for (int rank = 0; rank < size - 1; rank++) {
            assert_int_equal(statuses[rank], 0);
        }
    }
}

enum join { MISSING, DOUBLED, OTHER_SIZE, JOINS };

static int join_rank(int rank, int size, void *argument)
{
    struct misuse *misuse = argument;
    cddp_group *group = NULL;
    cddp_status status;

    misuse->timeout_ms = misuse->which == OTHER_SIZE ? SUPPORT_TIMEOUT_MS : 2000;
    switch (misuse->which) {
    case MISSING:
        status = misuse_join(misuse, rank, size + 1, &group);
        CHECK(misuse_gives(status, CDDP_ERR_TIMEOUT, "rank 2 "));
        break;
    case DOUBLED: /* rank 1 twice, so that rank 2 never comes, or one of the two is refused */
        status = misuse_join(misuse, rank == 2 ? 1 : rank, size, &group);
        CHECK(status != CDDP_OK && misuse_gives(status, status, "rank"));
        break;
    default:
        status = misuse_join(misuse, rank, rank == 0 ? 3 : 2, &group);
        CHECK(status != CDDP_OK && misuse_gives(status, status, "3"));
        CHECK(last_error_has("2"));
    }
    CHECK(group == NULL);
    return 0;
}

static void ranks_that_do_not_fit_do_not_join(void **state)
{
    assert_int_equal(misuse_run(*state, 2, join_rank, MISSING, NULL), 0);
    assert_int_equal(misuse_run(*state, 3, join_rank, DOUBLED, NULL), 0);
    assert_int_equal(misuse_run(*state, 2, join_rank, OTHER_SIZE, NULL), 0);
}

/* What the environment says of a launcher must be whole. */
static int environment_rank(int rank, int size, void *argument)
{
    static const char *const names[] = {
        "RANK",     "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
        "PMI_SIZE", "CDDP_RANK",  "CDDP_WORLD_SIZE"};
    const struct misuse *misuse = argument;
    const char *name = names[misuse->which];
    const char *other = names[misuse->which ^ 1];
    cddp_group *group;

    (void)rank;
    (void)size;
    unsetenv("CDDP_BACKEND");
    setenv(name, misuse->which % 2 == 0 ? "0" : "2", 1);
    /* half of Open MPI's, without its daemon, is what an earlier job has left in the shell */
    CHECK(misuse_gives(cddp_group_create(NULL, &group), CDDP_ERR_ARGUMENT,
                       strcmp(name, "OMPI_COMM_WORLD_SIZE") == 0 ? "left over" : other));
    return 0;
}

static void half_of_a_launchers_variables_are_an_error(void **state)
{
    for (int which = 0; which < 8; which++) {
        assert_int_equal(misuse_run(*state, 1, environment_rank, which, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(a_rank_that_ends_early_is_named),
        MISUSE_TEST(a_rank_that_is_stopped_is_named_at_the_deadline),
        MISUSE_TEST(ranks_that_do_not_fit_do_not_join),
        MISUSE_TEST(half_of_a_launchers_variables_are_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
