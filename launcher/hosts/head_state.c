/* head_state.c - owns one step of the head's machine: which part takes the event, when time is due
 * next, and whether there is something left to wait for; and how the head exits. */
#include "launcher/hosts/head_state_own.h"

static void take_start(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    struct cddpi_head_host *host = &state->hosts[step->event->host];

    host->is_started = true;
    host->has_ended = false;
    state->alive++;
    host->since_ns = step->event->now_ns;
    host->is_held = state->is_elastic;
    host->due_ns = state->is_elastic ? cddpi_head_after(step, state->timeout_ms) : CDDPI_HEAD_NEVER;
}

/* Whether the end of the agent was expected is known once the event that is published here comes
 * back: by then all earlier events have come, possibly the job's END. Its input stays open until
 * then. */
static void take_end(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    struct cddpi_head_host *host = &state->hosts[step->event->host];

    host->has_ended = true;
    host->exit_status = step->event->number;
    host->due_ns = CDDPI_HEAD_NEVER; /* what follows is planned once its end is explained */
    state->alive--;
    if (state->is_elastic && !state->has_met) {
        cddpi_head_explain_agent(step, step->event->host);
        return;
    }
    state->unexplained++;
    cddpi_head_do(step, CDDPI_HEAD_PUBLISH_BYE, step->event->host);
}

/* What time alone changes. */
static void take_time(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    bool is_overdue;

    if (state->is_elastic) {
        cddpi_head_note_turn(step);
        cddpi_head_tend(step);
    }
    if (!state->is_elastic && state->alive == 0) {
        cddpi_head_end_within(step, CDDPI_HEAD_LAST_MS); /* for the events that agents told last */
    }
    is_overdue = cddpi_head_is_due(step, state->awake_ns) &&
                 (cddpi_head_is_due(step, state->patience_ns) ||
                  cddpi_head_is_due(step, state->deadline_ns));
    if (is_overdue) {
        state->has_given_up = state->alive == 0 || !cddpi_head_end_agents(step);
    } else if (!state->is_elastic) {
        cddpi_head_await(step);
    }
}

static void take(struct head_step *step)
{
    bool is_elastic = step->state->is_elastic;

    switch (step->event->kind) {
    case CDDPI_HEAD_BEGINS:
        cddpi_head_begin(step);
        break;
    case CDDPI_HEAD_STARTED:
        take_start(step);
        break;
    case CDDPI_HEAD_UNSTARTED:
        cddpi_head_take_unstarted(step);
        break;
    case CDDPI_HEAD_CAME:
        cddpi_head_take_coming(step);
        break;
    case CDDPI_HEAD_LOOKED:
        cddpi_head_take_look(step);
        break;
    case CDDPI_HEAD_MET:
        cddpi_head_take_meeting(step);
        break;
    case CDDPI_HEAD_REFUSES:
        cddpi_head_take_refusal(step);
        break;
    case CDDPI_HEAD_HEARD:
        (is_elastic ? cddpi_head_hear_elastic : cddpi_head_hear_fixed)(step);
        break;
    case CDDPI_HEAD_ENDED:
        take_end(step);
        break;
    case CDDPI_HEAD_SIGNALLED:
        cddpi_head_take_signal(step);
        break;
    case CDDPI_HEAD_TIME:
        take_time(step);
        break;
    }
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static int64_t next_ns(const struct head_step *step)
{
    const struct cddpi_head_state *state = step->state;
    int64_t due_ns = earlier(state->patience_ns, state->deadline_ns);

    if (!state->is_elastic) {
        return earlier(due_ns, earlier(state->begin_ns, state->news_ns));
    }
    due_ns = earlier(due_ns, cddpi_head_agents_due_ns(state));
    due_ns = earlier(due_ns, state->empty_ns);
    due_ns = step->event->now_ns < state->awake_ns ? state->awake_ns : due_ns; /* whatever is due */
    return !state->has_met && state->steps == 0 ? earlier(due_ns, state->look_ns) : due_ns;
}

static bool goes_on(const struct cddpi_head_state *state)
{
    bool may_come = false;

    for (int i = 0; state->is_elastic && i < state->count; i++) {
        may_come = may_come || !state->hosts[i].is_over;
    }
    return state->alive > 0 || state->unexplained > 0 || (may_come && !cddpi_head_is_ending(state));
}

void cddpi_head_state_step(struct cddpi_head_state *state, const struct cddpi_head_event *event)
{
    struct head_step step = {state, event};

    state->action_count = 0;
    take(&step);
    state->due_ns = next_ns(&step);
    if (event->kind != CDDPI_HEAD_HEARD && event->kind != CDDPI_HEAD_ENDED &&
        event->kind != CDDPI_HEAD_SIGNALLED) { /* these come before the time that they took */
        state->waited_ns = state->due_ns;
    }
    state->is_over = event->kind != CDDPI_HEAD_BEGINS && (state->has_given_up || !goes_on(state));
}

const struct cddpi_node_event *cddpi_head_first_failure(const struct cddpi_head_state *state)
{
    const struct cddpi_membership *members = state->members;
    const struct cddpi_node_event *failure = members->failure.kind != CDDPI_EVENT_NONE
                                                 ? &members->failure
                                                 : &members->follow;
    int exit_status = cddpi_head_exit_status(state);

    if (failure->kind == CDDPI_EVENT_NONE) {
        return NULL;
    }
    /* hosts that an elastic job has lost on the way are no failure */
    return !state->is_elastic || (failure->kind != CDDPI_EVENT_CUT && exit_status != 0 &&
                                  exit_status != CDDPI_STOPPED_EARLY && members->asked_signal == 0)
               ? failure
               : NULL;
}

/* END says it, once the node that leads has received the results of all nodes. */
static int status_of_fixed(const struct cddpi_head_state *state)
{
    const struct cddpi_membership *members = state->members;
    const struct cddpi_node_event *failure = members->failure.kind != CDDPI_EVENT_NONE
                                                 ? &members->failure
                                                 : &members->follow;
    bool is_known = cddpi_head_has_end(state);
    int exit_status = is_known ? members->end.exit_status : state->exit_status;

    if (failure->kind != CDDPI_EVENT_NONE) {
        exit_status = failure->kind == CDDPI_EVENT_LOST ? 1
                      : exit_status != 0                ? exit_status
                                                        : failure->exit_status;
    }
    if (exit_status != 0 || state->exit_status != 0) {
        return exit_status != 0 ? exit_status : state->exit_status;
    }
    return is_known ? 0 : state->asked_signal != 0 ? 128 + state->asked_signal : 1;
}

int cddpi_head_exit_status(const struct cddpi_head_state *state)
{
    if (!state->is_elastic) {
        return status_of_fixed(state);
    }
    return cddpi_head_has_end(state)  ? state->members->end.exit_status
           : state->exit_status != 0  ? state->exit_status
           : state->asked_signal != 0 ? 128 + state->asked_signal
                                      : 1;
}
