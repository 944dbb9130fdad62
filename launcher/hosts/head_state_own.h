/* head_state_own.h - one step of the machine, and what its parts call of each other: head_end.c
 * owns deadlines, head_begin.c the beginning, head_fixed.c and head_follow.c what the log means,
 * and head_agents.c single agents. Private to these. */
#ifndef CDDPI_LAUNCHER_HEAD_STATE_OWN_H
#define CDDPI_LAUNCHER_HEAD_STATE_OWN_H

#include "launcher/hosts/head_state.h"

enum {
    CDDPI_HEAD_LAST_MS = 5000,    /* after the job's end, and for each step of ending agents */
    CDDPI_HEAD_MARGIN_MS = 10000, /* in addition to the grace period */
    CDDPI_HEAD_FAILED_MS = 70000, /* after a failure, in addition to the grace period, until the job
                                     ends or restarts: waiting for a rank that cannot be killed (up
                                     to 30 s), asking the driver which cards remain (up to 24 s),
                                     and the pause before a restart (below 2 s) */
    CDDPI_HEAD_SETTLE_MS = 2000   /* after one agent failed: others may be about to fail for the
                                     same reason */
};

struct head_step {
    struct cddpi_head_state *state;
    const struct cddpi_head_event *event;
};

/* head_list.c */
/** Append an action. */
struct cddpi_head_action *cddpi_head_do(struct head_step *step, enum cddpi_head_action_kind kind,
                                        int host);
/** The moment in @p milliseconds. */
int64_t cddpi_head_after(const struct head_step *step, int64_t milliseconds);
/** Whether @p when_ns has come. */
bool cddpi_head_is_due(const struct head_step *step, int64_t when_ns);
/** Close the input of the agent of host @p i, unless it is closed. */
void cddpi_head_close(struct head_step *step, int i);
/** Whether the job has ended, or was asked to. */
bool cddpi_head_is_ending(const struct cddpi_head_state *state);
/** Whether all hosts have arrived and ranks are being started. */
bool cddpi_head_has_begun(const struct cddpi_head_state *state);
/** Whether END has been heard. */
bool cddpi_head_has_end(const struct cddpi_head_state *state);
/** Whether signal @p number asks the job to end. */
bool cddpi_head_asks_to_end(int number);
/** Whether ranks of @p member run in this generation. */
bool cddpi_head_runs(const struct cddpi_job_member *member);
/** Pass an event of the log to the members' machine. */
void cddpi_head_hear(struct head_step *step);

/* head_end.c */
/** End all agents in at most @p milliseconds, or at the deadline that is already set. */
void cddpi_head_end_within(struct head_step *step, int64_t milliseconds);
/** Give ranks that were asked to end @p milliseconds, and the same time again after each sign that
 *  one is still saving. */
void cddpi_head_wait_patiently(struct head_step *step, int64_t milliseconds);
/** Such a sign has come. */
void cddpi_head_extend_patience(struct head_step *step);
/** Take the next step in ending the remaining agents: first close their input, then kill them.
 *  Returns false if no step is left. */
bool cddpi_head_end_agents(struct head_step *step);
void cddpi_head_take_signal(struct head_step *step);

/* head_begin.c */
/** The agents are about to be started. */
void cddpi_head_begin(struct head_step *step);
/** Look which hosts have come, if that is due. */
void cddpi_head_await(struct head_step *step);
void cddpi_head_take_look(struct head_step *step);
/** Elastic: the node of a host has come, before the nodes have met. */
void cddpi_head_take_coming(struct head_step *step);
/** Elastic: the nodes have met. */
void cddpi_head_take_meeting(struct head_step *step);
void cddpi_head_take_refusal(struct head_step *step);

/* head_fixed.c: a job with a fixed number of hosts */
void cddpi_head_hear_fixed(struct head_step *step);

/* head_follow.c: an elastic job */
void cddpi_head_hear_elastic(struct head_step *step);
/** A turn begins: note whether this process stood still. */
void cddpi_head_note_turn(struct head_step *step);
/** Do what is due. */
void cddpi_head_tend(struct head_step *step);

/** The node of host @p i is lost since it was silent for too long: end its agent at once. */
void cddpi_head_end_silent(struct head_step *step, int i);

/* head_agents.c: an elastic job */
/** The node of host @p i has come. */
void cddpi_head_agent_came(struct head_step *step, int i);
/** Node of host @p i is lost, but its agent has not ended: end it, step by step. */
void cddpi_head_drop_agent(struct head_step *step, int i);
/** Agent @p i has ended, and all its earlier events have arrived. */
void cddpi_head_explain_agent(struct head_step *step, int i);
/** An agent could not be started. */
void cddpi_head_take_unstarted(struct head_step *step);
/** Do what is due: start agents again, and end those that have been given up. */
void cddpi_head_tend_agents(struct head_step *step);
/** When that is due next. */
int64_t cddpi_head_agents_due_ns(const struct cddpi_head_state *state);
/** The job has ended: end agents that it does not know, and start none. */
void cddpi_head_stop_starting(struct head_step *step);

#endif
