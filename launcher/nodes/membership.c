/* membership.c - owns what a node knows of the job's members: it follows the job's log. The node
 * that leads also decides (membership_leader.c). */
#include "launcher/nodes/membership_own.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cddpi_member *cddpi_membership_find(const struct cddpi_membership *members, int node)
{
    for (int i = 0; i < members->count; i++) {
        if (members->list[i].node == node) {
            return &members->list[i];
        }
    }
    return NULL;
}

struct cddpi_member *cddpi_membership_add(struct cddpi_membership *members, int node,
                                          const char *host, int nproc)
{
    struct cddpi_member *member = &members->list[members->count];

    if (members->count == members->room) {
        return NULL;
    }
    *member = (struct cddpi_member){.node = node, .nproc = nproc, .is_there = true};
    snprintf(member->host, sizeof member->host, "%s", host);
    members->count++;
    return member;
}

const char *cddpi_member_name(const struct cddpi_membership *members, int node)
{
    static char name[CDDPI_HOST_BYTES + 32]; /* static, since one thread calls this */
    const struct cddpi_member *member = cddpi_membership_find(members, node);

    if (node < 0) {
        return "the first cddp-run";
    }
    snprintf(name, sizeof name, "node %d (%s)", node, member != NULL ? member->host : "?");
    return name;
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

    if (step->members->self > CDDPI_LEADER && cddpi_member_own(step->members) == NULL) {
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

struct cddpi_member *cddpi_member_own(const struct cddpi_membership *members)
{
    return cddpi_membership_find(members, members->self);
}

bool cddpi_member_is_alone(const struct cddpi_membership *members)
{
    const struct cddpi_member *server = cddpi_membership_find(members, CDDPI_LEADER);
    const struct cddpi_member *own = cddpi_member_own(members);
    bool needs_server = members->outside_store == NULL && members->self > CDDPI_LEADER;

    return members->is_cut || (needs_server && server != NULL && server->is_lost) ||
           (own != NULL && own->is_lost && !cddpi_member_serves(members));
}

bool cddpi_member_all_done(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_member *member = &members->list[i];

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

static void take_ranks_end(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    struct cddpi_node_event *done = cddpi_member_publish(step, CDDPI_EVENT_DONE);

    members->own = step->event->outcome;
    members->phase = CDDPI_MEMBERS_ENDED;
    done->exit_status = members->own.exit_status & 255;
    done->has_saved = members->own.has_saved;
    done->may_restart = members->own.may_restart;
    if (members->end.kind != CDDPI_EVENT_NONE && !cddpi_member_serves(members)) {
        const struct cddpi_node_event end = members->end;

        cddpi_member_take_end(step, &end);
    }
}

/* In a job that goes on without nodes, SIGTERM and SIGUSR1 (a preemption is near) ask only this
 * node to leave. All else asks the whole job. */
static void take_own_signal(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int number = step->event->number;
    bool leaves = members->is_elastic && !members->is_alone && !cddpi_member_serves(members) &&
                  (number == SIGTERM || number == SIGUSR1);

    if (members->is_cut) {
        if (members->phase == CDDPI_MEMBERS_RUN) {
            cddpi_member_tell_signal(step, number, -1);
        }
    } else if (!leaves) {
        cddpi_member_publish(step, CDDPI_EVENT_SIGNAL)->number = number;
    } else if (!members->has_asked_leave) {
        members->has_asked_leave = true;
        cddpi_member_publish(step, CDDPI_EVENT_LEAVE)->number = number;
    } else if (members->phase == CDDPI_MEMBERS_RUN) {
        cddpi_member_tell_signal(step, number, members->self);
    }
}

/* Rank `number` of this node was asked to end, and all ranks save: go on without it if that leaves
 * enough ranks, else with another in its place. Several ranks may leave one after the other, also
 * while they save. */
static void take_rank_leave(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    /* node 0 serves the store, so it keeps a rank */
    int least = members->is_alone ? members->least_ranks : cddpi_member_serves(members) ? 1 : 0;
    int ranks = members->own_size > 0 ? members->own_size : cddpi_member_own(members)->nproc;
    int left = ranks > least ? ranks - 1 : ranks;
    struct cddpi_node_event *event;

    if (!members->is_elastic || members->phase != CDDPI_MEMBERS_RUN || members->asked_signal != 0 ||
        members->has_asked_leave) {
        return;
    }
    event = cddpi_member_publish(step, left == 0 ? CDDPI_EVENT_LEAVE : CDDPI_EVENT_SIZE);
    event->number = left;
    event->rank = step->event->number;
    members->own_size = left;
    members->has_asked_leave = left == 0;
}

/* The user asks for an event, such as another number of ranks. */
static void take_wish(struct member_step *step)
{
    const struct cddpi_node_event *wish = step->event->heard;
    struct cddpi_node_event *event = cddpi_member_publish(step, wish->kind);

    event->node = wish->node;
    event->number = wish->number;
}

/* Nothing that this node could wait for can come any more. */
static void end_alone(struct member_step *step)
{
    struct cddpi_membership *members = step->members;

    if (members->phase == CDDPI_MEMBERS_AWAIT || members->phase == CDDPI_MEMBERS_ENDED) {
        cddpi_member_finish(step, members->own.exit_status != 0 ? members->own.exit_status : 1);
    }
}

/* This node's cddp-run goes, and its ranks with it. A job that goes on without nodes loses only
 * this node. */
static void lose_parent(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    const struct cddpi_member *own = cddpi_member_own(members);

    if (members->is_elastic && !members->is_alone && !cddpi_member_serves(members) && own != NULL &&
        own->is_there) {
        struct cddpi_node_event *lost = cddpi_member_publish(step, CDDPI_EVENT_LOST);

        lost->exit_status = 1;
        snprintf(lost->text, sizeof lost->text, "its cddp-run, or what started it, was killed");
    }
    if (members->phase == CDDPI_MEMBERS_LEAVE) {
        cddpi_member_finish(step, members->exit_status);
    } else if (cddpi_member_serves(members) && members->phase != CDDPI_MEMBERS_RUN) {
        cddpi_leader_end(step, members->own.exit_status != 0 ? members->own.exit_status : 1);
    } else {
        end_alone(step);
    }
}

void cddpi_membership_step(struct cddpi_membership *members,
                           const struct cddpi_membership_event *event,
                           struct cddpi_membership_actions *out)
{
    struct member_step step = {members, event, out};

    out->count = 0;
    if (members->phase == CDDPI_MEMBERS_OVER) {
        return;
    }
    switch (event->kind) {
    case CDDPI_MEMBERS_BEGIN:
        members->phase = CDDPI_MEMBERS_AWAIT;
        members->deadline_ns = CDDPI_JOB_NEVER;
        members->joined_ns = event->now_ns;
        members->generation = -1;
        members->leaving_rank = -1;
        break;
    case CDDPI_MEMBERS_HEARD:
        cddpi_member_hear(&step);
        break;
    case CDDPI_MEMBERS_RANKS_ENDED:
        take_ranks_end(&step);
        break;
    case CDDPI_MEMBERS_REFUSED:
        cddpi_leader_take_refusal(&step);
        break;
    case CDDPI_MEMBERS_SIGNALLED:
        take_own_signal(&step);
        break;
    case CDDPI_MEMBERS_RANK_LEAVES:
        take_rank_leave(&step);
        break;
    case CDDPI_MEMBERS_ASKED:
        take_wish(&step);
        break;
    case CDDPI_MEMBERS_ORPHANED:
        lose_parent(&step);
        break;
    case CDDPI_MEMBERS_TIME:
        break;
    }
    cddpi_member_note_leader(members);
    if (members->phase == CDDPI_MEMBERS_OVER) {
        return;
    }
    if (members->leads) {
        cddpi_leader_consider(&step);
    } else {
        members->deadline_ns = CDDPI_JOB_NEVER;
        if (members->self >= 0 && cddpi_member_is_alone(members)) {
            end_alone(&step);
        }
    }
}
