/* test_launcher_link_random.c - thousands of jobs whose nodes tell each other events while their
 * requests are lost, answered without the node hearing of it, or done late: all nodes hear the same
 * events in the same order, and each event once. */
#include "launcher/link_world.h"

enum { HISTORIES = 2000, NODES = 3, EVENTS = 6, MOST_STEPS = 20000 };

static struct depot depot;
static struct desk desks[NODES];
static int heard[NODES]
                [NODES * EVENTS]; /* the events that a node has heard: who told them, which */
static int heard_count[NODES];

/* The same numbers on all machines. */
static uint32_t random_number(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*seed >> 8) * below >> 24);
}

static void hear(int self)
{
    const struct cddpi_node_event *event = &desks[self].event;

    if (event->kind == CDDPI_EVENT_DONE) {
        assert_in_range(heard_count[self], 0, NODES * EVENTS - 1);
        heard[self][heard_count[self]++] = event->node * EVENTS + event->number;
    } else {
        assert_int_equal(event->kind, CDDPI_EVENT_NONE);
    }
}

/* One request. After some time the network is whole. */
static void let_something_happen(uint32_t *seed, bool is_whole)
{
    static const enum fate fates[] = {ANSWERED,   ANSWERED, ANSWERED, LOST,
                                      UNANSWERED, LATE,     BROKEN,   BROKEN_DONE};
    int self = (int)random_number(seed, NODES);
    struct desk *desk = &desks[self];
    enum fate fate = is_whole ? ANSWERED : fates[random_number(seed, 8)];

    if (depot.late_count > 0 && random_number(seed, 8) == 0) {
        depot_catch_up(&depot, (int)random_number(seed, (uint32_t)depot.late_count));
    }
    if (random_number(seed, 3) == 0) {
        /* a store that is silent for long, or ends again and again, is lost: not in these
         * histories */
        bool is_needed = desk->link.hearer.must_reconnect || desk->link.hearer.broken.count > 0;

        desk_step(desk, CDDPI_LINK_HEARER, is_needed ? ANSWERED : fate);
        hear(self);
    } else {
        bool is_broken = desk->link.teller.broken.count > 0;

        desk_step(desk, CDDPI_LINK_TELLER, is_broken ? ANSWERED : fate);
        assert_int_equal(desk->event.kind, CDDPI_EVENT_NONE);
    }
}

static void live(uint32_t seed)
{
    int told[NODES] = {0};
    int steps = 0;

    memset(&depot, 0, sizeof depot);
    memset(heard_count, 0, sizeof heard_count);
    for (int i = 0; i < NODES; i++) {
        desk_begin(&desks[i], &depot, i, (const int[]){i}, 1); /* which watch nobody */
    }
    for (bool is_done = false; !is_done; steps++) {
        int teller = (int)random_number(&seed, NODES);

        assert_in_range(steps, 0, MOST_STEPS);
        if (told[teller] < EVENTS && random_number(&seed, 8) == 0) {
            TELL(&desks[teller], .kind = CDDPI_EVENT_DONE, .node = teller,
                 .number = told[teller]++);
        }
        let_something_happen(&seed, steps > 500);
        is_done = true;
        for (int i = 0; i < NODES; i++) {
            is_done = is_done && heard_count[i] == NODES * EVENTS;
        }
    }
    while (depot.late_count > 0) {
        depot_catch_up(&depot, 0);
    }
    assert_int_equal(depot_events(&depot), NODES * EVENTS);
    for (int i = 0; i < NODES; i++) {
        int next[NODES] = {0};

        assert_memory_equal(heard[i], heard[0], sizeof heard[0]);
        for (int k = 0; k < NODES * EVENTS; k++) {
            int node = heard[i][k] / EVENTS;

            assert_int_equal(heard[i][k] % EVENTS, next[node]++); /* in the order of telling */
        }
        desk_end(&desks[i]);
    }
}

static void all_nodes_hear_the_same_events_once(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= HISTORIES; seed++) {
        live(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_nodes_hear_the_same_events_once)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
