/* test_launcher_slow_ranks.c - which ranks are stragglers, and which of them are replaced: invented
 * reports. */
#include "launcher/supervise/slow_ranks.h"

#include "support/test.h"

#include <signal.h>

enum { ROOM = 4, MINUTE_MS = 60000 };

#define SECONDS INT64_C(1000000000)

static struct cddpi_slow_ranks slow;
static struct cddpi_job_member list[ROOM];
static struct cddpi_node_event event;
static char text[CDDPI_REPLACE_TEXT_BYTES];

/* Twice the median's time, for a minute. */
static void begin(bool replaces)
{
    memset(&slow, 0, sizeof slow);
    slow.factor = 2;
    slow.patience_ms = MINUTE_MS;
    slow.replaces = replaces;
    cddpi_slow_ranks_begin(&slow);
}

/* A report of @p ms in which @p rank takes @p factor times the median's time. */
static bool report(int rank, double factor, int64_t ms)
{
    const struct cddpi_slow_rank one = {.rank = rank, .factor = factor};

    return cddpi_slow_ranks_take(&slow, &one, 1, ms);
}

static bool report_none(int64_t ms)
{
    return cddpi_slow_ranks_take(&slow, NULL, 0, ms);
}

static int next_straggler(void)
{
    struct cddpi_followed_rank *next = cddpi_slow_ranks_next(&slow);

    return next != NULL ? next->last.rank : -1;
}

static void a_rank_that_is_slow_for_long_enough_is_a_straggler(void **state)
{
    (void)state;
    begin(false);
    for (int i = 0; i < 59; i++) {
        assert_false(report(2, 2.5, 1000));
    }
    assert_int_equal(next_straggler(), -1);
    assert_true(report(2, 2.1, 1000));
    assert_int_equal(next_straggler(), 2);
    assert_int_equal(cddpi_slow_ranks_next(&slow)->slow_ms, MINUTE_MS);
    cddpi_slow_ranks_next(&slow)->is_decided = true;
    assert_false(report(2, 2.1, 1000));
    assert_int_equal(next_straggler(), -1);
    assert_true(slow.list[0].is_straggler); /* cddp-ctl still shows it */
}

static void what_is_less_slow_or_interrupted_is_none(void **state)
{
    (void)state;
    begin(false);
    for (int i = 0; i < 1000; i++) {
        assert_false(report(1, 1.99, 1000));
    }
    for (int i = 0; i < 1000; i++) {
        assert_false(i % 50 == 49 ? report_none(1000) : report(3, 7, 1000));
    }
    assert_int_equal(next_straggler(), -1);
}

/* A rank that stood still once is in one report, however long that is. */
static void one_report_is_not_enough(void **state)
{
    (void)state;
    begin(false);
    assert_false(report(1, 30, 10 * MINUTE_MS));
    assert_int_equal(next_straggler(), -1);
    assert_false(report_none(1000));
    assert_false(report(1, 30, 10 * MINUTE_MS));
    assert_true(report(1, 30, 1000));
    assert_int_equal(next_straggler(), 1);
}

static void the_slowest_is_decided_about_first(void **state)
{
    const struct cddpi_slow_rank three[] = {
        {.rank = 5, .factor = 2.5}, {.rank = 1, .factor = 4}, {.rank = 7, .factor = 3}};

    (void)state;
    begin(true);
    assert_false(cddpi_slow_ranks_take(&slow, three, 3, MINUTE_MS));
    assert_true(cddpi_slow_ranks_take(&slow, three, 3, MINUTE_MS));
    assert_int_equal(next_straggler(), 1);
    cddpi_slow_ranks_next(&slow)->is_decided = true;
    assert_int_equal(next_straggler(), 7);
}

static void a_straggler_that_recovers_is_none_any_more(void **state)
{
    (void)state;
    begin(false);
    assert_false(report(1, 3, MINUTE_MS));
    assert_true(report(1, 3, MINUTE_MS));
    assert_true(report_none(1000));
    assert_int_equal(slow.count, 0);
    assert_false(report(1, 3, 1000)); /* it begins anew */
    assert_int_equal(next_straggler(), -1);
}

