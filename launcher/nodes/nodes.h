/* nodes.h - the machines of a job, each with a cddp-run: who they are, what has happened to them,
 * and what all agree on between generations. Node 0 decides. One thread. */
#ifndef CDDPI_LAUNCHER_NODES_H
#define CDDPI_LAUNCHER_NODES_H

#include "launcher/hosts/host_list.h"
#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/wait.h"

struct cddpi_node {
    char host[CDDPI_HOST_BYTES];
    int nproc;
    int first_rank;
    bool is_done; /* its ranks of this generation have ended */
    bool is_lost;
    bool has_left; /* it has heard of the job's end */
};

struct cddpi_nodes {
    struct cddpi_node *list;
    int count;
    int self;        /* -1: the cddp-run that started the nodes */
    bool is_refused; /* there is no job, and node 0 has told all why */
    bool is_silent;  /* another cddp-run tells the user what happens elsewhere */
    struct cddpi_node_link *link;
    /* What was heard; kind NONE: nothing. */
    struct cddpi_node_event failure; /* FAILURE, LOST or CUT: the first of this generation */
    struct cddpi_node_event follow;  /* the first */
    struct cddpi_node_event start;   /* of the generation that begins next */
    struct cddpi_node_event end;
    bool is_expelled; /* this node stood still, which was said: the others went on without it */
    bool is_cut;      /* nothing more will be heard */
    int exit_status;  /* the first of the nodes' that is not 0; of a job without a failure */
    int asked_signal;
    bool has_saved;
};

/** node_meeting.c: wait until all nodes have come, and learn who they are: job->nodes (which is
 *  @p out), ranks, sizes and rendezvous.
 *  @param out  Release with cddpi_nodes_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_nodes_meet(struct cddpi_job *job, struct cddpi_wait *wait,
                                          struct cddpi_output *output, struct cddpi_nodes *out);
void cddpi_nodes_fini(struct cddpi_nodes *nodes);

/** "node 1 (alpha)". */
const char *cddpi_node_name(const struct cddpi_nodes *nodes, int node);

/** Whether this node stood still for so long that the others have given it up. What its ranks do
 *  after that is no answer to a signal. */
bool cddpi_nodes_given_up(const struct cddpi_nodes *nodes);
/** Say so, once. */
void cddpi_nodes_say_given_up(struct cddpi_nodes *nodes, struct cddpi_output *output);

/** Keep what @p event says, and tell the user if it is news about another node. */
void cddpi_nodes_take(struct cddpi_nodes *nodes, const struct cddpi_node_event *event,
                      struct cddpi_output *output);

/** Begin job->generation: node 0 says so, the others wait for that. False: the job is over, with
 *  *out_exit_status. */
bool cddpi_nodes_begin(struct cddpi_job *job, struct cddpi_wait *wait, struct cddpi_output *output,
                       int *out_exit_status);

/** All ranks here have ended, with @p outcome: wait until all have everywhere. On node 0 @p outcome
 *  becomes that of the job; on others it becomes what node 0 has decided, may_restart if there is
 *  another generation. */
void cddpi_nodes_finish(struct cddpi_job *job, struct cddpi_wait *wait, struct cddpi_output *output,
                        struct cddpi_generation_outcome *outcome);

/** Node 0: wait @p milliseconds before the next generation. False if the job has to end instead,
 *  with *exit_status. */
bool cddpi_nodes_pause(struct cddpi_job *job, int64_t milliseconds, struct cddpi_wait *wait,
                       struct cddpi_output *output, int *exit_status);

/** The job is over: node 0 says so and waits a moment until all have heard it. */
void cddpi_nodes_leave(struct cddpi_job *job, int exit_status, struct cddpi_wait *wait,
                       struct cddpi_output *output);

#endif
