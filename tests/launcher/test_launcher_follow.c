/* test_launcher_follow.c - what the cddp-run that starts the nodes makes of the job's log, told by
 * hand. Its agents are no processes. */
#include "launcher/hosts/head.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/restarts.h"
#include "support/test.h"

#include "base/clock.h"

enum { HOSTS = 2, ROOM = 64 };

static struct cddpi_launch_options options;
static struct cddpi_monitor monitor;
static struct cddpi_output output;
static struct cddpi_host hosts[HOSTS] = {{.name = "alpha"}, {.name = "beta"}};
static struct cddpi_agent agents[HOSTS];
static struct cddpi_head head;
static int64_t before_ns, after_ns; /* the next start of beta was planned */

#define HEAR(...)                                                                                  \
    cddpi_head_follow(&head, &(const struct cddpi_node_event){.rank = -1, __VA_ARGS__})

/* A job on node 0 (alpha) and node 1 (beta), under generation 0. */
static int begin(void **state)
{
    static char *argv[] = {(char *)"ssh", NULL};

    (void)state;
    options = (struct cddpi_launch_options){.grace_ms = 1000};
    head = (struct cddpi_head){.options = &options,
                               .is_elastic = true,
                               .hosts = {.hosts = hosts, .count = HOSTS},
                               .agents = agents,
                               .monitor = &monitor,
                               .output = &output,
                               .has_met = true};
    cddpi_output_init(&output);
    sigemptyset(&monitor.ending);
    sigaddset(&monitor.ending, SIGTERM);
    cddpi_rendezvous_clear(&head.rendezvous);
    cddpi_head_begin_waiting(&head);
    assert_int_equal(cddpi_nodes_init(-1, ROOM, &head.nodes), CDDP_OK);
    head.nodes.members.is_silent = head.nodes.members.is_elastic = true;
    head.nodes.members.outside_store = "tcp://head:29500";
    memset(agents, 0, sizeof agents);
    for (int i = 0; i < HOSTS; i++) {
        cddpi_head_init_agent(&head, i);
        agents[i].argv = argv;
        agents[i].pid = 1 << 30;
        assert_non_null(cddpi_membership_add(&head.nodes.members, i, hosts[i].name, 1));
        cddpi_head_agent_came(&head, i);
    }
    HEAR(.kind = CDDPI_EVENT_START, .text = "0,1");
    return 0;
}

static int end(void **state)
{
    (void)state;
    cddpi_nodes_fini(&head.nodes);
    cddpi_output_fini(&output);
    return 0;
}

/* So many seconds pass for the agent of beta. */
static void pass(int64_t seconds)
{
    int64_t *times[] = {&agents[1].since_ns, &agents[1].ranks_ns, &agents[1].lost_ns,
                        &head.failed_ns};

    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        *times[i] -= *times[i] != 0 ? seconds * INT64_C(1000000000) : 0;
    }
}

/* Beta comes as node @p node. */
static void come(int node)
{
    agents[1].node = node;
    agents[1].has_ended = false;
    HEAR(.kind = CDDPI_EVENT_JOIN, .node = node, .number = 1, .text = "beta");
    assert_true(agents[1].has_come);
}

static void give_ranks(int node)
{
    int generation = head.nodes.members.generation + 1;
    struct cddpi_node_event start = {.kind = CDDPI_EVENT_START, .generation = generation};

    snprintf(start.text, sizeof start.text, "0,%d", node);
    cddpi_head_follow(&head, &start);
    assert_int_equal(head.nodes.members.generation, generation);
}

static void end_agent(void)
{
    agents[1].has_ended = true;
    before_ns = cddpi_now_ns();
    cddpi_head_explain_agent(&head, 1);
    after_ns = cddpi_now_ns();
}

/* Beta is lost, and @p seconds later its agent ends. */
static void lose(int64_t seconds)
{
    HEAR(.kind = CDDPI_EVENT_LOST, .node = agents[1].node, .text = "gone");
    pass(seconds);
    end_agent();
}

static void assert_pauses(int64_t seconds)
{
    int64_t pause_ns = seconds * INT64_C(1000000000);

    assert_true(agents[1].due_ns >= before_ns + pause_ns);
    assert_true(agents[1].due_ns <= after_ns + pause_ns);
}

/* All others begin anew each time: the saving before that, and how long it takes until the end of
 * ssh is seen, are no life of the host. */