static void a_rank_is_named_once_in_a_generation(void **state)
{
    (void)state;
    begin(false);
    assert_true(cddpi_slow_ranks_names(&slow, 9));
    assert_true(cddpi_slow_ranks_names(&slow, CDDPI_MAX_WORLD_SIZE - 1));
    assert_false(cddpi_slow_ranks_names(&slow, 9));
    assert_true(cddpi_slow_ranks_names(&slow, 8));
    assert_false(report(9, 3, MINUTE_MS));
    cddpi_slow_ranks_begin(&slow);
    assert_true(cddpi_slow_ranks_names(&slow, 9));
    assert_false(report(9, 3, MINUTE_MS)); /* of the next generation */
}

/* Any program may write to the pipe. */
static void a_rank_counts_once_in_a_report(void **state)
{
    struct cddpi_slow_rank many[2 * CDDPI_REPORT_SLOW_RANKS];

    (void)state;
    begin(true);
    for (int i = 0; i < 2 * CDDPI_REPORT_SLOW_RANKS; i++) {
        many[i] = (struct cddpi_slow_rank){.rank = i / 2, .factor = 5};
    }
    assert_false(cddpi_slow_ranks_take(&slow, many, 2 * CDDPI_REPORT_SLOW_RANKS, 40000));
    assert_int_equal(slow.count, CDDPI_REPORT_SLOW_RANKS);
    assert_int_equal(slow.list[3].slow_ms, 40000);
    assert_int_equal(next_straggler(), -1);
}

/* A job on one machine with @p nproc ranks. */
static struct cddpi_membership machine(int nproc)
{
    struct cddpi_membership members = {.list = list,
                                       .room = ROOM,
                                       .least = 1,
                                       .most = 1,
                                       .least_ranks = 1,
                                       .most_ranks = 4,
                                       .is_elastic = true,
                                       .is_alone = true};

    members.phase = CDDPI_MEMBERS_RUN;
    assert_non_null(cddpi_membership_add(&members, 0, "", nproc));
    list[0].ranks = nproc;
    members.world_size = nproc;
    return members;
}

/* A job of @p least to 3 nodes with two ranks each; a fourth one waits. */
static struct cddpi_membership nodes(int least)
{
    static const char *const hosts[] = {"alpha", "beta", "gamma", "delta"};
    struct cddpi_membership members = {
        .list = list, .room = ROOM, .least = least, .most = 3, .is_elastic = true};

    members.phase = CDDPI_MEMBERS_RUN;
    for (int i = 0; i < 4; i++) {
        assert_non_null(cddpi_membership_add(&members, i, hosts[i], 2));
        list[i].ranks = i < 3 ? 2 : 0;
        list[i].first_rank = i < 3 ? 2 * i : 0;
    }
    members.world_size = 6;
    return members;
}

static enum cddpi_replace_how decide(const struct cddpi_membership *members, int rank,
                                     int64_t now_ns)
{
    event = (struct cddpi_node_event){.kind = CDDPI_EVENT_NONE};
    return cddpi_slow_ranks_decide(&slow, members, rank, now_ns, &event, text);
}

static void stragglers_are_only_named_unless_they_are_to_be_replaced(void **state)
{
    struct cddpi_membership members = machine(3);

    (void)state;
    begin(false);
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_NOT);
    assert_string_equal(text, "");
    begin(true);
    members.is_elastic = false;
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_NOT);
}

static void on_one_machine_a_new_process_comes_but_not_again_and_again(void **state)
{
    struct cddpi_membership members = machine(3);

    (void)state;
    begin(true);
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_PROCESS);
    assert_int_equal(event.kind, CDDPI_EVENT_SIZE);
    assert_int_equal(event.node, 0);
    assert_int_equal(event.rank, 2);
    assert_int_equal(event.number, 3); /* as many as before */
    cddpi_slow_ranks_note(&slow, &members, 2, CDDPI_REPLACE_PROCESS, SECONDS);
    cddpi_slow_ranks_begin(&slow);
    assert_int_equal(decide(&members, 2, 600 * SECONDS), CDDPI_REPLACE_NOT);
    assert_non_null(strstr(text, "the rank there was replaced 599 s ago"));
    assert_int_equal(decide(&members, 1, 600 * SECONDS), CDDPI_REPLACE_PROCESS);
    assert_int_equal(decide(&members, 2, (CDDPI_REPLACED_AGAIN_S + 1) * SECONDS),
                     CDDPI_REPLACE_PROCESS);
}

