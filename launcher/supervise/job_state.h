/* job_state.h - decides what to do when something happens to the ranks of this machine. This state
 * machine does no I/O and reads no clock: each event returns a list of actions, and the passing of
 * time is also an event. job_actions.c carries out the actions.
 * tests/launcher/test_launcher_job_state.c feeds it invented histories. One thread uses it, for one
 * generation. */
#ifndef CDDPI_LAUNCHER_JOB_STATE_H
#define CDDPI_LAUNCHER_JOB_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define CDDPI_JOB_NEVER INT64_MAX

/* Exit status of cddp-train after it was asked to stop and has saved. */
enum { CDDPI_STOPPED_EARLY = 3 };

/* timeout(1) and service managers send two signals for one request; others come later than this. */
enum { CDDPI_SAME_REQUEST_MS = 200 };

/* Seconds that the kernel may take to end a killed process. */
enum { CDDPI_JOB_KILL_S = 30 };

struct cddpi_generation_outcome {
    int exit_status;  /* of cddp-run if this is the last generation */
    bool may_restart; /* a rank failed after it had started, and not because it was asked to end */
    bool must_end;    /* and ranks of this machine cannot start again, as the user knows */
    bool has_saved;   /* a rank reported that it wrote a checkpoint */
    bool has_kept;    /* a rank reported that memory which outlives it holds its progress */
};

enum cddpi_job_phase {
    CDDPI_JOB_STARTS = 1, /* ranks are being started */
    CDDPI_JOB_RUNS,
    CDDPI_JOB_HEARS,  /* a rank on another machine failed because of a rank that may be on this
                         machine, which has the grace period to end */
    CDDPI_JOB_AWAITS, /* a rank here failed because of another rank, which has the grace period to
                         end, so that it can be named as the cause */
    CDDPI_JOB_ASKED,  /* a signal asked all ranks to end; they have three times the grace period */
    CDDPI_JOB_OBEYED, /* as ASKED, and one rank has ended as requested */
    CDDPI_JOB_FAILED, /* a rank failed; the others have the grace period */
    CDDPI_JOB_KILLED,
    CDDPI_JOB_OVER /* no rank is left */
};

enum cddpi_job_event_kind {
    CDDPI_JOB_STARTED,      /* `rank` was forked */
    CDDPI_JOB_BEGUN,        /* all ranks were forked */
    CDDPI_JOB_NOT_STARTED,  /* a rank could not be forked; `text` says why */
    CDDPI_JOB_EXECUTED,     /* `rank` has executed its program */
    CDDPI_JOB_NOT_EXECUTED, /* `rank` could not execute its program: `exit_status`, `text` */
    CDDPI_JOB_ENDED,        /* `rank` ended with `exit_status` (128 + N after signal N) */
    CDDPI_JOB_BLAMED,       /* `rank` reports that it fails because `culprit` did */
    CDDPI_JOB_SAVED,        /* a rank reports that it wrote a checkpoint */
    CDDPI_JOB_KEPT,         /* a rank reports that it keeps its progress in memory */
    CDDPI_JOB_SAVING,       /* a rank reports that it is still saving */
    CDDPI_JOB_SIGNALLED,    /* signal `number` was sent to cddp-run on `node` */
    CDDPI_JOB_FAILED_THERE, /* a rank or a node failed on another machine: `exit_status`,
                               `may_restart` */
    CDDPI_JOB_HEARD,        /* as FAILED_THERE, but that rank blames another: see CDDPI_JOB_HEARS */
    CDDPI_JOB_CHANGED,      /* the members of the job change, so the ranks save and end; signal
                               `number` asks them to, or (0) they know already */
    CDDPI_JOB_ORPHANED,     /* the process that started this cddp-run is gone; `text` gives
                               details */
    CDDPI_JOB_TIME          /* the deadline may have passed */
};

struct cddpi_job_event {
    enum cddpi_job_event_kind kind;
    int64_t now_ns;
    int rank;
    int culprit;
    int exit_status;
    int number;
    int node; /* -1: only one machine, or the node is unknown */
    bool may_restart;
    bool is_given_up; /* any event: this node stood still, and the other nodes continued without
                         it */
    const char *text; /* passed on to actions */
};

