/* head.h - the cddp-run that starts a job on a list of hosts (the head): it starts a cddp-run (an
 * agent) on each host, relays their output, and serves the store in which they meet.
 *
 * Agent I is node I of the job, whose end is decided by the first failure. In a job that goes on
 * without hosts (--nnodes MIN:MAX, "elastic") the head also lets the nodes meet, and starts agents
 * again, each time as another node. */
#ifndef CDDPI_LAUNCHER_HEAD_H
#define CDDPI_LAUNCHER_HEAD_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/refused.h"
#include "launcher/output/relay.h"

#include <cddp/store.h>

/* One host's cddp-run, or the ssh process that runs it. */
struct cddpi_agent {
    pid_t pid; /* 0: not started */
    int node;  /* its number in the job */
    int status;
    bool has_ended;
    int input; /* its standard input, whose end tells it to end; -1: closed */
    char **argv;
    struct cddpi_wire_buffer parcel; /* to write to its input */
    size_t sent;
    struct cddpi_relay out;
    struct cddpi_relay err;
    struct cddpi_rank_log log; /* unused */
    /* Of an elastic job (head_agents.c). */
    bool has_come; /* this node has: the job knows it */
    int nproc;     /* of this node */
    bool is_over;  /* nothing is started on this host any more */
    bool is_held; /* what it writes to stderr is held back: it may be what it wrote the last time */
    char *said;   /* what it wrote to stderr before it failed the last time; owned; NULL: nothing */
    int fails;    /* starts in a row that came to nothing, or ended soon */
    int last_status;  /* of the last of these */
    int64_t since_ns; /* when it was started or, once it has come, when it came */
    int64_t ranks_ns; /* when this node was first given ranks; 0: never */
    int64_t lost_ns;  /* when this node was lost or, if it was lost in consequence, when its
                         generation failed; 0: it is not lost */
    int64_t due_ns;   /* when it is started again, or the next step in ending it is due; INT64_MAX:
                         never */
    int end_steps;    /* taken */
};

struct cddpi_head {
    const struct cddpi_launch_options *options;
    bool is_elastic;
    int least, most; /* hosts of a generation of an elastic job */
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
    /* Of an elastic job. */
    char url[CDDPI_URL_BYTES]; /* at which agents find the store */
    cddp_store *client;        /* of the own store */
    int next_node;             /* number of the next agent that is started */
    bool has_met;              /* the nodes have met; before that, the head has no link to them */
    bool has_any_come;
    struct cddpi_node_record
        first; /* of the first node that came, with which others are compared */
    int first_node;
    int64_t awake_ns;  /* this process stood still: by then it has heard what happened meanwhile,
                          and no moment that has passed counts before */
    int64_t failed_ns; /* when this generation failed; 0: it has not */
    int64_t look_ns;   /* when to look for records */
    int64_t came_ns;   /* when the last node came */
    int64_t empty_ns;  /* how long others may take to come, since no host is left; INT64_MAX: some
                          are */
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

/* host_agent.c */

void cddpi_head_close_input(struct cddpi_agent *agent);
/** Prepare the agent of host @p i for its first start, or for the next one. */
void cddpi_head_init_agent(struct cddpi_head *head, int i);
/** The agent's name for messages, such as "node 1 (alpha)". Valid until the next call. */
const char *cddpi_head_agent_name(const struct cddpi_head *head, int i);
/** Agent @p i has ended without starting cddp-run on its host, which @p text says: tell the user,
 *  unless it has itself. */
void cddpi_head_say_unstarted(struct cddpi_head *head, int i, const char *text);
/** Write how agent @p i has ended, as a sentence. */
void cddpi_head_word_end(const struct cddpi_head *head, int i, char *out, size_t bytes);
/** The host whose agent is node @p node; -1: none. */
int cddpi_head_find_agent(const struct cddpi_head *head, int node);
/** Whether the job has ended, or was asked to. */
bool cddpi_head_is_ending(const struct cddpi_head *head);
/** How many hosts have ranks that run; of a fixed job, all hosts. */
int cddpi_head_count_running(const struct cddpi_head *head);
/** Whether ranks of @p member run in this generation. */
bool cddpi_head_runs(const struct cddpi_job_member *member);

/* head_end.c */

enum {
    CDDPI_HEAD_LAST_MS = 5000,    /* after the job's end, and for each step of ending agents */
    CDDPI_HEAD_MARGIN_MS = 10000, /* in addition to the grace period */
    CDDPI_HEAD_FAILED_MS = 70000, /* after a failure, in addition to the grace period, until the job
                                     ends or restarts: waiting for an unkillable rank and the pause
                                     before a restart take up to 30 s each */
    CDDPI_HEAD_NAMED = 20         /* the most hosts that are named */
};

/** End all agents in at most @p milliseconds, or at the deadline that is already set. */
void cddpi_head_end_within(struct cddpi_head *head, int64_t milliseconds);
/** Give ranks that were asked to end @p milliseconds, and the same time again after each sign that
 *  one is still saving. */
void cddpi_head_wait_patiently(struct cddpi_head *head, int64_t milliseconds);
/** Such a sign has come. */
void cddpi_head_extend_patience(struct cddpi_head *head);

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

/* head_report.c */

/** Call after all output. Prints which host and rank failed first. Returns the exit status, which
 *  is 0 only if all agents are known to have succeeded. */
int cddpi_head_report(struct cddpi_head *head);

/* head_meet.c: an elastic job */

/** Look which nodes have come. If they are enough, answer them, and follow their log; if they are
 *  too late, end. */
void cddpi_head_meet(struct cddpi_head *head);

/* head_agents.c: an elastic job */

/** The node of host @p i has come. */
void cddpi_head_agent_came(struct cddpi_head *head, int i);
/** Node of host @p i is lost, but its agent has not ended: end it, step by step. */
void cddpi_head_drop_agent(struct cddpi_head *head, int i);
/** Agent @p i has ended, and all its earlier events have arrived. */
void cddpi_head_explain_agent(struct cddpi_head *head, int i);
/** Do what is due: start agents again, and end those that have been given up. */
void cddpi_head_tend_agents(struct cddpi_head *head);
/** When that is due next. */
int64_t cddpi_head_agents_due_ns(const struct cddpi_head *head);
/** The job has ended: end agents that it does not know, and start none. */
void cddpi_head_stop_starting(struct cddpi_head *head);

/* head_follow.c: an elastic job */

/** Follow the job's log. */
void cddpi_head_follow(struct cddpi_head *head, const struct cddpi_node_event *event);
/** A turn begins, which was to begin at @p due_ns at the latest. */
void cddpi_head_note_turn(struct cddpi_head *head, int64_t due_ns);
/** Whether there is, in any job, still something to wait for. */
bool cddpi_head_goes_on(const struct cddpi_head *head);
/** Do what is due. */
void cddpi_head_tend(struct cddpi_head *head);
/** When that is due next. */
int64_t cddpi_head_tend_ns(const struct cddpi_head *head);

/** head_start.c: the command line that starts agent @p i, ended by NULL. @p url is the address at
 *  which the agent finds the store.
 *  @param out  Release with cddpi_head_free_words(). */
CDDP_CHECKED cddp_status cddpi_head_words(const struct cddpi_head *head, int i, const char *url,
                                          char ***out);
void cddpi_head_free_words(char **words);

/** Start agent @p i, which cddpi_head_init_agent() has prepared. */
CDDP_CHECKED cddp_status cddpi_head_start(struct cddpi_head *head, int i);

#endif
