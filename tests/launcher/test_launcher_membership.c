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
    nodes_end_ranks(0, true);
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
    nodes_end_ranks(1, false);
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

/* The other nodes have heard before that the job may restart. */
static void a_job_is_not_restarted_if_ranks_of_a_node_cannot_start_again(void **state)
{
    (void)state;
    for (int least = 1; least <= 2; least++) {
        nodes_begin(2, least, 2);
        nodes[0].members.max_restarts = nodes[1].members.max_restarts = 3;
        node_fail_rank(1);
        node_end_ranks_for_good(1, 7);
        node_end_ranks(0, 143, true);
        nodes_wait(1);
        assert_over(0, 1);
        assert_over(1, 1);
    }
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
    nodes_end_ranks(CDDPI_STOPPED_EARLY, true);
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
    nodes_end_ranks(1, false);
    assert_false(nodes[0].runs); /* the leader decides again, but not at once */
    nodes_wait(100);
    assert_runs(0, 1, 0, 2);
    assert_over(2, 1);
}

static void step(struct cddpi_membership *members, const struct cddpi_node_event *heard, int64_t s,
                 struct cddpi_membership_actions *out)
{
    const struct cddpi_membership_event event = {.kind = heard != NULL ? CDDPI_MEMBERS_HEARD
                                                         : s == 0      ? CDDPI_MEMBERS_BEGIN
                                                                       : CDDPI_MEMBERS_TIME,
                                                 .heard = heard,
                                                 .now_ns = (s + 1) * INT64_C(1000000000)};

    cddpi_membership_step(members, &event, out);
}

/* Numbers of nodes that were started again and again have no order, and fill the text of START. */
static void nodes_that_start_cannot_name_wait(void **state)
{
    enum { MANY = 700 };
    struct cddpi_membership_actions *actions = calloc(1, sizeof *actions);
    struct cddpi_membership members = {.room = MANY,
                                       .least = 1,
                                       .most = MANY,
                                       .is_elastic = true,
                                       .max_restarts = -1,
                                       .list = calloc(MANY, sizeof *members.list)};
    struct cddpi_node_event start;
    int ranks;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        assert_non_null(cddpi_membership_add(&members, i == 0 ? 0 : 1000000 + 2 * i, "host", 2));
    }
    step(&members, NULL, 0, actions);
    assert_int_equal(actions->count, 1);
    assert_int_equal(actions->list[0].kind, CDDPI_DO_START);
    start = actions->list[0].event;
    ranks = actions->list[0].number;
    step(&members, &start, 0, actions);
    assert_int_equal(members.world_size, ranks);
    assert_true(ranks >= 1000 && ranks < 2 * MANY);
    step(&members, NULL, 10, actions);
    assert_int_equal(actions->count, 0); /* members do not change again and again */
    free(members.list);
    free(actions);
}

static void nothing_begins_after_the_end_of_the_job(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_fail_rank(1);
    twist.is_orphaned = true;
    nodes_end_ranks(1, false);
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
    nodes_end_ranks(1, false);
    assert_runs(2, 1, 2, 4);
    assert_int_equal(nodes[2].members.made, 0);
    node_fail_rank(2);
    nodes_end_ranks(1, false);
    assert_runs(2, 2, 2, 4);
    assert_int_equal(nodes[2].members.made, 1);
    assert_int_equal(nodes[0].members.restarts.made, 1);
}

/* A rank of node 0 fails, and the job is restarted. */
static void fail_early(void)
{
    node_fail_rank(0);
    nodes_end_ranks(1, false);
    nodes_wait(5000);
}

static void failures_before_a_generation_that_did_something_are_forgotten(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    for (int i = 0; i < CDDPI_MOST_FRUITLESS - 1; i++) {
        fail_early();
    }
    assert_runs(2, CDDPI_MOST_FRUITLESS - 1, 4, 6);
    nodes_wait(CDDPI_SHORT_LIFE_MS);
    node_lose(2);
    nodes_end_ranks(1, false);
    fail_early();
    assert_runs(1, CDDPI_MOST_FRUITLESS + 1, 2, 4);
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
    nodes_wait(5000);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
    nodes_end_ranks(0, true);
    assert_over(0, 0);
    assert_over(2, 0);
}

