/* test_spawn.c - ranks that are forks of a program: they train together, and the caller gets their
 * failures, signals and hangs as one message. */
#include "support/failure.h"
#include "support/group.h"
#include "support/launcher.h"

#include <cddp/cddp.h>

#include <dirent.h>
#include <poll.h>
#include <pthread.h>

static cddp_status sum_rank(void *state, int rank)
{
    int expected = *(const int *)state;
    cddp_group *group;
    int32_t sum = 0;

    CHECK(cddp_group_create(NULL, &group) == CDDP_OK);
    CHECK(cddp_group_rank(group) == rank && cddp_group_world_size(group) == expected);
    CHECK(group_info(group).local_rank == rank);
    CHECK(cddp_all_reduce(group, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(sum == expected * (expected - 1) / 2);
    CHECK(atoi(getenv("RANK")) == rank && atoi(getenv("WORLD_SIZE")) == expected);
    CHECK(atoi(getenv("LOCAL_RANK")) == rank && atoi(getenv("MASTER_PORT")) > 0);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_of_any_number_join_and_sum(void **state)
{
    static int sizes[] = {1, 2, 3, 7};

    (void)state;
    for (int i = 0; i < 4; i++) {
        int descriptors = support_descriptors();

        assert_int_equal(cddp_spawn(sizes[i], sum_rank, &sizes[i], NULL), CDDP_OK);
        assert_int_equal(support_descriptors(), descriptors);
        assert_null(getenv("CDDP_RANK"));
    }
}

static cddp_status hear_rank(void *state, int rank)
{
    (void)state;
    (void)rank;
    CHECK(getenv("CDDP_REPORT_FD") == NULL && getenv("CDDP_KEEP_FDS") == NULL);
    return CDDP_OK;
}

/* A rank of cddp-run has a pipe to it, and memory; they are not for ranks that it spawns. */
static void what_a_launcher_has_given_to_the_caller_stays_the_callers(void **state)
{
    (void)state;
    setenv("CDDP_REPORT_FD", "7", 1);
    setenv("CDDP_KEEP_FDS", "8,9", 1);
    assert_int_equal(cddp_spawn(2, hear_rank, NULL, NULL), CDDP_OK);
    assert_string_equal(getenv("CDDP_REPORT_FD"), "7");
    assert_string_equal(getenv("CDDP_KEEP_FDS"), "8,9");
    unsetenv("CDDP_REPORT_FD");
    unsetenv("CDDP_KEEP_FDS");
}

static int threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;

    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static int most_threads;

static void count_threads(void)
{
    int now = threads();

    most_threads = now > most_threads ? now : most_threads;
}

/* A second thread could hold a lock, which a fork would inherit locked. */
static void no_thread_of_the_library_runs_when_ranks_are_forked(void **state)
{
    int size = 3;
    int before = threads();

    (void)state;
    assert_int_equal(pthread_atfork(count_threads, NULL, NULL), 0);
    assert_int_equal(cddp_spawn(size, sum_rank, &size, NULL), CDDP_OK);
    assert_int_equal(most_threads, before);
}

static cddp_status pause_for_ever(void)
{
    for (int s = 0; s < SUPPORT_LIMIT_S; s++) {
        support_sleep_ms(1000);
    }
    return 0;
}

/* The others wait in a join that rank 1 never comes to. */
static cddp_status failing_rank(void *state, int rank)
{
    cddp_group *group;

    (void)state;
    if (rank == 1) {
        return cddp_all_reduce(NULL, NULL, NULL, 1, CDDP_F32, CDDP_OP_SUM, NULL);
    }
    return cddp_group_create(NULL, &group);
}

static void a_rank_that_fails_gives_its_text_and_status(void **state)
{
    (void)state;
    assert_true(failure_is(cddp_spawn(3, failing_rank, NULL, NULL), CDDP_ERR_ARGUMENT, 1, -1, ""));
    assert_true(last_error_has("all_reduce"));
}

static cddp_status wordless_rank(void *state, int rank)
{
    return rank == 4 ? *(const cddp_status *)state : CDDP_OK;
}

static void a_rank_that_fails_without_a_word_is_named(void **state)
{
    static cddp_status io = CDDP_ERR_IO;
    static int number = 7;

    (void)state;
    assert_true(failure_is(cddp_spawn(5, wordless_rank, &io, NULL), CDDP_ERR_IO, 4, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "rank 4: its function returned CDDP_ERR_IO: a file or a connection failed");
    assert_true(failure_is(cddp_spawn(5, wordless_rank, &number, NULL), CDDP_ERR_PEER, 4, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "rank 4: its function returned 7, which is no error of cddp");
}

static cddp_status wording_rank(void *state, int rank)
{
    return rank == 1 ? cddp_fail(CDDP_ERR_FORMAT, state) : CDDP_OK;
}

static void a_rank_fails_in_its_own_words(void **state)
{
    (void)state;
    assert_true(
        failure_is(cddp_spawn(2, wording_rank, "no such image", NULL), CDDP_ERR_FORMAT, 1, -1, ""));
    assert_string_equal(cddp_last_error(), "rank 1: no such image");
}

static cddp_status exiting_rank(void *state, int rank)
{
    (void)state;
    if (rank == 2) {
        _exit(9);
    }
    return pause_for_ever();
}

static void a_rank_that_exits_is_named_and_the_others_are_ended(void **state)
{
    (void)state;
    assert_true(failure_is(cddp_spawn(3, exiting_rank, NULL, NULL), CDDP_ERR_PEER, 2, -1, ""));
    assert_true(last_error_has("rank 2: ended with exit status 9"));
}

static cddp_status quiet_rank(void *state, int rank)
{
    cddp_group *group;

    CHECK(cddp_group_create(NULL, &group) == CDDP_OK);
    if (rank == 2) {
        if (*(int *)state == 0) {
            _exit(0);
        }
        pthread_exit(NULL);
    }
    return pause_for_ever();
}

static void a_rank_that_ends_with_0_half_way_is_no_success(void **state)
{
    static const char *const texts[] = {
        "rank 2: ended with exit status 0 before its function returned",
        "rank 2: ended with exit status 1 before its function returned"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(failure_is(cddp_spawn(3, quiet_rank, &i, NULL), CDDP_ERR_PEER, 2, -1, ""));
        assert_string_equal(cddp_last_error(), texts[i]);
    }
}

/* It takes SIGTERM and ends well, which is not why the job failed. */
static void leave_well(int number)
{
    (void)number;
    _exit(0);
}

static cddp_status obeying_rank(void *state, int rank)
{
    char byte;

    if (rank == 1) {
        CHECK(read(((int *)state)[0], &byte, 1) == 1); /* when rank 0 listens */
        return CDDP_ERR_FORMAT;
    }
    signal(SIGTERM, leave_well);
    CHECK(write(((int *)state)[1], "x", 1) == 1);
    return pause_for_ever();
}

static void a_rank_that_ends_with_0_when_asked_is_not_to_blame(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_true(failure_is(cddp_spawn(2, obeying_rank, ends, NULL), CDDP_ERR_FORMAT, 1, -1, ""));
    close(ends[0]);
    close(ends[1]);
}

/* Rank 1 is killed in the middle of a job; its peers fail because of it, perhaps first. */
static cddp_status killed_rank(void *state, int rank)
{
    cddp_group *group;

    (void)state;
    CHECK(cddp_group_create(NULL, &group) == CDDP_OK);
    if (rank == 1) {
        raise(SIGKILL);
    }
    return cddp_barrier(group, NULL);
}

static void a_rank_that_a_signal_kills_is_the_one_that_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_true(failure_is(cddp_spawn(3, killed_rank, NULL, NULL), CDDP_ERR_PEER, 1, -1, ""));
        assert_string_equal(cddp_last_error(), "rank 1: ended by signal 9 (Killed)");
    }
}

/* Rank 1 fails; rank 0 does not listen to SIGTERM. */
static cddp_status deaf_rank(void *state, int rank)
{
    char byte;

    if (rank == 1) {
        CHECK(read(((int *)state)[0], &byte, 1) == 1); /* when rank 0 is deaf */
        return CDDP_ERR_FORMAT;
    }
    signal(SIGTERM, SIG_IGN);
    CHECK(write(((int *)state)[1], "x", 1) == 1);
    return pause_for_ever();
}

static void a_rank_that_does_not_listen_is_killed_after_the_grace_period(void **state)
{
    cddp_spawn_options options = CDDP_SPAWN_OPTIONS_INIT;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    options.grace_ms = 50;
    assert_true(failure_is(cddp_spawn(2, deaf_rank, fds, &options), CDDP_ERR_FORMAT, 1, -1, ""));
    close(fds[0]);
    close(fds[1]);
}

static cddp_status hanging_rank(void *state, int rank)
{
    (void)state;
    return rank == 0 ? CDDP_OK : pause_for_ever();
}

static void ranks_that_hang_are_ended_at_the_deadline(void **state)
{
    cddp_spawn_options options = CDDP_SPAWN_OPTIONS_INIT;

    (void)state;
    options.timeout_ms = 100; /* rank 0 may still run then, on a slow machine */
    assert_int_equal(cddp_spawn(3, hanging_rank, NULL, &options), CDDP_ERR_TIMEOUT);
    assert_true(last_error_has("still ran after 100 ms, and were ended"));
    assert_true(last_error_has("1, 2"));
}

/* Writes its process id, and waits. */
static cddp_status telling_rank(void *state, int rank)
{
    int32_t told[2] = {rank, (int32_t)getpid()};

    CHECK(write(*(const int *)state, told, sizeof told) == sizeof told);
    return pause_for_ever();
}

static void no_rank_outlives_a_caller_that_is_killed(void **state)
{
    int fds[2];
    struct pollfd told_end;
    int32_t told[2];
    pid_t ranks[3];
    pid_t caller;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    caller = fork();
    if (caller == 0) {
        (void)!cddp_spawn(3, telling_rank, &fds[1], NULL);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read(fds[0], told, sizeof told), sizeof told);
        ranks[i] = told[1];
    }
    kill(caller, SIGKILL);
    assert_int_equal(waitpid(caller, NULL, 0), caller);
    close(fds[1]);
    told_end = (struct pollfd){fds[0], POLLIN, 0};
    assert_int_equal(poll(&told_end, 1, SUPPORT_TIMEOUT_MS), 1);
    assert_int_equal(read(fds[0], told, 1), 0); /* each rank had the writing end */
    for (int i = 0; i < 3; i++) {
        assert_true(launcher_is_gone(ranks[i]));
    }
    close(fds[0]);
}

static void a_caller_that_ignores_its_children_gets_the_same_answers(void **state)
{
    static int size = 3;

    (void)state;
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(cddp_spawn(size, sum_rank, &size, NULL), CDDP_OK);
    assert_true(failure_is(cddp_spawn(3, failing_rank, NULL, NULL), CDDP_ERR_ARGUMENT, 1, -1, ""));
    assert_true(failure_is(cddp_spawn(3, exiting_rank, NULL, NULL), CDDP_ERR_PEER, 2, -1, ""));
    signal(SIGCHLD, SIG_DFL);
}

static void wrong_arguments_are_refused(void **state)
{
    cddp_spawn_options options = {0};

    (void)state;
    assert_int_equal(cddp_spawn(2, NULL, NULL, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_spawn(0, wordless_rank, NULL, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_spawn(CDDP_MAX_SPAWN_RANKS + 1, wordless_rank, NULL, NULL),
                     CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("between 1 and 4096"));
    assert_int_equal(cddp_spawn(1, wordless_rank, NULL, &options), CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("CDDP_SPAWN_OPTIONS_INIT"));
}

static void the_example_s_ranks_print_their_mean(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(&job, launcher_path("examples/spawn"), (const char *const[]){"3", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_int_equal(launcher_count(job.out, " of 3: the mean is 2\n"), 3);
    assert_out(&job, "rank 2 of 3");
    launcher_end(&job);
    launcher_start_program(&job, launcher_path("examples/spawn"), (const char *const[]){"0", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "spawn: 0 processes: ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_any_number_join_and_sum),
        cmocka_unit_test(what_a_launcher_has_given_to_the_caller_stays_the_callers),
        cmocka_unit_test(no_thread_of_the_library_runs_when_ranks_are_forked),
        cmocka_unit_test(a_rank_that_fails_gives_its_text_and_status),
        cmocka_unit_test(a_rank_that_fails_without_a_word_is_named),
        cmocka_unit_test(a_rank_fails_in_its_own_words),
        cmocka_unit_test(a_rank_that_exits_is_named_and_the_others_are_ended),
        cmocka_unit_test(a_rank_that_ends_with_0_half_way_is_no_success),
        cmocka_unit_test(a_rank_that_ends_with_0_when_asked_is_not_to_blame),
        cmocka_unit_test(a_rank_that_a_signal_kills_is_the_one_that_is_named),
        cmocka_unit_test(a_rank_that_does_not_listen_is_killed_after_the_grace_period),
        cmocka_unit_test(ranks_that_hang_are_ended_at_the_deadline),
        cmocka_unit_test(no_rank_outlives_a_caller_that_is_killed),
        cmocka_unit_test(a_caller_that_ignores_its_children_gets_the_same_answers),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(the_example_s_ranks_print_their_mean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
