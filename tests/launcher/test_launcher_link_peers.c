/* test_launcher_link_peers.c - which nodes a node watches, and when it takes one for lost, in
 * histories without a real store. */
#include "launcher/link_world.h"

#include "base/alloc.h"

static struct depot depot;
static struct desk desk;

static void begin(int self, int count)
{
    memset(&depot, 0, sizeof depot);
    desk_begin(&desk, &depot, self, NULL, count);
}

static void a_silent_node_is_lost_after_the_limit(void **state)
{
    int64_t silent_ns;

    (void)state;
    begin(0, 3);
    depot_beat(&depot, 1, 1);
    desk_look_around(&desk);
    silent_ns = desk.now.now_ns;
    for (int i = 2; desk.link.teller.first == NULL; i++) {
        depot_beat(&depot, 2, i);
        desk_look_around(&desk);
    }
    silent_ns = desk.now.now_ns - silent_ns;
    assert_true(silent_ns >= (LIMIT_MS + CDDPI_SILENCE_SPARE_MS) * INT64_C(1000000));
    assert_true(silent_ns <= (LIMIT_MS + CDDPI_SILENCE_SPARE_MS + 2 * LOOK_MS) * INT64_C(1000000));
    assert_int_equal(desk_losses(&desk, 1), 1);
    assert_int_equal(desk_losses(&desk, 2), 0);
    assert_string_equal(depot_event(&depot, 0).text,
                        "no sign of life for 6.0 s, and it may be silent for 4 s "
                        "(CDDP_HEARTBEAT_MS): the machine stands still, or it or the network is "
                        "gone");
    for (int i = 0; i < 100; i++) {
        depot_beat(&depot, 2, i);
        desk_look_around(&desk);
    }
    assert_int_equal(desk_losses(&desk, 1), 1);
    desk_end(&desk);
}

static void a_node_whose_cddp_run_has_ended_is_lost_soon(void **state)
{
    int looks = 0;

    (void)state;
    begin(0, 2);
    depot_beat(&depot, 1, 1);
    desk_look_around(&desk);
    depot_leave_last_word(&depot, 1);
    for (; desk.link.teller.first == NULL; looks++) {
        desk_look_around(&desk);
    }
    assert_int_equal(looks, 1000 / LOOK_MS);
    assert_int_equal(desk_losses(&desk, 1), 1);
    assert_string_equal(depot_event(&depot, 0).text,
                        "its cddp-run has ended without a word: was it killed?");
    desk_end(&desk);
}

/* Its loss cannot be told to the others, or they know it. */
static void the_loss_of_node_0_is_told_only_to_the_owner(void **state)
{
    (void)state;
    begin(2, 3);
    depot_beat(&depot, 0, 1);
    desk_look_around(&desk);
    for (int i = 0; desk.event.kind == CDDPI_EVENT_NONE; i++) {
        assert_in_range(i, 0, 100);
        desk_look_around(&desk);
    }
    assert_int_equal(desk.event.kind, CDDPI_EVENT_LOST);
    assert_int_equal(desk.event.node, 0);
    assert_null(desk.link.teller.first);
    desk_end(&desk);
}

static void a_node_that_comes_later_is_watched_from_its_join_on(void **state)
{
    (void)state;
    for (int has_beat = 0; has_beat < 2; has_beat++) {
        begin(0, 1);
        for (int i = 0; i < 100; i++) {
            desk_look_around(&desk);
        }
        if (has_beat) {
            depot_beat(&depot, 4105, 1);
        }
        OTHER_TELLS(&depot, .kind = CDDPI_EVENT_JOIN, .node = 4105, .number = 2);
        for (int i = 0; i < LIMIT_MS / LOOK_MS; i++) {
            desk_look_around(&desk);
        }
        assert_int_equal(desk_losses(&desk, 4105), 0);
        for (int i = 0; i < 2 * CDDPI_SILENCE_SPARE_MS / LOOK_MS; i++) {
            desk_look_around(&desk);
        }
        assert_int_equal(desk_losses(&desk, 4105), 1);
        /* its number is never used again */
        OTHER_TELLS(&depot, .kind = CDDPI_EVENT_JOIN, .node = 4105, .number = 2);
        for (int i = 0; i < 100; i++) {
            desk_look_around(&desk);
        }
        assert_int_equal(desk_losses(&desk, 4105), 1);
        desk_end(&desk);
    }
}

/* Until it says BYE, it is. */
static void a_node_that_has_left_is_not_missed(void **state)
{
    (void)state;
    begin(0, 3);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_JOIN, .node = 9, .number = 1);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_LEAVE, .node = 1);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_LEAVE, .node = 2);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_BYE, .node = 9);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_BYE, .node = 1);
    for (int i = 0; i < 100; i++) {
        desk_look_around(&desk);
    }
    assert_int_equal(desk_losses(&desk, 9), 0);
    assert_int_equal(desk_losses(&desk, 1), 0);
    assert_int_equal(desk_losses(&desk, 2), 1);
    desk_end(&desk);
}