/* All ranks fail at once, and a restart may help. */
static void fail_all(bool has_saved)
{
    node_fail_rank(1);
    nodes_end_ranks(1, has_saved);
}

static void a_job_that_fails_at_once_again_and_again_is_given_up_unless_it_saves(void **state)
{
    static const int limits[] = {-1, 100};

    (void)state;
    for (int i = 0; i < 4; i++) {
        bool has_saved = i / 2 == 1;

        nodes_begin(2, 2, 2);
        nodes[0].members.max_restarts = nodes[1].members.max_restarts = limits[i % 2];
        for (int generation = 0; generation < CDDPI_MOST_FRUITLESS; generation++) {
            assert_runs(0, generation, 0, 4);
            fail_all(has_saved);
            nodes_wait(2000);
        }
        if (has_saved) {
            assert_runs(0, CDDPI_MOST_FRUITLESS, 0, 4);
            continue;
        }
        assert_over(0, 1);
        assert_non_null(strstr(nodes[0].said, i == 0
                                                  ? "giving up: 5 times in a row"
                                                  : "giving up, with 96 restarts left: 5 times"));
    }
}

/* As for a checkpoint. One node's ranks are enough: some have that progress, so all go on from it.
 */
static void a_job_that_keeps_its_progress_in_memory_is_not_given_up(void **state)
{
    (void)state;
    nodes_begin(2, 2, 2);
    nodes[0].members.max_restarts = nodes[1].members.max_restarts = -1;
    for (int generation = 0; generation < 2 * CDDPI_MOST_FRUITLESS; generation++) {
        assert_runs(0, generation, 0, 4);
        node_fail_rank(1);
        node_end_ranks(0, 1, false);
        node_end_ranks_kept(1, 1);
        assert_runs(0, generation + 1, 0, 4); /* without a pause */
    }
    for (int i = 0; i < CDDPI_MOST_FRUITLESS; i++) { /* that of others before does not count */
        fail_all(false);
        nodes_wait(2000);
    }
    assert_over(0, 1);
}

static void a_fixed_job_ends_if_a_node_is_lost_before_it_begins(void **state)
{
    const struct cddpi_node_event lost = {
        .kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1, .exit_status = 1, .text = "gone"};

    (void)state;
    nodes_begin_after(&lost, 3, 3, 3);
    assert_over(0, 1);
    assert_over(2, 1);
    assert_int_equal(nodes[0].members.failure.kind, CDDPI_EVENT_LOST);
}

static void a_fixed_job_ends_if_a_node_is_lost_before_a_restart(void **state)
{
    (void)state;
    nodes_begin(2, 2, 2);
    nodes[0].members.max_restarts = nodes[1].members.max_restarts = 3;
    for (int i = 0; i < 2; i++) {
        fail_all(false);
    }
    assert_false(nodes[0].runs); /* it pauses */
    node_lose(1);
    assert_over(0, 1);
}

/* Node 0 serves the store, so it goes after the others. */
static void node_0_waits_a_while_for_others_to_hear_the_end(void **state)
{
    static const struct cddpi_node_event cut = {
        .kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1, .text = "why"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        nodes_begin(2, 1, 2);
        node_end_ranks(1, 0, true);
        nodes[1].is_alive = false; /* it is slow */
        node_end_ranks(0, 0, true);
        assert_int_equal(nodes[0].members.phase, CDDPI_MEMBERS_LEAVE);
        if (i == 0) {
            node_feed(&nodes[0], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ORPHANED});
        } else if (i == 1) {
            node_feed(&nodes[0],
                      (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_HEARD, .heard = &cut});
        } else {
            nodes_wait(9999);
            assert_int_equal(nodes[0].members.phase, CDDPI_MEMBERS_LEAVE);
            nodes_wait(1);
        }
        assert_over(0, 0);
    }
}

