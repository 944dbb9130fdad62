/* test_launcher_ctl.c - what cddp-ctl may ask of a job's members, and how their status is worded.
 * tests/train/test_ctl_members.c asks real jobs. */
#include "launcher/ctl/ctl_request.h"

#include "base/launcher_report.h"
#include "support/test.h"

enum { ROOM = 4 };

static struct cddpi_job_member list[ROOM];

/* A job on one machine with @p nproc ranks, which may have 2 to 4. */
static struct cddpi_membership elastic_machine(int nproc)
{
    struct cddpi_membership members = {.list = list,
                                       .room = ROOM,
                                       .least = 1,
                                       .most = 1,
                                       .least_ranks = 2,
                                       .most_ranks = 4,
                                       .is_elastic = true,
                                       .is_alone = true,
                                       .generation = 3};

    assert_non_null(cddpi_membership_add(&members, 0, "", nproc));
    list[0].ranks = nproc;
    members.world_size = nproc;
    members.nodes = 1;
    return members;
}

/* A job of 2 to 3 nodes, of which 3 are there: two ranks on alpha, one on beta, two on beta. */
static struct cddpi_membership elastic_nodes(void)
{
    struct cddpi_membership members = {
        .list = list, .room = ROOM, .least = 2, .most = 3, .is_elastic = true, .generation = 0};
    const int ranks[] = {2, 1, 2};

    for (int i = 0; i < 3; i++) {
        assert_non_null(cddpi_membership_add(&members, i, i == 0 ? "alpha" : "beta", ranks[i]));
        list[i].ranks = ranks[i];
        list[i].first_rank = members.world_size;
        members.world_size += ranks[i];
    }
    members.nodes = 3;
    return members;
}

/* What is decided about a request. */
static struct cddpi_node_event event;
static char text[CDDPI_CTL_TEXT_BYTES];

static bool ask(const struct cddpi_membership *members, enum cddpi_ctl_command command, int number,
                const char *host)
{
    struct cddpi_ctl_request request = {.command = command, .number = number};

    snprintf(request.host, sizeof request.host, "%s", host);
    return cddpi_ctl_decide(members, &request, true, &event, text);
}

static void a_machine_has_its_ranks_within_its_limits(void **state)
{
    struct cddpi_membership members = elastic_machine(3);

    (void)state;
    assert_true(ask(&members, CDDPI_CTL_ADD, 1, ""));
    assert_int_equal(event.kind, CDDPI_EVENT_SIZE);
    assert_int_equal(event.node, 0);
    assert_int_equal(event.number, 4);
    assert_false(ask(&members, CDDPI_CTL_ADD, 2, ""));
    assert_non_null(strstr(text, "the job has 3 and may have 2 to 4"));
    assert_false(ask(&members, CDDPI_CTL_ADD, CDDPI_MAX_WORLD_SIZE, ""));
    assert_false(ask(&members, CDDPI_CTL_ADD, 0, ""));
    assert_false(ask(&members, CDDPI_CTL_ADD, -1, ""));
    assert_true(ask(&members, CDDPI_CTL_REMOVE_RANK, 2, ""));
    assert_int_equal(event.number, 2);
    assert_false(ask(&members, CDDPI_CTL_REMOVE_RANK, 3, ""));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_RANK, -1, ""));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, 0, ""));
    list[0].nproc = 2; /* one was removed already, in the next generation */
    assert_false(ask(&members, CDDPI_CTL_REMOVE_RANK, 0, ""));
}

static void nodes_and_their_ranks_are_removed(void **state)
{
    struct cddpi_membership members = elastic_nodes();

    (void)state;
    assert_true(ask(&members, CDDPI_CTL_REMOVE_RANK, 4, ""));
    assert_int_equal(event.kind, CDDPI_EVENT_SIZE);
    assert_int_equal(event.node, 2);
    assert_int_equal(event.number, 1);
    assert_true(ask(&members, CDDPI_CTL_REMOVE_RANK, 2, "")); /* the last one of its node */
    assert_int_equal(event.kind, CDDPI_EVENT_LEAVE);
    assert_int_equal(event.node, 1);
    assert_true(ask(&members, CDDPI_CTL_REMOVE_NODE, 2, ""));
    assert_int_equal(event.kind, CDDPI_EVENT_LEAVE);
    assert_int_equal(event.node, 2);
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, 0, ""));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, -1, "alpha"));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, 3, ""));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, -1, "gamma"));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, -1, "beta"));
    assert_non_null(strstr(text, "node:1 or node:2"));
    assert_false(ask(&members, CDDPI_CTL_ADD, 1, ""));
    assert_non_null(strstr(text, "start cddp-run on another one"));
    members.is_silent = true; /* cddp-run --hosts has started these nodes */
    assert_false(ask(&members, CDDPI_CTL_ADD, 1, ""));
    assert_non_null(strstr(text, "with a longer list"));
    list[1].is_leaving = true;
    assert_true(ask(&members, CDDPI_CTL_REMOVE_NODE, 1, "")); /* again: nothing more to do */
    assert_int_equal(event.kind, CDDPI_EVENT_NONE);
    assert_false(ask(&members, CDDPI_CTL_REMOVE_NODE, 2, ""));
    assert_non_null(strstr(text, "needs 2 nodes"));
}

