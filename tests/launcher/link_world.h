/* link_world.h - links of nodes whose store, network and clock are simulated: only the decisions of
 * link_state.h are real. */
#ifndef CDDP_TESTS_LAUNCHER_LINK_WORLD_H
#define CDDP_TESTS_LAUNCHER_LINK_WORLD_H

#include "launcher/nodes/link_state.h"
#include "support/test.h"

enum {
    LIMIT_MS = 4000,
    LOOK_MS = 250,
    ANSWER_MS = 500,

    MOST_ROWS = 2048,
    MOST_LATE = 64
};

struct row {
    char key[CDDPI_NODE_KEY_BYTES];
    uint8_t value[512];
    size_t bytes;
};

/* A store, and writes that are still on their way to it although nobody waits for their answer. */
struct depot {
    struct row rows[MOST_ROWS];
    int count;
    struct row late[MOST_LATE];
    bool is_late_event[MOST_LATE];
    int late_count;
};

/* One node's link. */
struct desk {
    struct cddpi_link_state link;
    struct cddpi_link_now now;
    struct depot *depot;
    struct cddpi_link_request request; /* the last one */
    struct cddpi_node_event event;     /* what the last answer told the owner */
};

/* What becomes of a request. */
enum fate {
    ANSWERED,
    LOST,       /* it never arrives, and ends at its deadline */
    UNANSWERED, /* it is done, but the answer never arrives */
    LATE,       /* as LOST, but a write is done later: depot_catch_up() */
    BROKEN,     /* the connection ends before the request arrives */
    BROKEN_DONE /* the request is done, and the connection ends before the answer arrives */
};

/* @p count nodes have met; nodes NULL: 0 to count - 1. */
void desk_begin(struct desk *desk, struct depot *depot, int self, const int *nodes, int count);
void desk_end(struct desk *desk);
/* Let @p side begin its next request and end it. A wait ends at its end. */
void desk_step(struct desk *desk, enum cddpi_link_side side, enum fate fate);
/* As a request that fails with @p status. */
void desk_fail(struct desk *desk, enum cddpi_link_side side, cddp_status status, const char *error);
/* Let time pass, on both clocks. */
void desk_pass(struct desk *desk, int64_t milliseconds);
/* Step until nothing is queued. */
void desk_tell_all(struct desk *desk);
/* Step until the hearer has looked at all peers once. Returns the last event of the owner. */
void desk_look_around(struct desk *desk);

/* The number of LOST events about @p node in the log; what is queued is written first. */
int desk_losses(struct desk *desk, int node);

#define TELL(desk, ...)                                                                            \
    cddpi_link_publish(&(desk)->link, &(const struct cddpi_node_event){.rank = -1, __VA_ARGS__})

const struct row *depot_find(const struct depot *depot, const char *key);
void depot_set(struct depot *depot, const char *key, const void *value, size_t bytes);
/* A sign of life of @p node, or its last word. */
void depot_beat(struct depot *depot, int node, int number);
void depot_leave_last_word(struct depot *depot, int node);
/* Append an event to the log, as another node does. */
void depot_tell(struct depot *depot, const struct cddpi_node_event *event);
#define OTHER_TELLS(depot, ...)                                                                    \
    depot_tell((depot), &(const struct cddpi_node_event){.rank = -1, __VA_ARGS__})
/* The number of events in the log, which has no gap. */
int depot_events(const struct depot *depot);
/* Event @p number. */
struct cddpi_node_event depot_event(const struct depot *depot, int number);
/* Do a write that was late. */
void depot_catch_up(struct depot *depot, int which);

#endif
