/* test_launcher_outside.c - what the nodes of a job decide whose store is in a process of its own,
 * so that any node may lead, and be lost. */
#include "launcher/member_world.h"

#include <signal.h>

/* Which may have a lower number than those that run. */
static void a_late_node_does_not_lead_those_that_came_before(void **state)
{
    (void)state;
    nodes_begin_outside(2, 1, 3);
    for (int i = 0; i < 2; i++) { /* nodes 1 and 2 were the first */
        for (int k = 0; k < 2; k++) {
            nodes[i].list[k].node++;
        }
    }
    nodes[2] = nodes[1];
    nodes[1] = nodes[0];
    nodes[0] = (struct node){.is_alive = false};
    for (int i = 1; i < 3; i++) {
        nodes[i].members.list = nodes[i].list;
        nodes[i].members.self = i;
    }
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_JOIN, .node = 0, .number = 2, .rank = -1, .text = "late"});
    nodes_settle();
    nodes_wait(5000);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(1, 1, 0, 6);
    assert_runs(2, 1, 2, 6);
}

static void the_next_node_leads_when_node_0_is_lost(void **state)
{
    (void)state;
    nodes_begin_outside(3, 1, 3);
    assert_runs(0, 0, 0, 6);
    node_lose(0);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_FAILED_THERE);
    nodes_end_ranks(1, false);
    assert_runs(1, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
    assert_int_equal(nodes[2].members.start.node, 1);
    node_lose(1);
    node_end_ranks(2, 1, false);
    assert_runs(2, 2, 0, 2);
    node_join(3, 3, 1, 3);
    nodes_wait(5000);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    node_end_ranks(2, CDDPI_STOPPED_EARLY, true);
    assert_runs(3, 3, 2, 4);
    nodes_end_ranks(0, true);
    assert_over(2, 0);
    assert_over(3, 0);
}

/* Node @p number publishes a decision. */
static void decide(enum cddpi_node_event_kind kind, int number, int generation, const char *text)
{
    struct cddpi_node_event event = {
        .kind = kind, .node = number, .rank = -1, .generation = generation};

    snprintf(event.text, sizeof event.text, "%s", text);
    nodes_append(&event);
    nodes_settle();
}

