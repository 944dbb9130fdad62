/* job_state.c - owns the decisions about the ranks of this machine: which rank is to blame, which
 * ranks are asked to end or killed, when, and with which status cddp-run exits. */
#include "launcher/supervise/job_state.h"

#include <assert.h>
#include <signal.h>
#include <stddef.h>

enum {
    SAME_REQUEST_MS = 200, /* timeout(1) and service managers send two signals for one request */
    SAVING_MS = 1000       /* least time between two SAVING events, since each stays in the store */
};

/* What an event means for the table of transitions: see classify(). */
enum job_input {
    NOTHING,
    ALL_STARTED,
    NOT_STARTED,
    NOT_EXECUTED,
    RANK_FAILED,   /* a rank failed and blames no rank that still runs */
    RANK_FOLLOWED, /* a rank failed because of a rank that has not ended yet */
    CAUSE_FAILED,  /* AWAITS: the rank that we wait for has failed */
    RANK_OBEYED,   /* a rank ended as the signal requested */
    NONE_LEFT,     /* the last rank has ended */
    HANGUP,        /* SIGHUP; closing a terminal sends several */
    END_REQUEST,   /* any other signal that asks the job to end */
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

static void apply(struct job_step *step, enum job_input input);

static struct cddpi_job_action *add(struct job_step *step, enum cddpi_job_action_kind kind)
{
    struct cddpi_job_actions *actions = step->actions;

    assert(actions->count < (int)(sizeof actions->list / sizeof actions->list[0]));
    actions->list[actions->count] = (struct cddpi_job_action){.kind = kind, .rank = -1};
    return &actions->list[actions->count++];
}

static void add_for_rank(struct job_step *step, enum cddpi_job_action_kind kind, int rank)
{
    add(step, kind)->rank = rank;
}

static void add_signal(struct job_step *step, enum cddpi_job_action_kind kind, int number)
{
    add(step, kind)->number = number;
}

static void set_deadline(struct job_step *step, int64_t milliseconds)
{
    step->state->deadline_ns = step->event->now_ns + milliseconds * 1000000;
}

bool cddpi_job_state_has(const struct cddpi_job_state *state, int rank)
{
    return rank >= state->first_rank && rank - state->first_rank < state->count;
}

static struct cddpi_job_rank *rank_of(const struct cddpi_job_state *state, int rank)
{
    assert(cddpi_job_state_has(state, rank));
    return &state->ranks[rank - state->first_rank];
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
    action = add(step, kind);
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
    add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, SIGKILL);
}

static void publish_and_kill(struct job_step *step)
{
    publish(step, CDDPI_JOB_PUBLISH_FAILURE, -1);
    apply(step, KILL);
}

static void refuse_program(struct job_step *step)
{
    add(step, CDDPI_JOB_SAY_TEXT)->text = step->event->text;
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
        add(step, CDDPI_JOB_SAY_ENDING)->limit_ms = state->grace_ms;
    }
    add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, SIGTERM);
    add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, SIGCONT); /* a stopped rank does not receive
                                                           signals */
    set_deadline(step, state->grace_ms);
}

/* @p rank failed first: report it, tell the other nodes, and ask the other ranks to end. */
static void blame(struct job_step *step, int rank)
{
    struct cddpi_job_state *state = step->state;
    bool is_given_up = step->event->is_given_up && state->asked_signal == 0;

    if (is_given_up) {
        add(step, CDDPI_JOB_SAY_GIVEN_UP);
    }
    add_for_rank(step, CDDPI_JOB_SAY_END, rank);
    set_outcome(step, is_given_up ? 1 : rank_of(state, rank)->exit_status,
                state->asked_signal == 0 && !is_given_up);
    publish(step, CDDPI_JOB_PUBLISH_FAILURE, rank);
    if (state->alive > 0 || state->has_nodes) {
        add_for_rank(step, CDDPI_JOB_TELL_FAILURE, rank);
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
    const struct cddpi_job_rank *follower = rank_of(state, state->follower);

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
        struct cddpi_job_action *action = add(step, CDDPI_JOB_SAY_STOPPING);

        action->number = step->event->number;
        action->limit_ms = 3 * state->grace_ms;
    }
    add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, step->event->number);
    add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, SIGCONT);
}

static void stop_now(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    add_signal(step, CDDPI_JOB_SAY_KILLING, step->event->number);
    if (state->outcome.exit_status == 0) {
        state->outcome.exit_status = 128 + step->event->number;
    }
    state->outcome.may_restart = false;
    state->asked_signal = step->event->number;
    apply(step, KILL);
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
    add(step, CDDPI_JOB_SAY_HEARD);
    set_outcome(step, step->state->heard.exit_status, step->state->heard.may_restart);
    ask_others(step);
}

/* How long ranks that were asked to end may take. */
static int64_t limit_ms(const struct cddpi_job_state *state)
{
    return state->phase == CDDPI_JOB_FAILED ? state->grace_ms : 3 * state->grace_ms;
}

static void prolong(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;

    set_deadline(step, limit_ms(state));
    if (state->has_nodes && state->is_silent && step->event->now_ns >= state->saving_ns) {
        state->saving_ns = step->event->now_ns + SAVING_MS * INT64_C(1000000);
        add(step, CDDPI_JOB_PUBLISH_SAVING);
    }
}

