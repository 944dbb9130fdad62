/* head.h - the cddp-run that starts a job on a list of hosts: it starts a cddp-run on each, passes
 * their output on, and holds the store in which they meet. */
#ifndef CDDPI_LAUNCHER_HEAD_H
#define CDDPI_LAUNCHER_HEAD_H

#include "hosts.h"
#include "nodes.h"
#include "relay.h"

/* One host's cddp-run, or the ssh that leads to it. */
struct cddpi_agent {
    pid_t pid; /* 0: not started */
    int status;
    bool has_ended;
    int input; /* its standard input: at its end it ends; -1: closed */
    char **argv;
    struct cddpi_message parcel; /* to be written to its input */
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
    struct cddpi_rendezvous rendezvous;
    struct cddpi_secret secret;
    const struct cddpi_monitor *monitor;
    struct cddpi_output *output;
    int signal_fd;
    int alive;
    int unexplained;     /* agents that have ended, while what was told before that is not heard */
    int64_t deadline_ns; /* when what is left is ended; CDDPI_NEVER */
    int exit_status;     /* of the first that ended badly */
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

/** head_start.c: the words that start agent @p i, ended by NULL; @p url is where it finds the
 * store.
 *  @param out  Release with cddpi_head_free_words(). */
CDDP_CHECKED cddp_status cddpi_head_words(const struct cddpi_head *head, int i, const char *url,
                                          char ***out);
void cddpi_head_free_words(char **words);

/** Start agent @p i, whose argv is made. */
CDDP_CHECKED cddp_status cddpi_head_start(struct cddpi_head *head, int i);

#endif
