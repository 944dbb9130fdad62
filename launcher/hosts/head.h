/* head.h - the cddp-run that starts a job on a list of hosts (the head): it starts a cddp-run (an
 * agent) on each host, relays their output, and serves the store in which they meet. */
#ifndef CDDPI_LAUNCHER_HEAD_H
#define CDDPI_LAUNCHER_HEAD_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"
#include "launcher/output/relay.h"

/* One host's cddp-run, or the ssh process that runs it. */
struct cddpi_agent {
    pid_t pid; /* 0: not started */
    int status;
    bool has_ended;
    int input; /* its standard input, whose end tells it to end; -1: closed */
    char **argv;
    struct cddpi_wire_buffer parcel; /* to write to its input */
    size_t sent;
    struct cddpi_relay out;
    struct cddpi_relay err;
    struct cddpi_rank_log log; /* unused */
};

struct cddpi_head {
    const struct cddpi_launch_options *options;
    struct cddpi_hosts hosts;
    struct cddpi_agent *agents; /* hosts.count */
    struct cddpi_nodes nodes;
    struct cddpi_job_rendezvous rendezvous;
    struct cddpi_secret secret;
    const struct cddpi_monitor *monitor;
    struct cddpi_output *output;
    int signal_fd;
    int alive;
    int unexplained; /* agents that have ended and whose last events have not arrived yet */
    uint32_t timeout_ms;
    /* Points in time; INT64_MAX: never. */
    int64_t begin_ns;    /* by when all hosts must have arrived */
    int64_t news_ns;     /* when to name the hosts that are missing */
    int64_t patience_ns; /* by when ranks that were asked to end must have ended: patience_ms after
                            the last sign that one is still saving */
    int64_t patience_ms;
    int64_t deadline_ns;    /* when the remaining agents are ended, whatever they do */
    bool has_waited_longer; /* waiting past begin_ns: node 0 has arrived and will say why hosts are
                               missing */
    bool is_hurried;        /* a second signal has arrived */
    int steps;              /* steps taken to end the remaining agents: see
                               cddpi_head_end_agents() */
    int asked_signal;       /* the first signal that asked the job to end; 0: none */
    int64_t asked_ns;
    struct cddpi_refused_list refused; /* clients that the store has refused */
    int exit_status;                   /* of the first agent that ended with a failure */
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

void cddpi_head_close_input(struct cddpi_agent *agent);

/* head_end.c */

/** Set the deadlines. Call just before starting the agents. */
void cddpi_head_begin_waiting(struct cddpi_head *head);
/** The time of the next deadline; INT64_MAX: none. */
int64_t cddpi_head_next_ns(const struct cddpi_head *head);
/** Whether a deadline has passed, so that the remaining agents have to be ended. */
bool cddpi_head_is_overdue(const struct cddpi_head *head);
/** Name the hosts that are missing, or give up on them if their time is over. */
void cddpi_head_await(struct cddpi_head *head);
/** All agents have ended: wait a short time for the events that they published last. */
void cddpi_head_await_last(struct cddpi_head *head);
void cddpi_head_take_signal(struct cddpi_head *head, int number);
void cddpi_head_take_event(struct cddpi_head *head, const struct cddpi_node_event *event);
/** Take the next step in ending the remaining agents: first close their input, then kill them.
 *  Returns false if no step is left. */
bool cddpi_head_end_agents(struct cddpi_head *head);
/** Call after all output. Prints which host and rank failed first. Returns the exit status, which
 *  is 0 only if all agents are known to have succeeded. */
int cddpi_head_report(struct cddpi_head *head);

/** head_start.c: the command line that starts agent @p i, ended by NULL. @p url is the address at
 *  which the agent finds the store.
 *  @param out  Release with cddpi_head_free_words(). */
CDDP_CHECKED cddp_status cddpi_head_words(const struct cddpi_head *head, int i, const char *url,
                                          char ***out);
void cddpi_head_free_words(char **words);

/** Start agent @p i, whose argv the caller has set. */
CDDP_CHECKED cddp_status cddpi_head_start(struct cddpi_head *head, int i);

#endif