static void kill_overdue(struct job_step *step)
{
    add(step, CDDPI_JOB_SAY_OVERDUE)->limit_ms = limit_ms(step->state);
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

    add(step, CDDPI_JOB_ABANDON);
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
    LEADS(RANK_OBEYED, ASKED, OBEYED, note_obedience),

    EACH(ENDS, NONE_LEFT, NULL),
    ENDS(NONE_LEFT, AWAITS, end_awaiting),
    ENDS(NONE_LEFT, KILLED, NULL),

    UNDISTURBED(HANGUP, ASKED, stop),
    LEADS(HANGUP, AWAITS, FAILED, blame_follower),
    KEEPS(HANGUP, OVER, refuse_restart),

    UNDISTURBED(END_REQUEST, ASKED, stop),
    LEADS(END_REQUEST, AWAITS, FAILED, blame_follower_and_stop_now),
    ENDING(KEEPS, END_REQUEST, stop_now),
    KEEPS(END_REQUEST, OVER, refuse_restart),

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

/* Whether @p rank blames a rank that has not ended yet, as far as we know. */
static bool has_cause_to_come(const struct cddpi_job_state *state,
                              const struct cddpi_job_rank *rank)
{
    return rank->culprit >= 0 &&
           (!cddpi_job_state_has(state, rank->culprit) || rank_of(state, rank->culprit)->is_alive);
}

static enum job_input classify_end(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;
    struct cddpi_job_rank *rank = rank_of(state, step->event->rank);

    if (!rank->is_alive) {
        return NOTHING;
    }
    rank->is_alive = false;
    rank->exit_status = step->event->exit_status;
    state->alive--;
    if (rank->exit_status == 0) {
        if (state->alive > 0 || state->has_nodes) {
            add_for_rank(step, CDDPI_JOB_TELL_END, step->event->rank);
        }
        return NOTHING;
    }
    if (state->phase == CDDPI_JOB_AWAITS) { /* another follower, or the rank that is blamed */
        return step->event->rank == rank_of(state, state->follower)->culprit ? CAUSE_FAILED
                                                                             : NOTHING;
    }
    if (state->asked_signal != 0 && (rank->exit_status == 128 + state->asked_signal ||
                                     rank->exit_status == CDDPI_STOPPED_EARLY)) {
        return RANK_OBEYED;
    }
    return state->grace_ms > 0 && has_cause_to_come(state, rank) ? RANK_FOLLOWED : RANK_FAILED;
}

static enum job_input classify_signal(struct job_step *step)
{
    const struct cddpi_job_state *state = step->state;
    const struct cddpi_job_event *event = step->event;

    switch (event->number) {
    case SIGUSR1:
    case SIGUSR2: /* only to the ranks: processes that they started may not handle it and would
                     die */
        add_signal(step, CDDPI_JOB_SIGNAL_RANKS, event->number);
        return NOTHING;
    case SIGTSTP: /* SIGTSTP itself has no effect outside the terminal's session */
        add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, SIGSTOP);
        return NOTHING;
    case SIGCONT:
        add_signal(step, CDDPI_JOB_SIGNAL_GROUPS, SIGCONT);
        return NOTHING;
    default:
        break;
    }
    if (state->asked_signal != 0 &&
        (event->node != state->asked_node || /* the same request may be sent to each node */
         event->now_ns - state->asked_ns <= SAME_REQUEST_MS * INT64_C(1000000))) {
        return NOTHING;
    }
    return event->number == SIGHUP ? HANGUP : END_REQUEST;
}

static enum job_input classify(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;
    const struct cddpi_job_event *event = step->event;
    struct cddpi_job_rank *rank = cddpi_job_state_has(state, event->rank)
                                      ? rank_of(state, event->rank)
                                      : NULL; /* the event is not about a rank */

    switch (event->kind) {
    case CDDPI_JOB_STARTED:
        rank->is_alive = true;
        state->alive++;
        state->starting++;
        return NOTHING;
    case CDDPI_JOB_BEGUN:
        return ALL_STARTED;
    case CDDPI_JOB_NOT_STARTED:
        return NOT_STARTED;
    case CDDPI_JOB_EXECUTED:
    case CDDPI_JOB_NOT_EXECUTED:
        if (rank->is_executed) {
            return NOTHING;
        }
        rank->is_executed = true;
        state->starting--;
        return event->kind == CDDPI_JOB_NOT_EXECUTED ? NOT_EXECUTED : NOTHING;
    case CDDPI_JOB_ENDED:
        return classify_end(step);
    case CDDPI_JOB_BLAMED:
        rank->culprit = event->culprit;
        return NOTHING;
    case CDDPI_JOB_SAVED:
        state->outcome.has_saved = true;
        return NOTHING;
    case CDDPI_JOB_SAVING:
        return STILL_SAVES;
    case CDDPI_JOB_SIGNALLED:
        return classify_signal(step);
    case CDDPI_JOB_FAILED_THERE:
        return FAILED_THERE;
    case CDDPI_JOB_HEARD:
        return HEARD_THERE;
    case CDDPI_JOB_ORPHANED:
        return ORPHANED;
    case CDDPI_JOB_TIME:
        return event->now_ns >= state->deadline_ns ? DEADLINE : NOTHING;
    }
    return NOTHING;
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
    apply(&step, classify(&step));
    if (state->starting == 0 &&
        (event->kind == CDDPI_JOB_EXECUTED || event->kind == CDDPI_JOB_NOT_EXECUTED)) {
        add(&step, CDDPI_JOB_FREE_PORTS);
    }
    if (state->alive == 0) {
        apply(&step, NONE_LEFT);
    }
}
