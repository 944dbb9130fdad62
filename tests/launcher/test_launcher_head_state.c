/* test_launcher_head_state.c - what the cddp-run of --hosts decides (head_state.h), told by
 * invented histories. tests/sim runs whole jobs of it. */
#include "launcher/hosts/head_state.h"
#include "support/test.h"

#include <signal.h>

enum { HOSTS = 2, ROOM = 64, ACTIONS = 8 * HOSTS + 32 };

static struct {
    struct cddpi_head_state state;
    struct cddpi_head_host hosts[HOSTS];
    struct cddpi_head_action actions[ACTIONS];
    struct cddpi_membership members;
    struct cddpi_job_member list[ROOM];
    struct cddpi_membership_actions member_actions;
    int64_t now_ns;
} head;

static void feed(const struct cddpi_head_event *event)
{
    struct cddpi_head_event timed = *event;

    timed.now_ns = head.now_ns;
    cddpi_head_state_step(&head.state, &timed);
}

#define FEED(...) feed(&(const struct cddpi_head_event){__VA_ARGS__})
#define HEAR(...)                                                                                  \
    FEED(.kind = CDDPI_HEAD_HEARD, .heard = &(const struct cddpi_node_event){__VA_ARGS__})

static void wait_ms(int64_t milliseconds)
{
    head.now_ns += milliseconds * 1000000;
    FEED(.kind = CDDPI_HEAD_TIME);
}

/* How often the last event has led to @p kind, for @p host (-1: any). */
static int count(enum cddpi_head_action_kind kind, int host)
{
    int found = 0;

    for (int i = 0; i < head.state.action_count; i++) {
        found += head.actions[i].kind == kind && (host < 0 || head.actions[i].host == host);
    }
    return found;
}

/* Two hosts, on which agents are started. */
static void begin(bool is_elastic)
{
    memset(&head, 0, sizeof head);
    head.now_ns = 1000000000;
    head.members = (struct cddpi_membership){.list = head.list,
                                             .room = ROOM,
                                             .most = ROOM,
                                             .self = -1,
                                             .phase = CDDPI_MEMBERS_AWAIT,
                                             .generation = -1,
                                             .leaving_rank = -1,
                                             .is_elastic = is_elastic,
                                             .outside_store = is_elastic ? "tcp://a:1" : NULL,
                                             .is_silent = true};
    head.state = (struct cddpi_head_state){.hosts = head.hosts,
                                           .count = HOSTS,
                                           .members = &head.members,
                                           .member_actions = &head.member_actions,
                                           .actions = head.actions,
                                           .action_room = ACTIONS,
                                           .is_elastic = is_elastic,
                                           .least = 1,
                                           .most = HOSTS,
                                           .grace_ms = 1000,
                                           .settle_ns = INT64_C(3000000000),
                                           .timeout_ms = 60000};
    FEED(.kind = CDDPI_HEAD_BEGINS);
    for (int i = 0; i < HOSTS; i++) {
        if (!is_elastic) {
            (void)cddpi_membership_add(&head.members, i, "", 1);
        }
        FEED(.kind = CDDPI_HEAD_STARTED, .host = i);
    }
}

/* The nodes of @p hosts hosts have come, and the job begins with them. */
static void meet(int hosts)
{
    for (int i = 0; i < hosts; i++) {
        FEED(.kind = CDDPI_HEAD_CAME, .host = HOSTS - 1 - i);
    }
    head.now_ns += INT64_C(4000000000);
    FEED(.kind = CDDPI_HEAD_LOOKED, .number = HOSTS - hosts);
    assert_int_equal(count(CDDPI_HEAD_BEGIN, -1), 1);
    for (int i = HOSTS - hosts; i < HOSTS; i++) {
        (void)cddpi_membership_add(&head.members, i, "", 1);
    }
    FEED(.kind = CDDPI_HEAD_MET);
    HEAR(.kind = CDDPI_EVENT_START, .node = HOSTS - hosts, .text = "0-1");
}