static void a_decision_behind_its_leaders_loss_is_ignored(void **state)
{
    (void)state;
    nodes_begin_outside(3, 1, 3);
    node_lose(0);
    decide(CDDPI_EVENT_END, 0, 0, "");
    decide(CDDPI_EVENT_CHANGE, 0, 0, "late");
    decide(CDDPI_EVENT_START, 0, 1, "0-2");
    assert_int_equal(nodes[1].members.generation, 0);
    assert_int_equal(nodes[1].members.end.kind, CDDPI_EVENT_NONE);
    assert_int_equal(nodes[2].members.change.kind, CDDPI_EVENT_NONE);
    nodes_end_ranks(1, false);
    assert_runs(1, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

static void a_decision_before_its_leaders_loss_counts(void **state)
{
    (void)state;
    nodes_begin_outside(3, 1, 3);
    node_lose(2);
    node_end_ranks(1, 1, false);
    nodes[0].is_alive = false; /* its last word is the start of a generation with itself */
    decide(CDDPI_EVENT_DONE, 0, 0, "");
    decide(CDDPI_EVENT_START, 0, 1, "0-1");
    assert_runs(1, 1, 2, 4);
    node_lose(0);
    node_end_ranks(1, 1, false);
    assert_runs(1, 2, 0, 2);
}

static void node_0_leaves_when_it_is_asked_if_the_store_is_outside(void **state)
{
    (void)state;
    nodes_begin_outside(3, 2, 3);
    node_signal(0, SIGTERM);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_over(0, CDDPI_STOPPED_EARLY);
    assert_runs(1, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

static void a_leader_that_is_lost_after_its_ranks_have_ended_changes_nothing(void **state)
{
    (void)state;
    nodes_begin_outside(2, 1, 2);
    node_end_ranks(0, 0, true);
    node_lose(0);
    node_end_ranks(1, 0, true);
    assert_over(1, 0);
}

static void a_node_that_waits_leads_if_no_other_is_left(void **state)
{
    (void)state;
    nodes_begin_outside(2, 1, 2);
    node_join(2, 2, 1, 2);
    nodes_wait(5000);
    node_lose(1);
    node_lose(0);
    assert_runs(2, 1, 0, 2);
}

static void restarts_are_counted_across_leaders(void **state)
{
    (void)state;
    nodes_begin_outside(3, 1, 3);
    for (int i = 0; i < 3; i++) {
        nodes[i].members.max_restarts = 1;
    }
    node_fail_rank(2);
    nodes_end_ranks(7, false);
    assert_runs(2, 1, 4, 6);
    node_lose(0);
    nodes_end_ranks(1, false);
    assert_runs(1, 2, 0, 4);
    node_fail_rank(2);
    node_end_ranks(1, 1, false);
    node_end_ranks(2, 7, false);
    assert_over(1, 1);
    assert_over(2, 1);
}

/* The next node leads the others. */
static void a_leader_on_which_ranks_cannot_be_started_leaves_the_job_to_others(void **state)
{
    (void)state;
    nodes_begin_outside(4, 1, 4);
    node_lose(3);
    nodes_end_ranks(1, false);
    assert_runs(2, 1, 4, 6);
    node_cannot_start(0);
    assert_over(0, 126);
    assert_string_equal(nodes[0].said,
                        "the others go on without this node: its ranks could not be started");
    assert_runs(1, 2, 0, 4);
    assert_runs(2, 2, 2, 4);
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_FAILURE, .generation = 2, .node = 1, .rank = -1, .exit_status = 126});
    node_cannot_start(2); /* nor can it be started on the other */
    assert_over(1, 126);
    assert_over(2, 126);
}

/* Such as one without a port, or a process for cddp-train --validate. */
static void a_leader_that_cannot_start_a_generation_leaves_the_job_to_others(void **state)
{
    (void)state;
    nodes_begin_outside(3, 1, 3);
    twist.refuses = 1;
    node_lose(2);
    nodes_end_ranks(1, false);
    nodes_wait(1000);
    nodes_wait(1000);
    assert_int_equal(nodes[0].members.phase, CDDPI_MEMBERS_ENDED);
    nodes_wait(1000);
    assert_over(0, 1);
    assert_string_equal(
        nodes[0].said,
        "the others go on without this node: it could not start the next generation");
    twist.refuses = 0;
    nodes_wait(1000);
    assert_runs(1, 1, 0, 2);
}

/* And who waits may go on with it. */
static void a_leader_does_not_blame_a_newcomer_for_what_it_cannot_start(void **state)
{
    (void)state;
    nodes_begin_outside(1, 1, 2);
    nodes_append(
        &(struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .node = 0, .number = 1, .rank = -1});
    nodes_settle();
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 1);
    twist.refuses = 2; /* the configuration allows no more ranks */
    twist.allowed = 1;
    node_join(1, 1, 1, 2);
    nodes_wait(5000);
    node_end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 2, 0, 1);
    assert_false(nodes[1].runs);
    twist.refuses = 0;
    node_cannot_start(0);
    assert_over(0, 126);
    assert_runs(1, 3, 0, 2);
}

/* Ranks of this generation fail, @p number's first. */
static void fail_all(int number, bool has_saved)
{
    node_fail_rank(number);
    nodes_end_ranks(7, has_saved);
    nodes_wait(1000); /* the pause before the next generation */
}

/* All nodes know who is new, since any may have to decide. */
static void a_newcomer_that_was_useful_is_restarted_like_others_by_any_leader(void **state)
{
    (void)state;
    nodes_begin_outside(2, 1, 4);
    node_join(2, 2, 1, 4);
    nodes_wait(5000);
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 1, 4, 6);
    fail_all(1, true);
    assert_runs(2, 2, 4, 6);
    node_lose(0);
    nodes_end_ranks(1, false);
    assert_runs(2, 3, 2, 4);
    fail_all(2, false);
    assert_runs(1, 4, 0, 4);
    assert_runs(2, 4, 2, 4);
}

