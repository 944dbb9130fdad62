/* member_world.h - the nodes of a job, of which only the decisions about members are real: a log
 * that all nodes read in the same order, ranks that end when the test says so, and a clock that the
 * test sets. */
#ifndef CDDP_TESTS_LAUNCHER_MEMBER_WORLD_H
#define CDDP_TESTS_LAUNCHER_MEMBER_WORLD_H

#include "launcher/nodes/membership.h"
#include "support/test.h"

enum { NODES = 6, ROOM = 12, EVENTS = 128 };

struct node {
    struct cddpi_membership members;
    struct cddpi_job_member list[ROOM];
    int heard; /* events of the log */
    bool is_alive;
    bool runs;                   /* its ranks run */
    struct cddpi_job_event told; /* the last thing its ranks were told */
    int losses;                  /* that it told ranks elsewhere of */
    char said[4096];             /* the last thing the user was told */
};

/* What befalls the next generations. */
struct twist {
    int refuses;  /* CDDPI_DO_START fails with this exit status; 0: it does not */
    int allowed;  /* but not for so many ranks */
    int multiple; /* CDDPI_DO_START refuses other numbers of ranks than its multiples */
    struct cddpi_node_event before_start; /* comes into the log before the next START */
    bool is_orphaned;                     /* node 0 is, before it hears its next START */
};

extern struct node nodes[NODES];
extern struct twist twist; /* nodes_begin() clears it */

/* A job that begins with @p count nodes of 2 ranks each. If @p least and @p most are equal, its
 * nodes are fixed. */
void nodes_begin(int count, int least, int most);
/* A job of two ranks on one machine, whose user may ask for @p least_ranks to @p most_ranks. */
void nodes_begin_alone(int least_ranks, int most_ranks);
/* As nodes_begin(), but @p event is in the log before the first START. */
void nodes_begin_after(const struct cddpi_node_event *event, int count, int least, int most);
/* As nodes_begin(), with a store that no node serves. */
void nodes_begin_outside(int count, int least, int most);
/* Append an event to the log. */
void nodes_append(const struct cddpi_node_event *event);
/* All nodes hear all events, and see the time. */
void nodes_settle(void);
void nodes_wait(int64_t milliseconds);

/* The number of events in the log. */
int nodes_events(void);

void node_feed(struct node *node, struct cddpi_membership_event event);
/* It hears @p event, which is not in the log, or after a standstill. */
void node_hear(struct node *node, const struct cddpi_node_event *event, int64_t slept_ms);
/* Node @p number comes late, with 2 ranks, to a job that began with @p initial nodes. */
void node_join(int number, int initial, int least, int most);
void node_end_ranks(int number, int exit_status, bool has_saved);
/* They have saved nothing, but keep their progress in memory. */
void node_end_ranks_kept(int number, int exit_status);
/* They cannot start again. */
void node_end_ranks_for_good(int number, int exit_status);
/* The ranks of all nodes that have any. */
void nodes_end_ranks(int exit_status, bool has_saved);
void node_lose(int number);
/* Its cddp-run gets @p signal. */
void node_signal(int number, int signal);
/* A rank of this node fails, and a restart may help. */
void node_fail_rank(int number);
/* The ranks of this node cannot be started, and all ranks end. */
void node_cannot_start(int number);
/* @p rank of this node is asked to end. The others hear of it later: nodes_settle(). */
void node_leave_rank(int number, int rank);

void assert_runs(int number, int generation, int first_rank, int world_size);
void assert_over(int number, int exit_status);

#endif
