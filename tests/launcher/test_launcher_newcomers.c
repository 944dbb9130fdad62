/* test_launcher_newcomers.c - what the nodes of a job decide about members that come late, and
 * about those whose ranks the job cannot use now. */
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
    for (int i = 0; i < NODES; i++) {
        if (nodes[i].runs) {
            node_end_ranks(i, 7, false);
        }
    }
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

/* A job of two ranks on one machine, whose user may ask for up to four. */
static void begin_alone(int least_ranks)
{
    nodes_begin(1, 1, 1);
    nodes[0].members.is_alone = true;
    nodes[0].members.is_elastic = true;
    nodes[0].members.least_ranks = least_ranks;
    nodes[0].members.most_ranks = 4;
}

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
    begin_alone(2);
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
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 1, false);
    }
    assert_runs(0, 1, 0, 4);
    assert_runs(1, 1, 2, 4);
    assert_false(nodes[2].runs);
    node_join(4, 4, 1, 6);
    nodes_wait(5000);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 2, 4, 8);
    assert_runs(4, 2, 6, 8);
}

static void a_configuration_that_no_number_of_ranks_pleases_ends_the_job(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    twist.multiple = 100;
    node_lose(2);
    node_end_ranks(0, 1, false);
    node_end_ranks(1, 1, false);
    assert_over(0, 2);
    assert_over(1, 2);
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

static void more_ranks_than_the_configuration_allows_are_not_started(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    twist.refuses = 1; /* whatever the reason */
    twist.allowed = 4;
    nodes_append(
        &(struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .node = 1, .number = 4, .rank = -1});
    nodes_settle();
    for (int i = 0; i < 2; i++) {
        node_end_ranks(i, CDDPI_STOPPED_EARLY, true);
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
    begin_alone(2);
    ask_for_ranks(4);
    assert_runs(0, 1, 0, 4);
    twist.refuses = 2;
    twist.allowed = 1;
    node_leave_rank(0, 3);
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_over(0, 2);
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
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 7, true);
    }
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
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    node_end_ranks(1, CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 1, 4, 6);
}

/* Ranks cannot be started on node @p number of three, of which node 2 was lost before. */
static void begin_with_one_that_cannot_start(int number, int least)
{
    nodes_begin(4, least, 4);
    node_lose(3);
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 1, false);
    }
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
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 1, false);
    }
    nodes_append(&failure);
    node_cannot_start(1);
    assert_runs(0, 2, 0, 2);
    assert_over(1, 126);
    assert_over(2, 1);
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
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 1, false);
    }
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
    for (int i = 0; i < 3; i++) {
        node_end_ranks(i, 1, false);
    }
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(2, 1, 2, 4);
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

static void a_refusal_that_comes_late_changes_nothing(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_feed(&nodes[0],
              (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_REFUSED, .number = 2});
    nodes_settle();
    assert_int_equal(nodes[1].members.end.kind, CDDPI_EVENT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_node_is_let_in_at_a_step_that_is_saved),
        cmocka_unit_test(more_nodes_than_the_most_wait_until_one_leaves),
        cmocka_unit_test(a_late_node_whose_ranks_the_configuration_refuses_waits),
        cmocka_unit_test(a_newcomer_that_fails_at_once_is_expelled),
        cmocka_unit_test(a_newcomer_with_which_others_fail_again_and_again_is_expelled),
        cmocka_unit_test(a_newcomer_that_was_useful_is_restarted_like_others),
        cmocka_unit_test(what_an_expelled_node_says_changes_nothing),
        cmocka_unit_test(the_loss_of_a_node_that_was_never_let_in_is_no_failure),
        cmocka_unit_test(pipelines_leave_in_whole_replicas),
        cmocka_unit_test(a_node_whose_replica_lost_its_other_half_waits_for_one),
        cmocka_unit_test(a_configuration_that_no_number_of_ranks_pleases_ends_the_job),
        cmocka_unit_test(the_ranks_of_an_expelled_node_are_killed),
        cmocka_unit_test(who_is_not_let_in_is_named_by_the_node_that_leads),
        cmocka_unit_test(a_join_without_ranks_or_of_a_member_adds_nobody),
        cmocka_unit_test(more_ranks_than_the_configuration_allows_are_not_started),
        cmocka_unit_test(no_more_ranks_are_given_up_than_the_user_allows),
        cmocka_unit_test(a_newcomer_with_which_the_job_saved_is_restarted_like_others),
        cmocka_unit_test(a_late_node_does_not_keep_a_job_that_ends),
        cmocka_unit_test(a_late_node_is_let_in_when_all_ranks_stop_early),
        cmocka_unit_test(a_node_whose_ranks_cannot_be_started_is_left_out),
        cmocka_unit_test(nodes_whose_ranks_cannot_be_started_are_left_out_together),
        cmocka_unit_test(a_job_that_cannot_be_started_ends),
        cmocka_unit_test(a_node_that_cannot_start_ranks_may_leave),
        cmocka_unit_test(a_late_node_does_not_say_what_happened_before_it_came),
        cmocka_unit_test(members_change_when_they_have_settled),
        cmocka_unit_test(a_refusal_that_comes_late_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
