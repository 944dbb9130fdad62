/* head_list.c - owns the list of the actions of a step of the head's machine, and what its parts
 * ask about hosts and the job. */
#include "launcher/hosts/head_state_own.h"

#include <assert.h>
#include <signal.h>

struct cddpi_head_action *cddpi_head_do(struct head_step *step, enum cddpi_head_action_kind kind,
                                        int host)
{
    struct cddpi_head_state *state = step->state;
    struct cddpi_head_action *action = &state->actions[state->action_count];

    assert(state->action_count < state->action_room);
    state->action_count++;
    *action = (struct cddpi_head_action){.kind = kind, .host = host};
    return action;
}

int64_t cddpi_head_after(const struct head_step *step, int64_t milliseconds)
{
    return step->event->now_ns + milliseconds * 1000000;
}

bool cddpi_head_is_due(const struct head_step *step, int64_t when_ns)
{
    return step->event->now_ns >= when_ns;
}

void cddpi_head_close(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    if (!host->is_closed) {
        host->is_closed = true;
        cddpi_head_do(step, CDDPI_HEAD_CLOSE, i);
    }
}

bool cddpi_head_has_begun(const struct cddpi_head_state *state)
{
    return state->members->start.kind != CDDPI_EVENT_NONE;
}

bool cddpi_head_has_end(const struct cddpi_head_state *state)
{
    return state->members->end.kind != CDDPI_EVENT_NONE;
}

bool cddpi_head_is_ending(const struct cddpi_head_state *state)
{
    return state->steps > 0 || cddpi_head_has_end(state) || state->asked_signal != 0 ||
           state->members->asked_signal != 0;
}

bool cddpi_head_asks_to_end(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

bool cddpi_head_runs(const struct cddpi_job_member *member)
{
    return member->is_there && member->ranks > 0 && !member->is_done;
}

int cddpi_head_count_running(const struct cddpi_head_state *state)
{
    int count = 0;

    for (int i = 0; state->is_elastic && i < state->members->count; i++) {
        count += cddpi_head_runs(&state->members->list[i]);
    }
    return state->is_elastic ? count : state->count;
}

int cddpi_head_find_agent(const struct cddpi_head_state *state, int node)
{
    for (int i = 0; i < state->count; i++) {
        if (state->hosts[i].node == node) {
            return i;
        }
    }
    return -1;
}

bool cddpi_head_is_there(const struct cddpi_head_state *state, int i)
{
    return state->hosts[i].has_come && !state->hosts[i].has_ended;
}

void cddpi_head_hear(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    const struct cddpi_membership_event heard = {
        .kind = CDDPI_MEMBERS_HEARD, .now_ns = step->event->now_ns, .heard = step->event->heard};

    cddpi_membership_step(state->members, &heard, state->member_actions);
    for (int i = 0; i < state->member_actions->count; i++) {
        if (state->member_actions->list[i].kind == CDDPI_DO_SAY) {
            cddpi_head_do(step, CDDPI_HEAD_SAY, -1)->text = state->member_actions->list[i].text;
        }
    }
}