/* And does not expel itself. */
static void failures_in_a_row_are_counted_by_a_leader_that_came_late(void **state)
{
    (void)state;
    nodes_begin_outside(2, 1, 3);
    for (int i = 0; i < 3; i++) {
        fail_all(1, false);
    }
    assert_runs(1, 3, 2, 4);
    node_join(2, 2, 1, 3);
    nodes_wait(5000);
    /* nothing could be saved: that would be progress */
    nodes_end_ranks(CDDPI_STOPPED_EARLY, false);
    assert_runs(2, 4, 4, 6);
    node_lose(0);
    node_lose(1);
    node_end_ranks(2, 1, false);
    assert_runs(2, 5, 0, 2);
    fail_all(2, false);
    assert_runs(2, 6, 0, 2);
    fail_all(2, false);
    assert_over(2, 1);
    assert_string_equal(nodes[2].said, "giving up: 5 times in a row the job failed within 20 s and "
                                       "without a checkpoint");
}

static void all_end_when_an_outside_store_is_lost(void **state)
{
    const struct cddpi_node_event cut = {
        .kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1, .text = "it is closed"};

    (void)state;
    nodes_begin_outside(2, 1, 2);
    for (int i = 0; i < 2; i++) {
        node_hear(&nodes[i], &cut, 0);
        assert_string_equal(nodes[i].said,
                            "the job's store at tcp://head:29500 is lost: it is closed");
        nodes[i].heard = EVENTS; /* nothing more */
        node_signal(i, SIGINT);
        assert_int_equal(nodes[i].told.kind, CDDPI_JOB_SIGNALLED);
    }
    for (int i = 0; i < 2; i++) {
        node_end_ranks(i, 1, false);
        assert_over(i, 1);
    }
}

/* It will never hear its START. */
static void a_leader_that_loses_the_store_as_it_starts_a_generation_ends(void **state)
{
    (void)state;
    nodes_begin_outside(2, 1, 2);
    node_lose(1);
    twist.before_start = (struct cddpi_node_event){
        .kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1, .text = "it is closed"};
    node_end_ranks(0, 1, false);
    assert_false(nodes[0].runs);
    assert_over(0, 1);
}

static void a_node_that_was_alone_and_stood_still_was_given_up(void **state)
{
    static const struct cddpi_node_event lost = {
        .kind = CDDPI_EVENT_LOST, .rank = -1, .text = "gone"};
    char words[160];

    (void)state;
    nodes_begin_outside(1, 1, 2);
    cddpi_membership_word_given_up(&nodes[0].members, 5000, words,
                                   sizeof words); /* not heard yet */
    assert_string_equal(words, "this host did not answer for 5.0 s, so it was given up");
    node_hear(&nodes[0], &lost, 5000);
    assert_string_equal(nodes[0].said, "this host did not answer for 5.0 s, so it was given up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_node_does_not_lead_those_that_came_before),
        cmocka_unit_test(the_next_node_leads_when_node_0_is_lost),
        cmocka_unit_test(a_decision_behind_its_leaders_loss_is_ignored),
        cmocka_unit_test(a_decision_before_its_leaders_loss_counts),
        cmocka_unit_test(node_0_leaves_when_it_is_asked_if_the_store_is_outside),
        cmocka_unit_test(a_leader_that_is_lost_after_its_ranks_have_ended_changes_nothing),
        cmocka_unit_test(a_node_that_waits_leads_if_no_other_is_left),
        cmocka_unit_test(restarts_are_counted_across_leaders),
        cmocka_unit_test(a_leader_on_which_ranks_cannot_be_started_leaves_the_job_to_others),
        cmocka_unit_test(a_leader_that_cannot_start_a_generation_leaves_the_job_to_others),
        cmocka_unit_test(a_leader_does_not_blame_a_newcomer_for_what_it_cannot_start),
        cmocka_unit_test(a_newcomer_that_was_useful_is_restarted_like_others_by_any_leader),
        cmocka_unit_test(failures_in_a_row_are_counted_by_a_leader_that_came_late),
        cmocka_unit_test(all_end_when_an_outside_store_is_lost),
        cmocka_unit_test(a_leader_that_loses_the_store_as_it_starts_a_generation_ends),
        cmocka_unit_test(a_node_that_was_alone_and_stood_still_was_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
