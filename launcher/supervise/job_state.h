/* job_state.h - what follows when something happens to the ranks of this machine: a state machine
 * that does no I/O and reads no clock. An event goes in, and actions come out; time is an event,
 * too. job_actions.c carries the actions out, and tests/launcher/test_launcher_job_state.c invents
 * histories. One thread; it lives for one generation. */
#ifndef CDDPI_LAUNCHER_JOB_STATE_H
#define CDDPI_LAUNCHER_JOB_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define CDDPI_JOB_NEVER INT64_MAX

/* How cddp-train ends once it was asked to end and has saved. */
enum { CDDPI_STOPPED_EARLY = 3 };

/* Seconds that the kernel has to end a process that was killed. */
enum { CDDPI_JOB_KILL_S = 30 };

struct cddpi_generation_outcome {
    int exit_status;  /* of cddp-run, were this the last generation */
    bool may_restart; /* a rank failed, by itself and after it had started */
    bool has_saved;   /* a rank said that it wrote a checkpoint */
};

enum cddpi_job_phase {
    CDDPI_JOB_STARTS = 1, /* ranks are being started */
    CDDPI_JOB_RUNS,
    CDDPI_JOB_HEARS,  /* on another machine a rank failed because of one that may run here: that
                         rank has the grace period to end */
    CDDPI_JOB_AWAITS, /* a rank here failed because of another, which has the grace period to end:
                         that one is to be named */
    CDDPI_JOB_ASKED,  /* a signal asked all ranks to end; they have three times the grace period */
    CDDPI_JOB_OBEYED, /* and one of them ended as it was asked to */
    CDDPI_JOB_FAILED, /* a rank failed; the others have the grace period */
    CDDPI_JOB_KILLED,
    CDDPI_JOB_OVER /* no rank is left */
};

enum cddpi_job_event_kind {
    CDDPI_JOB_STARTED,      /* `rank` was forked */
    CDDPI_JOB_BEGUN,        /* all were */
    CDDPI_JOB_NOT_STARTED,  /* or one could not be, as `text` says */
    CDDPI_JOB_EXECUTED,     /* `rank` executes its program */
    CDDPI_JOB_NOT_EXECUTED, /* or could not: `exit_status`, `text` */
    CDDPI_JOB_ENDED,        /* `rank` ended with `exit_status` (128 + N after signal N) */
    CDDPI_JOB_BLAMED,       /* `rank` says that it fails because `culprit` did */
    CDDPI_JOB_SAVED,        /* a rank says that it wrote a checkpoint */
    CDDPI_JOB_SAVING,       /* or that it still works on what it was asked to do */
    CDDPI_JOB_SIGNALLED,    /* `number` was sent to cddp-run on `node` */
    CDDPI_JOB_FAILED_THERE, /* a rank or a node failed elsewhere: `exit_status`, `may_restart` */
    CDDPI_JOB_HEARD,        /* the same, but that rank blames another: see CDDPI_JOB_HEARS */
    CDDPI_JOB_ORPHANED,     /* the process that started this cddp-run is gone, as `text` says */
    CDDPI_JOB_TIME          /* the deadline may have passed */
};

struct cddpi_job_event {
    enum cddpi_job_event_kind kind;
    int64_t now_ns;
    int rank;
    int culprit;
    int exit_status;
    int number;
    int node; /* -1: this is the only machine, or it is not known which */
    bool may_restart;
    bool is_given_up; /* any event: the other nodes went on without this one, which stood still */
    const char *text; /* passed on to actions */
};

enum cddpi_job_action_kind {
    CDDPI_JOB_SAY_GIVEN_UP,    /* the other nodes went on without this one */
    CDDPI_JOB_SAY_END,         /* how `rank` ended, and its last lines */
    CDDPI_JOB_SAY_TEXT,        /* the event's */
    CDDPI_JOB_SAY_HEARD,       /* what was heard of a rank elsewhere */
    CDDPI_JOB_SAY_STOPPING,    /* all ranks are asked to end, by signal `number` */
    CDDPI_JOB_SAY_ENDING,      /* the others are asked to end, after a failure */
    CDDPI_JOB_SAY_KILLING,     /* signal `number` kills them */
    CDDPI_JOB_SAY_OVERDUE,     /* which ranks have not ended within `limit_ms` */
    CDDPI_JOB_ABANDON,         /* say which ranks cannot be killed, and wait no longer */
    CDDPI_JOB_SIGNAL_GROUPS,   /* send `number` to the ranks and to what they have started */
    CDDPI_JOB_SIGNAL_RANKS,    /* send it to the ranks alone */
    CDDPI_JOB_TELL_FAILURE,    /* tell all ranks, through the store, how `rank` ended */
    CDDPI_JOB_TELL_END,        /* tell them that `rank` ended well */
    CDDPI_JOB_PUBLISH_FAILURE, /* tell the other nodes of a failure: how `rank` ended, or (-1)
                                  `text` */
    CDDPI_JOB_PUBLISH_FOLLOW,  /* tell them that `rank` failed because of one that they have */
    CDDPI_JOB_PUBLISH_SAVING,  /* tell the cddp-run that shows our output that ranks still save */
    CDDPI_JOB_FREE_PORTS,      /* all ranks execute: release what was held for their start */
    CDDPI_JOB_ACTIONS          /* how many there are */
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

/* What follows from one event, in this order. */
struct cddpi_job_actions {
    int count;
    struct cddpi_job_action list[16];
};

struct cddpi_job_rank {
    bool is_alive;
    bool is_executed;
    int exit_status;
    int culprit; /* the rank that is the cause of this one's failure, as it says; -1: none */
};

struct cddpi_job_state {
    /* Set by the caller. */
    struct cddpi_job_rank *ranks; /* of this machine; borrowed */
    int count;
    int first_rank;
    int64_t grace_ms;
    bool has_nodes; /* there are other machines */
    bool is_silent; /* another cddp-run says what concerns all machines */

    enum cddpi_job_phase phase;
    int alive;
    int starting;        /* forked, and not known to execute the program yet */
    int64_t deadline_ns; /* when CDDPI_JOB_TIME is due; CDDPI_JOB_NEVER */
    int follower;        /* AWAITS: the rank that ended first, and names another as its cause */
    struct cddpi_generation_outcome heard; /* HEARS: what counts unless a rank fails here */
    int asked_signal;                      /* the first that asked us to end; 0: none */
    int asked_node;                        /* to which that was sent */
    int64_t asked_ns;
    int64_t saving_ns; /* when it may be told again that ranks save */
    bool has_published;
    bool has_unkillable; /* the kernel keeps ranks that were killed */
    struct cddpi_generation_outcome outcome;
};

/** Begin a generation: the members at the top are set, all ranks are zeroed. */
void cddpi_job_state_begin(struct cddpi_job_state *state);

/** @p event has happened: what is to be done. */
void cddpi_job_state_step(struct cddpi_job_state *state, const struct cddpi_job_event *event,
                          struct cddpi_job_actions *out);

/** Whether @p rank is one of this machine's. */
bool cddpi_job_state_has(const struct cddpi_job_state *state, int rank);

#endif
