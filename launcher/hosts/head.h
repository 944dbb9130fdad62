/* head.h - the cddp-run that starts a job on a list of hosts (the head): it starts a cddp-run (an
 * agent) on each host, relays their output, and serves the store in which they meet. What it does
 * when is decided by a state machine (head_state.h), whose actions are carried out here.
 *
 * Agent I is node I of the job, whose end is decided by the first failure. In a job that goes on
 * without hosts (--nnodes MIN:MAX, "elastic") the head also lets the nodes meet, and starts agents
 * again, each time as another node. */
#ifndef CDDPI_LAUNCHER_HEAD_H
#define CDDPI_LAUNCHER_HEAD_H

#include "launcher/hosts/head_state.h"
#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"
#include "launcher/output/relay.h"

#include <cddp/store.h>

enum { CDDPI_HEAD_NAMED = 20 }; /* the most hosts that are named */

/* One host's cddp-run, or the ssh process that runs it. */
struct cddpi_agent {
    pid_t pid;  /* 0: not started */
    int status; /* of waitpid() */
    bool is_reaped;
    bool is_to_start; /* CDDPI_HEAD_START is not carried out yet */
    int input;        /* its standard input, whose end tells it to end; -1: closed */
    char **argv;
    struct cddpi_wire_buffer parcel; /* to write to its input */
    size_t sent;
    struct cddpi_relay out;
    struct cddpi_relay err;
    struct cddpi_rank_log log; /* unused */
    int nproc;                 /* elastic: of this node */
    char *said; /* what it wrote to stderr before it failed the last time; owned; NULL: nothing */
};

struct cddpi_head {
    const struct cddpi_launch_options *options;
    struct cddpi_head_state state; /* its hosts and actions are owned */
    struct cddpi_hosts hosts;
    struct cddpi_agent *agents; /* hosts.count */
    struct cddpi_nodes nodes;
    struct cddpi_job_rendezvous rendezvous;
    struct cddpi_secret secret;
    const struct cddpi_monitor *monitor;
    struct cddpi_output *output;
    int signal_fd;
    struct cddpi_refused_list refused; /* clients that the store has refused */
    bool is_to_look, is_to_begin;      /* CDDPI_HEAD_LOOK, _BEGIN are not carried out yet */
    /* Of an elastic job. */
    char url[CDDPI_URL_BYTES]; /* at which agents find the store */
    cddp_store *client;        /* of the own store */
    bool has_first;
    struct cddpi_node_record
        first; /* of the first node that came, with which others are compared */
    int first_node;
};

/** Parse the list of hosts. Release with cddpi_head_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_head_init(struct cddpi_head *head,
                                         const struct cddpi_launch_options *options);
void cddpi_head_fini(struct cddpi_head *head);

/** Start all agents and wait until they have ended. The caller has set monitor, output and
 *  signal_fd. Returns the job's exit status. */
int cddpi_head_supervise(struct cddpi_head *head);

/** Print the hosts, the ranks and the commands that would run. Returns the exit status. */
int cddpi_head_dry_run(const struct cddpi_head *head);

/* head_actions.c */

/** Pass @p event, which happens now, to the state machine, and carry out what follows. */
void cddpi_head_feed(struct cddpi_head *head, const struct cddpi_head_event *event);
#define CDDPI_HEAD_FEED(head, ...)                                                                 \
    cddpi_head_feed((head), &(const struct cddpi_head_event){__VA_ARGS__})

/* head_words.c */

/** Tell the user what @p action says. */
void cddpi_head_say(struct cddpi_head *head, const struct cddpi_head_action *action);
/** Call after all output. Prints which host and rank failed first. */
void cddpi_head_say_first_failure(const struct cddpi_head *head);
/** Write how agent @p i has ended, as a sentence. */
void cddpi_head_word_end(const struct cddpi_head *head, int i, char *out, size_t bytes);

/* host_agent.c */

/** The agent's name for messages, such as "node 1 (alpha)". Valid until the next call. */
const char *cddpi_head_agent_name(const struct cddpi_head *head, int i);
/** Prepare the agent of host @p i for its first start, or for the next one. */
void cddpi_head_init_agent(struct cddpi_head *head, int i);
/** Release its streams and what it was to be sent. */
void cddpi_head_finish_agent(struct cddpi_agent *agent);
/** Pass on what it has written to stderr. @p has_failed: unless it wrote the same the last time. */
void cddpi_head_release_held(struct cddpi_agent *agent, bool has_failed);

/* head_meet.c */

/** List the hosts that have not come. Returns their number.
 *  @param out_first_is_there  Fixed: node 0 has come. */
int cddpi_head_list_missing(struct cddpi_head *head, char *out, size_t bytes,
                            bool *out_first_is_there);
/** Elastic: look for the record of agent @p i, and compare it with those of others. Returns whether
 *  its node has come.
 *  @param out_why  If the job cannot begin: why; else "". */
bool cddpi_head_look_for(struct cddpi_head *head, int i, char out_why[CDDPI_REFUSAL_BYTES]);
/** Elastic: answer the nodes that are there, and follow their log. */
CDDP_CHECKED cddp_status cddpi_head_let_meet(struct cddpi_head *head);

/** head_start.c: the command line that starts agent @p i, ended by NULL. @p url is the address at
 *  which the agent finds the store.
 *  @param out  Release with cddpi_head_free_words(). */
CDDP_CHECKED cddp_status cddpi_head_words(const struct cddpi_head *head, int i, const char *url,
                                          char ***out);
void cddpi_head_free_words(char **words);

/** Start agent @p i, which cddpi_head_init_agent() has prepared. */
CDDP_CHECKED cddp_status cddpi_head_start(struct cddpi_head *head, int i);

#endif
