/* test_launcher_newcomers.c - what the nodes of a job decide about members that come late. */
#include "launcher/member_world.h"

#include <signal.h>

static void a_late_node_is_let_in_at_a_step_that_is_saved(void **state)
{
    (void)state;
    nodes_begin(2, 1, 3);
    node_join(2, 2, 1, 3);
    assert_true(nodes[0].told.kind != CDDPI_JOB_CHANGED);
    nodes_wait(5000);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[1].told.number, SIGTERM);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 6);
    assert_runs(2, 1, 4, 6);
}

static void more_nodes_than_the_most_wait_until_one_leaves(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_join(2, 2, 1, 2);
    nodes_wait(5000);
    assert_false(nodes[2].runs);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
    node_lose(1);
    node_end_ranks(0, 1, false);
    assert_runs(0, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

/* A job on nodes 0 and 1, which node 2 has joined under generation 1. */
static void begin_with_newcomer(void)
{
    nodes_begin(2, 1, 4);
    node_join(2, 2, 1, 4);
    nodes_wait(5000);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 1, 4, 6);
}

static void fail_ranks(int number)
{
    int generation = nodes[number].members.generation;

    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                            .node = number,
                                            .generation = generation,
                                            .rank = 0,
                                            .exit_status = 7,
                                            .may_restart = true});
    nodes_settle();
    nodes_end_ranks(7, false);
}

static void a_newcomer_that_fails_at_once_is_expelled(void **state)
{
    (void)state;
    begin_with_newcomer();
    fail_ranks(2);
    assert_over(2, 7);
    assert_non_null(strstr(nodes[2].said, "the others go on without this node"));
    assert_runs(0, 2, 0, 4);
    assert_runs(1, 2, 2, 4);
    nodes_wait(5000);
    assert_int_equal(nodes[0].members.change.kind, CDDPI_EVENT_NONE);
}

static void a_newcomer_with_which_others_fail_again_and_again_is_expelled(void **state)
{
    (void)state;
    begin_with_newcomer();
    fail_ranks(1);
    nodes_wait(1000);
    assert_runs(2, 2, 4, 6);
    fail_ranks(0);
    assert_over(2, 7);
    assert_runs(0, 3, 0, 4);
}

static void a_newcomer_that_was_useful_is_restarted_like_others(void **state)
{
    (void)state;
    begin_with_newcomer();
    nodes_wait(CDDPI_SHORT_LIFE_MS);
    fail_ranks(2);
    nodes_wait(1000);
    assert_runs(2, 2, 4, 6);
    fail_ranks(2);
    nodes_wait(1000);
    assert_runs(2, 3, 4, 6);
}

static void what_an_expelled_node_says_changes_nothing(void **state)
{
    (void)state;
    nodes_begin(3, 2, 3);
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1});
    nodes_settle(); /* it is alive and hears that */
    node_end_ranks(0, 1, false);
    node_end_ranks(2, 1, false);
    assert_runs(0, 1, 0, 4);
    node_end_ranks(1, 7, false);
    assert_over(1, 7);
    assert_runs(0, 1, 0, 4);
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_FAILURE, .node = 1, .rank = 2, .exit_status = 7, .generation = 1});
    nodes_settle();
    assert_int_equal(nodes[0].members.failure.kind, CDDPI_EVENT_NONE);
}

/* Such as one for which there was no room. */
static void the_loss_of_a_node_that_was_never_let_in_is_no_failure(void **state)
{
    (void)state;
    nodes_begin(2, 1, 3);
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 99, .rank = -1});
    nodes_settle();
    assert_int_equal(nodes[0].members.failure.kind, CDDPI_EVENT_NONE);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
}

/* Else they would save, after a later generation may have begun. */
static void the_ranks_of_an_expelled_node_are_killed(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1});
    nodes_settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_FAILED_THERE);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_ORPHANED);
    node_end_ranks(1, 137, false);
    assert_over(1, 137);
    nodes_begin(3, 3, 3); /* the whole job ends */
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1});
    nodes_settle();
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_FAILED_THERE);
}

static void who_is_not_let_in_is_named_by_the_node_that_leads(void **state)
{
    (void)state;
    nodes_begin(2, 1, 3);
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_REFUSED, .node = 1, .rank = -1, .text = "beta has no room"});
    nodes_settle();
    assert_string_equal(nodes[0].said, "not let in: beta has no room");
    assert_string_equal(nodes[1].said, "");
}