static void a_host_that_is_soon_lost_pauses_longer_each_time(void **state)
{
    (void)state;
    lose(30);
    assert_pauses(1);
    for (int i = 1; i < 6; i++) {
        come(i + 1);
        pass(30); /* the others save, for long */
        give_ranks(i + 1);
        if (i % 2 == 0) {
            HEAR(.kind = CDDPI_EVENT_FAILURE, .generation = i, .node = i + 1);
            pass(30); /* their ranks end slowly */
        }
        lose(30);
        assert_pauses(1 << i);
    }
}

static void a_host_that_took_part_for_long_is_started_again_soon(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i++) {
        come(i + 1);
        give_ranks(i + 1);
        lose(0);
    }
    assert_pauses(4);
    come(5);
    give_ranks(5);
    pass(CDDPI_SHORT_LIFE_MS / 1000);
    lose(0);
    assert_pauses(1);
}

/* As a spare, which costs the others nothing. */
static void a_host_that_waited_for_long_is_started_again_soon(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i++) {
        come(i + 1);
        pass(60);
        lose(0);
    }
    assert_pauses(4);
    come(5);
    pass(3600);
    lose(0);
    assert_pauses(1);
}

static void a_host_that_was_asked_to_leave_is_not_started_again(void **state)
{
    (void)state;
    HEAR(.kind = CDDPI_EVENT_LEAVE, .node = 1, .number = SIGTERM);
    for (int i = 0; i < 2; i++) {
        HEAR(.kind = CDDPI_EVENT_DONE, .node = i, .exit_status = CDDPI_STOPPED_EARLY);
    }
    end_agent();
    assert_true(agents[1].is_over);
    assert_true(agents[1].due_ns == INT64_MAX);
    assert_true(cddpi_head_agents_due_ns(&head) == INT64_MAX);
}

/* Such as one that stood still, was given up, and gets a hangup when it wakes. */
static void a_signal_that_does_not_count_gives_no_deadline(void **state)
{
    (void)state;
    HEAR(.kind = CDDPI_EVENT_LOST, .node = 1, .text = "gone");
    HEAR(.kind = CDDPI_EVENT_START, .generation = 1, .text = "0");
    assert_true(head.patience_ns == INT64_MAX);
    HEAR(.kind = CDDPI_EVENT_SIGNAL, .node = 1, .number = SIGTERM);
    HEAR(.kind = CDDPI_EVENT_SIGNAL, .node = 7, .number = SIGTERM);
    assert_true(head.patience_ns == INT64_MAX);
    HEAR(.kind = CDDPI_EVENT_SIGNAL, .node = 0, .number = SIGTERM);
    assert_true(head.patience_ns < INT64_MAX);
}

/* Such as "Connection timed out" after two minutes, at each try. */
static void what_a_host_says_again_is_held_until_it_comes_or_ends(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        agents[1].has_come = false;
        agents[1].fails = fails;
        agents[1].is_held = true;
        pass(60);
        cddpi_head_tend_agents(&head);
        assert_int_equal(agents[1].is_held, fails > 0);
        assert_true(cddpi_head_agents_due_ns(&head) == INT64_MAX);
    }
    cddpi_head_agent_came(&head, 1);
    assert_false(agents[1].is_held);
    agents[1].is_held = true;
    lose(0);
    assert_false(agents[1].is_held);
}

/* The node may have come meanwhile, and what it says is still to be read. */
static void after_a_standstill_no_deadline_counts_at_once(void **state)
{
    (void)state;
    agents[1].node = 9;
    agents[1].has_come = false;
    agents[1].due_ns = head.patience_ns = 1;
    cddpi_head_note_turn(&head, cddpi_now_ns() - INT64_C(3000000000));
    cddpi_head_tend(&head);
    assert_int_equal(agents[1].end_steps, 0);
    assert_false(cddpi_head_is_overdue(&head));
    assert_true(cddpi_head_tend_ns(&head) == head.awake_ns);
    head.awake_ns = cddpi_now_ns() - 1;                                /* later */
    cddpi_head_note_turn(&head, cddpi_now_ns() - INT64_C(3000000000)); /* not again and again */
    cddpi_head_tend(&head);
    assert_int_equal(agents[1].end_steps, 2);
    assert_true(cddpi_head_is_overdue(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_host_that_is_soon_lost_pauses_longer_each_time, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_host_that_took_part_for_long_is_started_again_soon, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_host_that_waited_for_long_is_started_again_soon, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_host_that_was_asked_to_leave_is_not_started_again, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_a_host_says_again_is_held_until_it_comes_or_ends,
                                        begin, end),
        cmocka_unit_test_setup_teardown(after_a_standstill_no_deadline_counts_at_once, begin, end),
        cmocka_unit_test_setup_teardown(a_signal_that_does_not_count_gives_no_deadline, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
