/* test_recovery_stay.c - jobs whose processes stay when other ranks are lost, with
 * cddp_recovery_rejoin(): they are ranks of the next generation, and only what was lost is started
 * again. */
#include "support/recovery_api.h"

#include <cddp/recovery.h>

/* The process that is @p rank of @p generation; 0: none says so in @p text. */
static int process_in(const char *text, int generation, int rank)
{
    for (const char *at = text; (at = strstr(at, "process ")) != NULL; at++) {
        int found[3];

        if (sscanf(at, "process %d is rank %d of generation %d", &found[0], &found[1], &found[2]) ==
                3 &&
            found[1] == rank && found[2] == generation) {
            return found[0];
        }
    }
    return 0;
}

static int process_of(const struct launched *job, int generation, int rank)
{
    return process_in(job->out, generation, rank);
}

static bool was_there(const struct launched *job, int generation, int ranks, int process)
{
    for (int rank = 0; rank < ranks; rank++) {
        if (process_of(job, generation, rank) == process) {
            return true;
        }
    }
    return false;
}

/* Of the @p ranks ranks of @p generation, @p stayed are processes of the one before, which had
 * @p ranks_before. */
static void assert_stayed(const struct launched *job, int generation, int ranks_before, int ranks,
                          int stayed)
{
    int found = 0;

    for (int rank = 0; rank < ranks; rank++) {
        int process = process_of(job, generation, rank);

        if (process == 0) {
            fail_msg("nobody says that it is rank %d of generation %d: %s%s", rank, generation,
                     job->out, job->err);
        }
        found += was_there(job, generation - 1, ranks_before, process);
    }
    if (found != stayed) {
        fail_msg("%d of %d processes stayed for generation %d: %s", found, ranks_before, generation,
                 job->out);
    }
}

#define STAYS(job, ranks, words, ...)                                                              \
    recovery_runs((job), (ranks), LOOPS("stays", (words)), LOOPS(__VA_ARGS__))

static void whichever_rank_is_killed_the_others_stay(void **state)
{
    static const char *const ranks[] = {"2", "3", "5"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        int count = atoi(ranks[i]);

        for (int rank = 0; rank < count; rank += 1 + (rank > 0)) {
            struct launched job = {0};
            char words[256], goes_on[32], ends[32];

            snprintf(words, sizeof words, STATE_ALL "ddp=%s 0.%d:kill=5", rank % 2 == 0 ? "p" : "s",
                     rank);
            snprintf(goes_on, sizeof goes_on, "1.%s: replaced 4\n", ranks[i]);
            snprintf(ends, sizeof ends, "1.%s: ends at 9\n", ranks[i]);
            STAYS(&job, ranks[i], words, goes_on, ends);
            assert_stayed(&job, 1, count, count, count - 1);
            assert_int_equal(process_of(&job, 0, (rank + 1) % count),
                             process_of(&job, 1, (rank + 1) % count)); /* at its place */
            launcher_end(&job);
        }
    }
}

static void they_stay_as_often_as_others_are_killed(void **state)
{
    struct launched job = {0};

    (void)state;
    STAYS(&job, "4",
          STATE_ALL "ddp=s 0.3:kill=2 1.0:kill=3 2.1:met=4 2.2:met=4 3.*:kill=6 4.2:save=8",
          "1.4: replaced 1\n", "2.4: replaced 2\n", "3.4: replaced 4\n", "4.4: replaced 5\n",
          "5.4: replaced 7\n", "5.4: ends at 9\n");
    assert_stayed(&job, 1, 4, 4, 3);
    assert_stayed(&job, 2, 4, 4, 3);
    assert_stayed(&job, 3, 4, 4, 2);
    assert_stayed(&job, 4, 4, 4, 0); /* all were killed */
    assert_stayed(&job, 5, 4, 4, 3);
    launcher_end(&job);
}

/* What fails by itself is started again, as the state of its process may be the cause. */
static void a_process_that_has_failed_itself_does_not_stay(void **state)
{
    struct launched job = {0};

    (void)state;
    STAYS(&job, "3", "every=1 steps=9 whole=31 0.1:ends=5", "1.3: replaced 4\n",
          "1.3: ends at 9\n");
    assert_stayed(&job, 1, 3, 3, 2);
    assert_int_not_equal(process_of(&job, 0, 1), process_of(&job, 1, 1));
    launcher_end(&job);
}