static void a_join_without_ranks_or_of_a_member_adds_nobody(void **state)
{
    struct cddpi_node_event join = {
        .kind = CDDPI_EVENT_JOIN, .node = 2, .rank = -1, .text = "late"};

    (void)state;
    nodes_begin(2, 1, 3);
    nodes_append(&join);
    join.node = 1;
    join.number = 2;
    nodes_append(&join);
    nodes_settle();
    assert_int_equal(nodes[0].members.count, 2);
    for (join.node = 2; join.node < ROOM + 3; join.node++) {
        nodes_append(&join);
    }
    nodes_settle();
    assert_int_equal(nodes[0].members.count, ROOM);
    assert_null(cddpi_membership_find(&nodes[0].members, ROOM));
}

/* It would wait for ever, since no START can name it. */
static void a_node_for_which_no_place_is_left_ends(void **state)
{
    (void)state;
    nodes_begin(2, 1, 3);
    for (int number = NODES; number < NODES + ROOM - 2; number++) {
        nodes_append(&(struct cddpi_node_event){
            .kind = CDDPI_EVENT_JOIN, .node = number, .number = 2, .rank = -1, .text = "late"});
    }
    node_join(2, 2, 1, 3);
    assert_over(2, 1);
    assert_string_equal(nodes[2].said, "12 nodes have come to this job: no more can");
    assert_true(nodes[0].runs);
}

/* A machine may be slow to tell why it failed, but it has saved. */
static void a_newcomer_with_which_the_job_saved_is_restarted_like_others(void **state)
{
    (void)state;
    begin_with_newcomer();
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                            .node = 2,
                                            .generation = 1,
                                            .exit_status = 7,
                                            .may_restart = true});
    nodes_settle();
    nodes_end_ranks(7, true);
    nodes_wait(1000);
    assert_runs(2, 2, 4, 6);
}

static void a_late_node_does_not_keep_a_job_that_ends(void **state)
{
    (void)state;
    nodes_begin(2, 1, 3);
    node_signal(0, SIGTERM);
    node_join(2, 2, 1, 3);
    nodes_wait(5000);
    assert_int_equal(nodes[0].members.change.kind, CDDPI_EVENT_NONE);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_SIGNALLED);
}

/* Ranks may stop by themselves before the members change. */
static void a_late_node_is_let_in_when_all_ranks_stop_early(void **state)
{
    (void)state;
    nodes_begin(2, 1, 3);
    node_join(2, 2, 1, 3);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 1, 4, 6);
}

static void a_late_node_does_not_say_what_happened_before_it_came(void **state)
{
    (void)state;
    nodes_begin(3, 1, 4);
    node_lose(1);
    assert_string_equal(nodes[2].said, "node 1 (host) is lost: gone");
    node_join(3, 3, 1, 4);
    assert_string_equal(nodes[3].said, "");
}

/* Others may be about to come, and a generation that has just begun is not ended at once. */
static void members_change_when_they_have_settled(void **state)
{
    (void)state;
    for (int is_old = 0; is_old < 2; is_old++) {
        nodes_begin(2, 1, 4);
        nodes_wait(is_old ? 5000 : 0);
        node_join(2, 2, 1, 4);
        nodes_wait(is_old ? 300 : 0);
        node_join(3, 2, 1, 4);
        nodes_wait(is_old ? 499 : 999);
        assert_int_equal(nodes[1].told.now_ns, 0);
        nodes_wait(1);
        assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_node_is_let_in_at_a_step_that_is_saved),
        cmocka_unit_test(more_nodes_than_the_most_wait_until_one_leaves),
        cmocka_unit_test(a_newcomer_that_fails_at_once_is_expelled),
        cmocka_unit_test(a_newcomer_with_which_others_fail_again_and_again_is_expelled),
        cmocka_unit_test(a_newcomer_that_was_useful_is_restarted_like_others),
        cmocka_unit_test(what_an_expelled_node_says_changes_nothing),
        cmocka_unit_test(the_loss_of_a_node_that_was_never_let_in_is_no_failure),
        cmocka_unit_test(the_ranks_of_an_expelled_node_are_killed),
        cmocka_unit_test(who_is_not_let_in_is_named_by_the_node_that_leads),
        cmocka_unit_test(a_join_without_ranks_or_of_a_member_adds_nobody),
        cmocka_unit_test(a_node_for_which_no_place_is_left_ends),
        cmocka_unit_test(a_newcomer_with_which_the_job_saved_is_restarted_like_others),
        cmocka_unit_test(a_late_node_does_not_keep_a_job_that_ends),
        cmocka_unit_test(a_late_node_is_let_in_when_all_ranks_stop_early),
        cmocka_unit_test(a_late_node_does_not_say_what_happened_before_it_came),
        cmocka_unit_test(members_change_when_they_have_settled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