static void a_node_to_which_nothing_leads_takes_no_part(void **state)
{
    (void)state;
    begin(true);
    FEED(.kind = CDDPI_HEAD_ENDED, .host = 0, .number = 255);
    meet(1);
    HEAR(.kind = CDDPI_EVENT_JOIN, .node = 0, .number = 1, .text = "a");
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_STRAY, -1), 1);
    wait_ms(0); /* its host gets another one all the same */
    assert_int_equal(count(CDDPI_HEAD_START, 0), 1);
    assert_int_equal(head.hosts[0].node, 2);
}

static void an_earlier_node_of_a_host_takes_no_part(void **state)
{
    (void)state;
    begin(true);
    FEED(.kind = CDDPI_HEAD_ENDED, .host = 0, .number = 255);
    meet(1);
    wait_ms(2000);
    FEED(.kind = CDDPI_HEAD_STARTED, .host = 0);
    HEAR(.kind = CDDPI_EVENT_JOIN, .node = 0, .number = 1, .text = "a");
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_STRAY, -1), 1);
    HEAR(.kind = CDDPI_EVENT_JOIN, .node = 2, .number = 1, .text = "a");
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_STRAY, -1), 0);
    assert_true(head.hosts[0].has_come);
}

static void an_agent_whose_node_is_lost_is_ended_step_by_step(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    HEAR(.kind = CDDPI_EVENT_LOST, .node = 1, .text = "why");
    assert_int_equal(count(CDDPI_HEAD_SAY_LOST, -1), 1);
    wait_ms(4999);
    assert_int_equal(count(CDDPI_HEAD_CLOSE, 1), 0); /* it may end by itself */
    wait_ms(1);
    assert_int_equal(count(CDDPI_HEAD_CLOSE, 1), 1);
    assert_int_equal(count(CDDPI_HEAD_CLOSE, 0), 0);
    wait_ms(5000);
    assert_int_equal(count(CDDPI_HEAD_KILL, 1), 1);
    FEED(.kind = CDDPI_HEAD_ENDED, .host = 1, .number = 137);
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_BYE, 1), 1);
    HEAR(.kind = CDDPI_EVENT_BYE, .node = -1, .number = 1);
    wait_ms(1000);
    assert_int_equal(count(CDDPI_HEAD_START, 1), 1);
}

/* It has had its time to answer. */
static void an_agent_whose_node_was_silent_is_ended_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(i == 0);
        if (i == 0) {
            meet(HOSTS);
        } else {
            HEAR(.kind = CDDPI_EVENT_START, .node = 0, .text = "0-1");
        }
        HEAR(.kind = CDDPI_EVENT_LOST, .node = 1, .number = CDDPI_LOST_SILENT, .text = "why");
        assert_int_equal(count(CDDPI_HEAD_CLOSE, 1), 1);
        assert_int_equal(count(CDDPI_HEAD_KILL, 1), 1);
        assert_int_equal(count(CDDPI_HEAD_KILL, 0), 0);
    }
}

/* In a fixed job, the first loss decides; its agents have the time that the plan gives ranks. */
static void a_fixed_job_whose_hosts_never_end_is_ended(void **state)
{
    (void)state;
    begin(false);
    HEAR(.kind = CDDPI_EVENT_START, .node = 0, .text = "0-1");
    HEAR(.kind = CDDPI_EVENT_LOST, .node = 1, .text = "why");
    assert_int_equal(count(CDDPI_HEAD_SAY_ENDING, -1), 1);
    wait_ms(10999);
    assert_int_equal(head.state.steps, 0);
    wait_ms(1);
    assert_int_equal(count(CDDPI_HEAD_CLOSE, -1), 2);
    wait_ms(5000);
    assert_int_equal(count(CDDPI_HEAD_KILL, -1), 2);
    assert_false(head.state.is_over);
    wait_ms(5000);
    assert_true(head.state.is_over);
    assert_int_equal(cddpi_head_exit_status(&head.state), 1);
}

/* What passed while the head stood still is heard before deadlines count. */
static void a_head_that_stood_still_gives_nobody_up_at_once(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    HEAR(.kind = CDDPI_EVENT_FAILURE, .node = 0, .rank = 0, .exit_status = 7, .text = "why");
    wait_ms(0);
    wait_ms(200000);
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_LATE, -1), 0);
    wait_ms(2000);
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_LATE, -1), 2);
}

