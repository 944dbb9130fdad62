/* test_launcher_head.c - the cddp-run of --hosts ends in time, whatever others do: hosts that do
 * not answer or do not stop, and an ssh that misbehaves. The cases wait for real seconds, so all
 * run at once. */
#include "support/launcher.h"
#include "support/parallel.h"

/* What is waited for is told: who is silent for less is not lost, unless a test chooses a limit. */
#define A_DAY "86400000"

/* Start the words here, as ssh does elsewhere. */
static const char reach[] = "#!/bin/sh\n"
                            "shift\n"
                            "exec sh -c \"$*\"\n";

static void prepare(struct launched *job, const char *script, const char *heartbeat_ms)
{
    memset(job, 0, sizeof *job);
    job->dir = support_mkdtemp();
    launcher_write(job->dir, "reach", script);
    unsetenv("CDDP_TOKEN");
    setenv("CDDP_HEARTBEAT_MS", heartbeat_ms, 1);
}

#define START(job, hosts, ...)                                                                     \
    launcher_start(                                                                                \
        (job), (const char *const[]){"--hosts", (hosts), "--ssh", "./reach", __VA_ARGS__, NULL})

static void end(struct launched *job)
{
    unsetenv("CDDP_HEARTBEAT_MS");
    launcher_end(job);
}

/* A rank that says who it and its supervisor are, and that takes no request to end. */
#define STAYS                                                                                      \
    "trap '' TERM; echo $$ >pid$RANK; echo $PPID >parent$RANK; while :; do sleep 0.02; done"

static void freeze(const struct launched *job, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        char name[16];

        snprintf(name, sizeof name, "parent%d", rank);
        kill((pid_t)launcher_number(job, name), SIGSTOP);
    }
}

static void assert_ranks_are_gone(const struct launched *job, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        char name[16];

        snprintf(name, sizeof name, "pid%d", rank);
        assert_true(launcher_is_gone((pid_t)launcher_number(job, name)));
    }
}

static void hosts_of_which_none_answers_are_named(void **state)
{
    static const char *const scripts[] = {"#!/bin/sh\nexec sleep 1000\n",
                                          "#!/bin/sh\nexec cat >/dev/null\n"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct launched job;

        prepare(&job, scripts[i], A_DAY);
        START(&job, "a:1,b:1", "--timeout", "1", "--", "true");
        launcher_wait(&job);
        assert_int_equal(job.exit_status, 1);
        assert_err(&job, "cddp-run: of 2 hosts these did not come within 1 s: 0 (a), 1 (b).");
        end(&job);
    }
}

static void a_host_that_does_not_answer_is_named_beside_one_that_does(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job,
            "#!/bin/sh\n[ $1 != a ] || exec sleep 1000\n"
            "shift\nexec sh -c \"$*\"\n",
            A_DAY);
    START(&job, "a:1,b:1", "--timeout", "30", "--", "true");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, " 0 (a).");
    assert_no_err(&job, "1 (b)");
    end(&job);
}

static void a_command_that_starts_nothing_and_says_0_is_a_failure(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, "#!/bin/sh\nexit 0\n", A_DAY);
    START(&job, "a:1,b:1", "--", "true");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "cddp-run: node 0 (a) did not start: ./reach ended with status 0 without "
                     "starting cddp-run there");
    assert_names_node(&job, 1);
    end(&job);
}

/* The others are not left to wait for --timeout. */
static void one_such_command_ends_the_job_at_once(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, "#!/bin/sh\n[ $1 != b ] || exit 0\nshift\nexec sh -c \"$*\"\n", A_DAY);
    START(&job, "a:1,b:1", "--timeout", "100000", "--", "true");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_names_node(&job, 1);
    end(&job);
}

static void a_command_that_fails_without_a_word_is_named(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, "#!/bin/sh\nexit 5\n", A_DAY);
    START(&job, "a:1", "--", "true");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 5);
    assert_err(&job, "cddp-run: node 0 (a) did not start: ./reach, or cddp-run there, ended with "
                     "status 5");
    end(&job);
}

/* ssh may go, with any status, while the ranks run. */
static void a_way_that_ends_with_0_during_the_job_is_a_loss(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job,
            "#!/bin/sh\n[ $1 != b ] || { shift; exec 3<&0; sh -c \"$*\" <&3 & "
            "while [ ! -s pid0 ] || [ ! -s pid1 ]; do sleep 0.02; done; exit 0; }\n"
            "shift\nexec sh -c \"$*\"\n",
            A_DAY);
    START(&job, "a:1,b:1", "--grace", "0.2", "--", "sh", "-c", STAYS);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_names_node(&job, 1);
    assert_ranks_are_gone(&job, 2);
    end(&job);
}

