/* head_agents.c - owns the agents of a job that goes on without hosts: an agent whose node is lost
 * is ended, and one that has ended is started again on its host, as another node, after a pause
 * that grows while that comes to nothing. A host that was asked to leave is not started again. */
#include "launcher/hosts/head_state_own.h"

enum {
    FIRST_PAUSE_MS = 1000,
    MOST_PAUSE_MS = 60000,
    MOST_COSTLY_MS =
        600000,    /* if the node comes, and is soon lost: the others begin anew each time */
    HOLD_MS = 5000 /* how long what a first agent writes to stderr is held back */
};

/* Pass on what was held back. */
static void release_held(struct head_step *step, int i, bool has_failed)
{
    step->state->hosts[i].is_held = false;
    cddpi_head_do(step, CDDPI_HEAD_RELEASE, i)->number = has_failed;
}

void cddpi_head_agent_came(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    host->has_come = true;
    host->since_ns = step->event->now_ns;
    host->ranks_ns = host->lost_ns = 0;
    host->due_ns = CDDPI_HEAD_NEVER;
    step->state->has_any_come = true;
    release_held(step, i, false);
}

void cddpi_head_drop_agent(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    host->lost_ns = step->state->failed_ns != 0 ? step->state->failed_ns : step->event->now_ns;
    if (host->is_started && !host->has_ended) {
        host->due_ns = cddpi_head_after(step, CDDPI_HEAD_LAST_MS); /* it may end by itself */
    }
}

/* An agent ends when its input is closed; else what leads to it is killed. */
static void end_agent(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    host->due_ns = CDDPI_HEAD_NEVER;
    if (host->end_steps++ == 0) {
        cddpi_head_close(step, i);
        host->due_ns = cddpi_head_after(step, CDDPI_HEAD_LAST_MS);
    } else {
        cddpi_head_do(step, CDDPI_HEAD_KILL, i);
    }
}

/* Whether the node of @p host, whose agent has ended, took part in the job for long enough that
 * another one is worth what its coming costs the others. A spare costs them nothing while it waits;
 * but how long they save before it gets ranks, and how long its end takes, says nothing about it.
 */
static bool was_useful(const struct head_step *step, const struct cddpi_head_host *host)
{
    int64_t end_ns = host->lost_ns != 0 ? host->lost_ns : step->event->now_ns;
    int64_t lived_ns = end_ns - (host->ranks_ns != 0 ? host->ranks_ns : host->since_ns);
    int64_t least_ms = host->ranks_ns != 0 ? CDDPI_SHORT_LIFE_MS : MOST_COSTLY_MS;

    return host->has_come && lived_ns >= least_ms * 1000000;
}

/* Start the agent of host @p i again, after a pause. */
static void plan_start(struct head_step *step, int i)
{
    const struct cddpi_head_state *state = step->state;
    struct cddpi_head_host *host = &state->hosts[i];
    int64_t most_ms = host->has_come ? MOST_COSTLY_MS : MOST_PAUSE_MS;
    int64_t pause_ms = FIRST_PAUSE_MS;

    host->fails = was_useful(step, host) ? 0 : host->fails;
    for (int k = 0; k < host->fails && pause_ms < most_ms; k++) {
        pause_ms *= 2;
    }
    host->fails++;
    host->last_status = host->exit_status;
    host->due_ns = cddpi_head_after(step, pause_ms < most_ms ? pause_ms : most_ms);
    if (state->next_node >= CDDPI_NODE_NUMBERS || state->members->count >= state->members->room) {
        host->is_over = true;
        cddpi_head_do(step, CDDPI_HEAD_SAY_TOO_OFTEN, i);
    }
}

/* Before the job has begun: whether each host has failed, so that the hosts are not what is wrong.
 */
static bool all_have_failed(const struct cddpi_head_state *state)
{
    for (int i = 0; i < state->count; i++) {
        if (state->hosts[i].fails == 0) {
            return false;
        }
    }
    return !state->has_any_come;
}

/* Agent @p i has ended after the job, or the head has ended it. */
static void note_end(struct head_step *step, int i)
{
    const struct cddpi_head_state *state = step->state;
    const struct cddpi_head_host *host = &state->hosts[i];

    if (state->steps == 0 && host->has_come && host->exit_status != 0 && host->end_steps == 0 &&
        cddpi_head_has_end(state) && state->members->end.exit_status == 0) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_LATE_END, i);
    }
}

