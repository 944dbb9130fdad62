/* membership_list.c - owns the list of a job's members, and that of the actions of a step. */
#include "launcher/nodes/membership_own.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

struct cddpi_job_member *cddpi_membership_find(const struct cddpi_membership *members, int node)
{
    for (int i = 0; i < members->count; i++) {
        if (members->list[i].node == node) {
            return &members->list[i];
        }
    }
    return NULL;
}

struct cddpi_job_member *cddpi_membership_add(struct cddpi_membership *members, int node,
                                              const char *host, int nproc)
{
    struct cddpi_job_member *member = &members->list[members->count];

    if (members->count == members->room) {
        return NULL;
    }
    *member = (struct cddpi_job_member){.node = node, .nproc = nproc, .is_there = true};
    snprintf(member->host, sizeof member->host, "%s", host);
    members->count++;
    return member;
}

const char *cddpi_member_name(const struct cddpi_membership *members, int node)
{
    static char name[CDDPI_HOST_BYTES + 32]; /* static, since one thread calls this */
    const struct cddpi_job_member *member = cddpi_membership_find(members, node);

    if (node < 0) {
        return "the first cddp-run";
    }
    snprintf(name, sizeof name, "node %d (%s)", node, member != NULL ? member->host : "?");
    return name;
}

bool cddpi_membership_is_dispensable(const struct cddpi_membership *members)
{
    return members->self >= 0 && !(members->is_elastic && cddpi_member_serves(members));
}

int cddpi_membership_index(const struct cddpi_membership *members)
{
    int index = 0;

    for (int i = 0; i < members->count; i++) {
        if (members->list[i].node == members->self) {
            return members->list[i].ranks > 0 ? index : -1;
        }
        index += members->list[i].ranks > 0;
    }
    return -1;
}

struct cddpi_membership_action *cddpi_member_do(struct member_step *step,
                                                enum cddpi_membership_action_kind kind)
{
    struct cddpi_membership_actions *actions = step->actions;
    struct cddpi_membership_action *action = &actions->list[actions->count];

    assert(actions->count < (int)(sizeof actions->list / sizeof actions->list[0]));
    actions->count++;
    action->kind = kind;
    action->number = 0;
    action->text[0] = '\0';
    action->event = (struct cddpi_node_event){
        .node = step->members->self, .rank = -1, .generation = step->members->generation};
    action->job = (struct cddpi_job_event){.now_ns = step->event->now_ns, .rank = -1, .node = -1};
    return action;
}

struct cddpi_node_event *cddpi_member_publish(struct member_step *step,
                                              enum cddpi_node_event_kind kind)
{
    struct cddpi_node_event *event = &cddpi_member_do(step, CDDPI_DO_PUBLISH)->event;

    event->kind = kind;
    event->generation = event->generation < 0 ? 0 : event->generation;
    return event;
}

void cddpi_member_say(struct member_step *step, const char *format, ...)
{
    struct cddpi_membership_action *action;
    va_list arguments;

    if (step->members->self >= CDDPI_LEADER && cddpi_member_own(step->members) == NULL) {
        return; /* this node reads what happened before it came */
    }
    action = cddpi_member_do(step, CDDPI_DO_SAY);
    va_start(arguments, format);
    vsnprintf(action->text, sizeof action->text, format, arguments);
    va_end(arguments);
}

void cddpi_member_finish(struct member_step *step, int exit_status)
{
    step->members->phase = CDDPI_MEMBERS_OVER;
    step->members->exit_status = exit_status;
    step->members->deadline_ns = CDDPI_JOB_NEVER;
    cddpi_member_do(step, CDDPI_DO_FINISH);
}

struct cddpi_job_member *cddpi_member_own(const struct cddpi_membership *members)
{
    return cddpi_membership_find(members, members->self);
}

bool cddpi_member_is_alone(const struct cddpi_membership *members)
{
    const struct cddpi_job_member *server = cddpi_membership_find(members, CDDPI_LEADER);
    const struct cddpi_job_member *own = cddpi_member_own(members);
    bool needs_server = members->outside_store == NULL && members->self > CDDPI_LEADER;

    return members->is_cut || (needs_server && server != NULL && server->is_lost) ||
           (own != NULL && own->is_lost && !cddpi_member_serves(members));
}

bool cddpi_member_all_done(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (member->ranks > 0 && !member->is_done && !member->is_lost) {
            return false;
        }
    }
    return true;
}

void cddpi_member_tell_signal(struct member_step *step, int number, int node)
{
    struct cddpi_job_event *job = &cddpi_member_do(step, CDDPI_DO_TELL)->job;

    job->kind = CDDPI_JOB_SIGNALLED;
    job->number = number;
    job->node = node;
}