enum cddpi_job_action_kind {
    CDDPI_JOB_SAY_GIVEN_UP,    /* the other nodes continued without this one */
    CDDPI_JOB_SAY_END,         /* how `rank` ended, and its last lines */
    CDDPI_JOB_SAY_TEXT,        /* print the event's `text` */
    CDDPI_JOB_SAY_HEARD,       /* what was heard about a rank on another machine */
    CDDPI_JOB_SAY_STOPPING,    /* all ranks are asked to end, with signal `number` */
    CDDPI_JOB_SAY_ENDING,      /* the other ranks are asked to end, after a failure */
    CDDPI_JOB_SAY_KILLING,     /* signal `number` kills the ranks */
    CDDPI_JOB_SAY_OVERDUE,     /* which ranks have not ended within `limit_ms` */
    CDDPI_JOB_ABANDON,         /* say which ranks cannot be killed, and stop waiting for them */
    CDDPI_JOB_SIGNAL_GROUPS,   /* send signal `number` to the ranks and to the processes that they
                                  started */
    CDDPI_JOB_SIGNAL_RANKS,    /* send signal `number` only to the ranks */
    CDDPI_JOB_TELL_FAILURE,    /* tell all ranks, through the store, how `rank` ended */
    CDDPI_JOB_TELL_END,        /* tell all ranks, through the store, that `rank` ended with status
                                  0 */
    CDDPI_JOB_PUBLISH_FAILURE, /* tell the other nodes of a failure: how `rank` ended or, if `rank`
                                  is -1, `text` */
    CDDPI_JOB_PUBLISH_FOLLOW,  /* tell the other nodes that `rank` failed because of one of their
                                  ranks */
    CDDPI_JOB_PUBLISH_SAVING,  /* tell the cddp-run that shows our output that ranks are still
                                  saving */
    CDDPI_JOB_FREE_PORTS,      /* all ranks run their programs: release the ports held for their
                                  start */
    CDDPI_JOB_ACTIONS          /* number of kinds */
};

struct cddpi_job_action {
    enum cddpi_job_action_kind kind;
    int rank; /* -1: none */
    int number;
    int exit_status; /* PUBLISH_FAILURE, PUBLISH_FOLLOW */
    bool may_restart;
    int64_t limit_ms;
    const char *text; /* the event's */
};

/* The actions that follow from one event, in this order. */
struct cddpi_job_actions {
    int count;
    struct cddpi_job_action list[16];
};

struct cddpi_job_rank {
    bool is_alive;
    bool is_executed;
    int exit_status;
    int culprit; /* the rank that this rank blames for its failure; -1: none */
};

struct cddpi_job_state {
    /* Set by the caller. */
    struct cddpi_job_rank *ranks; /* of this machine; borrowed */
    int count;
    int first_rank;
    int64_t grace_ms;
    bool has_nodes; /* the job also runs on other machines */
    bool is_silent; /* another cddp-run prints messages about all machines */

    enum cddpi_job_phase phase;
    int alive;
    int starting;        /* ranks that were forked and may not have executed the program yet */
    int64_t deadline_ns; /* when CDDPI_JOB_TIME is due; CDDPI_JOB_NEVER */
    int follower;        /* AWAITS: the rank that ended first and blames another */
    struct cddpi_generation_outcome heard; /* HEARS: the outcome unless a rank fails here */
    int asked_signal;                      /* the first signal that asked us to end; 0: none */
    int asked_node;                        /* the node that received that signal */
    int64_t asked_ns;
    bool is_asked;     /* with is_change: a signal has asked the job to end, too */
    bool is_change;    /* ranks were asked to end since members change (asked_signal is set then) */
    int64_t saving_ns; /* earliest time of the next PUBLISH_SAVING */
    bool has_published;
    bool has_unkillable; /* some killed ranks do not end */
    struct cddpi_generation_outcome outcome;
};

/** Begin a generation. The caller has set the members at the top and zeroed all ranks. */
void cddpi_job_state_begin(struct cddpi_job_state *state);

/** Process @p event. @p out is the list of actions to carry out. */
void cddpi_job_state_step(struct cddpi_job_state *state, const struct cddpi_job_event *event,
                          struct cddpi_job_actions *out);

/** Whether @p rank runs on this machine. */
bool cddpi_job_state_has(const struct cddpi_job_state *state, int rank);

#endif
