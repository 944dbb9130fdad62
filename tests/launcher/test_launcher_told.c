/* test_launcher_told.c - what a node of a job tells its ranks and its user of what happens to the
 * members. */
#include "launcher/member_world.h"

#include "launcher/nodes/nodes.h"

#include "base/alloc.h"

#include <signal.h>

/* Several nodes watch it. */
static void a_node_that_is_lost_twice_is_lost_once(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_lose(1);
    assert_non_null(strstr(nodes[0].said, "is lost: gone"));
    assert_int_equal(nodes[0].losses, 1); /* the node that leads tells ranks that wait */
    assert_int_equal(nodes[2].losses, 0);
    nodes[0].said[0] = '\0';
    nodes[0].told.kind = CDDPI_JOB_TIME;
    node_lose(1);
    assert_string_equal(nodes[0].said, "");
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_TIME);
    assert_int_equal(nodes[0].losses, 1);
    assert_int_equal(nodes[2].losses, 0);
}

/* What @p node's ranks, which have just been started, are told of what has happened: kinds. */
static void assert_catches_up(int number, int count, const enum cddpi_job_event_kind *kinds)
{
    struct cddpi_membership_actions *actions = calloc(1, sizeof *actions);

    cddpi_membership_catch_up(&nodes[number].members, actions);
    assert_int_equal(actions->count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(actions->list[i].kind, CDDPI_DO_TELL);
        assert_int_equal(actions->list[i].job.kind, kinds[i]);
    }
    if (count > 0) { /* a failure, or the end of the job */
        assert_int_equal(actions->list[count - 1].job.exit_status,
                         kinds[count - 1] == CDDPI_JOB_FAILED_THERE ? 7 : 0);
    }
    free(actions);
}

/* And the user is not told again. */
static void ranks_that_were_slow_to_start_catch_up(void **state)
{
    static const enum cddpi_job_event_kind changed[] = {CDDPI_JOB_CHANGED, CDDPI_JOB_SIGNALLED};
    static const enum cddpi_job_event_kind failed[] = {CDDPI_JOB_FAILED_THERE, CDDPI_JOB_HEARD};
    static const enum cddpi_job_event_kind ended[] = {CDDPI_JOB_FAILED_THERE};
    struct cddpi_node_event event = {.rank = -1, .exit_status = 7};

    (void)state;
    nodes_begin(2, 1, 2);
    assert_catches_up(0, 0, NULL);
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_CHANGE, .rank = -1, .text = "so"});
    node_signal(0, SIGINT);
    for (int i = 0; i < 2; i++) {
        assert_catches_up(i, 2, changed);
    }
    nodes_begin(2, 1, 2);
    event.kind = CDDPI_EVENT_FOLLOW;
    nodes_append(&event);
    event.kind = CDDPI_EVENT_FAILURE;
    nodes_append(&event);
    nodes_settle();
    nodes[1].members.follow.exit_status = 0;
    assert_catches_up(1, 2, failed);
    nodes_begin(2, 1, 2);
    event.kind = CDDPI_EVENT_END;
    nodes_append(&event);
    nodes_settle();
    assert_int_equal(nodes[1].told.exit_status, 7);
    assert_catches_up(1, 1, ended);
}

/* The cddp-run that started the nodes hears what they hear, as node 5 here. */
static void follow_as_the_first_cddp_run(void)
{
    struct cddpi_membership *members = &nodes[5].members;

    *members = nodes[1].members;
    members->list = nodes[5].list;
    memcpy(nodes[5].list, nodes[1].list, sizeof nodes[1].list);
    members->self = -1;
    members->phase = CDDPI_MEMBERS_AWAIT;
    nodes[5].heard = nodes_events();
    nodes[5].is_alive = true;
}

/* It follows the log, and ends after the nodes. */
static void the_first_cddp_run_decides_nothing(void **state)
{
    int events[2];

    (void)state;
    for (int follows = 0; follows < 2; follows++) {
        nodes_begin(2, 2, 2);
        if (follows) {
            follow_as_the_first_cddp_run();
        }
        nodes_end_ranks(0, true);
        assert_over(0, 0);
        assert_over(1, 0);
        events[follows] = nodes_events();
    }
    assert_int_equal(nodes[5].members.end.kind, CDDPI_EVENT_END);
    assert_int_equal(nodes[5].members.phase, CDDPI_MEMBERS_AWAIT);
    assert_int_equal(events[1], events[0]);
}

static void only_the_first_failure_of_a_rank_is_said(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    node_fail_rank(1);
    assert_string_equal(nodes[0].said, "node 1 (host): ");
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_FAILED_THERE);
    assert_int_equal(nodes[1].told.now_ns, 0); /* its ranks know */
    node_fail_rank(2);
    assert_string_equal(nodes[0].said, "node 1 (host): ");
    node_lose(2);
    assert_string_equal(nodes[0].said, "node 2 (host) is lost: gone");
}

