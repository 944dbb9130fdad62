/* test_launcher_elastic_head.c - how the cddp-run of --hosts with --nnodes MIN:MAX ends a job that
 * may lose hosts: its exit status and last line, signals, and hosts that fail from the start. */
#include "support/parallel.h"
#include "support/reached.h"

#include <signal.h>

static void a_command_that_hangs_is_tried_again(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "hang", "beta", true);
    launcher_settle(10);
    TRAIN(&job, "alpha:1,beta:1", "1:2", "30");
    reached_await(&job, 0, 0, "0/1 on 1");
    launcher_await_text(job.dir, "tries-beta", "\n\n");
    reached_mark(&job, "hang", "beta", false);
    reached_await(&job, 1, 1, "1/2 on 2");
    reached_finish(&job, 0);
    assert_err(&job, "node 1 (beta) did not come within 30 s (--timeout)");
    reached_end(&job);
}

/* The second host comes later than the default allows. */
static void a_job_waits_for_further_hosts_for_as_long_as_it_is_told(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "away", "beta", true);
    TRAIN(&job, "alpha:1,beta:1", "1:2", "100000");
    support_sleep_ms(5000);
    reached_mark(&job, "away", "beta", false);
    reached_await(&job, 0, 1, "1/2 on 2");
    reached_finish(&job, 0);
    reached_end(&job);
}

static void too_few_hosts_at_the_beginning_are_a_status_of_their_own(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "away", "beta", true);
    TRAIN(&job, "alpha:1,beta:1", "2:2", "30");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 4);
    assert_err(&job, "cddp-run: of at least 2 hosts 1 came within 30 s. Not there: beta.");
    reached_end(&job);
}

/* Then the command or its words are wrong, and not the hosts. */
static void hosts_that_all_fail_at_once_end_the_job(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "away", "alpha", true);
    reached_mark(&job, "away", "beta", true);
    TRAIN(&job, "alpha:1,beta:1", "1:2", "100000");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 255);
    assert_err(&job, "ssh: connect to host alpha: No route to host\n");
    reached_end(&job);
}

static void too_few_that_are_left_end_with_status_4(void **state)
{
    struct launched job;

    (void)state;
    reached_begin(&job, "3:3", "30");
    reached_kill(&job, "beta");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 4);
    assert_err(&job, "2 nodes are left, and the job needs 3: waiting for others for up to 30 s");
    assert_err(&job, "cddp-run: the first to fail was node 1 (beta): ");
    reached_end(&job);
}

static void a_job_without_hosts_ends_with_status_4(void **state)
{
    struct launched job;

    (void)state;
    reached_begin(&job, "1:3", "30");
    for (int i = 0; i < REACHED_HOSTS; i++) {
        reached_kill(&job, reached_hosts[i]);
    }
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 4);
    assert_err(&job, "no host came back within 30 s");
    reached_end(&job);
}

/* The whole job saves and ends. */
static void a_signal_to_the_head_ends_the_job_with_a_checkpoint(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct launched job;

        reached_begin(&job, "1:3", "60");
        kill(job.pid, numbers[i]);
        launcher_wait(&job);
        assert_int_equal(job.exit_status, 3);
        assert_no_err(&job, "is lost");
        reached_end(&job);
    }
}

static void a_rank_that_fails_costs_no_host(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    START(&job, "alpha:1,beta:1", "1:2", "--", "bash", "-c",
          "[ $CDDP_GENERATION.$RANK != 0.1 ] || exit 7; [ $CDDP_GENERATION != 0 ] || exec sleep "
          "1000; echo up $RANK");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "up 0\n");
    assert_out(&job, "[1] up 1\n");
    assert_failed_rank(&job, 1);
    assert_no_err(&job, "is lost");
    reached_end(&job);
}

static void the_last_line_names_the_rank_that_failed_first(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    START(&job, "alpha:1,beta:1", "1:2", "--max-restarts", "0", "--", "bash", "-c",
          "[ $RANK != 1 ] || exit 7; exec sleep 1000");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 7);
    assert_err(&job, "cddp-run: the first to fail was node 1 (beta): rank 1 ");
    reached_end(&job);
}

static void a_host_that_differs_is_refused_and_the_others_go_on(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "away", "beta", true);
    launcher_settle(10);
    TRAIN(&job, "alpha:1,beta:1", "1:2", "60");
    reached_await(&job, 0, 0, "0/1 on 1");
    reached_mark(&job, "other", "beta", true);
    reached_mark(&job, "away", "beta", false);
    launcher_await_text(job.dir, "err", "(beta) was started to run something else than node 0");
    reached_finish(&job, 0);
    assert_int_equal(launcher_count(job.err, "something else"), 1);
    reached_end(&job);
}

static void hosts_that_differ_at_the_beginning_are_refused(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "other", "beta", true);
    TRAIN(&job, "alpha:1,beta:1", "2:2", "60");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 2);
    assert_int_equal(launcher_count(job.err, "to run something else than node"), 1);
    reached_end(&job);
}

static void no_rank_outlives_the_first_cddp_run(void **state)
{
    struct launched job;

    (void)state;
    reached_begin(&job, "1:3", "60");
    kill(job.pid, SIGKILL);
    launcher_wait(&job);
    for (int rank = 0; rank < 4; rank++) {
        char name[16];

        snprintf(name, sizeof name, "pid%d", rank);
        assert_true(launcher_is_gone((pid_t)launcher_number(&job, name)));
    }
    reached_end(&job);
}

/* Else they would become more and more as hosts come and go. */
static void what_a_lost_host_leaves_behind_is_reaped(void **state)
{
    struct launched job;
    pid_t supervisor;

    (void)state;
    launcher_needs_orphans();
    reached_begin(&job, "1:3", "60");
    supervisor = (pid_t)launcher_number(&job, "parent1");
    reached_kill(&job, "beta");
    for (int i = 0; kill(supervisor, 0) == 0; i++) {
        if (i == 3000) {
            fail_msg("process %d is not reaped", (int)supervisor);
        }
        support_sleep_ms(20);
    }
    reached_await(&job, 1, 0, "0/2 on 2");
    reached_finish(&job, 0);
    reached_end(&job);
}

static void a_dry_run_shows_between_how_many_hosts(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    START(&job, "alpha:1,beta:1", "1:9", "--dry-run", "--", "true");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, " --nnodes=1:2 --node-rank=1 ");
    reached_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_that_hangs_is_tried_again),
        cmocka_unit_test(a_job_waits_for_further_hosts_for_as_long_as_it_is_told),
        cmocka_unit_test(too_few_hosts_at_the_beginning_are_a_status_of_their_own),
        cmocka_unit_test(hosts_that_all_fail_at_once_end_the_job),
        cmocka_unit_test(too_few_that_are_left_end_with_status_4),
        cmocka_unit_test(a_job_without_hosts_ends_with_status_4),
        cmocka_unit_test(a_signal_to_the_head_ends_the_job_with_a_checkpoint),
        cmocka_unit_test(a_rank_that_fails_costs_no_host),
        cmocka_unit_test(the_last_line_names_the_rank_that_failed_first),
        cmocka_unit_test(a_host_that_differs_is_refused_and_the_others_go_on),
        cmocka_unit_test(hosts_that_differ_at_the_beginning_are_refused),
        cmocka_unit_test(no_rank_outlives_the_first_cddp_run),
        cmocka_unit_test(what_a_lost_host_leaves_behind_is_reaped),
        cmocka_unit_test(a_dry_run_shows_between_how_many_hosts),
    };

    return run_in_parallel(tests);
}
