/* membership.c - owns what a node knows of the job's members: it follows the job's log. The node
 * that leads also decides (membership_leader.c). */
#include "launcher/nodes/membership_own.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note_leave(struct member_step *step)
{
    step->members->has_asked_leave = true;
    step->members->asked_leave_ns = step->event->now_ns;
}

static void take_ranks_end(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int number = step->event->number;
    struct cddpi_node_event *done;

    if (number > 0) {
        cddpi_member_publish(step, CDDPI_EVENT_SIZE)->number = number;
    } else if (number < 0 && !members->has_asked_leave) {
        note_leave(step);
        cddpi_member_publish(step, CDDPI_EVENT_LEAVE)->number = SIGTERM;
    }
    done = cddpi_member_publish(step, CDDPI_EVENT_DONE);
    members->own = step->event->outcome;
    members->phase = CDDPI_MEMBERS_ENDED;
    done->exit_status = members->own.exit_status & 255;
    done->number = members->own.must_end;
    done->has_saved = members->own.has_saved;
    done->has_kept = members->own.has_kept;
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
        note_leave(step);
        cddpi_member_publish(step, CDDPI_EVENT_LEAVE)->number = number;
    } else if (members->phase == CDDPI_MEMBERS_RUN &&
               step->event->now_ns - members->asked_leave_ns >
                   CDDPI_SAME_REQUEST_MS * INT64_C(1000000)) {
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
    if (left == 0) {
        note_leave(step);
    }
}

/* An event is asked for, such as another number of ranks. */
static void take_wish(struct member_step *step)
{
    const struct cddpi_node_event *wish = step->event->heard;
    struct cddpi_node_event *event = cddpi_member_publish(step, wish->kind);

    event->node = wish->node;
    event->rank = wish->rank;
    event->number = wish->number;
    memcpy(event->text, wish->text, sizeof event->text);
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
    const struct cddpi_job_member *own = cddpi_member_own(members);

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
