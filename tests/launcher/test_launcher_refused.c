/* test_launcher_refused.c - what the nodes of a job decide about ranks that its configuration does
 * not allow, or that cannot be started. */
#include "launcher/member_world.h"

#include <signal.h>

static void ask_for_ranks(int number)
{
    nodes_append(
        &(struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .number = number, .rank = -1});
    nodes_settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
}

static void pipelines_leave_in_whole_replicas(void **state)
{
    (void)state;
    nodes_begin_alone(2, 4);
    ask_for_ranks(4);
    assert_runs(0, 1, 0, 4);
    twist.multiple = 2;
    node_leave_rank(0, 3);
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 2, 0, 2);
    node_leave_rank(0, 1); /* no replica would be left */
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 3, 0, 2);
}

static void a_node_whose_replica_lost_its_other_half_waits_for_one(void **state)
{
    (void)state;
    nodes_begin(4, 1, 6);
    twist.multiple = 4;
    node_lose(3);
    nodes_end_ranks(1, false);
    assert_runs(0, 1, 0, 4);
    assert_runs(1, 1, 2, 4);
    assert_false(nodes[2].runs);
    node_join(4, 4, 1, 6);
    nodes_wait(5000);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 2, 4, 8);
    assert_runs(4, 2, 6, 8);
}

static void a_configuration_that_no_number_of_ranks_pleases_ends_the_job(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    twist.multiple = 100;
    node_lose(2);
    nodes_end_ranks(1, false);
    assert_over(0, 2);
    assert_over(1, 2);
}

static void more_ranks_than_the_configuration_allows_are_not_started(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    twist.refuses = 1; /* whatever the reason */
    twist.allowed = 4;
    nodes_append(
        &(struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .node = 1, .number = 4, .rank = -1});
    nodes_settle();
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    for (int i = 0; i < 3; i++) { /* it may be passing */
        assert_false(nodes[1].runs);
        nodes_wait(1000);
    }
    for (int i = 0; i < 2; i++) {
        assert_runs(i, 1, 2 * i, 4);
        assert_int_equal(nodes[i].list[1].nproc, 2);
    }
    nodes_wait(5000);
    assert_int_equal(nodes[0].members.change.kind, CDDPI_EVENT_NONE); /* it is not tried again */
}

static void no_more_ranks_are_given_up_than_the_user_allows(void **state)
{
    (void)state;
    nodes_begin_alone(2, 4);
    ask_for_ranks(4);
    assert_runs(0, 1, 0, 4);
    twist.refuses = 2;
    twist.allowed = 1;
    node_leave_rank(0, 3);
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_over(0, 2);
}

/* Of four nodes, node 3 is lost, and then ranks cannot be started on node @p number. */
static void begin_with_one_that_cannot_start(int number, int least)
{
    nodes_begin(4, least, 4);
    node_lose(3);
    nodes_end_ranks(1, false);
    assert_runs(2, 1, 4, 6);
    node_cannot_start(number);
}

static void a_node_whose_ranks_cannot_be_started_is_left_out(void **state)
{
    (void)state;
    begin_with_one_that_cannot_start(1, 2);
    assert_runs(0, 2, 0, 4);
    assert_runs(2, 2, 2, 4);
    assert_string_equal(nodes[2].members.reason, "node 1 (host): no process is left");
    assert_over(1, 126);
    assert_string_equal(nodes[1].said,
                        "the others go on without this node: its ranks could not be started");
    node_cannot_start(2); /* too few would be left */
    assert_over(0, 126);
    assert_over(2, 126);
}

static void nodes_whose_ranks_cannot_be_started_are_left_out_together(void **state)
{
    const struct cddpi_node_event failure = {
        .kind = CDDPI_EVENT_FAILURE, .generation = 1, .node = 2, .rank = -1, .exit_status = 126};

    (void)state;
    nodes_begin(4, 1, 4);
    node_lose(3);
    nodes_end_ranks(1, false);
    nodes_append(&failure);
    node_cannot_start(1);
    assert_runs(0, 2, 0, 2);
    assert_over(1, 126);
    assert_over(2, 1);
}

/* A rank elsewhere had failed first, so it was started again. */
static void a_node_that_could_not_start_ranks_once_is_not_left_out_for_that_later(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_fail_rank(2);
    node_cannot_start(1);
    nodes_wait(1000);
    assert_runs(1, 1, 2, 6);
    node_cannot_start(2);
    assert_runs(1, 2, 2, 4);
}

