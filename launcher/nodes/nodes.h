/* nodes.h - the machines of a job, each with a cddp-run: which machines they are, what has happened
 * to them, and what they agree on between generations. Node 0 decides. One thread uses it. */
#ifndef CDDPI_LAUNCHER_NODES_H
#define CDDPI_LAUNCHER_NODES_H

#include "launcher/hosts/host_list.h"
#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/job_state.h"
#include "launcher/supervise/monitor.h"

struct cddpi_node {
    char host[CDDPI_HOST_BYTES];
    int nproc;
    int first_rank;
    bool is_done; /* its ranks of this generation have ended */
    bool is_lost;
    bool has_left; /* it has received the END event */
};

struct cddpi_nodes {
    struct cddpi_node *list;
    int count;
    int self;        /* -1: the cddp-run that started the nodes */
    bool is_refused; /* node 0 refused the job and has told all nodes why */
    bool is_silent;  /* another cddp-run reports to the user what happens on other nodes */
    struct cddpi_node_link *link;
    /* Events that have arrived; kind NONE: not yet. */
    struct cddpi_node_event failure; /* the first FAILURE, LOST or CUT of this generation */
    struct cddpi_node_event follow;  /* the first FOLLOW of this generation */
    struct cddpi_node_event start;   /* START of the next generation */
    struct cddpi_node_event end;
    bool is_expelled; /* this node stood still, the others continued without it, and the user was
                         told */
    bool is_cut;      /* no more events will arrive */
    int exit_status;  /* the first nonzero status of a node, in a job without a failure */
    int asked_signal;
    bool has_saved;
};

/** node_meeting.c: wait until all nodes have arrived. Sets job->nodes (to @p out), ranks, sizes and
 *  the rendezvous.
 *  @param out  Release with cddpi_nodes_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_nodes_meet(struct cddpi_job *job, struct cddpi_wait *wait,
                                          struct cddpi_nodes *out);
void cddpi_nodes_fini(struct cddpi_nodes *nodes);

/** The node's name for messages, such as "node 1 (alpha)". */
const char *cddpi_node_name(const struct cddpi_nodes *nodes, int node);

/** Whether this node stood still for so long that the others have given it up. What its ranks do
 *  afterwards does not count as a response to a signal. */
bool cddpi_nodes_given_up(const struct cddpi_nodes *nodes);
/** Tell the user, once, that this node was given up. */
void cddpi_nodes_say_given_up(struct cddpi_nodes *nodes, struct cddpi_output *output);

/** Record @p event, and tell the user if it is news about another node. */
void cddpi_nodes_take(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                      struct cddpi_output *output);

/** Begin job->generation: node 0 announces it, the other nodes wait for that. Returns false if the
 *  job is over; *out_exit_status is then its status. */
bool cddpi_nodes_begin(struct cddpi_job *job, struct cddpi_wait *wait, int *out_exit_status);

/** All ranks of this node have ended with @p outcome: wait until all other nodes' ranks have ended,
 *  too. On node 0, @p outcome becomes the job's. On other nodes it becomes what node 0 has decided;
 *  may_restart is then true if another generation follows. */
void cddpi_nodes_finish(struct cddpi_job *job, struct cddpi_wait *wait,
                        struct cddpi_generation_outcome *outcome);

/** Node 0: wait @p milliseconds before the next generation. Returns false, with *exit_status, if
 *  the job has to end instead. */
bool cddpi_nodes_pause(struct cddpi_job *job, int64_t milliseconds, struct cddpi_wait *wait,
                       int *exit_status);

/** End the job: node 0 announces the end and waits briefly until all nodes have received it. */
void cddpi_nodes_leave(struct cddpi_job *job, int exit_status, struct cddpi_wait *wait);

#endif
