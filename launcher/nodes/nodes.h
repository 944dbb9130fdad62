/* nodes.h - drives the state machine of the job's members (membership.h): passes it the events of
 * the job's log, of this machine's ranks, signals and time, and carries out what it decides. A job
 * on one machine has no link to other nodes: what it publishes returns to it at once. One thread.
 */
#ifndef CDDPI_LAUNCHER_NODES_H
#define CDDPI_LAUNCHER_NODES_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/membership.h"
#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/slow_ranks.h"

struct cddpi_ctl;
struct cddpi_node_plan;
struct cddpi_supervision;

/* Checkpoints that cddp-ctl asks for, as the log tells of them. */
struct cddpi_node_saves {
    bool is_wanted; /* one is not written yet */
    int written, failed;
};

enum { CDDPI_NODE_CARDS = 16, CDDPI_NODE_CARD_BYTES = 512 };

/* GPUs that nodes leave out, as the log tells of them. */
struct cddpi_node_cards {
    int count;
    struct cddpi_node_card {
        int node, rank; /* that has used it */
        char text[CDDPI_NODE_CARD_BYTES];
    } list[CDDPI_NODE_CARDS];
};

struct cddpi_nodes {
    struct cddpi_membership members; /* its list is owned */
    struct cddpi_node_link *link;    /* NULL: a job on one machine */
    bool is_refused;                 /* node 0 refused the job and has told all nodes why */
    struct cddpi_job *job;
    struct cddpi_wait *wait;
    struct cddpi_supervision *run; /* NULL: no ranks run */
    int64_t steps;                 /* of the state machine that more than time has caused */
    /* Of the current step. Owned; there from the beginning, so that no event is lost. */
    struct cddpi_membership_actions *actions;
    bool is_acting; /* they are being carried out */
    int refusal;    /* exit status of a CDDPI_DO_START that failed; 0: none */
    struct cddpi_node_saves saves;
    struct cddpi_node_cards cards;
    struct cddpi_slow_ranks slow;     /* if rank 0 is here */
    struct cddpi_ctl *ctl;            /* serves cddp-ctl; NULL: not on this node */
    bool is_due;                      /* the ranks of the next generation are to be started */
    bool is_hearing;                  /* one machine: what was published is being heard */
    struct cddpi_node_event queue[8]; /* one machine: published, and not heard yet */
    int queued;
    int checked_ranks; /* the number of ranks for which the configuration was checked last */
};

/** Make a list with room for @p room members.
 *  @param self  This node; -1: the cddp-run that started the nodes.
 *  @param out   Release with cddpi_nodes_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_nodes_init(int self, int room, struct cddpi_nodes *out);
void cddpi_nodes_fini(struct cddpi_nodes *nodes);

/** The job has ended, and cddpi_nodes_fini() was called: wait until nobody is connected to its
 * store any more, for 3 seconds at most, so that a cddp-ctl that has asked for the end reads it. */
void cddpi_nodes_await_readers(struct cddpi_job_rendezvous *rendezvous, struct cddpi_wait *wait);

/** node_meeting.c: wait until the nodes have arrived. Sets job->nodes (to @p out) and the
 *  rendezvous.
 *  @param out  Release with cddpi_nodes_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_nodes_meet(struct cddpi_job *job, struct cddpi_wait *wait,
                                          struct cddpi_nodes *out);

/** A job on one machine: the only node. Sets job->nodes.
 *  @param out  Release with cddpi_nodes_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_nodes_alone(struct cddpi_job *job, struct cddpi_wait *wait,
                                           struct cddpi_nodes *out);

/** The process that serves the job's store, and is no node: add the nodes of @p plan, which have
 * met, and open nodes->link, to follow their log and to watch them. members->outside_store is set.
 */
CDDP_CHECKED cddp_status cddpi_nodes_follow(struct cddpi_nodes *nodes,
                                            const struct cddpi_job_rendezvous *rendezvous,
                                            const struct cddpi_node_plan *plan);

/** Set what the options say about members: limits, restarts, deadlines. */
void cddpi_nodes_limit(struct cddpi_nodes *nodes, const struct cddpi_job *job);

/** The node's name for messages, such as "node 1 (alpha)". */
const char *cddpi_node_name(const struct cddpi_nodes *nodes, int node);

/** Whether this node stood still for so long that the others have given it up. What its ranks do
 *  afterwards does not count as a response to a signal. */
bool cddpi_nodes_given_up(const struct cddpi_nodes *nodes);
/** Tell the user, once, that this node was given up. */
void cddpi_nodes_say_given_up(struct cddpi_nodes *nodes, struct cddpi_output *output);

/** The cddp-run that started the nodes: record @p event, and tell the user if it is news about a
 *  node. */
void cddpi_nodes_take(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                      struct cddpi_output *output);

/** Pass an event to the state machine, and carry out what follows. If event->now_ns is not set, it
 *  happened now. */
void cddpi_nodes_feed(struct cddpi_nodes *nodes, const struct cddpi_membership_event *event);
#define CDDPI_MEMBERS_FEED(nodes, ...)                                                             \
    cddpi_nodes_feed((nodes), &(const struct cddpi_membership_event){__VA_ARGS__})

/** Process the events of the log that have arrived. */
void cddpi_nodes_hear(struct cddpi_nodes *nodes);

/** The ranks of this node run now, under nodes->run: pass it what has already happened in this
 *  generation. */
void cddpi_nodes_catch_up(struct cddpi_nodes *nodes);

#endif
