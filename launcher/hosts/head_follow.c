/* head_follow.c - owns what the cddp-run that started the nodes makes of the log of a job that goes
 * on without hosts: it tells the user who comes and goes, gives up hosts that do not end their
 * ranks, and ends if no host is left. The nodes decide all else (membership.h). */
#include "launcher/hosts/head_state_own.h"

#define LATE_NS INT64_C(1000000000)   /* a turn that begins so late has stood still */
#define AWAKE_NS INT64_C(2000000000)  /* after that: the log is heard */
#define AGAIN_NS INT64_C(30000000000) /* not again before: a slow machine has deadlines, too */

/* A node is lost. */
static void take_loss(struct head_step *step)
{
    const struct cddpi_node_event *event = step->event->heard;
    struct cddpi_head_action *action = cddpi_head_do(step, CDDPI_HEAD_SAY_LOST, -1);
    int i = cddpi_head_find_agent(step->state, event->node);

    action->number = event->node;
    action->text = event->text;
    if (i >= 0) {
        cddpi_head_drop_agent(step, i);
    }
    if (i >= 0 && event->number == CDDPI_LOST_SILENT) {
        cddpi_head_end_silent(step, i);
    }
}

/* Ranks of this generation have failed or are lost, so the others end. */
static void take_failure(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    int count = cddpi_head_count_running(state);

    state->failed_ns = step->event->now_ns;
    cddpi_head_wait_patiently(step, state->grace_ms + CDDPI_HEAD_FAILED_MS);
    if (count > 0 && state->members->asked_signal == 0) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_ENDING, -1)->number = count;
    }
}

/* Whether what led to the node of host @p i has ended, and the host gets another node or none. */
static bool is_cut_off(const struct cddpi_head_state *state, int i)
{
    const struct cddpi_head_host *host = &state->hosts[i];

    return host->has_ended && (host->is_over || host->due_ns != CDDPI_HEAD_NEVER);
}

/* A node has come. If nothing leads to it any more, the head could neither show what it writes nor
 * end it, and starts another one on its host: the job goes on without it. */
static void take_join(struct head_step *step)
{
    int node = step->event->heard->node;
    int i = cddpi_head_find_agent(step->state, node);

    cddpi_head_do(step, CDDPI_HEAD_SAY_CAME, -1)->number = node;
    if (i < 0 || is_cut_off(step->state, i)) {
        cddpi_head_do(step, CDDPI_HEAD_PUBLISH_STRAY, -1)->number = node;
    } else {
        cddpi_head_agent_came(step, i);
    }
}

/* A generation begins. What its first rank writes, such as a line of progress, is shown at once. */
static void take_start(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_membership *members = state->members;
    bool is_first = true;

    cddpi_head_do(step, CDDPI_HEAD_FORGET, -1)->number = members->generation;
    state->failed_ns = 0;
    state->patience_ns = members->asked_signal == 0 ? CDDPI_HEAD_NEVER : state->patience_ns;
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];
        int agent = cddpi_head_find_agent(state, member->node);

        if (member->is_there && agent >= 0) {
            bool is_raw = is_first && member->ranks > 0;

            is_first = is_first && !is_raw;
            if (member->ranks > 0 && state->hosts[agent].ranks_ns == 0) {
                state->hosts[agent].ranks_ns = members->start_ns;
            }
            cddpi_head_do(step, CDDPI_HEAD_FORM, agent)->number = is_raw;
        }
    }
}

static void take_end(struct head_step *step)
{
    cddpi_head_end_within(step, CDDPI_HEAD_LAST_MS);
    cddpi_head_stop_starting(step);
}

/* An event of this process: agent @p i has ended. */
static void take_agents_end(struct head_step *step, int i)
{
    if (i >= 0 && i < step->state->count) {
        step->state->unexplained--;
        cddpi_head_explain_agent(step, i);
    }
}

/* What the members were before an event. */
struct before {
    int generation;
    bool is_known, was_there, was_leaving, had_failed;
};

static bool has_failed(const struct cddpi_membership *members)
{
    return members->failure.kind != CDDPI_EVENT_NONE || members->follow.kind != CDDPI_EVENT_NONE;
}

/* The job goes on: what the event means to the head. */
static void follow(struct head_step *step, const struct before *before)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_membership *members = state->members;
    const struct cddpi_node_event *event = step->event->heard;

    switch (event->kind) {
    case CDDPI_EVENT_JOIN:
        if (!before->is_known && cddpi_membership_find(members, event->node) != NULL) {
            take_join(step);
        }
        break;
    case CDDPI_EVENT_LEAVE:
        if (before->was_there && !before->was_leaving) {
            cddpi_head_do(step, CDDPI_HEAD_SAY_LEAVES, -1)->number = event->node;
        }
        break;
    case CDDPI_EVENT_SIGNAL:
        if (members->asked_signal != 0 && /* that of a node that is lost does not count */
            cddpi_head_asks_to_end(event->number)) {
            cddpi_head_wait_patiently(step, state->grace_ms * 3 + CDDPI_HEAD_MARGIN_MS);
        }
        break;
    case CDDPI_EVENT_CHANGE:
        if (members->change.kind != CDDPI_EVENT_NONE) {
            cddpi_head_wait_patiently(step, state->grace_ms * 3 + CDDPI_HEAD_FAILED_MS);
        }
        break;
    case CDDPI_EVENT_SAVING:
        cddpi_head_extend_patience(step);
        break;
    case CDDPI_EVENT_START:
        if (members->generation > before->generation) {
            take_start(step);
        }
        break;
    default:
        break;
    }
}

