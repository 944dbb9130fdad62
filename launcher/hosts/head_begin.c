/* head_begin.c - owns how long the head waits for hosts to come, and when a job begins. In a job
 * with a fixed number of hosts, node 0 lets the nodes meet (node_gather.c), and names those that
 * are missing once it has come. In a job that goes on without hosts no host need be there for that,
 * so the head does it. */
#include "launcher/hosts/head_state_own.h"

enum {
    FIRST_NEWS_MS = 10000, /* after this time, missing hosts are named */
    NEWS_MS = 60000,
    LOOK_MS = 100 /* elastic: between two looks at the nodes' records */
};

void cddpi_head_begin(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;

    state->begin_ns = cddpi_head_after(step, state->timeout_ms);
    state->news_ns = cddpi_head_after(step, FIRST_NEWS_MS);
    state->look_ns = step->event->now_ns;
    state->patience_ns = state->deadline_ns = state->empty_ns = CDDPI_HEAD_NEVER;
    state->next_node = state->count;
    for (int i = 0; i < state->count; i++) {
        state->hosts[i] = (struct cddpi_head_host){.node = i, .due_ns = CDDPI_HEAD_NEVER};
    }
}

void cddpi_head_await(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;

    if (state->steps > 0 || state->begin_ns == CDDPI_HEAD_NEVER) {
        return;
    }
    if (state->is_elastic && cddpi_head_is_due(step, state->look_ns)) {
        state->look_ns = cddpi_head_after(step, LOOK_MS);
        cddpi_head_do(step, CDDPI_HEAD_LOOK, -1);
    } else if (!state->is_elastic && (cddpi_head_is_due(step, state->begin_ns) ||
                                      cddpi_head_is_due(step, state->news_ns))) {
        state->news_ns = cddpi_head_after(step, NEWS_MS);
        cddpi_head_do(step, CDDPI_HEAD_LOOK, -1);
    }
}

static void refuse(struct head_step *step, int exit_status)
{
    step->state->exit_status = exit_status;
    (void)cddpi_head_end_agents(step);
}

/* Missing hosts are named only until node 0 has come, which knows more and names them itself. */
static void look_of_fixed(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    bool is_late = cddpi_head_is_due(step, state->begin_ns);

    if (is_late && step->event->is_first_there && !state->has_waited_longer) {
        state->has_waited_longer = true; /* node 0 has the same deadline, tells all nodes, and lets
                                            them read its answer */
        state->begin_ns = cddpi_head_after(step, CDDPI_HEAD_MARGIN_MS);
    } else if (is_late) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_TOO_LATE, -1);
        refuse(step, state->exit_status != 0 ? state->exit_status : 1);
    } else if (!step->event->is_first_there) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_MISSING, -1);
    }
}

void cddpi_head_take_look(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    bool is_late = cddpi_head_is_due(step, state->begin_ns);
    int came = state->count - step->event->number;

    if (state->steps > 0 || state->begin_ns == CDDPI_HEAD_NEVER) {
        return;
    }
    if (!state->is_elastic) {
        look_of_fixed(step);
    } else if (came >= state->most ||
               (came >= state->least &&
                (is_late || cddpi_head_is_due(step, state->came_ns + state->settle_ns)))) {
        cddpi_head_do(step, CDDPI_HEAD_BEGIN, -1)->number = came;
    } else if (is_late) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_TOO_FEW, -1)->number = came;
        refuse(step, CDDPI_TOO_FEW);
    } else if (cddpi_head_is_due(step, state->news_ns)) {
        state->news_ns = cddpi_head_after(step, NEWS_MS);
        cddpi_head_do(step, CDDPI_HEAD_SAY_MISSING, -1);
    }
}

void cddpi_head_take_coming(struct head_step *step)
{
    step->state->came_ns = step->event->now_ns;
    cddpi_head_agent_came(step, step->event->host);
}

void cddpi_head_take_meeting(struct head_step *step)
{
    struct cddpi_head_state *state = step->state;
    int came = 0;

    for (int i = 0; i < state->count; i++) {
        came += cddpi_head_is_there(state, i);
    }
    state->has_met = true;
    state->begin_ns = state->news_ns = state->look_ns = CDDPI_HEAD_NEVER;
    if (came < state->most) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_BEGINS, -1)->number = came;
    }
}

void cddpi_head_take_refusal(struct head_step *step)
{
    if (step->state->steps == 0) {
        refuse(step, step->event->number);
    }
}