/* A rank that is asked to leave goes; the others may have other numbers afterwards. */
static void who_leaves_goes_and_the_others_stay(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "4", "--elastic", "1:4", "--", recovery_rank(), "stays",
           "every=3 steps=12 calls=1 ddp=s part=1 part=33 part=1000 whole=7 "
           "0.0:term=2 1.2:term=4 2.1:term=5");
    recovery_ends_well(&job, LOOPS("0.4: stopped 2\n", "1.3: replaced 2\n", "1.3: stopped 4\n",
                                   "2.2: replaced 4\n", "2.2: stopped 5\n", "3.1: replaced 5\n",
                                   "3.1: ends at 12\n"));
    assert_stayed(&job, 1, 4, 3, 3);
    assert_stayed(&job, 2, 3, 2, 2);
    assert_stayed(&job, 3, 2, 1, 1);
    launcher_end(&job);
}

/* Generations fail before they have kept anything, so the launcher pauses, at last for 500 ms. */
#define PAUSES "every=1 steps=9 whole=31 part=33 0.1:kill=1 1.1:kill=1 2.1:kill=1 "

static bool is_asleep(pid_t pid)
{
    char name[32];
    char *text, *state;
    bool is_so;

    snprintf(name, sizeof name, "%d/stat", (int)pid);
    text = launcher_read("/proc", name);
    assert_non_null(text);
    state = strrchr(text, ')');
    is_so = state != NULL && strncmp(state, ") S", 3) == 0;
    free(text);
    return is_so;
}

/* Wait until rank 0 has lost the other rank so often. Returns the process that it is: the only one
 * that stays. */
static pid_t await_pause(struct launched *job, const char *restarts, int losses)
{
    char *text;
    int process, lost;

    launcher_start(job, (const char *const[]){"--nproc", "2", "--max-restarts", restarts, "--",
                                              recovery_rank(), "stays", PAUSES, NULL});
    for (long waited_ms = 0;; waited_ms += 2) {
        text = launcher_read(job->dir, "err");
        lost = text != NULL ? launcher_count(text, "may this process stay?") : 0;
        free(text);
        if (lost >= losses) {
            break;
        }
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(2);
    }
    text = launcher_read(job->dir, "out");
    process = process_in(text, 0, 0);
    free(text);
    assert_true(process > 0);
    while (!is_asleep(process)) { /* it has said so, and is about to ask */
        support_sleep_ms(1);
    }
    return process;
}

static void one_that_is_killed_while_it_waits_is_replaced(void **state)
{
    struct launched job = {0};
    pid_t process = await_pause(&job, "9", 3);

    (void)state;
    kill(process, SIGKILL);
    recovery_ends_well(&job, LOOPS("0.2: begins at 0\n", "1.2: begins at 0\n", ": ends at 9\n"));
    assert_int_equal(process_of(&job, 0, 0), process);
    assert_int_equal(process_of(&job, 2, 0), process);
    assert_int_not_equal(process_of(&job, 3, 0), process);
    launcher_end(&job);
}

static void a_job_that_is_over_lets_all_go(void **state)
{
    struct launched job = {0};
    pid_t process = await_pause(&job, "2", 2);

    (void)state;
    launcher_wait(&job); /* no restart is left */
    assert_int_equal(job.exit_status, 128 + SIGKILL);
    assert_true(launcher_is_gone(process));
    launcher_end(&job);
    process = await_pause(&job, "9", 3);
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_true(job.exit_status != 0);
    assert_true(launcher_is_gone(process));
    launcher_end(&job);
}

/* Its stop is not forgotten, and counts for the rank that it is by then. */
static void one_that_is_asked_to_leave_while_it_waits_stops_afterwards(void **state)
{
    struct launched job = {0};
    pid_t process = await_pause(&job, "9", 3);

    (void)state;
    kill(process, SIGTERM);
    recovery_ends_well(&job, LOOPS("0.2: begins at 0\n", ": stopped ", ": ends at 9\n"));
    launcher_end(&job);
}

static void one_that_has_closed_its_output_stays(void **state)
{
    struct launched job = {0};

    (void)state;
    STAYS(&job, "3", STATE_ALL "*.1:closes=1 0.2:kill=5", "1.3: replaced 4\n", "1.3: ends at 9\n");
    assert_int_equal(launcher_count(job.err, "restarting"), 1);
    launcher_end(&job);
}