void cddpi_head_hear_elastic(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_membership *members = state->members;
    const struct cddpi_node_event *event = step->event->heard;
    const struct cddpi_job_member *member = cddpi_membership_find(members, event->node);
    const struct before before = {.generation = members->generation,
                                  .is_known = member != NULL,
                                  .was_there = member != NULL && member->is_there,
                                  .was_leaving = member != NULL && member->is_leaving,
                                  .had_failed = has_failed(members)};
    bool had_end = cddpi_head_has_end(state);

    if (event->kind == CDDPI_EVENT_BYE && event->node < 0) {
        take_agents_end(step, event->number);
    }
    if (state->steps > 0) { /* later events are consequences of our ending the agents */
        return;
    }
    cddpi_head_hear(step);
    if (event->kind == CDDPI_EVENT_CUT) { /* no host can be reached through the store */
        cddpi_head_do(step, CDDPI_HEAD_SAY_CUT, -1)->text = event->text;
        (void)cddpi_head_end_agents(step);
        return;
    }
    if (cddpi_head_has_end(state)) {
        if (!had_end) {
            take_end(step);
        }
        return;
    }
    if (event->kind == CDDPI_EVENT_LOST && before.was_there) {
        take_loss(step);
    }
    if (!before.had_failed && has_failed(members)) {
        take_failure(step);
    }
    follow(step, &before);
}

/* Ranks have had the time to end: the job goes on without nodes whose ranks have not. */
static void lose_patience(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_membership *members = state->members;

    if (!state->has_met || cddpi_head_is_ending(state) ||
        !cddpi_head_is_due(step, state->patience_ns)) {
        return;
    }
    state->patience_ns = CDDPI_HEAD_NEVER;
    for (int i = 0; i < members->count; i++) {
        if (cddpi_head_runs(&members->list[i])) {
            cddpi_head_do(step, CDDPI_HEAD_PUBLISH_LATE, -1)->number = members->list[i].node;
        }
    }
}

static bool is_any_there(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        if (members->list[i].is_there && !members->list[i].has_left) {
            return true;
        }
    }
    return false;
}

/* No host is left, and the job ends with @p exit_status. */
static void give_up(struct head_step *step, int exit_status)
{
    step->state->exit_status = exit_status;
    (void)cddpi_head_end_agents(step);
}

static bool may_any_come(const struct cddpi_head_state *state)
{
    for (int i = 0; i < state->count; i++) {
        if (!state->hosts[i].is_over) {
            return true;
        }
    }
    return false;
}

/* If no host is left, wait for one to come back. */
static void judge_empty(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_membership *members = state->members;

    if (cddpi_head_has_end(state) || is_any_there(members)) {
        state->empty_ns = CDDPI_HEAD_NEVER;
    } else if (cddpi_head_is_ending(state)) {
        give_up(step, members->has_checkpoint      ? CDDPI_STOPPED_EARLY
                      : members->asked_signal != 0 ? 128 + members->asked_signal
                                                   : 128 + state->asked_signal);
    } else if (!may_any_come(state)) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_ALL_LEFT, -1);
        give_up(step, CDDPI_TOO_FEW);
    } else if (state->empty_ns == CDDPI_HEAD_NEVER) {
        state->empty_ns = cddpi_head_after(step, state->timeout_ms);
        cddpi_head_do(step, CDDPI_HEAD_SAY_NONE_LEFT, -1);
    } else if (cddpi_head_is_due(step, state->empty_ns)) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_NONE_BACK, -1);
        give_up(step, CDDPI_TOO_FEW);
    }
}

void cddpi_head_note_turn(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    int64_t now_ns = step->event->now_ns;

    if (state->waited_ns != CDDPI_HEAD_NEVER && now_ns - state->waited_ns > LATE_NS &&
        now_ns - state->awake_ns > AGAIN_NS) {
        state->awake_ns = now_ns + AWAKE_NS;
    }
}

void cddpi_head_tend(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    bool is_awake = cddpi_head_is_due(step, state->awake_ns);

    if (!state->has_met) {
        cddpi_head_await(step);
    }
    if (state->steps == 0 && is_awake) {
        lose_patience(step);
        cddpi_head_tend_agents(step);
    }
    if (state->steps == 0 && state->has_met && is_awake) {
        judge_empty(step);
    }
    if (state->steps == 0 && state->alive == 0 && cddpi_head_is_ending(state)) {
        cddpi_head_end_within(step, CDDPI_HEAD_LAST_MS); /* for the events that agents told last */
    }
}