/* Their store is outside, so any of them can leave. */
static void node_0_leaves_unless_it_serves_the_store(void **state)
{
    struct cddpi_membership members = elastic_nodes();

    (void)state;
    members.outside_store = "tcp://head:29500";
    members.self = 1;
    assert_true(ask(&members, CDDPI_CTL_REMOVE_NODE, 0, ""));
    assert_int_equal(event.kind, CDDPI_EVENT_LEAVE);
    assert_int_equal(event.node, 0);
    assert_true(ask(&members, CDDPI_CTL_CHECKPOINT, -1, ""));
    assert_int_equal(event.node, 1);
    members.self = -1; /* no node: cddp-ctl on another machine */
    assert_true(ask(&members, CDDPI_CTL_STOP, -1, ""));
    assert_int_equal(event.node, -1);
    members.outside_store = NULL;
    assert_true(ask(&members, CDDPI_CTL_STOP, -1, ""));
    assert_int_equal(event.node, 0);
}

/* The process that serves a job's store has no ranks. */
static void a_store_knows_whether_ranks_run(void **state)
{
    static struct cddpi_ctl_answer answer;
    struct cddpi_membership members = elastic_nodes();

    (void)state;
    members.self = -1;
    members.outside_store = "tcp://head:29500";
    list[0].is_done = list[1].is_lost = true;
    list[1].is_there = false;
    cddpi_ctl_describe(&members, 0, &answer);
    assert_true(answer.is_running);
    assert_string_equal(answer.ending, "");
    list[2].is_done = true;
    answer.count = 0;
    cddpi_ctl_describe(&members, 0, &answer);
    assert_false(answer.is_running);
    assert_string_equal(answer.ending, "");
    list[0].is_there = false;
    answer.count = 0;
    cddpi_ctl_describe(&members, 0, &answer);
    assert_string_equal(answer.ending, "waiting for nodes: the job needs 2");
}

static void fixed_and_ending_jobs_keep_their_members(void **state)
{
    struct cddpi_membership members = elastic_machine(3);

    (void)state;
    members.is_elastic = false;
    assert_false(ask(&members, CDDPI_CTL_ADD, 1, ""));
    assert_false(ask(&members, CDDPI_CTL_REMOVE_RANK, 0, ""));
    assert_true(ask(&members, CDDPI_CTL_CHECKPOINT, -1, ""));
    assert_int_equal(event.kind, CDDPI_EVENT_SIGNAL);
    assert_int_equal(event.number, CDDPI_SAVE_SIGNAL);
    assert_true(ask(&members, CDDPI_CTL_STOP, -1, ""));
    assert_int_equal(event.kind, CDDPI_EVENT_SIGNAL);
    assert_int_equal(event.number, SIGTERM);
    members.asked_signal = SIGTERM;
    members.is_elastic = true;
    assert_true(ask(&members, CDDPI_CTL_STOP, -1, "")); /* a second signal would kill */
    assert_int_equal(event.kind, CDDPI_EVENT_NONE);
    assert_false(ask(&members, CDDPI_CTL_CHECKPOINT, -1, ""));
    assert_false(ask(&members, CDDPI_CTL_ADD, 1, ""));
}

static void who_waits_hears_of_the_next_generation(void **state)
{
    struct cddpi_membership members = elastic_nodes();
    struct cddpi_ctl_request request = {.command = CDDPI_CTL_REMOVE_NODE, .number = 1};

    (void)state;
    assert_false(cddpi_ctl_has_happened(&members, &request, 0, text));
    list[1].is_there = false;
    members.phase = CDDPI_MEMBERS_ENDED;
    assert_false(cddpi_ctl_has_happened(&members, &request, 0, text));
    members.phase = CDDPI_MEMBERS_RUN; /* it was a spare */
    assert_true(cddpi_ctl_has_happened(&members, &request, 0, text));
    request.command = CDDPI_CTL_REMOVE_RANK;
    assert_false(cddpi_ctl_has_happened(&members, &request, 0, text));
    members.generation = 1;
    assert_true(cddpi_ctl_has_happened(&members, &request, 0, text));
    assert_string_equal(text, "generation 1: 5 ranks on 3 nodes");
    request.command = CDDPI_CTL_STOP;
    assert_false(cddpi_ctl_has_happened(&members, &request, 0, text));
}

