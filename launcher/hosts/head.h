/* head.h - the cddp-run that starts a job on a list of hosts: it starts a cddp-run on each, passes
 * their output on, and holds the store in which they meet. */
#ifndef CDDPI_LAUNCHER_HEAD_H
#define CDDPI_LAUNCHER_HEAD_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"
#include "launcher/output/relay.h"

/* One host's cddp-run, or the ssh that leads to it. */
struct cddpi_agent {
    pid_t pid; /* 0: not started */
    int status;
    bool has_ended;
    int input; /* its standard input: at its end it ends; -1: closed */
    char **argv;
    struct cddpi_wire_buffer parcel; /* to be written to its input */
    size_t sent;
    struct cddpi_relay out;
    struct cddpi_relay err;
    struct cddpi_rank_log log; /* none */
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
    int unexplained; /* agents that have ended, while what was told before that is not heard */
    uint32_t timeout_ms;
    /* Moments; INT64_MAX: never. */
    int64_t begin_ns;    /* when all hosts must have come */
    int64_t news_ns;     /* when hosts that have not come are named */
    int64_t patience_ns; /* when ranks that were asked to end must have: patience_ms from the last
                            sign that one still saves */
    int64_t patience_ms;
    int64_t deadline_ns;    /* when what is left is ended, whatever it does */
    bool has_waited_longer; /* past begin_ns: node 0 is there, and will say why */
    bool is_hurried;        /* there was a second signal */
    int steps;              /* of ending what is left: see cddpi_head_end_agents() */
    int asked_signal;       /* the first sent to us that asked the job to end; 0: none */
    int64_t asked_ns;
    struct cddpi_refused_list refused; /* clients, by the store */
    int exit_status;                   /* of the first agent that ended badly */
};

/** Read the list of hosts. Release with cddpi_head_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_head_init(struct cddpi_head *head,
                                         const struct cddpi_launch_options *options);
void cddpi_head_fini(struct cddpi_head *head);

/** Start all agents and wait for their ends; the members about monitor, output and signals are set.
 *  Returns the job's exit status. */
int cddpi_head_supervise(struct cddpi_head *head);

/** Print hosts, ranks and what would be run. Returns the exit status. */
int cddpi_head_dry_run(const struct cddpi_head *head);

void cddpi_head_close_input(struct cddpi_agent *agent);

/* head_end.c */

/** All hosts have come and ranks are being started. */
bool cddpi_head_has_begun(const struct cddpi_head *head);
/** The agents are about to be started: set the deadlines. */
void cddpi_head_begin_waiting(struct cddpi_head *head);
/** When the next deadline is; INT64_MAX: never. */
int64_t cddpi_head_next_ns(const struct cddpi_head *head);
/** Whether a deadline has passed, so that the agents that are left have to be ended. */
bool cddpi_head_is_overdue(const struct cddpi_head *head);
/** Name the hosts that are missing, or give them up if their time is over. */
void cddpi_head_await(struct cddpi_head *head);
/** All agents have ended: what they told before that is heard soon, or not at all. */
void cddpi_head_await_last(struct cddpi_head *head);
void cddpi_head_take_signal(struct cddpi_head *head, int number);
void cddpi_head_take_event(struct cddpi_head *head, const struct cddpi_node_event *event);
/** The next step of ending what is left: first its input ends, then it is killed. False: there is
 *  none. */
bool cddpi_head_end_agents(struct cddpi_head *head);
/** After all output: say which host and rank was the first to fail. Returns the exit status, which
 *  is 0 only if all are known to have ended well. */
int cddpi_head_report(struct cddpi_head *head);

/** head_start.c: the words that start agent @p i, ended by NULL; @p url is where it finds the
 * store.
 *  @param out  Release with cddpi_head_free_words(). */
CDDP_CHECKED cddp_status cddpi_head_words(const struct cddpi_head *head, int i, const char *url,
                                          char ***out);
void cddpi_head_free_words(char **words);

/** Start agent @p i, whose argv is made. */
CDDP_CHECKED cddp_status cddpi_head_start(struct cddpi_head *head, int i);

#endif