static void a_second_signal_ends_all_within_a_second(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    FEED(.kind = CDDPI_HEAD_SIGNALLED, .number = SIGTERM);
    assert_int_equal(count(CDDPI_HEAD_PUBLISH_SIGNAL, -1), 1);
    head.now_ns += INT64_C(300000000);
    FEED(.kind = CDDPI_HEAD_SIGNALLED, .number = SIGTERM);
    wait_ms(1000);
    assert_int_equal(count(CDDPI_HEAD_CLOSE, -1), 2);
    wait_ms(1000);
    assert_int_equal(count(CDDPI_HEAD_KILL, -1), 2);
}

/* Time passes, and the head sees it. */
static void pass(int seconds)
{
    for (int i = 0; i < 2 * seconds; i++) {
        wait_ms(500);
    }
}

/* Host 1 comes as the next node. */
static void come(void)
{
    FEED(.kind = CDDPI_HEAD_STARTED, .host = 1);
    HEAR(.kind = CDDPI_EVENT_JOIN, .node = head.hosts[1].node, .number = 1, .text = "b");
    assert_true(head.hosts[1].has_come);
}

/* A generation begins with it. */
static void give_ranks(void)
{
    struct cddpi_node_event start = {.kind = CDDPI_EVENT_START,
                                     .generation = head.members.generation + 1};

    snprintf(start.text, sizeof start.text, "0,%d", head.hosts[1].node);
    FEED(.kind = CDDPI_HEAD_HEARD, .heard = &start);
    assert_int_equal(head.members.generation, start.generation);
}

/* Host 1 is lost, and @p seconds later its agent ends. */
static void lose(int seconds)
{
    HEAR(.kind = CDDPI_EVENT_LOST, .node = head.hosts[1].node, .text = "gone");
    pass(seconds);
    if (!head.hosts[1].has_ended) {
        FEED(.kind = CDDPI_HEAD_ENDED, .host = 1, .number = 137);
        HEAR(.kind = CDDPI_EVENT_BYE, .node = -1, .number = 1);
    }
}

/* It is started again after so many seconds, and not before. */
static void assert_pauses(int seconds)
{
    int64_t ended_ns = head.now_ns;

    for (int i = 0; i < 200 && count(CDDPI_HEAD_START, 1) == 0; i++) {
        wait_ms(500);
    }
    assert_int_equal(count(CDDPI_HEAD_START, 1), 1);
    assert_int_equal((head.now_ns - ended_ns) / 1000000, seconds * 1000);
}

/* All others begin anew each time: the saving before that, and how long it takes until the end of
 * ssh is seen, are no life of the host. */
static void a_host_that_is_soon_lost_pauses_longer_each_time(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    lose(3);
    assert_pauses(1);
    for (int i = 1; i < 5; i++) {
        come();
        pass(30); /* the others save, for long */
        give_ranks();
        if (i % 2 == 0) {
            HEAR(.kind = CDDPI_EVENT_FAILURE, .rank = -1, .generation = i,
                 .node = head.hosts[1].node);
        }
        lose(3);
        assert_pauses(1 << i);
    }
}

static void a_host_that_took_part_or_waited_for_long_is_started_again_soon(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        begin(true);
        meet(HOSTS);
        lose(3);
        assert_pauses(1);
        for (int i = 1; i < 3; i++) {
            come();
            give_ranks();
            lose(3);
            assert_pauses(1 << i);
        }
        come();
        if (waits == 0) {
            give_ranks();
        } else { /* as a spare, which costs the others nothing */
            HEAR(.kind = CDDPI_EVENT_START, .generation = head.members.generation + 1, .text = "0");
        }
        pass(waits == 0 ? 30 : 3600);
        lose(3);
        assert_pauses(1);
    }
}