/* Whoever stood still is told why by what it hears first, and once. */
static void a_node_that_stood_still_says_so_once(void **state)
{
    static const struct cddpi_node_event lost[] = {
        {.kind = CDDPI_EVENT_LOST, .node = 0, .rank = -1, .text = "gone"},
        {.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1, .text = "gone"},
        {.kind = CDDPI_EVENT_LOST, .node = 2, .rank = -1, .text = "gone"}};
    static const struct cddpi_node_event cut = {
        .kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1, .text = "why"};
    static const char given_up[] =
        "this host did not answer for 5.0 s, so the others went on without it";

    (void)state;
    for (int self = 0; self < 3; self++) {
        for (int i = 0; i < 3; i++) { /* node 0 watches all, who watch node 0 */
            nodes_begin(3, 1, 3);
            node_hear(&nodes[self], &lost[i], 5000);
            assert_int_equal(strcmp(nodes[self].said, given_up) == 0,
                             self == 0 || i == 0 || i == self);
        }
    }
    nodes_begin(3, 1, 3);
    node_hear(&nodes[1], &cut, 5000);
    assert_string_equal(nodes[1].said, given_up);
    nodes[1].said[0] = '\0';
    node_hear(&nodes[1], &lost[0], 0);
    assert_string_equal(nodes[1].said, "");
}

/* What it decides is not heard, and only its failures are told of. */
static void the_first_cddp_run_is_no_member(void **state)
{
    struct cddpi_node_event event = {.node = -1, .rank = -1, .exit_status = 1, .text = "why"};
    static const enum cddpi_node_event_kind kinds[] = {CDDPI_EVENT_DONE, CDDPI_EVENT_LEAVE,
                                                       CDDPI_EVENT_FAILURE};

    (void)state;
    nodes_begin(2, 1, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(nodes[1].told.now_ns, 0);
        event.kind = kinds[i];
        nodes_append(&event);
        nodes_settle();
    }
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_FAILED_THERE);
    assert_string_equal(nodes[1].said, "the first cddp-run: why");
}

/* With --hosts, the first cddp-run says what happens on other nodes. */
static void a_silent_node_says_a_generation_only_if_it_leads(void **state)
{
    (void)state;
    nodes_begin(3, 1, 3);
    for (int i = 0; i < 3; i++) {
        nodes[i].members.is_silent = true;
    }
    node_lose(2);
    nodes_end_ranks(1, false);
    assert_string_equal(nodes[0].said, "generation 1: 4 ranks on 2 nodes");
    assert_string_equal(nodes[1].said, "");
}

/* And it shows what the refused node says. */
static void a_silent_node_does_not_tell_of_spares_and_refusals(void **state)
{
    (void)state;
    nodes_begin(2, 1, 2);
    nodes[0].members.is_silent = nodes[1].members.is_silent = true;
    nodes_append(
        &(struct cddpi_node_event){.kind = CDDPI_EVENT_JOIN, .node = 2, .rank = -1, .number = 1});
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 2, .rank = -1});
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_REFUSED, .node = 3, .rank = -1});
    nodes_settle();
    assert_string_equal(nodes[0].said, "");
    assert_string_equal(nodes[1].said, "");
}

/* Else a node would no longer know what the others know. */
static void without_memory_no_event_is_missed(void **state)
{
    static const struct cddpi_node_event lost = {
        .kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1, .text = "gone"};
    struct cddpi_output output;
    struct cddpi_nodes job;

    (void)state;
    for (unsigned nth = 1; nth < 3; nth++) {
        cddpi_alloc_fail_nth(nth);
        assert_int_equal(cddpi_nodes_init(-1, 2, &job), CDDP_ERR_NO_MEMORY);
        cddpi_alloc_fail_nth(0);
        cddpi_nodes_fini(&job);
    }
    assert_int_equal(cddpi_nodes_init(-1, 2, &job), CDDP_OK);
    for (int i = 0; i < 2; i++) {
        (void)cddpi_membership_add(&job.members, i, "host", 1);
    }
    cddpi_output_init(&output);
    cddpi_alloc_fail_nth(1);
    cddpi_nodes_take(&job, &lost, &output);
    cddpi_alloc_fail_nth(0);
    cddpi_output_fini(&output);
    assert_true(job.members.list[1].is_lost);
    cddpi_nodes_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_is_lost_twice_is_lost_once),
        cmocka_unit_test(ranks_that_were_slow_to_start_catch_up),
        cmocka_unit_test(the_first_cddp_run_decides_nothing),
        cmocka_unit_test(only_the_first_failure_of_a_rank_is_said),
        cmocka_unit_test(a_node_that_stood_still_says_so_once),
        cmocka_unit_test(the_first_cddp_run_is_no_member),
        cmocka_unit_test(a_silent_node_says_a_generation_only_if_it_leads),
        cmocka_unit_test(a_silent_node_does_not_tell_of_spares_and_refusals),
        cmocka_unit_test(without_memory_no_event_is_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
