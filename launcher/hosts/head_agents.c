/* head_agents.c - owns the agents of a job that goes on without hosts: an agent whose node is lost
 * is ended, and one that has ended is started again on its host, as another node, after a pause
 * that grows while that comes to nothing. A host that was asked to leave is not started again. */
#include "launcher/hosts/head.h"

#include "launcher/supervise/monitor.h"
#include "launcher/supervise/restarts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 1000,
    MOST_PAUSE_MS = 60000,
    MOST_COSTLY_MS =
        600000,     /* if the node comes, and is soon lost: the others begin anew each time */
    HOLD_MS = 5000, /* how long what a first agent writes to stderr is held back */
    SAID_BYTES = 8192
};

/* Whether two texts differ in more than numbers, such as a node's or a time. */
static bool differ(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return true;
        }
    }
    return *a != *b;
}

/* Pass on what was held back. @p has_failed: unless the agent has written the same the last time */
static void release_held(struct cddpi_agent *agent, bool has_failed)
{
    char text[SAID_BYTES];
    size_t bytes = 0;
    ssize_t got;

    agent->is_held = false;
    while (has_failed && agent->err.fd >= 0 && bytes < sizeof text - 1 &&
           (got = read(agent->err.fd, text + bytes, sizeof text - 1 - bytes)) > 0) {
        bytes += (size_t)got;
    }
    text[bytes] = '\0';
    if (bytes > 0 && (agent->said == NULL || differ(agent->said, text))) {
        cddpi_relay_pass(&agent->err, text, bytes);
        cddpi_free(agent->said);
        agent->said = cddpi_strdup(text);
    }
    if (bytes > 0) {
        agent->err.has_come = true; /* now or the last time */
    }
    (void)cddpi_relay_read(&agent->err);
}

void cddpi_head_agent_came(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];

    agent->has_come = true;
    agent->since_ns = cddpi_now_ns();
    agent->ranks_ns = agent->lost_ns = 0;
    agent->due_ns = INT64_MAX;
    head->has_any_come = true;
    release_held(agent, false);
}

void cddpi_head_drop_agent(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];

    agent->lost_ns = head->failed_ns != 0 ? head->failed_ns : cddpi_now_ns();
    if (agent->pid > 0 && !agent->has_ended) {
        agent->due_ns = cddpi_deadline_ns(CDDPI_HEAD_LAST_MS); /* it may end by itself */
    }
}

/* An agent ends when its input is closed; else what leads to it is killed. */
static void end_agent(struct cddpi_agent *agent)
{
    agent->due_ns = INT64_MAX;
    if (agent->end_steps++ == 0) {
        cddpi_head_close_input(agent);
        agent->due_ns = cddpi_deadline_ns(CDDPI_HEAD_LAST_MS);
    } else {
        kill(-agent->pid, SIGKILL);
    }
}

/* Whether the node of @p agent, which has ended, took part in the job for long enough that another
 * one is worth what its coming costs the others. A spare costs them nothing while it waits; but how
 * long they save before it gets ranks, and how long its end takes, says nothing about it. */
static bool was_useful(const struct cddpi_agent *agent)
{
    int64_t end_ns = agent->lost_ns != 0 ? agent->lost_ns : cddpi_now_ns();
    int64_t lived_ns = end_ns - (agent->ranks_ns != 0 ? agent->ranks_ns : agent->since_ns);
    int64_t least_ms = agent->ranks_ns != 0 ? CDDPI_SHORT_LIFE_MS : MOST_COSTLY_MS;

    return agent->has_come && lived_ns >= least_ms * 1000000;
}

/* Start the agent of host @p i again, after a pause. */
static void plan_start(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];
    const struct cddpi_membership *members = &head->nodes.members;
    uint32_t most_ms = agent->has_come ? MOST_COSTLY_MS : MOST_PAUSE_MS;
    uint32_t pause_ms = FIRST_PAUSE_MS;

    agent->fails = was_useful(agent) ? 0 : agent->fails;
    for (int k = 0; k < agent->fails && pause_ms < most_ms; k++) {
        pause_ms *= 2;
    }
    agent->fails++;
    agent->last_status = agent->status;
    agent->due_ns = cddpi_deadline_ns(pause_ms < most_ms ? pause_ms : most_ms);
    if (head->next_node >= CDDPI_NODE_NUMBERS || members->count >= members->room) {
        agent->is_over = true;
        cddpi_output_say(head->output,
                         "cddp-run was started so often that it is not started again on %s",
                         head->hosts.hosts[i].name);
    }
}

/* Before the job has begun: whether each host has failed, so that the hosts are not what is wrong.
 */
static bool all_have_failed(const struct cddpi_head *head)
{
    for (int i = 0; i < head->hosts.count; i++) {
        if (head->agents[i].fails == 0) {
            return false;
        }
    }
    return !head->has_any_come;
}

/* Agent @p i has ended after the job, or the head has ended it. */
static void note_end(struct cddpi_head *head, int i, const char *text)
{
    const struct cddpi_agent *agent = &head->agents[i];
    const struct cddpi_node_event *end = &head->nodes.members.end;

    if (head->steps == 0 && agent->has_come && agent->status != 0 && agent->end_steps == 0 &&
        end->kind != CDDPI_EVENT_NONE && end->exit_status == 0) {
        cddpi_output_say(head->output, "%s: %s after the job's end", cddpi_head_agent_name(head, i),
                         text);
    }
}

