/* head_end.c - owns the deadlines of a job on a list of hosts, in the cddp-run that started it: how
 * long it waits for ranks to end, and the steps in which it ends agents. A silent host extends no
 * deadline. Only two things do: a sign that a rank is still saving; and, once, that node 0 has
 * come, since it has the same deadline and then says more (head_begin.c). */
#include "launcher/hosts/head_state_own.h"

#include <signal.h>

enum { HURRY_MS = 1000 }; /* for a step of ending the remaining agents, after a second signal */

void cddpi_head_end_within(struct head_step *step, int64_t milliseconds)
{
    int64_t deadline_ns = cddpi_head_after(step, milliseconds);

    if (deadline_ns < step->state->deadline_ns) {
        step->state->deadline_ns = deadline_ns;
    }
}

void cddpi_head_wait_patiently(struct head_step *step, int64_t milliseconds)
{
    int64_t patience_ns = cddpi_head_after(step, milliseconds);

    if (patience_ns < step->state->patience_ns) {
        step->state->patience_ns = patience_ns;
        step->state->patience_ms = milliseconds;
    }
}

void cddpi_head_extend_patience(struct head_step *step)
{
    if (step->state->patience_ns != CDDPI_HEAD_NEVER) {
        step->state->patience_ns = cddpi_head_after(step, step->state->patience_ms);
    }
}

static bool is_alive(const struct cddpi_head_host *host)
{
    return host->is_started && !host->has_ended;
}

/* Say which hosts are given up, unless the job has ended or had not begun. */
static void say_left(struct head_step *step, enum cddpi_head_action_kind kind)
{
    const struct cddpi_head_state *state = step->state;

    for (int i = 0; i < state->count; i++) {
        if (is_alive(&state->hosts[i]) && cddpi_head_has_begun(state) &&
            !cddpi_head_has_end(state)) {
            cddpi_head_do(step, kind, i);
        }
    }
}

bool cddpi_head_end_agents(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;

    switch (state->steps++) {
    case 0: /* an agent ends when its input is closed */
        say_left(step, CDDPI_HEAD_SAY_CLOSING);
        for (int i = 0; i < state->count; i++) {
            cddpi_head_close(step, i);
        }
        break;
    case 1: /* kill what connects us to it, such as ssh */
        say_left(step, CDDPI_HEAD_SAY_KILLING);
        for (int i = 0; i < state->count; i++) {
            if (is_alive(&state->hosts[i])) {
                cddpi_head_do(step, CDDPI_HEAD_KILL, i);
            }
        }
        break;
    default:
        return false;
    }
    state->begin_ns = state->news_ns = state->look_ns = CDDPI_HEAD_NEVER;
    state->patience_ns = state->empty_ns = CDDPI_HEAD_NEVER;
    state->deadline_ns = cddpi_head_after(step, state->is_hurried ? HURRY_MS : CDDPI_HEAD_LAST_MS);
    return true;
}

void cddpi_head_end_silent(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    if (is_alive(host)) {
        host->end_steps = 2;
        host->due_ns = CDDPI_HEAD_NEVER;
        cddpi_head_close(step, i);
        cddpi_head_do(step, CDDPI_HEAD_KILL, i);
    }
}

/* The first signal that asks the job to end, or a second one, which means it. */
static void take_request(struct head_step *step, int number)
{
    struct cddpi_head_state *state = step->state;
    int64_t now_ns = step->event->now_ns;

    if (state->asked_signal == 0) {
        state->asked_signal = number;
        state->asked_ns = now_ns;
        cddpi_head_wait_patiently(step, state->grace_ms * 3 + CDDPI_HEAD_MARGIN_MS);
        if (state->members->asked_signal == 0) {
            cddpi_head_do(step, CDDPI_HEAD_SAY_STOPPING, -1)->number = number;
        }
    } else if (number != SIGHUP &&
               now_ns - state->asked_ns > CDDPI_SAME_REQUEST_MS * INT64_C(1000000)) {
        state->is_hurried = true;
        cddpi_head_end_within(step, HURRY_MS);
    }
}

void cddpi_head_take_signal(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    int number = step->event->number;
    bool is_ending = cddpi_head_asks_to_end(number);

    if (!cddpi_head_has_begun(state)) {
        if (is_ending) {
            cddpi_head_do(step, CDDPI_HEAD_SAY_EARLY_SIGNAL, -1)->number = number;
            state->exit_status = 128 + number;
            (void)cddpi_head_end_agents(step);
        }
        return;
    }
    if (is_ending) {
        take_request(step, number);
    }
    cddpi_head_do(step, CDDPI_HEAD_PUBLISH_SIGNAL, -1)->number = number;
}