static void after_the_end_nobody_is_missed(void **state)
{
    static const struct cddpi_node_event last[] = {
        {.kind = CDDPI_EVENT_END, .node = 0, .rank = -1},
        {.kind = CDDPI_EVENT_BYE, .node = 1, .rank = -1},
        {.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        begin(0, 2);
        depot_tell(&depot, &last[i]);
        for (int k = 0; k < 100; k++) {
            desk_look_around(&desk);
        }
        assert_int_equal(desk_losses(&desk, 1), i == 2 ? 1 : 0); /* the one that was told */
        desk_end(&desk);
    }
}

/* The meeting has its own deadline. */
static void the_first_cddp_run_misses_nobody_before_the_first_generation(void **state)
{
    (void)state;
    begin(-1, 2);
    for (int i = 0; i < 100; i++) {
        desk_look_around(&desk);
    }
    assert_int_equal(desk_losses(&desk, 0), 0);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_START, .text = "0-1");
    for (int i = 0; i < 100; i++) {
        depot_beat(&depot, 0, i);
        desk_look_around(&desk);
    }
    assert_int_equal(desk_losses(&desk, 0), 0);
    assert_int_equal(desk_losses(&desk, 1), 1);
    assert_null(depot_find(&depot, "job/beat/-1"));
    desk_end(&desk);
}

/* It begins to watch once they have met: node 0 may be killed before it begins the first
 * generation, for which all wait. */
static void the_process_of_an_outside_store_misses_nodes_from_the_start(void **state)
{
    (void)state;
    begin(-1, 2);
    desk.link.has_outside_store = true;
    for (int i = 0; i < 100; i++) {
        depot_beat(&depot, 1, i);
        desk_look_around(&desk);
    }
    assert_int_equal(desk_losses(&desk, 0), 1);
    assert_int_equal(desk_losses(&desk, 1), 0);
    desk_end(&desk);
}

/* It looks at its own sign of life instead. */
static void a_node_that_watches_nobody_misses_the_store(void **state)
{
    (void)state;
    begin(0, 1);
    for (int i = 0; i < 100; i++) {
        desk_look_around(&desk);
        assert_int_equal(desk.event.kind, CDDPI_EVENT_NONE);
    }
    for (int i = 0; desk.event.kind == CDDPI_EVENT_NONE; i++) {
        assert_in_range(i, 0, 100);
        desk_step(&desk, CDDPI_LINK_HEARER, LOST);
    }
    assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
    desk_end(&desk);
}

/* A node that comes late is told who is there. */
static void the_nodes_that_are_there_are_watched_whatever_their_numbers(void **state)
{
    static const int nodes[] = {4, 0, 7};

    (void)state;
    for (int silent = 0; silent < 3; silent++) {
        memset(&depot, 0, sizeof depot);
        desk_begin(&desk, &depot, -1, nodes, 3);
        desk.link.has_outside_store = true;
        for (int i = 0; i < 100; i++) {
            for (int k = 0; k < 3; k++) {
                if (k != silent) {
                    depot_beat(&depot, nodes[k], i);
                }
            }
            desk_look_around(&desk);
        }
        for (int k = 0; k < 3; k++) {
            assert_int_equal(desk_losses(&desk, nodes[k]), k == silent);
        }
        assert_int_equal(depot_events(&depot), 1); /* no other node is missed */
        desk_end(&desk);
    }
}

static void without_memory_nobody_goes_unwatched(void **state)
{
    (void)state;
    begin(0, 1);
    cddpi_alloc_fail_nth(1);
    TELL(&desk, .kind = CDDPI_EVENT_SAVING);
    cddpi_alloc_fail_nth(1);
    cddpi_link_set(&desk.link, "key", "text");
    cddpi_alloc_fail_nth(0);
    assert_false(cddpi_link_wants_to_tell(&desk.link)); /* but the job goes on */
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_JOIN, .node = 5, .number = 2);
    cddpi_alloc_fail_nth(1);
    desk_step(&desk, CDDPI_LINK_HEARER, ANSWERED);
    cddpi_alloc_fail_nth(0);
    assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
    assert_string_equal(desk.event.text, "no memory to watch one more node");
    desk_end(&desk);
}

static void without_memory_nothing_that_others_wait_for_is_dropped(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth < 3; nth++) {
        begin(0, 1);
        cddpi_alloc_fail_nth(nth);
        TELL(&desk, .kind = CDDPI_EVENT_DONE);
        cddpi_alloc_fail_nth(0);
        desk_step(&desk, CDDPI_LINK_TELLER, ANSWERED); /* its next sign of life */
        assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
        assert_string_equal(desk.event.text, "no memory for what other nodes have to know");
        desk_step(&desk, CDDPI_LINK_HEARER, ANSWERED);
        assert_int_equal(desk.event.kind, CDDPI_EVENT_NONE);
        desk_end(&desk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_node_is_lost_after_the_limit),
        cmocka_unit_test(a_node_whose_cddp_run_has_ended_is_lost_soon),
        cmocka_unit_test(the_loss_of_node_0_is_told_only_to_the_owner),
        cmocka_unit_test(a_node_that_comes_later_is_watched_from_its_join_on),
        cmocka_unit_test(a_node_that_has_left_is_not_missed),
        cmocka_unit_test(after_the_end_nobody_is_missed),
        cmocka_unit_test(the_first_cddp_run_misses_nobody_before_the_first_generation),
        cmocka_unit_test(the_process_of_an_outside_store_misses_nodes_from_the_start),
        cmocka_unit_test(a_node_that_watches_nobody_misses_the_store),
        cmocka_unit_test(the_nodes_that_are_there_are_watched_whatever_their_numbers),
        cmocka_unit_test(without_memory_nobody_goes_unwatched),
        cmocka_unit_test(without_memory_nothing_that_others_wait_for_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