/* Agent @p i, whose node the job did not know, has ended. */
static void lose_stranger(struct cddpi_head *head, int i, const char *text)
{
    struct cddpi_agent *agent = &head->agents[i];

    if (agent->has_come) { /* and the nodes have not met */
        cddpi_output_say(head->output, "%s is lost: %s", cddpi_head_agent_name(head, i), text);
    } else if (agent->end_steps == 0 &&
               (agent->fails == 0 || agent->status != agent->last_status)) {
        cddpi_head_say_unstarted(head, i, text);
    }
    plan_start(head, i);
    agent->has_come = false;
    if (!head->has_met && all_have_failed(head)) {
        head->exit_status = agent->status != 0 ? cddpi_exit_status(agent->status) : 1;
        (void)cddpi_head_end_agents(head);
    }
}

void cddpi_head_explain_agent(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];
    const struct cddpi_job_member *member = cddpi_membership_find(&head->nodes.members,
                                                                  agent->node);
    struct cddpi_node_event lost = {
        .kind = CDDPI_EVENT_LOST, .node = agent->node, .rank = -1, .exit_status = 1};

    cddpi_head_word_end(head, i, lost.text, sizeof lost.text);
    agent->due_ns = INT64_MAX;
    cddpi_head_close_input(agent);
    if (agent->is_held) {
        release_held(agent, true);
    }
    if (cddpi_head_is_ending(head)) {
        note_end(head, i, lost.text);
    } else if (member == NULL) {
        lose_stranger(head, i, lost.text);
    } else {
        agent->is_over = member->is_leaving && !member->is_lost;
        if (!agent->is_over) {
            plan_start(head, i);
        }
    }
    if (member != NULL && member->is_there && !member->has_left && head->steps == 0) {
        cddpi_node_link_publish(head->nodes.link, &lost);
    }
}

/* Start cddp-run on host @p i again. */
static void start_again(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];

    cddpi_relay_finish(&agent->out);
    cddpi_relay_finish(&agent->err);
    cddpi_buffer_fini(&agent->parcel);
    memset(&agent->parcel, 0, sizeof agent->parcel);
    agent->sent = 0;
    cddpi_head_init_agent(head, i);
    if (agent->fails == 1) { /* later starts are not told */
        cddpi_output_say(head->output,
                         "starting cddp-run on %s again, as node %d; if that fails, again after "
                         "longer and longer pauses",
                         head->hosts.hosts[i].name, agent->node);
    }
    if (cddpi_head_start(head, i) != CDDP_OK) {
        cddpi_output_say(head->output, "%s", cddp_last_error());
        agent->has_ended = true;
        agent->status = 0;
        plan_start(head, i);
    }
}

/* Agent @p i has not come in time. */
static void give_up_start(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];

    if (agent->fails == 0) {
        cddpi_output_say(head->output, "%s did not come within %g s (--timeout)",
                         cddpi_head_agent_name(head, i), head->timeout_ms / 1000.0);
    }
    agent->end_steps = 1;
    end_agent(agent);
}

/* Until when what @p agent writes to stderr is held back: if a start has failed before, until it
 * comes or ends. */
static int64_t held_until_ns(const struct cddpi_agent *agent)
{
    return agent->is_held && agent->fails == 0 ? agent->since_ns + HOLD_MS * INT64_C(1000000)
                                               : INT64_MAX;
}

void cddpi_head_tend_agents(struct cddpi_head *head)
{
    for (int i = 0; i < head->hosts.count && head->steps == 0; i++) {
        struct cddpi_agent *agent = &head->agents[i];
        const struct cddpi_job_member *member;

        if (cddpi_now_ns() >= held_until_ns(agent)) {
            release_held(agent, false);
        }
        if (agent->is_over || cddpi_now_ns() < agent->due_ns) {
            continue;
        }
        member = cddpi_membership_find(&head->nodes.members, agent->node);
        if (agent->has_ended) {
            agent->due_ns = INT64_MAX;
            if (!cddpi_head_is_ending(head)) {
                start_again(head, i);
            }
        } else if (member == NULL && agent->end_steps == 0) {
            give_up_start(head, i);
        } else {
            end_agent(agent);
        }
    }
}

int64_t cddpi_head_agents_due_ns(const struct cddpi_head *head)
{
    int64_t due_ns = INT64_MAX;

    for (int i = 0; i < head->hosts.count && head->steps == 0; i++) {
        const struct cddpi_agent *agent = &head->agents[i];
        int64_t held_ns = held_until_ns(agent);

        due_ns = !agent->is_over && agent->due_ns < due_ns ? agent->due_ns : due_ns;
        due_ns = held_ns < due_ns ? held_ns : due_ns;
    }
    return due_ns;
}

void cddpi_head_stop_starting(struct cddpi_head *head)
{
    for (int i = 0; i < head->hosts.count; i++) {
        struct cddpi_agent *agent = &head->agents[i];

        agent->due_ns = INT64_MAX;
        if (agent->pid > 0 && !agent->has_ended && !agent->has_come) {
            cddpi_head_close_input(agent);
            kill(-agent->pid, SIGKILL);
        }
    }
}
