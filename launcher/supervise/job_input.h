/* job_input.h - what an event about the ranks of this machine means to cddp-run's decisions
 * (job_state.c), which it decides with what it knows about the ranks. */
#ifndef CDDPI_LAUNCHER_JOB_INPUT_H
#define CDDPI_LAUNCHER_JOB_INPUT_H

#include "launcher/supervise/job_state.h"

/* What an event means for the table of transitions: see cddpi_job_classify(). */
enum job_input {
    NOTHING,
    ALL_STARTED,
    NOT_STARTED,
    NOT_EXECUTED,
    RANK_FAILED,   /* a rank failed and blames no rank that still runs */
    RANK_FOLLOWED, /* a rank failed because of a rank that has not ended yet */
    CAUSE_FAILED,  /* AWAITS: the rank that we wait for has failed */
    CAUSE_ENDED,   /* AWAITS: the rank that we wait for has ended with status 0 */
    RANK_OBEYED,   /* a rank ended as the signal requested */
    NONE_LEFT,     /* the last rank has ended */
    HANGUP,        /* SIGHUP; closing a terminal sends several */
    END_REQUEST,   /* any other signal that asks the job to end */
    MEMBERS_CHANGE,
    FAILED_THERE,
    HEARD_THERE,
    ORPHANED,
    STILL_SAVES,
    DEADLINE,
    KILL, /* applied by an action, not by an event */
    INPUTS
};

/* One step of the machine. */
struct job_step {
    struct cddpi_job_state *state;
    const struct cddpi_job_event *event;
    struct cddpi_job_actions *actions;
};

/** Append an action, with `rank` -1 and all else zero. */
struct cddpi_job_action *cddpi_job_add(struct job_step *step, enum cddpi_job_action_kind kind);

/** A rank of this machine. */
struct cddpi_job_rank *cddpi_job_rank_of(const struct cddpi_job_state *state, int rank);

/** Note what the event says about ranks, pass on signals that do not end the job, and decide what
 *  the event means for the table of transitions. */
enum job_input cddpi_job_classify(struct job_step *step);

#endif