/* What an agent says at its end, when the job has gone well elsewhere. */
static void a_host_whose_cddp_run_fails_after_the_job_is_no_success(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, "#!/bin/sh\nhost=$1\nshift\nsh -c \"$*\" || exit\n[ $host != b ] || exit 9\n",
            A_DAY);
    START(&job, "a:1,b:1", "--", "true");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 9);
    assert_err(&job, "cddp-run: node 1 (b): ./reach, or cddp-run there, ended "
                     "with status 9 after the job's end");
    end(&job);
}

static void hosts_that_all_freeze_are_lost(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, reach, "5000");
    START(&job, "a:1,b:1", "--", "sh", "-c", STAYS);
    freeze(&job, 2);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_names_node(&job, 0);
    assert_names_node(&job, 1);
    assert_ranks_are_gone(&job, 2);
    end(&job);
}

/* What led to it is ended at once: what waits for its ranks, here rank 0, need not wait for
 * --grace.
 */
static void a_host_that_freezes_costs_no_grace_period(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, reach, "10000");
    START(&job, "a:1,b:1", "--grace", "86400", "--", "sh", "-c",
          "trap '' TERM; echo $$ >pid$RANK; echo $PPID >parent$RANK; while [ ! -s pid1 ] || "
          "kill -0 $(cat pid1) 2>/dev/null; do sleep 0.02; done; exit 1");
    (void)launcher_number(&job, "parent0");
    kill((pid_t)launcher_number(&job, "parent1"), SIGSTOP);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_names_node(&job, 1);
    assert_ranks_are_gone(&job, 2);
    end(&job);
}

/* The commonest list: one remote machine. */
static void the_only_host_that_freezes_is_lost(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, reach, "5000");
    START(&job, "a:1", "--", "sh", "-c", STAYS);
    freeze(&job, 1);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_names_node(&job, 0);
    assert_ranks_are_gone(&job, 1);
    end(&job);
}

static void a_signal_ends_the_job_though_no_host_obeys(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, reach, A_DAY);
    START(&job, "a:1,b:1", "--grace", "0.2", "--", "sh", "-c", STAYS);
    freeze(&job, 2);
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_err(&job, "cddp-run: node 0 (a) has not ended: closing the connection to it");
    assert_ranks_are_gone(&job, 2);
    end(&job);
}

static void a_second_signal_ends_it_at_once(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, reach, A_DAY);
    START(&job, "a:1,b:1", "--grace", "86400", "--", "sh", "-c", STAYS);
    freeze(&job, 2);
    kill(job.pid, SIGTERM);
    launcher_await_text(job.dir, "err", "SIGTERM: ");
    support_sleep_ms(300); /* two within a moment are one */
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_ranks_are_gone(&job, 2);
    end(&job);
}

/* Its deadline does not cut off what a node grants: ranks that say that they still save. */
static void ranks_that_save_for_longer_than_the_deadline_are_left_to_end(void **state)
{
    struct launched job;

    (void)state;
    prepare(&job, reach, A_DAY);
    START(&job, "a:1", "--grace", "1.5", "--", "sh", "-c",
          "trap 'i=0; while [ $i -lt 70 ]; do printf w >/proc/$$/fd/$CDDP_REPORT_FD; sleep 0.2; "
          "i=$((i+1)); done; echo saved; exit 3' TERM; echo $$ >pid0; while :; do sleep 0.02; "
          "done");
    (void)launcher_number(&job, "pid0");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    assert_out(&job, "saved\n");
    end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_of_which_none_answers_are_named),
        cmocka_unit_test(a_host_that_does_not_answer_is_named_beside_one_that_does),
        cmocka_unit_test(a_command_that_starts_nothing_and_says_0_is_a_failure),
        cmocka_unit_test(one_such_command_ends_the_job_at_once),
        cmocka_unit_test(a_command_that_fails_without_a_word_is_named),
        cmocka_unit_test(a_way_that_ends_with_0_during_the_job_is_a_loss),
        cmocka_unit_test(a_host_whose_cddp_run_fails_after_the_job_is_no_success),
        cmocka_unit_test(hosts_that_all_freeze_are_lost),
        cmocka_unit_test(the_only_host_that_freezes_is_lost),
        cmocka_unit_test(a_host_that_freezes_costs_no_grace_period),
        cmocka_unit_test(a_signal_ends_the_job_though_no_host_obeys),
        cmocka_unit_test(a_second_signal_ends_it_at_once),
        cmocka_unit_test(ranks_that_save_for_longer_than_the_deadline_are_left_to_end),
    };

    return run_in_parallel(tests);
}