/* The others take their time to end: it is replaced when they have. */
static void one_that_dies_before_the_others_have_ended_is_replaced(void **state)
{
    struct launched job = {0};
    char *text;
    int process;

    (void)state;
    launcher_start(&job, (const char *const[]){"--nproc", "3", "--max-restarts", "9", "--grace",
                                               "300", "--", recovery_rank(), "stays",
                                               STATE_ALL "0.1:kill=5 0.2:lingers=5", NULL});
    launcher_await_text(job.dir, "out", "lingers 5");
    text = launcher_read(job.dir, "out");
    process = process_in(text, 0, 0);
    free(text);
    assert_true(process > 0);
    launcher_await_text(job.dir, "err", "rank 0: "); /* it fails, as rank 1 is gone ... */
    support_sleep_ms(100);                           /* ... and is held, or about to be */
    kill(process, SIGKILL);
    assert_true(launcher_is_gone(process));
    launcher_write(job.dir, "go", "");
    recovery_ends_well(&job, LOOPS("1.3: replaced 4\n", "1.3: ends at 9\n"));
    assert_int_not_equal(process_of(&job, 1, 0), process);
    launcher_end(&job);
}

static void if_the_launcher_is_killed_they_end(void **state)
{
    struct launched job = {0};
    pid_t process = await_pause(&job, "9", 3);

    (void)state;
    kill(launcher_child(job.pid), SIGKILL);
    launcher_wait(&job);
    assert_true(launcher_is_gone(process));
    launcher_end(&job);
}

/* A new process has no handler yet, and ends at once; the others wait for it to join. */
static void those_that_wait_for_one_that_was_ended_end_too(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start(&job, (const char *const[]){"--nproc", "3", "--max-restarts", "9", "--grace",
                                               "300", "--", recovery_rank(), "late",
                                               STATE_ALL "0.1:kill=5", NULL});
    launcher_await_text(job.dir, "out", "rank 1 is late");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_err(&job, "rank 1 ended, with status 143, before it joined");
    launcher_end(&job);
}

/* What it takes before it is ready it has to forget: it may be of the last generation. */
static void a_signal_that_came_before_it_was_ready_is_sent_again(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start(&job, (const char *const[]){"--nproc", "1", "--max-restarts", "1", "--grace",
                                               "300", "--", recovery_rank(), "answered", NULL});
    launcher_await_text(job.dir, "out", "answered");
    kill(job.pid, SIGTERM);
    launcher_await_text(job.dir, "out", "signal 1");
    launcher_write(job.dir, "go", "");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    launcher_end(&job);
}

/* A script may choose other words in each generation. */
static void what_a_script_executes_is_started_again(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "9", "--", "/bin/sh", "-c",
           "exec \"$0\" stays '" STATE_ALL "0.1:kill=5'", recovery_rank());
    recovery_ends_well(&job, LOOPS("1.2: replaced 4\n", "1.2: ends at 9\n"));
    assert_stayed(&job, 1, 2, 2, 0);
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "9", "--", "/bin/sh", "-c",
           "\"$0\" stays '" STATE_ALL "0.1:kill=5'; exit $?", recovery_rank());
    recovery_ends_well(&job, LOOPS("1.2: replaced 4\n", "1.2: ends at 9\n"));
    assert_stayed(&job, 1, 2, 2, 0);
    launcher_end(&job);
}

static void who_is_not_kept_by_a_launcher_is_told_so(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "1", "--", recovery_rank(), "stays", "every=1 steps=9 0.0:term=5");
    assert_int_equal(job.exit_status, 3);
    launcher_end(&job);
    assert_int_equal(cddp_recovery_rejoin(CDDP_OK), CDDP_ERR_UNAVAILABLE);
    assert_non_null(strstr(cddp_last_error(), "no launcher keeps this process"));
    assert_int_equal(cddp_recovery_rejoin(CDDP_ERR_IO), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "ERR_IO is no failure of another rank"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whichever_rank_is_killed_the_others_stay),
        cmocka_unit_test(they_stay_as_often_as_others_are_killed),
        cmocka_unit_test(a_process_that_has_failed_itself_does_not_stay),
        cmocka_unit_test(who_leaves_goes_and_the_others_stay),
        cmocka_unit_test(one_that_is_killed_while_it_waits_is_replaced),
        cmocka_unit_test(a_job_that_is_over_lets_all_go),
        cmocka_unit_test(one_that_is_asked_to_leave_while_it_waits_stops_afterwards),
        cmocka_unit_test(one_that_has_closed_its_output_stays),
        cmocka_unit_test(one_that_dies_before_the_others_have_ended_is_replaced),
        cmocka_unit_test(if_the_launcher_is_killed_they_end),
        cmocka_unit_test(those_that_wait_for_one_that_was_ended_end_too),
        cmocka_unit_test(a_signal_that_came_before_it_was_ready_is_sent_again),
        cmocka_unit_test(what_a_script_executes_is_started_again),
        cmocka_unit_test(who_is_not_kept_by_a_launcher_is_told_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
