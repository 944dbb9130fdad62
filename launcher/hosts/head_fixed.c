/* head_fixed.c - owns what the head makes of the log of a job with a fixed number of hosts, whose
 * end is decided by the first failure. Agent I is node I. */
#include "launcher/hosts/head_state_own.h"

/* Agent @p i has ended, and all its earlier events have arrived: decide whether its end was
 * expected. */
static void lose_agent(struct head_step *step, int i)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_head_host *host = &state->hosts[i];
    bool has_begun = cddpi_head_has_begun(state);
    bool has_end = cddpi_head_has_end(state);

    if (has_end || !has_begun) {
        cddpi_head_close(step, i);
    }
    if (has_end && host->exit_status == 0) {
        return; /* as expected */
    }
    if (state->exit_status == 0) {
        state->exit_status = host->exit_status != 0 ? host->exit_status : 1;
    }
    if (!has_begun) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_UNSTARTED, i);
        cddpi_head_end_within(step, CDDPI_HEAD_SETTLE_MS);
    } else if (!has_end) {
        cddpi_head_do(step, CDDPI_HEAD_PUBLISH_LOST, i);
        /* unless the other nodes react to the event */
        cddpi_head_end_within(step, state->grace_ms * 3 + CDDPI_HEAD_FAILED_MS);
    } else if (state->members->end.exit_status == 0) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_LATE_END, i);
    }
}

/* A host is gone, so the ranks of the other hosts are asked to end. */
static void take_loss(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    struct cddpi_head_action *action;
    int lost = 0;

    if (cddpi_head_has_end(state)) {
        return;
    }
    if (step->event->heard->number == CDDPI_LOST_SILENT) {
        cddpi_head_end_silent(step, step->event->heard->node);
    }
    action = cddpi_head_do(step, CDDPI_HEAD_SAY_LOST, -1);
    action->number = step->event->heard->node;
    action->text = step->event->heard->text;
    for (int i = 0; i < state->count; i++) {
        lost += state->members->list[i].is_lost;
    }
    if (lost == state->count) {
        cddpi_head_end_within(step, CDDPI_HEAD_SETTLE_MS); /* no host is left to wait for */
    }
    cddpi_head_wait_patiently(step, state->grace_ms * (state->members->asked_signal != 0 ? 3 : 1) +
                                        CDDPI_HEAD_MARGIN_MS);
}

static void take_start(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;

    cddpi_head_do(step, CDDPI_HEAD_FORGET, -1)->number = step->event->heard->generation;
    state->begin_ns = state->news_ns = CDDPI_HEAD_NEVER;
    if (state->members->asked_signal == 0) {
        state->patience_ns = CDDPI_HEAD_NEVER;
    }
}

static void follow(struct head_step *step, bool is_news)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_node_event *event = step->event->heard;

    switch (event->kind) {
    case CDDPI_EVENT_BYE: /* published by the head for an agent that has ended */
        if (event->node < 0 && event->number < state->count) {
            state->unexplained--;
            lose_agent(step, event->number);
        }
        break;
    case CDDPI_EVENT_LOST:
        if (is_news) {
            take_loss(step);
        }
        break;
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_FOLLOW:
        cddpi_head_wait_patiently(step, state->grace_ms + CDDPI_HEAD_FAILED_MS);
        break;
    case CDDPI_EVENT_SIGNAL:
        if (cddpi_head_asks_to_end(event->number)) {
            cddpi_head_wait_patiently(step, state->grace_ms * 3 + CDDPI_HEAD_MARGIN_MS);
        }
        break;
    case CDDPI_EVENT_SAVING:
        cddpi_head_extend_patience(step);
        break;
    case CDDPI_EVENT_START:
        take_start(step);
        break;
    case CDDPI_EVENT_END:
        cddpi_head_end_within(step, CDDPI_HEAD_LAST_MS);
        break;
    case CDDPI_EVENT_CUT: /* no host can be reached through the store */
        cddpi_head_do(step, CDDPI_HEAD_SAY_CUT, -1)->text = event->text;
        (void)cddpi_head_end_agents(step);
        break;
    default:
        break;
    }
}

void cddpi_head_hear_fixed(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_node_event *event = step->event->heard;
    bool had_failed = state->members->failure.kind != CDDPI_EVENT_NONE;
    bool is_of_node = event->node >= 0 && event->node < state->count;
    bool is_news = event->kind == CDDPI_EVENT_LOST && is_of_node &&
                   !state->members->list[event->node].is_lost;

    if (event->node >= state->count) {
        return; /* no node of ours */
    }
    if (event->kind == CDDPI_EVENT_LOST && is_of_node && state->hosts[event->node].has_ended) {
        cddpi_head_close(step, event->node); /* cddp-run may still run there: that ends it */
    }
    if (state->steps > 0) { /* later events are consequences of our ending the agents */
        state->unexplained -= event->kind == CDDPI_EVENT_BYE && event->node < 0;
        return;
    }
    cddpi_head_hear(step);
    follow(step, is_news);
    if (!had_failed && state->members->failure.kind != CDDPI_EVENT_NONE && state->alive > 0 &&
        state->steps == 0) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_ENDING, -1)->number = state->count;
    }
}
