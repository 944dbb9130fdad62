/* job_state.c - owns the decisions about the ranks of this machine: which rank is to blame, which
 * ranks are asked to end or killed, when, and with which status cddp-run exits. */
#include "launcher/supervise/job_input.h"

#include <signal.h>
#include <stddef.h>

enum {
    SAVING_MS = 1000, /* least time between two SAVING events: each stays in the store */
    CHANGE_MS = 30000 /* least time to save when members change */
};

static void apply(struct job_step *step, enum job_input input);

static void set_deadline(struct job_step *step, int64_t milliseconds)
{
    step->state->deadline_ns = step->event->now_ns + milliseconds * 1000000;
}

/* Publish a failure to the other nodes, at most once per generation. */
static void publish(struct job_step *step, enum cddpi_job_action_kind kind, int rank)
{
    struct cddpi_job_state *state = step->state;
    struct cddpi_job_action *action;

    if (!state->has_nodes || state->has_published) {
        return;
    }
    state->has_published = true;
    action = cddpi_job_add(step, kind);
    action->rank = rank;
    action->exit_status = state->outcome.exit_status;
    action->may_restart = rank >= 0 && state->asked_signal == 0;
    action->text = step->event->text;
}

static void set_outcome(struct job_step *step, int exit_status, bool may_restart)
{
    step->state->outcome.exit_status = exit_status;
    step->state->outcome.may_restart = may_restart;
}

static void begin(struct job_step *step)
{
    step->state->outcome.exit_status = 0;
}

static void kill_all(struct job_step *step)
{
    set_deadline(step, CDDPI_JOB_KILL_S * INT64_C(1000));
    cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGKILL;
}

static void publish_and_kill(struct job_step *step)
{
    publish(step, CDDPI_JOB_PUBLISH_FAILURE, -1);
    apply(step, KILL);
}

static void refuse_program(struct job_step *step)
{
    cddpi_job_add(step, CDDPI_JOB_SAY_TEXT)->text = step->event->text;
    set_outcome(step, step->event->exit_status, false);
    publish_and_kill(step);
}

static void lose_parent(struct job_step *step)
{
    set_outcome(step, 128 + SIGKILL, false);
    publish_and_kill(step);
}

/* After a failure, ask the remaining ranks here to end within the grace period. */
static void ask_others(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    if (state->alive == 0) {
        return;
    }
    if (state->grace_ms == 0) {
        apply(step, KILL);
        return;
    }
    if (!state->is_silent) {
        cddpi_job_add(step, CDDPI_JOB_SAY_ENDING)->limit_ms = state->grace_ms;
    }
    cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGTERM;
    cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGCONT; /* a stopped rank does not
                                                           receive signals */
    set_deadline(step, state->grace_ms);
}

/* @p rank failed first: report it, tell the other nodes, and ask the other ranks to end. */
static void blame(struct job_step *step, int rank)
{
    struct cddpi_job_state *state = step->state;
    bool is_given_up = step->event->is_given_up && state->asked_signal == 0;

    if (is_given_up) {
        cddpi_job_add(step, CDDPI_JOB_SAY_GIVEN_UP);
    }
    cddpi_job_add(step, CDDPI_JOB_SAY_END)->rank = rank;
    set_outcome(step, is_given_up ? 1 : cddpi_job_rank_of(state, rank)->exit_status,
                state->asked_signal == 0 && !is_given_up);
    publish(step, CDDPI_JOB_PUBLISH_FAILURE, rank);
    if (state->alive > 0 || state->has_nodes) {
        cddpi_job_add(step, CDDPI_JOB_TELL_FAILURE)->rank = rank;
    }
    ask_others(step);
}

static void blame_this(struct job_step *step)
{
    blame(step, step->event->rank);
}

static void blame_follower(struct job_step *step)
{
    blame(step, step->state->follower);
}

static void await_cause(struct job_step *step)
{
    step->state->follower = step->event->rank;
    set_deadline(step, step->state->grace_ms);
}

/* All ranks here have ended. If the follower blames a rank on another machine, tell the other nodes
 * about the follower, since the end of that rank may never be reported. */
static void end_awaiting(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;
    const struct cddpi_job_rank *follower = cddpi_job_rank_of(state, state->follower);

    if (cddpi_job_state_has(state, follower->culprit)) {
        blame_follower(step);
        return;
    }
    state->outcome.exit_status = follower->exit_status;
    publish(step, CDDPI_JOB_PUBLISH_FOLLOW, state->follower);
}

static void note_obedience(struct job_step *step)
{
    step->state->outcome.exit_status = step->event->exit_status;
}

