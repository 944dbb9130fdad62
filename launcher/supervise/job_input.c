/* job_input.c - owns what an event means to cddp-run's decisions. */
#include "launcher/supervise/job_input.h"

#include "base/launcher_report.h"

#include <assert.h>
#include <signal.h>

bool cddpi_job_state_has(const struct cddpi_job_state *state, int rank)
{
    return rank >= state->first_rank && rank - state->first_rank < state->count;
}

struct cddpi_job_rank *cddpi_job_rank_of(const struct cddpi_job_state *state, int rank)
{
    assert(cddpi_job_state_has(state, rank));
    return &state->ranks[rank - state->first_rank];
}

struct cddpi_job_action *cddpi_job_add(struct job_step *step, enum cddpi_job_action_kind kind)
{
    struct cddpi_job_actions *actions = step->actions;

    assert(actions->count < (int)(sizeof actions->list / sizeof actions->list[0]));
    actions->list[actions->count] = (struct cddpi_job_action){.kind = kind, .rank = -1};
    return &actions->list[actions->count++];
}

/* Whether a rank that ends with @p exit_status does what it was asked to. */
static bool obeys(const struct cddpi_job_state *state, int exit_status)
{
    return state->asked_signal != 0 && (exit_status == 128 + state->asked_signal ||
                                        (state->is_change && exit_status == 128 + SIGTERM) ||
                                        exit_status == CDDPI_STOPPED_EARLY);
}

static enum job_input classify_end(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;
    struct cddpi_job_rank *rank = cddpi_job_rank_of(state, step->event->rank);

    if (!rank->is_alive) {
        return NOTHING;
    }
    rank->is_alive = false;
    rank->exit_status = step->event->exit_status;
    state->alive--;
    if ((rank->exit_status == 0 || obeys(state, rank->exit_status)) &&
        (state->alive > 0 || state->has_nodes)) { /* those that wait for it to join wait in vain */
        cddpi_job_add(step, CDDPI_JOB_TELL_END)->rank = step->event->rank;
    }
    if (state->phase == CDDPI_JOB_AWAITS &&
        step->event->rank == cddpi_job_rank_of(state, state->follower)->culprit) {
        return rank->exit_status != 0 ? CAUSE_FAILED : CAUSE_ENDED;
    }
    if (rank->exit_status == 0 || state->phase == CDDPI_JOB_AWAITS) { /* or another follower */
        return NOTHING;
    }
    if (obeys(state, rank->exit_status)) {
        return RANK_OBEYED;
    }
    /* whether it blames a rank that has not ended yet, as far as we know */
    return state->grace_ms > 0 && rank->culprit >= 0 &&
                   (!cddpi_job_state_has(state, rank->culprit) ||
                    cddpi_job_rank_of(state, rank->culprit)->is_alive)
               ? RANK_FOLLOWED
               : RANK_FAILED;
}

static enum job_input classify_signal(struct job_step *step)
{
    struct cddpi_job_state *state = step->state;
    const struct cddpi_job_event *event = step->event;

    switch (event->number) {
    case CDDPI_SAVE_SIGNAL:
    case SIGUSR1:
    case SIGUSR2: /* only to the ranks: processes that they started may not handle it and would
                     die */
        cddpi_job_add(step, CDDPI_JOB_SIGNAL_RANKS)->number = event->number;
        return NOTHING;
    case SIGTSTP: /* SIGTSTP itself has no effect outside the terminal's session */
        cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGSTOP;
        return NOTHING;
    case SIGCONT:
        cddpi_job_add(step, CDDPI_JOB_SIGNAL_GROUPS)->number = SIGCONT;
        return NOTHING;
    default:
        break;
    }
    if (state->is_change && !state->is_asked) {
        state->is_asked = true; /* the ranks save already: now the job ends after that */
        state->asked_node = event->node;
        state->asked_ns = event->now_ns;
        state->outcome.may_restart = false;
        if (!state->is_silent) {
            struct cddpi_job_action *action = cddpi_job_add(step, CDDPI_JOB_SAY_STOPPING);

            action->number = event->number;
            action->limit_ms = 3 * state->grace_ms;
        }
        return NOTHING;
    }
    if (state->asked_signal != 0 &&
        (event->node != state->asked_node || /* the same request may be sent to each node */
         event->now_ns - state->asked_ns <= CDDPI_SAME_REQUEST_MS * INT64_C(1000000))) {
        return NOTHING;
    }
    return event->number == SIGHUP ? HANGUP : END_REQUEST;
}

enum job_input cddpi_job_classify(struct job_step *step)
{
    static const enum job_input inputs[] = {
        [CDDPI_JOB_BEGUN] = ALL_STARTED,     [CDDPI_JOB_NOT_STARTED] = NOT_STARTED,
        [CDDPI_JOB_SAVING] = STILL_SAVES,    [CDDPI_JOB_FAILED_THERE] = FAILED_THERE,
        [CDDPI_JOB_HEARD] = HEARD_THERE,     [CDDPI_JOB_ORPHANED] = ORPHANED,
        [CDDPI_JOB_CHANGED] = MEMBERS_CHANGE};
    struct cddpi_job_state *state = step->state;
    const struct cddpi_job_event *event = step->event;
    struct cddpi_job_rank *rank = cddpi_job_state_has(state, event->rank)
                                      ? cddpi_job_rank_of(state, event->rank)
                                      : NULL; /* the event is not about a rank */

    switch (event->kind) {
    case CDDPI_JOB_STARTED:
        rank->is_alive = true;
        state->alive++;
        state->starting++;
        return NOTHING;
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
    case CDDPI_JOB_KEPT:
        state->outcome.has_kept = true;
        return NOTHING;
    case CDDPI_JOB_SIGNALLED:
        return classify_signal(step);
    case CDDPI_JOB_TIME:
        return event->now_ns >= state->deadline_ns ? DEADLINE : NOTHING;
    default:
        return inputs[event->kind];
    }
}