/* Its user has to hear that the program is missing there. */
static void a_job_that_cannot_be_started_ends(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_cannot_start(1);
    assert_over(0, 126);
    begin_with_one_that_cannot_start(0, 1); /* nor one that cannot go on where it is decided */
    assert_over(2, 126);
    nodes_begin(3, 3, 3); /* nor one whose nodes are fixed */
    for (int i = 0; i < 3; i++) {
        nodes[i].members.max_restarts = 3;
    }
    node_fail_rank(2);
    nodes_end_ranks(1, false);
    assert_runs(1, 1, 2, 6);
    node_cannot_start(1);
    assert_over(0, 126);
}

/* So its end is no failure. */
static void a_node_that_cannot_start_ranks_may_leave(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_FAILURE, .node = 1, .rank = -1, .exit_status = 126});
    nodes_settle();
    node_signal(1, SIGTERM);
    nodes_end_ranks(1, false);
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(2, 1, 2, 4);
}

static void a_refusal_that_comes_late_changes_nothing(void **state)
{
    int events;

    (void)state;
    for (int number = 1; number < 3; number++) { /* whatever the reason */
        nodes_begin(2, 1, 2);
        events = nodes_events();
        node_feed(&nodes[0],
                  (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_REFUSED, .number = number});
        nodes_wait(5000);
        assert_int_equal(nodes_events(), events); /* nothing is published */
        assert_string_equal(nodes[0].said, "");
        assert_runs(1, 0, 2, 4);
    }
}

/* Such as train.micro_batch, which limits the number of ranks. */
static void a_late_node_whose_ranks_the_configuration_refuses_waits(void **state)
{
    (void)state;
    nodes_begin(2, 1, 4);
    twist.refuses = 2;
    twist.allowed = 5;
    node_join(2, 2, 1, 4);
    nodes_wait(5000);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_non_null(strstr(nodes[0].said, "generation 1: 4 ranks on 2 nodes"));
    assert_runs(0, 1, 0, 4);
    assert_false(nodes[2].runs);
    nodes_wait(5000);
    assert_int_equal(nodes[0].members.change.kind, CDDPI_EVENT_NONE); /* it is not tried again */
    node_lose(1);
    node_end_ranks(0, 1, false);
    assert_runs(0, 2, 0, 4);
    assert_runs(2, 2, 2, 4);
}

/* The next generation cannot be started @p tries times. */
static void begin_with_refusals(int tries)
{
    nodes_begin(3, 1, 3);
    twist.refuses = 1;
    node_lose(2);
    nodes_end_ranks(1, false);
    for (int i = 1; i < tries; i++) {
        nodes_wait(1000);
    }
    assert_string_equal(nodes[0].said,
                        "generation 1 cannot be started now (status 1): trying again");
}

/* Such as when a file system is slow, or no process is left. A configuration that is refused stays
 * so. */
static void a_generation_that_cannot_be_started_now_is_tried_again(void **state)
{
    (void)state;
    for (int tries = 1; tries < 4; tries++) {
        begin_with_refusals(tries);
        twist.refuses = 0;
        nodes_wait(999);
        assert_false(nodes[1].runs);
        nodes_wait(1);
        assert_runs(1, 1, 2, 4);
    }
    twist.refuses = 1; /* the next generation is another one */
    node_lose(1);
    node_end_ranks(0, 1, false);
    assert_string_equal(nodes[0].said,
                        "generation 2 cannot be started now (status 1): trying again");
    begin_with_refusals(3);
    nodes_wait(1000);
    assert_over(1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_leave_in_whole_replicas),
        cmocka_unit_test(a_node_whose_replica_lost_its_other_half_waits_for_one),
        cmocka_unit_test(a_configuration_that_no_number_of_ranks_pleases_ends_the_job),
        cmocka_unit_test(more_ranks_than_the_configuration_allows_are_not_started),
        cmocka_unit_test(no_more_ranks_are_given_up_than_the_user_allows),
        cmocka_unit_test(a_node_whose_ranks_cannot_be_started_is_left_out),
        cmocka_unit_test(nodes_whose_ranks_cannot_be_started_are_left_out_together),
        cmocka_unit_test(a_node_that_could_not_start_ranks_once_is_not_left_out_for_that_later),
        cmocka_unit_test(a_job_that_cannot_be_started_ends),
        cmocka_unit_test(a_generation_that_cannot_be_started_now_is_tried_again),
        cmocka_unit_test(a_node_that_cannot_start_ranks_may_leave),
        cmocka_unit_test(a_refusal_that_comes_late_changes_nothing),
        cmocka_unit_test(a_late_node_whose_ranks_the_configuration_refuses_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