static void stop(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    state->asked_signal = step->event->number;
    state->asked_node = step->event->node;
    state->asked_ns = step->event->now_ns;
    set_deadline(step, 3 * state->grace_ms);
    if (!state->is_silent) {
        struct cddpi_job_action *action = cddpi_job_add(step, CDDPI_JOB_SAY_STOPPING);

        action->number = step->event->number;
        action->limit_ms = 3 * state->grace_ms;
    }
    cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = step->event->number;
    cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGCONT;
}

/* How long ranks that were asked to end may take. A change of members must not cost what they save,
 * however short the grace period after a failure is. */
static int64_t limit_ms(const struct cddpi_job_state *state)
{
    int64_t asked_ms = 3 * state->grace_ms;

    if (state->phase == CDDPI_JOB_FAILED) {
        return state->grace_ms;
    }
    return state->is_change && !state->is_asked && asked_ms < CHANGE_MS ? CHANGE_MS : asked_ms;
}

/* Members change: the ranks save and end, and go on in the next generation. */
static void stop_to_change(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    state->is_change = true;
    state->asked_signal = SIGTERM;
    set_deadline(step, limit_ms(state));
    if (step->event->number != 0) {
        cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = step->event->number;
        cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGCONT;
    }
}

static void stop_now(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    cddpi_job_add(step, CDDPI_JOB_SAY_KILLING)->number = step->event->number;
    if (state->outcome.exit_status == 0) {
        state->outcome.exit_status = 128 + step->event->number;
    }
    state->outcome.may_restart = false;
    state->asked_signal = step->event->number;
    apply(step, KILL);
}

/* A signal asks the job to end while its ranks are ended after a failure. */
static void forbid_restart(struct job_step *step)
{
    step->state->outcome.may_restart = false;
}

static void blame_follower_for_good(struct job_step *step)
{
    blame_follower(step);
    forbid_restart(step);
}

static void blame_follower_and_stop_now(struct job_step *step)
{
    blame_follower(step);
    stop_now(step);
}

static void refuse_restart(struct job_step *step)
{
    if (step->state->outcome.may_restart) {
        set_outcome(step, 128 + step->event->number, false);
    }
}

static void end_as_told(struct job_step *step)
{
    set_outcome(step, step->event->exit_status, step->event->may_restart);
    ask_others(step);
}

static void keep_heard(struct job_step *step)
{
    step->state->heard.exit_status = step->event->exit_status;
    step->state->heard.may_restart = step->event->may_restart;
    set_deadline(step, step->state->grace_ms);
}

/* The rank that another node waits for did not end: use the outcome that was heard. */
static void end_as_heard(struct job_step *step)
{
    cddpi_job_add(step, CDDPI_JOB_SAY_HEARD);
    set_outcome(step, step->state->heard.exit_status, step->state->heard.may_restart);
    ask_others(step);
}

static void prolong(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    set_deadline(step, limit_ms(state));
    if (state->has_nodes && state->is_silent && step->event->now_ns >= state->saving_ns) {
        state->saving_ns = step->event->now_ns + SAVING_MS * INT64_C(1000000);
        cddpi_job_add(step, CDDPI_JOB_PUBLISH_SAVING);
    }
}

static void kill_overdue(struct job_step *step)
{
    cddpi_job_add(step, CDDPI_JOB_SAY_OVERDUE)->limit_ms = limit_ms(step->state);
    if (step->state->outcome.exit_status == 0) {
        step->state->outcome.exit_status = 128 + SIGKILL;
    }
    apply(step, KILL);
}

/* A rank that waits in the kernel, for example for a file system that is gone, cannot be killed, so
 * we stop waiting for it. */
static void abandon(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    cddpi_job_add(step, CDDPI_JOB_ABANDON);
    for (int i = 0; i < state->count; i++) {
        state->ranks[i].is_alive = false;
    }
    state->alive = 0;
    state->has_unkillable = true;
    state->outcome.may_restart = false;
    if (state->outcome.exit_status == 0) {
        state->outcome.exit_status = 128 + SIGKILL;
    }
}

/* What an input does in a phase: the phase becomes `next`, then `act` runs, which may apply another
 * input. */
struct transition {
    enum cddpi_job_phase next;
    void (*act)(struct job_step *step);
};

/* @p input changes @p phase to @p next, or KEEPS the phase. An input without a row is ignored. */
#define LEADS(input, phase, next, act) [input][CDDPI_JOB_##phase] = {CDDPI_JOB_##next, act}
#define KEEPS(input, phase, act) LEADS(input, phase, phase, act)
#define KILLS(input, phase, act) LEADS(input, phase, KILLED, act)
#define ENDS(input, phase, act) LEADS(input, phase, OVER, act)

/* The same row for the phases in which no rank has failed here and none was asked to end. */
#define UNDISTURBED(input, next, act) LEADS(input, RUNS, next, act), LEADS(input, HEARS, next, act)

