/* test_launcher_elastic_hosts.c - one cddp-run starts a job on a list of hosts that may be lost and
 * come back (--hosts with --nnodes MIN:MAX). */
#include "support/parallel.h"
#include "support/reached.h"
#include "support/undisturbed.h"

#include <signal.h>

/* Host @p lost is lost, and comes back. The others have @p left ranks. */
static void lose_and_return(int lost, const char *left)
{
    struct launched job;
    char text[64];

    reached_begin(&job, "1:3", "60");
    reached_kill(&job, reached_hosts[lost]);
    reached_await(&job, 1, 0, left);
    snprintf(text, sizeof text, "cddp-run: node %d (%s) is lost: ", lost, reached_hosts[lost]);
    launcher_await_text(job.dir, "err", text);
    reached_mark(&job, "away", reached_hosts[lost], false);
    for (int rank = 0; rank < 4; rank++) {
        reached_await(&job, 2, rank, "/4 on 3");
    }
    reached_finish(&job, 0);
    snprintf(text, sizeof text, " (%s) has come\n", reached_hosts[lost]);
    assert_err(&job, text);
    snprintf(text, sizeof text, "cddp-run: starting cddp-run on %s again, as node 3;",
             reached_hosts[lost]);
    assert_err(&job, text);
    assert_int_equal(launcher_count(job.err, "starting cddp-run on "), 1);
    assert_err(&job, "cddp-run: stopping the other ranks on 2 hosts; after 10 s they are killed\n");
    assert_no_err(&job, "the first to fail");
    reached_end(&job);
}

static void a_host_that_is_lost_is_let_in_when_it_comes_back(void **state)
{
    (void)state;
    lose_and_return(1, "0/2 on 2");
}

static void the_host_of_node_0_may_be_lost(void **state)
{
    (void)state;
    lose_and_return(0, "0/3 on 2");
}

static void two_of_three_hosts_may_be_lost_at_once(void **state)
{
    struct launched job;

    (void)state;
    reached_begin(&job, "1:3", "60");
    reached_kill(&job, "alpha");
    reached_kill(&job, "gamma");
    launcher_await_text(job.dir, "err", "node 0 (alpha) is lost");
    launcher_await_text(job.dir, "err", "node 2 (gamma) is lost");
    /* If their losses came one by one, a generation between them may end before it says a word. */
    for (int ms = 0, is_up = 0; !is_up; ms += 20) {
        assert_true(ms < SUPPORT_TIMEOUT_MS);
        for (int generation = 1; generation <= 3 && !is_up; generation++) {
            char name[32];
            char *up;

            snprintf(name, sizeof name, "up%d.0", generation);
            up = launcher_read(job.dir, name);
            is_up = up != NULL && strcmp(up, "0/2 on 1\n") == 0;
            free(up);
        }
        support_sleep_ms(20);
    }
    reached_finish(&job, 0);
    reached_end(&job);
}

static void a_job_begins_without_a_host_that_does_not_come(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "away", "beta", true);
    launcher_settle(10);
    TRAIN(&job, "alpha:1,beta:1,gamma:1", "2:3", "60");
    reached_await(&job, 0, 1, "1/2 on 2");
    launcher_await_text(job.dir, "tries-beta", "\n\n\n"); /* it is tried again and again */
    reached_mark(&job, "away", "beta", false);
    reached_await(&job, 1, 2, "2/3 on 3");
    reached_finish(&job, 0);
    assert_err(&job, "the job begins on 2 of 3 hosts; not there yet: beta");
    /* what is the same each time is told once */
    assert_int_equal(launcher_count(job.err, "No route to host"), 1);
    assert_int_equal(launcher_count(job.err, "starting cddp-run on beta again"), 1);
    reached_end(&job);
}

/* Neither does the end wait for it. */
static void node_0_need_never_come(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "hang", "alpha", true);
    launcher_settle(10);
    TRAIN(&job, "alpha:1,beta:1,gamma:1", "1:3", "60");
    reached_await(&job, 0, 0, "0/2 on 2");
    reached_kill(&job, "beta");
    reached_await(&job, 1, 0, "0/1 on 1");
    reached_finish(&job, 0);
    assert_err(&job, "not there yet: alpha");
    reached_end(&job);
}

