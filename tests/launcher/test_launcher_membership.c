/* test_launcher_membership.c - what the nodes of a job decide together: a few histories told by
 * hand. test_launcher_leavers.c has members that leave, test_launcher_newcomers.c those that come,
 * test_launcher_outside.c an outside store; tests/sim makes thousands of such histories up. */
#include "launcher/member_world.h"

#include <signal.h>

static void all_nodes_run_the_first_generation_and_end_with_it(void **state)
{
    (void)state;
    nodes_begin(3, 3, 3);
    assert_runs(0, 0, 0, 6);
    assert_runs(2, 0, 4, 6);
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 0, true);
    }
    for (int i = 0; i < 3; i++) {
        assert_over(i, 0);
    }
}

static void the_rest_go_on_without_a_lost_node(void **state)
{
    (void)state;
    nodes_begin(3, 2, 3);
    node_lose(1);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_FAILED_THERE);
    node_end_ranks(0, 1, false);
    assert_false(nodes[0].runs);
    node_end_ranks(2, 1, false);
    assert_runs(0, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

static void a_fixed_job_ends_with_a_lost_node(void **state)
{
    (void)state;
    nodes_begin(3, 3, 3);
    node_lose(1);
    node_end_ranks(0, 1, false);
    node_end_ranks(2, 1, false);
    assert_over(0, 1);
    assert_over(2, 1);
}

/* A machine that goes down: its ranks are killed first, and its cddp-run a moment later. */
static void a_fixed_job_ends_if_a_node_is_lost_after_its_ranks(void **state)
{
    (void)state;
    nodes_begin(2, 2, 2);
    nodes[0].members.max_restarts = nodes[1].members.max_restarts = 3;
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                            .node = 1,
                                            .rank = 2,
                                            .exit_status = 137,
                                            .may_restart = true});
    nodes_settle();
    node_end_ranks(1, 137, false);
    node_lose(1);
    node_end_ranks(0, 143, false);
    nodes_wait(1);
    assert_over(0, 137);
}

/* Slurm announces the end of its time to cddp-run, which tells all ranks. */
static void ranks_that_save_since_the_time_is_over_are_not_started_again(void **state)
{
    (void)state;
    nodes_begin(2, 2, 2);
    nodes[0].members.max_restarts = nodes[1].members.max_restarts = 3;
    node_signal(1, SIGUSR1);
    assert_int_equal(nodes[0].told.number, SIGUSR1);
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                            .node = 0,
                                            .rank = 0,
                                            .exit_status = CDDPI_STOPPED_EARLY,
                                            .may_restart = true});
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    nodes_wait(1);
    assert_over(0, CDDPI_STOPPED_EARLY);
    assert_over(1, CDDPI_STOPPED_EARLY);
}

static void too_few_nodes_wait_for_others_and_end_with_status_4(void **state)
{
    (void)state;
    nodes_begin(2, 2, 3);
    node_lose(1);
    node_end_ranks(0, 1, false);
    assert_int_equal(nodes[0].members.phase, CDDPI_MEMBERS_ENDED);
    node_join(2, 2, 2, 3);
    nodes_wait(1000);
    assert_runs(0, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
    node_lose(2);
    node_end_ranks(0, 1, false);
    nodes_wait(61000);
    assert_over(0, CDDPI_TOO_FEW);
}

static void a_start_that_names_a_node_that_is_gone_is_void(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_lose(1);
    twist.before_start = (struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 2, .rank = -1};
    node_end_ranks(0, 1, false);
    node_end_ranks(2, 1, false);
    assert_runs(0, 1, 0, 2);
    assert_over(2, 1);
}

static void nothing_begins_after_the_end_of_the_job(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_fail_rank(1);
    twist.is_orphaned = true;
    node_end_ranks(0, 1, false);
    node_end_ranks(1, 1, false);
    assert_false(nodes[0].runs);
    assert_true(nodes[1].runs); /* it hears START before END */
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_FAILED_THERE);
    node_end_ranks(1, 1, false);
    assert_over(0, 1);
    assert_over(1, 1);
}

static void only_restarts_after_failures_are_counted(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_fail_rank(0); /* since it misses ranks of node 1 */
    node_lose(1);
    node_end_ranks(0, 1, false);
    node_end_ranks(2, 1, false);
    assert_runs(2, 1, 2, 4);
    assert_int_equal(nodes[2].members.made, 0);
    node_fail_rank(2);
    node_end_ranks(0, 1, false);
    node_end_ranks(2, 1, false);
    assert_runs(2, 2, 2, 4);
    assert_int_equal(nodes[2].members.made, 1);
    assert_int_equal(nodes[0].members.restarts.made, 1);
}

static void a_node_whose_launcher_is_killed_is_lost_and_the_rest_go_on(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_feed(&nodes[1], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ORPHANED});
    nodes_settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_FAILED_THERE);
    node_end_ranks(1, 137, false);
    assert_over(1, 137);
    node_end_ranks(0, 1, false);
    assert_runs(0, 1, 0, 2);
}

static void the_loss_of_a_node_whose_ranks_have_ended_is_no_failure(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_end_ranks(1, 0, true);
    node_lose(1);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
    node_end_ranks(0, 0, true);
    node_end_ranks(2, 0, true);
    assert_over(0, 0);
    assert_over(2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nodes_run_the_first_generation_and_end_with_it),
        cmocka_unit_test(the_rest_go_on_without_a_lost_node),
        cmocka_unit_test(a_fixed_job_ends_with_a_lost_node),
        cmocka_unit_test(a_fixed_job_ends_if_a_node_is_lost_after_its_ranks),
        cmocka_unit_test(ranks_that_save_since_the_time_is_over_are_not_started_again),
        cmocka_unit_test(too_few_nodes_wait_for_others_and_end_with_status_4),
        cmocka_unit_test(a_start_that_names_a_node_that_is_gone_is_void),
        cmocka_unit_test(nothing_begins_after_the_end_of_the_job),
        cmocka_unit_test(only_restarts_after_failures_are_counted),
        cmocka_unit_test(a_node_whose_launcher_is_killed_is_lost_and_the_rest_go_on),
        cmocka_unit_test(the_loss_of_a_node_whose_ranks_have_ended_is_no_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