/* The same ROW for the phases in which ranks were asked to end ... */
#define ENDING(ROW, input, act)                                                                    \
    ROW(input, ASKED, act), ROW(input, OBEYED, act), ROW(input, FAILED, act)

/* ... and for every phase, except AWAITS, in which ranks run and have not been killed. */
#define EACH(ROW, input, act) ROW(input, RUNS, act), ROW(input, HEARS, act), ENDING(ROW, input, act)

static const struct transition transitions[INPUTS][CDDPI_JOB_OVER + 1] = {
    LEADS(ALL_STARTED, STARTS, RUNS, begin),
    KEEPS(NOT_STARTED, STARTS, publish_and_kill),

    EACH(KEEPS, NOT_EXECUTED, refuse_program),
    KEEPS(NOT_EXECUTED, AWAITS, refuse_program),
    KEEPS(NOT_EXECUTED, OVER, refuse_program),

    UNDISTURBED(RANK_FAILED, FAILED, blame_this),
    LEADS(RANK_FAILED, ASKED, FAILED, blame_this),
    UNDISTURBED(RANK_FOLLOWED, AWAITS, await_cause),
    LEADS(RANK_FOLLOWED, ASKED, FAILED, blame_this),
    LEADS(CAUSE_FAILED, AWAITS, FAILED, blame_this),
    LEADS(CAUSE_ENDED, AWAITS, FAILED, blame_follower),
    LEADS(RANK_OBEYED, ASKED, OBEYED, note_obedience),

    EACH(ENDS, NONE_LEFT, NULL),
    ENDS(NONE_LEFT, AWAITS, end_awaiting),
    ENDS(NONE_LEFT, KILLED, NULL),

    UNDISTURBED(HANGUP, ASKED, stop),
    LEADS(HANGUP, AWAITS, FAILED, blame_follower_for_good),
    KEEPS(HANGUP, FAILED, forbid_restart),
    KEEPS(HANGUP, KILLED, forbid_restart),
    KEEPS(HANGUP, OVER, refuse_restart),

    UNDISTURBED(END_REQUEST, ASKED, stop),
    LEADS(END_REQUEST, AWAITS, FAILED, blame_follower_and_stop_now),
    ENDING(KEEPS, END_REQUEST, stop_now),
    KEEPS(END_REQUEST, KILLED, forbid_restart),
    KEEPS(END_REQUEST, OVER, refuse_restart),

    UNDISTURBED(MEMBERS_CHANGE, ASKED, stop_to_change),

    UNDISTURBED(FAILED_THERE, FAILED, end_as_told),
    LEADS(FAILED_THERE, AWAITS, FAILED, end_as_told),
    LEADS(HEARD_THERE, RUNS, HEARS, keep_heard),

    EACH(KEEPS, ORPHANED, lose_parent),
    KEEPS(ORPHANED, AWAITS, lose_parent),
    KEEPS(ORPHANED, KILLED, lose_parent),
    KEEPS(ORPHANED, OVER, lose_parent),

    ENDING(KEEPS, STILL_SAVES, prolong),

    LEADS(DEADLINE, HEARS, FAILED, end_as_heard),
    LEADS(DEADLINE, AWAITS, FAILED, blame_follower),
    ENDING(KEEPS, DEADLINE, kill_overdue),
    KEEPS(DEADLINE, KILLED, abandon),

    EACH(KILLS, KILL, kill_all),
    KILLS(KILL, STARTS, kill_all),
    KILLS(KILL, AWAITS, kill_all),
    KILLS(KILL, KILLED, kill_all),
};

static void apply(struct job_step *step, enum job_input input)
{
    const struct transition *transition = &transitions[input][step->state->phase];

    if (transition->next == 0) {
        return;
    }
    step->state->phase = transition->next;
    if (transition->act != NULL) {
        transition->act(step);
    }
}

void cddpi_job_state_begin(struct cddpi_job_state *state)
{
    state->phase = CDDPI_JOB_STARTS;
    state->deadline_ns = CDDPI_JOB_NEVER;
    state->asked_node = -1;
    state->outcome.exit_status = 1;
    for (int i = 0; i < state->count; i++) {
        state->ranks[i].culprit = -1;
    }
}

void cddpi_job_state_step(struct cddpi_job_state *state, const struct cddpi_job_event *event,
                          struct cddpi_job_actions *out)
{
    struct job_step step = {state, event, out};

    out->count = 0;
    apply(&step, cddpi_job_classify(&step));
    if (state->starting == 0 &&
        (event->kind == CDDPI_JOB_EXECUTED || event->kind == CDDPI_JOB_NOT_EXECUTED)) {
        cddpi_job_add(&step, CDDPI_JOB_FREE_PORTS);
    }
    if (state->alive == 0) {
        apply(&step, NONE_LEFT);
    }
}