/* Agent @p i, whose node the job did not know, has ended. */
static void lose_stranger(struct head_step *step, int i)
{
    struct cddpi_head_state *state = step->state;
    struct cddpi_head_host *host = &state->hosts[i];

    if (host->has_come) { /* and the nodes have not met */
        cddpi_head_do(step, CDDPI_HEAD_SAY_LOST_EARLY, i);
    } else if (host->end_steps == 0 &&
               (host->fails == 0 || host->exit_status != host->last_status)) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_UNSTARTED, i);
    }
    plan_start(step, i);
    host->has_come = false;
    if (!state->has_met && all_have_failed(state)) {
        state->exit_status = host->exit_status != 0 ? host->exit_status : 1;
        (void)cddpi_head_end_agents(step);
    }
}

void cddpi_head_explain_agent(struct head_step *step, int i)
{
    struct cddpi_head_state *state = step->state;
    struct cddpi_head_host *host = &state->hosts[i];
    const struct cddpi_job_member *member = cddpi_membership_find(state->members, host->node);

    host->due_ns = CDDPI_HEAD_NEVER;
    cddpi_head_close(step, i);
    if (host->is_held) {
        release_held(step, i, true);
    }
    if (cddpi_head_is_ending(state)) {
        note_end(step, i);
    } else if (member == NULL) {
        lose_stranger(step, i);
    } else {
        host->is_over = member->is_leaving && !member->is_lost;
        if (!host->is_over) {
            plan_start(step, i);
        }
    }
    if (member != NULL && member->is_there && !member->has_left && state->steps == 0) {
        cddpi_head_do(step, CDDPI_HEAD_PUBLISH_LOST, i);
    }
}

/* Start cddp-run on host @p i again, as another node. */
static void start_again(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    host->node = step->state->next_node++;
    host->is_started = host->has_ended = host->has_come = host->is_closed = false;
    host->due_ns = CDDPI_HEAD_NEVER;
    host->end_steps = 0;
    if (host->fails == 1) { /* later starts are not told */
        cddpi_head_do(step, CDDPI_HEAD_SAY_AGAIN, i);
    }
    cddpi_head_do(step, CDDPI_HEAD_START, i);
}

void cddpi_head_take_unstarted(struct head_step *step)
{
    struct cddpi_head_host *host = &step->state->hosts[step->event->host];

    host->has_ended = true;
    host->exit_status = 0;
    plan_start(step, step->event->host);
}

/* Agent @p i has not come in time. */
static void give_up_start(struct head_step *step, int i)
{
    struct cddpi_head_host *host = &step->state->hosts[i];

    if (host->fails == 0) {
        cddpi_head_do(step, CDDPI_HEAD_SAY_NOT_COME, i);
    }
    host->end_steps = 1;
    end_agent(step, i);
}

/* Until when what the agent of @p host writes to stderr is held back: if a start has failed before,
 * until it comes or ends. */
static int64_t held_until_ns(const struct cddpi_head_host *host)
{
    return host->is_held && host->fails == 0 ? host->since_ns + HOLD_MS * INT64_C(1000000)
                                             : CDDPI_HEAD_NEVER;
}

void cddpi_head_tend_agents(struct head_step *step)
{
    const struct cddpi_head_state *state = step->state;

    for (int i = 0; i < state->count; i++) {
        struct cddpi_head_host *host = &state->hosts[i];

        if (cddpi_head_is_due(step, held_until_ns(host))) {
            release_held(step, i, false);
        }
        if (host->is_over || !cddpi_head_is_due(step, host->due_ns)) {
            continue;
        }
        if (host->has_ended) {
            host->due_ns = CDDPI_HEAD_NEVER;
            if (!cddpi_head_is_ending(state)) {
                start_again(step, i);
            }
        } else if (cddpi_membership_find(state->members, host->node) == NULL &&
                   host->end_steps == 0) {
            give_up_start(step, i);
        } else {
            end_agent(step, i);
        }
    }
}

int64_t cddpi_head_agents_due_ns(const struct cddpi_head_state *state)
{
    int64_t due_ns = CDDPI_HEAD_NEVER;

    for (int i = 0; i < state->count && state->steps == 0; i++) {
        const struct cddpi_head_host *host = &state->hosts[i];
        int64_t held_ns = held_until_ns(host);

        due_ns = !host->is_over && host->due_ns < due_ns ? host->due_ns : due_ns;
        due_ns = held_ns < due_ns ? held_ns : due_ns;
    }
    return due_ns;
}

void cddpi_head_stop_starting(struct head_step *step)
{
    const struct cddpi_head_state *state = step->state;

    for (int i = 0; i < state->count; i++) {
        struct cddpi_head_host *host = &state->hosts[i];

        host->due_ns = CDDPI_HEAD_NEVER;
        if (host->is_started && !host->has_ended && !host->has_come) {
            cddpi_head_close(step, i);
            cddpi_head_do(step, CDDPI_HEAD_KILL, i);
        }
    }
}
