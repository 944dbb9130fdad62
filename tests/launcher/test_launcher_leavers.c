/* test_launcher_leavers.c - what the nodes of a job decide when nodes or ranks leave it, or a user
 * asks for other numbers, or for its end. */
#include "launcher/member_world.h"

#include <signal.h>

static void a_node_that_is_asked_to_leave_ends_with_status_3(void **state)
{
    (void)state;
    nodes_begin(3, 2, 3);
    node_signal(1, SIGTERM);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(2, 1, 2, 4);
    node_signal(2, SIGINT);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_SIGNALLED);
}

static void a_rank_that_is_asked_to_end_is_left_out(void **state)
{
    (void)state;
    nodes_begin_alone(1, 2);
    node_feed(&nodes[0],
              (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_RANK_LEAVES, .number = 1});
    nodes_settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[0].told.number, 0);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 1);
}

/* Also before the first leave is heard, and while ranks save. */
static void ranks_of_a_node_leave_one_after_the_other(void **state)
{
    (void)state;
    nodes_begin(3, 2, 3);
    node_leave_rank(2, 4);
    node_leave_rank(2, 5);
    nodes_settle();
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[1].told.number, 0); /* all ranks know */
    node_leave_rank(1, 3);
    nodes_settle();
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_over(2, CDDPI_STOPPED_EARLY);
    assert_runs(0, 1, 0, 3);
    assert_runs(1, 1, 2, 3);
}

static void a_rank_that_the_job_needs_is_replaced(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    for (int rank = 0; rank < 2; rank++) { /* node 0 serves the store */
        node_leave_rank(0, rank);
        nodes_settle();
    }
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 3);
    node_leave_rank(0, 0);
    nodes_settle();
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    assert_non_null(strstr(nodes[0].members.change.text, "rank 0 leaves, and another"));
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 2, 0, 3);
}

/* The ranks of a node may have saved and ended before it hears that members change. */
static void a_rank_leaves_and_all_end_before_the_change_is_heard(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    nodes[0].is_alive = false; /* it is slow */
    node_leave_rank(1, 2);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    nodes[0].is_alive = true;
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 3);
    assert_runs(1, 1, 2, 3);
}

static void a_rank_that_leaves_does_not_keep_a_job_that_ends(void **state)
{
    int events;

    (void)state;
    nodes_begin(2, 1, 2);
    node_signal(0, SIGTERM);
    events = nodes_events();
    node_leave_rank(1, 3);
    nodes_settle();
    assert_int_equal(nodes_events(), events); /* nothing is published */
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_over(0, CDDPI_STOPPED_EARLY);
    assert_over(1, CDDPI_STOPPED_EARLY);
}

/* Node 0's user asks for @p event. */
static void wish(struct cddpi_node_event event)
{
    event.rank = -1;
    node_feed(&nodes[0],
              (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ASKED, .heard = &event});
    nodes_settle();
}

static void what_a_user_asks_for_happens_on_all_nodes(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    wish((struct cddpi_node_event){.kind = CDDPI_EVENT_SIGNAL, .number = SIGURG});
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_SIGNALLED);
    assert_int_equal(nodes[1].told.number, SIGURG);
    assert_int_equal(nodes[1].members.asked_signal, 0); /* the job goes on */
    wish((struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .node = 2, .number = 1});
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[2].told.number, SIGTERM); /* all ranks must hear of it */
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 1, 4, 5);
    wish((struct cddpi_node_event){.kind = CDDPI_EVENT_LEAVE, .node = 1, .number = SIGTERM});
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(2, 2, 2, 3);
}

/* As a straggler is: its process is asked to end, so all ranks know. */
static void a_rank_is_replaced_without_a_change_of_numbers(void **state)
{
    const struct cddpi_node_event size = {
        .kind = CDDPI_EVENT_SIZE, .node = 0, .rank = 0, .number = 2};

    (void)state;
    nodes_begin(2, 1, 2);
    node_feed(&nodes[0],
              (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ASKED, .heard = &size});
    nodes_settle();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nodes[i].told.kind, CDDPI_JOB_CHANGED);
        assert_int_equal(nodes[i].told.number, 0);
        node_end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_runs(0, 1, 0, 4);
    assert_runs(1, 1, 2, 4);
}

static void a_node_may_leave_while_others_are_waited_for(void **state)
{
    (void)state;
    nodes_begin(3, 3, 4);
    node_lose(1);
    nodes_end_ranks(1, false);
    node_signal(2, SIGTERM);
    assert_over(2, CDDPI_STOPPED_EARLY);
}

/* Ranks that start handle no signals yet, but what the job has done before is saved. */
static void a_job_that_is_asked_to_end_as_a_generation_starts_has_its_checkpoint(void **state)
{
    (void)state;
    for (int has_saved = 0; has_saved < 2; has_saved++) {
        nodes_begin(1, 1, 2);
        node_leave_rank(0, 1);
        nodes_settle();
        node_end_ranks(0, CDDPI_STOPPED_EARLY, has_saved);
        assert_runs(0, 1, 0, 1);
        node_signal(0, SIGTERM);
        node_end_ranks(0, 128 + SIGTERM, false);
        assert_over(0, has_saved ? CDDPI_STOPPED_EARLY : 128 + SIGTERM);
    }
}