static void the_status_lists_who_is_there_first(void **state)
{
    static struct cddpi_ctl_answer answer;
    struct cddpi_membership members = elastic_nodes();

    (void)state;
    list[0].is_leaving = true;
    list[1].is_there = false;
    list[1].is_lost = true;
    list[2].ranks = 0;
    cddpi_ctl_describe(&members, 5000000000, &answer);
    assert_int_equal(answer.count, 3);
    assert_int_equal(answer.rows[0].state, CDDPI_CTL_LEAVES);
    assert_int_equal(answer.rows[1].node, 2);
    assert_int_equal(answer.rows[1].state, CDDPI_CTL_SPARE);
    assert_int_equal(answer.rows[2].state, CDDPI_CTL_LOST);
    assert_int_equal(answer.seconds, 5);
    assert_int_equal(answer.least, 2);
    assert_int_equal(answer.most, 3);
}

static void the_status_lists_ranks_that_are_stragglers(void **state)
{
    static struct cddpi_ctl_answer answer;
    static struct cddpi_slow_ranks slow;

    (void)state;
    slow.list[0] = (struct cddpi_followed_rank){.last = {.rank = 5, .factor = 3}};
    slow.count = CDDPI_REPORT_SLOW_RANKS;
    for (int i = 1; i < slow.count; i++) { /* more than the answer has room for */
        slow.list[i] = (struct cddpi_followed_rank){
            .last = {.rank = i, .factor = 2.5, .waits_for_data = true},
            .slow_ms = 61500,
            .is_straggler = true};
    }
    cddpi_ctl_describe_slow(&slow, &answer);
    assert_int_equal(answer.straggler_count, CDDPI_CTL_STRAGGLERS);
    assert_int_equal(answer.stragglers[0].rank, 1);
    assert_int_equal(answer.stragglers[0].percent, 250);
    assert_int_equal(answer.stragglers[0].seconds, 61);
    assert_true(answer.stragglers[0].waits_for_data);
}

static void the_largest_status_can_be_sent(void **state)
{
    static struct cddpi_ctl_answer answer;
    struct cddpi_wire_buffer message = {NULL, 0, 0};

    (void)state;
    answer.count = CDDPI_CTL_ROWS;
    memset(answer.text, 't', sizeof answer.text - 1);
    memset(answer.reason, 'r', sizeof answer.reason - 1);
    memset(answer.ending, 'e', sizeof answer.ending - 1);
    memset(answer.job, 'j', sizeof answer.job - 1);
    for (int i = 0; i < CDDPI_CTL_ROWS; i++) {
        memset(answer.rows[i].host, 'h', sizeof answer.rows[i].host - 1);
    }
    answer.straggler_count = CDDPI_CTL_STRAGGLERS;
    for (int i = 0; i < CDDPI_CTL_STRAGGLERS; i++) {
        answer.stragglers[i] = (struct cddpi_ctl_straggler){.percent = UINT16_MAX};
    }
    assert_int_equal(cddpi_message_encode(&cddpi_ctl_answer_form, &answer, &message), CDDP_OK);
    cddpi_buffer_fini(&message);
}

/* Nodes that come and go get ever higher numbers. */
static void a_request_can_name_every_node(void **state)
{
    struct cddpi_ctl_request request = {.command = CDDPI_CTL_REMOVE_NODE,
                                        .number = CDDPI_NODE_NUMBERS - 1};
    struct cddpi_wire_buffer message = {NULL, 0, 0};

    (void)state;
    assert_int_equal(cddpi_message_encode(&cddpi_ctl_request_form, &request, &message), CDDP_OK);
    request.number = 0;
    assert_int_equal(
        cddpi_message_decode(&cddpi_ctl_request_form, message.data, message.bytes, &request),
        CDDP_OK);
    assert_int_equal(request.number, CDDPI_NODE_NUMBERS - 1);
    cddpi_buffer_fini(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_has_its_ranks_within_its_limits),
        cmocka_unit_test(nodes_and_their_ranks_are_removed),
        cmocka_unit_test(node_0_leaves_unless_it_serves_the_store),
        cmocka_unit_test(a_store_knows_whether_ranks_run),
        cmocka_unit_test(fixed_and_ending_jobs_keep_their_members),
        cmocka_unit_test(who_waits_hears_of_the_next_generation),
        cmocka_unit_test(the_status_lists_who_is_there_first),
        cmocka_unit_test(the_status_lists_ranks_that_are_stragglers),
        cmocka_unit_test(the_largest_status_can_be_sent),
        cmocka_unit_test(a_request_can_name_every_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