static void between_machines_the_node_leaves(void **state)
{
    struct cddpi_membership members = nodes(2);

    (void)state;
    begin(true);
    assert_int_equal(decide(&members, 3, SECONDS), CDDPI_REPLACE_NODE);
    assert_int_equal(event.kind, CDDPI_EVENT_LEAVE);
    assert_int_equal(event.node, 1);
    assert_int_equal(event.rank, -1);
    assert_int_equal(event.number, SIGTERM);
    assert_non_null(strstr(text, "node 3 (delta) takes its place"));
    list[3].is_there = false;
    assert_int_equal(decide(&members, 3, SECONDS), CDDPI_REPLACE_NODE);
    assert_non_null(strstr(text, "go on without it"));
    cddpi_slow_ranks_note(&slow, &members, 3, CDDPI_REPLACE_NODE, SECONDS);
    assert_int_equal(decide(&members, 5, 2 * SECONDS), CDDPI_REPLACE_LATER); /* one at a time */
    cddpi_slow_ranks_begin(&slow);
    list[1].node = 4; /* it has come again under another number */
    assert_int_equal(decide(&members, 2, 2 * SECONDS), CDDPI_REPLACE_NOT);
    assert_non_null(strstr(text, "a node there was replaced"));
    assert_int_equal(decide(&members, 5, 2 * SECONDS), CDDPI_REPLACE_NODE);
}

static void a_node_that_the_job_needs_stays(void **state)
{
    struct cddpi_membership members = nodes(3);

    (void)state;
    begin(true);
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_NODE); /* there is a spare */
    list[3].is_there = false;
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_NOT);
    assert_non_null(strstr(text, "fewer than 3 would be left"));
    assert_int_equal(decide(&members, 0, SECONDS), CDDPI_REPLACE_NOT);
    assert_non_null(strstr(text, "serves the job's store"));
    list[3].is_there = true;
    members.outside_store = "tcp://head:29500";
    assert_int_equal(decide(&members, 0, SECONDS), CDDPI_REPLACE_NODE);
    assert_int_equal(event.node, 0);
    assert_int_equal(decide(&members, 6, SECONDS), CDDPI_REPLACE_NOT); /* there is no such rank */
}

static void while_members_change_nothing_is_decided(void **state)
{
    struct cddpi_membership members = machine(3);

    (void)state;
    begin(true);
    members.change.kind = CDDPI_EVENT_CHANGE;
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_LATER);
    members = machine(3);
    members.failure.kind = CDDPI_EVENT_FAILURE;
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_LATER);
    members = machine(3);
    members.asked_signal = SIGTERM;
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_LATER);
    members = machine(3);
    members.phase = CDDPI_MEMBERS_ENDED;
    assert_int_equal(decide(&members, 2, SECONDS), CDDPI_REPLACE_LATER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_slow_for_long_enough_is_a_straggler),
        cmocka_unit_test(what_is_less_slow_or_interrupted_is_none),
        cmocka_unit_test(one_report_is_not_enough),
        cmocka_unit_test(the_slowest_is_decided_about_first),
        cmocka_unit_test(a_straggler_that_recovers_is_none_any_more),
        cmocka_unit_test(a_rank_is_named_once_in_a_generation),
        cmocka_unit_test(a_rank_counts_once_in_a_report),
        cmocka_unit_test(stragglers_are_only_named_unless_they_are_to_be_replaced),
        cmocka_unit_test(on_one_machine_a_new_process_comes_but_not_again_and_again),
        cmocka_unit_test(between_machines_the_node_leaves),
        cmocka_unit_test(a_node_that_the_job_needs_stays),
        cmocka_unit_test(while_members_change_nothing_is_decided),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