/* That memory goes with the job, so nothing is left to go on from. */
static void what_is_kept_in_memory_is_no_checkpoint(void **state)
{
    (void)state;
    nodes_begin(1, 1, 2);
    node_leave_rank(0, 1);
    nodes_settle();
    node_end_ranks_kept(0, CDDPI_STOPPED_EARLY);
    assert_runs(0, 1, 0, 1);
    node_signal(0, SIGTERM);
    node_end_ranks(0, 128 + SIGTERM, false);
    assert_over(0, 128 + SIGTERM);
}

static void a_second_signal_to_a_node_that_leaves_reaches_its_ranks_only(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_signal(1, SIGTERM);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    nodes_wait(201);
    node_signal(1, SIGTERM);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_SIGNALLED);
    assert_int_equal(nodes[1].told.node, 1); /* so that it counts although others were asked */
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    for (int rank = 4; rank < 6; rank++) { /* all ranks of node 2: it leaves, too */
        node_leave_rank(2, rank);
    }
    nodes_settle();
    nodes_wait(201);
    node_signal(2, SIGTERM);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_SIGNALLED);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
}

/* All ranks know of it, so no signal tells them. */
static void the_last_rank_of_a_node_leaves(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_leave_rank(1, 3);
    nodes_settle();
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(1, 1, 2, 3);
    nodes[0].told = nodes[1].told = (struct cddpi_job_event){.kind = CDDPI_JOB_TIME, .number = -1};
    node_leave_rank(1, 2);
    nodes_settle();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nodes[i].told.kind, CDDPI_JOB_CHANGED);
        assert_int_equal(nodes[i].told.number, 0);
        node_end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(0, 2, 0, 2);
}

static void a_job_that_waits_ends_when_it_is_asked_to(void **state)
{
    (void)state;
    nodes_begin(2, 2, 3);
    node_lose(1);
    node_end_ranks(0, 1, false);
    assert_int_equal(nodes[0].members.phase, CDDPI_MEMBERS_ENDED);
    node_signal(0, SIGTERM);
    assert_over(0, 128 + SIGTERM);
}

static void each_signal_that_asks_to_end_ends_the_job(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    (void)state;
    for (int i = 0; i < 4; i++) {
        nodes_begin(1, 1, 1);
        nodes[0].members.max_restarts = 3;
        node_signal(0, numbers[i]);
        assert_int_equal(nodes[0].told.number, numbers[i]);
        assert_int_equal(nodes[0].members.asked_signal, numbers[i]);
        node_end_ranks(0, 128 + numbers[i], false);
        assert_over(0, 128 + numbers[i]);
    }
}

static void a_node_that_got_a_rank_back_may_lose_one_again(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_leave_rank(1, 3);
    for (int generation = 1; generation < 4; generation++) {
        nodes_settle();
        nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
        assert_runs(1, generation, 2, generation == 2 ? 4 : 3);
        if (generation == 1) {
            wish((struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .node = 1, .number = 2});
        } else if (generation == 2) {
            node_leave_rank(1, 2);
        }
    }
}

/* timeout(1) and service managers send two signals for one request. */
static void one_request_to_leave_may_come_twice(void **state)
{
    (void)state;
    for (int is_rank = 0; is_rank < 2; is_rank++) {
        nodes_begin(2, 1, 2);
        if (is_rank) { /* its ranks got it, too */
            node_leave_rank(1, 2);
            node_leave_rank(1, 3);
            nodes_settle();
        } else {
            node_signal(1, SIGTERM);
        }
        assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
        nodes_wait(200);
        node_signal(1, SIGTERM);
        assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
        nodes_wait(1);
        node_signal(1, SIGTERM); /* another one */
        assert_int_equal(nodes[1].told.kind, CDDPI_JOB_SIGNALLED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_is_asked_to_leave_ends_with_status_3),
        cmocka_unit_test(a_rank_that_is_asked_to_end_is_left_out),
        cmocka_unit_test(ranks_of_a_node_leave_one_after_the_other),
        cmocka_unit_test(a_rank_that_the_job_needs_is_replaced),
        cmocka_unit_test(a_rank_leaves_and_all_end_before_the_change_is_heard),
        cmocka_unit_test(a_rank_that_leaves_does_not_keep_a_job_that_ends),
        cmocka_unit_test(what_a_user_asks_for_happens_on_all_nodes),
        cmocka_unit_test(a_rank_is_replaced_without_a_change_of_numbers),
        cmocka_unit_test(a_node_may_leave_while_others_are_waited_for),
        cmocka_unit_test(a_job_that_is_asked_to_end_as_a_generation_starts_has_its_checkpoint),
        cmocka_unit_test(what_is_kept_in_memory_is_no_checkpoint),
        cmocka_unit_test(a_second_signal_to_a_node_that_leaves_reaches_its_ranks_only),
        cmocka_unit_test(the_last_rank_of_a_node_leaves),
        cmocka_unit_test(a_job_that_waits_ends_when_it_is_asked_to),
        cmocka_unit_test(each_signal_that_asks_to_end_ends_the_job),
        cmocka_unit_test(a_node_that_got_a_rank_back_may_lose_one_again),
        cmocka_unit_test(one_request_to_leave_may_come_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