static void a_node_knows_its_place(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    assert_int_equal(cddpi_membership_index(&nodes[2].members), 2);
    node_lose(1);
    assert_int_equal(cddpi_membership_index(&nodes[2].members), 2);
    nodes_end_ranks(1, false);
    assert_int_equal(cddpi_membership_index(&nodes[0].members), 0);
    assert_int_equal(cddpi_membership_index(&nodes[2].members), 1);
    nodes[2].members.self = 1; /* it takes no part */
    assert_int_equal(cddpi_membership_index(&nodes[2].members), -1);
    nodes[2].members.self = -1;
    assert_int_equal(cddpi_membership_index(&nodes[2].members), -1);
}

static void only_an_elastic_jobs_server_is_indispensable(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    assert_false(cddpi_membership_is_dispensable(&nodes[0].members));
    assert_true(cddpi_membership_is_dispensable(&nodes[1].members));
    nodes_begin(2, 2, 2);
    assert_true(cddpi_membership_is_dispensable(&nodes[0].members));
    nodes_begin_outside(2, 1, 2);
    assert_true(cddpi_membership_is_dispensable(&nodes[0].members));
    nodes[0].members.self = -1;
    assert_false(cddpi_membership_is_dispensable(&nodes[0].members));
}

static void a_start_names_nodes_by_ranges(void **state)
{
    (void)state;
    nodes_begin(5, 1, 5);
    assert_string_equal(nodes[0].members.start.text, "0-4");
    node_lose(2);
    nodes_end_ranks(1, false);
    assert_string_equal(nodes[0].members.start.text, "0-1,3-4");
    assert_runs(3, 1, 4, 8);
}

/* Even if all its ranks have ended: nothing goes on without the store. */
static void the_loss_of_the_node_that_serves_the_store_is_a_failure(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    node_end_ranks(0, 0, true);
    node_lose(0);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_FAILED_THERE);
    node_end_ranks(1, 1, false);
    assert_over(1, 1);
}

static void a_start_names_nodes_until_it_makes_no_sense(void **state)
{
    (void)state;
    nodes_begin(3, 2, 3);
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_START, .generation = 1, .rank = -1, .text = "0-1;2"});
    nodes_settle();
    assert_int_equal(nodes[0].members.nodes, 2);
    assert_int_equal(nodes[0].members.world_size, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nodes_run_the_first_generation_and_end_with_it),
        cmocka_unit_test(the_rest_go_on_without_a_lost_node),
        cmocka_unit_test(a_fixed_job_ends_with_a_lost_node),
        cmocka_unit_test(a_fixed_job_ends_if_a_node_is_lost_after_its_ranks),
        cmocka_unit_test(a_job_is_not_restarted_if_ranks_of_a_node_cannot_start_again),
        cmocka_unit_test(ranks_that_save_since_the_time_is_over_are_not_started_again),
        cmocka_unit_test(too_few_nodes_wait_for_others_and_end_with_status_4),
        cmocka_unit_test(a_start_that_names_a_node_that_is_gone_is_void),
        cmocka_unit_test(nodes_that_start_cannot_name_wait),
        cmocka_unit_test(nothing_begins_after_the_end_of_the_job),
        cmocka_unit_test(only_restarts_after_failures_are_counted),
        cmocka_unit_test(failures_before_a_generation_that_did_something_are_forgotten),
        cmocka_unit_test(a_node_whose_launcher_is_killed_is_lost_and_the_rest_go_on),
        cmocka_unit_test(the_loss_of_a_node_whose_ranks_have_ended_is_no_failure),
        cmocka_unit_test(a_job_that_fails_at_once_again_and_again_is_given_up_unless_it_saves),
        cmocka_unit_test(a_job_that_keeps_its_progress_in_memory_is_not_given_up),
        cmocka_unit_test(a_fixed_job_ends_if_a_node_is_lost_before_it_begins),
        cmocka_unit_test(a_fixed_job_ends_if_a_node_is_lost_before_a_restart),
        cmocka_unit_test(node_0_waits_a_while_for_others_to_hear_the_end),
        cmocka_unit_test(a_node_knows_its_place),
        cmocka_unit_test(only_an_elastic_jobs_server_is_indispensable),
        cmocka_unit_test(a_start_names_nodes_by_ranges),
        cmocka_unit_test(the_loss_of_the_node_that_serves_the_store_is_a_failure),
        cmocka_unit_test(a_start_names_nodes_until_it_makes_no_sense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