static void the_head_waits_for_a_host_if_none_is_left(void **state)
{
    struct launched job;

    (void)state;
    reached_begin(&job, "1:3", "60");
    for (int i = 0; i < REACHED_HOSTS; i++) {
        reached_kill(&job, reached_hosts[i]);
    }
    launcher_await_text(job.dir, "err", "no host is left: waiting for one to come back");
    reached_mark(&job, "away", "gamma", false);
    launcher_await_text(job.dir, "err", " (gamma) has come\n");
    reached_finish(&job, 0);
    reached_end(&job);
}

static void a_host_that_is_asked_to_leave_is_not_lost(void **state)
{
    struct launched job;

    (void)state;
    reached_begin(&job, "1:3", "60");
    kill((pid_t)launcher_number(&job, "agent-beta"), SIGTERM);
    reached_await(&job, 1, 0, "0/2 on 2");
    reached_finish(&job, 0);
    assert_err(&job, "cddp-run: node 1 (beta) leaves the job\n");
    assert_no_err(&job, "is lost");
    reached_end(&job);
}

static void one_host_more_than_the_most_waits_until_another_is_lost(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    reached_mark(&job, "away", "gamma", true);
    TRAIN(&job, "alpha:1,beta:1,gamma:1", "1:2", "60");
    reached_await(&job, 0, 1, "1/2 on 2");
    reached_mark(&job, "away", "gamma", false);
    launcher_await_text(job.dir, "err", "the job has its 2 nodes: this one waits");
    reached_kill(&job, "alpha");
    reached_await(&job, 1, 1, "1/2 on 2");
    reached_finish(&job, 0);
    reached_end(&job);
}

/* It hears that the others went on without it, and another cddp-run takes its place. */
static void a_host_that_stands_still_is_lost_and_started_again(void **state)
{
    struct launched job;
    pid_t supervisor;

    (void)state;
    reached_prepare(&job);
    setenv("CDDP_HEARTBEAT_MS", "5000", 1);
    TRAIN(&job, "alpha:1,beta:1", "1:2", "60");
    reached_await(&job, 0, 1, "1/2 on 2");
    supervisor = (pid_t)launcher_number(&job, "parent1");
    kill(supervisor, SIGSTOP);
    reached_await(&job, 1, 0, "0/1 on 1");
    reached_await(&job, 2, 1, "1/2 on 2");
    reached_finish(&job, 0);
    assert_err(&job, "cddp-run: node 1 (beta) is lost: no sign of life");
    assert_true(launcher_is_gone(supervisor));
    reached_end(&job);
}

/* cddp-train; the agent of node 0 is killed after the first checkpoint, and comes back. */
static void with_micro_batches_the_bits_are_those_of_the_undisturbed_run(void **state)
{
    struct launched job;

    (void)state;
    reached_prepare(&job);
    undisturbed_write_conf(job.dir);
    START(&job, "alpha:1,beta:2,gamma:1", "1:3", "--run-dir", "run", "t.conf");
    undisturbed_await_checkpoint(job.dir);
    kill(-(pid_t)launcher_number(&job, "agent-alpha"), SIGKILL);
    launcher_wait(&job);
    if (job.exit_status != 0) {
        fail_msg("status %d: %s", job.exit_status, job.err);
    }
    assert_names_node(&job, 0);
    undisturbed_compare(job.dir);
    reached_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_that_is_lost_is_let_in_when_it_comes_back),
        cmocka_unit_test(the_host_of_node_0_may_be_lost),
        cmocka_unit_test(two_of_three_hosts_may_be_lost_at_once),
        cmocka_unit_test(a_job_begins_without_a_host_that_does_not_come),
        cmocka_unit_test(node_0_need_never_come),
        cmocka_unit_test(the_head_waits_for_a_host_if_none_is_left),
        cmocka_unit_test(a_host_that_is_asked_to_leave_is_not_lost),
        cmocka_unit_test(one_host_more_than_the_most_waits_until_another_is_lost),
        cmocka_unit_test(a_host_that_stands_still_is_lost_and_started_again),
        cmocka_unit_test(with_micro_batches_the_bits_are_those_of_the_undisturbed_run),
    };

    return run_in_parallel(tests);
}