/* For want of processes, say. Nothing of its earlier agent is left to end. */
static void an_agent_that_cannot_be_started_again_is_tried_later(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    lose(3);
    assert_pauses(1);
    FEED(.kind = CDDPI_HEAD_UNSTARTED, .host = 1);
    assert_int_equal(head.state.alive, 1);
    assert_false(head.state.is_over);
    assert_pauses(2);
    FEED(.kind = CDDPI_HEAD_UNSTARTED, .host = 1);
    assert_pauses(4);
    come();
    assert_int_equal(head.state.alive, 2);
    lose(3);
    assert_pauses(8);
    FEED(.kind = CDDPI_HEAD_UNSTARTED, .host = 1);
    FEED(.kind = CDDPI_HEAD_SIGNALLED, .number = SIGTERM);
    head.now_ns += INT64_C(300000000);
    FEED(.kind = CDDPI_HEAD_SIGNALLED, .number = SIGTERM);
    wait_ms(1000);
    wait_ms(1000);
    assert_int_equal(count(CDDPI_HEAD_KILL, 0), 1);
    assert_int_equal(count(CDDPI_HEAD_KILL, 1), 0);
}

static void a_job_that_cannot_begin_ends_its_agents(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(i == 0);
        FEED(.kind = CDDPI_HEAD_REFUSES, .number = 2);
        assert_int_equal(count(CDDPI_HEAD_CLOSE, -1), HOSTS);
        FEED(.kind = CDDPI_HEAD_REFUSES, .number = 3); /* the first reason counts */
        assert_int_equal(head.state.action_count, 0);
        wait_ms(5000);
        assert_int_equal(count(CDDPI_HEAD_KILL, -1), HOSTS);
        wait_ms(5000);
        assert_true(head.state.is_over);
        assert_int_equal(cddpi_head_exit_status(&head.state), 2);
    }
}

static void a_host_that_was_asked_to_leave_is_not_started_again(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    HEAR(.kind = CDDPI_EVENT_LEAVE, .rank = -1, .node = 1, .number = SIGTERM);
    for (int i = 0; i < HOSTS; i++) {
        HEAR(.kind = CDDPI_EVENT_DONE, .node = i, .exit_status = 3);
    }
    FEED(.kind = CDDPI_HEAD_ENDED, .host = 1, .number = 3);
    HEAR(.kind = CDDPI_EVENT_BYE, .node = -1, .number = 1);
    assert_true(head.hosts[1].is_over);
    pass(100);
    assert_int_equal(count(CDDPI_HEAD_START, 1), 0);
}

/* Such as one that stood still, was given up, and gets a hangup when it wakes. */
static void a_signal_that_does_not_count_gives_no_deadline(void **state)
{
    (void)state;
    begin(true);
    meet(HOSTS);
    HEAR(.kind = CDDPI_EVENT_LOST, .node = 1, .text = "gone");
    HEAR(.kind = CDDPI_EVENT_START, .generation = 1, .text = "0");
    assert_true(head.state.patience_ns == CDDPI_HEAD_NEVER);
    HEAR(.kind = CDDPI_EVENT_SIGNAL, .rank = -1, .node = 1, .number = SIGTERM);
    HEAR(.kind = CDDPI_EVENT_SIGNAL, .rank = -1, .node = 7, .number = SIGTERM);
    assert_true(head.state.patience_ns == CDDPI_HEAD_NEVER);
    HEAR(.kind = CDDPI_EVENT_SIGNAL, .rank = -1, .node = 0, .number = SIGTERM);
    assert_true(head.state.patience_ns < CDDPI_HEAD_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_to_which_nothing_leads_takes_no_part),
        cmocka_unit_test(an_earlier_node_of_a_host_takes_no_part),
        cmocka_unit_test(an_agent_whose_node_is_lost_is_ended_step_by_step),
        cmocka_unit_test(an_agent_whose_node_was_silent_is_ended_at_once),
        cmocka_unit_test(a_fixed_job_whose_hosts_never_end_is_ended),
        cmocka_unit_test(a_head_that_stood_still_gives_nobody_up_at_once),
        cmocka_unit_test(a_second_signal_ends_all_within_a_second),
        cmocka_unit_test(a_host_that_is_soon_lost_pauses_longer_each_time),
        cmocka_unit_test(a_host_that_took_part_or_waited_for_long_is_started_again_soon),
        cmocka_unit_test(an_agent_that_cannot_be_started_again_is_tried_later),
        cmocka_unit_test(a_job_that_cannot_begin_ends_its_agents),
        cmocka_unit_test(a_host_that_was_asked_to_leave_is_not_started_again),
        cmocka_unit_test(a_signal_that_does_not_count_gives_no_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
