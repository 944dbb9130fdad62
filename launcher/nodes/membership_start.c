/* membership_start.c - owns the start of a generation on a node: who takes part in it, and why it
 * begins. */
#include "launcher/nodes/membership_own.h"

#include <stdio.h>
#include <stdlib.h>

enum { VOID_MS = 100 }; /* after a START that did not count */

/* Reset what belongs to the last generation. A lost node stays lost. */
static void forget_generation(struct cddpi_membership *members)
{
    if (members->failure.kind == CDDPI_EVENT_FAILURE || members->is_elastic) {
        members->failure = (struct cddpi_node_event){.kind = CDDPI_EVENT_NONE};
    }
    members->follow = (struct cddpi_node_event){.kind = CDDPI_EVENT_NONE};
    members->change = (struct cddpi_node_event){.kind = CDDPI_EVENT_NONE};
    members->own = members->all = (struct cddpi_generation_outcome){.exit_status = 0};
    members->other_status = 0;
    members->stuck_node = -1;
    members->has_saved = false;
    members->has_kept = false;
    members->has_asked_change = false;
    members->own_size = 0;
    members->leaving_rank = -1;
    for (int i = 0; i < members->count; i++) {
        members->list[i].is_done = false;
        members->list[i].is_unable = false;
        members->list[i].ranks = 0;
    }
}

/* Whether @p node is one of the nodes @p text, such as "0-2,5". */
static bool is_listed(const char *text, int node)
{
    while (*text != '\0') {
        char *end;
        long first = strtol(text, &end, 10);
        long last = *end == '-' ? strtol(end + 1, &end, 10) : first;

        if (end == text) {
            return false;
        }
        if (node >= first && node <= last) {
            return true;
        }
        text = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* The members of the generation that starts have these ranks. */
static void give_ranks(struct cddpi_membership *members)
{
    members->world_size = 0;
    members->nodes = 0;
    for (int i = 0; i < members->count; i++) {
        struct cddpi_job_member *member = &members->list[i];

        if (!is_listed(members->start.text, member->node)) {
            continue;
        }
        member->ranks = member->nproc;
        member->first_rank = members->world_size;
        members->world_size += member->nproc;
        members->nodes++;
    }
}

static void say_generation(struct member_step *step, bool is_change)
{
    const struct cddpi_membership *members = step->members;
    char nodes[48] = "";

    if (members->is_silent && !cddpi_member_leads(members)) {
        return;
    }
    if (!members->is_alone) {
        snprintf(nodes, sizeof nodes, " on %d node%s", members->nodes,
                 members->nodes == 1 ? "" : "s");
    }
    if (is_change) {
        cddpi_member_say(step, "generation %d: %d rank%s%s", members->generation,
                         members->world_size, members->world_size == 1 ? "" : "s", nodes);
    } else if (members->max_restarts < 0) {
        cddpi_member_say(step, "restarting under generation %d", members->generation);
    } else {
        cddpi_member_say(step, "restarting (%d of %d) under generation %d", members->made,
                         members->max_restarts, members->generation);
    }
}

/* Word why a generation follows the one that has ended. */
static void word_reason(struct cddpi_membership *members)
{
    const struct cddpi_node_event *failure = &members->failure;

    if (members->generation < 0) {
        members->reason[0] = '\0';
    } else if (members->change.kind != CDDPI_EVENT_NONE) {
        snprintf(members->reason, sizeof members->reason, "%.255s", members->change.text);
    } else if (failure->kind == CDDPI_EVENT_LOST) {
        snprintf(members->reason, sizeof members->reason, "%.200s is lost",
                 cddpi_member_name(members, failure->node));
    } else if (failure->kind == CDDPI_EVENT_FAILURE && !members->is_alone) {
        snprintf(members->reason, sizeof members->reason, "%.64s: %.180s",
                 cddpi_member_name(members, failure->node), failure->text);
    } else {
        snprintf(members->reason, sizeof members->reason, "a rank failed");
    }
}

/* Whether START names a node that was lost, or left, after node 0 had decided to start: its ranks
 * would never come. Such a START is void on all nodes. */
static bool names_one_that_is_gone(const struct cddpi_membership *members,
                                   const struct cddpi_node_event *event)
{
    for (int i = 0; i < members->count; i++) {
        if (!members->list[i].is_there && is_listed(event->text, members->list[i].node)) {
            return true;
        }
    }
    return false;
}

void cddpi_member_take_start(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;
    bool was_running = members->generation >= 0;
    const struct cddpi_job_member *own;

    if (event->generation <= members->generation || members->phase == CDDPI_MEMBERS_LEAVE) {
        return;
    }
    if (names_one_that_is_gone(members, event)) {
        members->leader = CDDPI_LEADER_PAUSES; /* the leader decides again */
        members->wait_ns = step->event->now_ns + VOID_MS * INT64_C(1000000);
        return;
    }
    members->made += event->may_restart;
    members->restarts.fruitless = event->exit_status; /* another node may have to decide next */
    if (event->has_saved) {
        cddpi_newcomers_prove(members);
    }
    word_reason(members);
    forget_generation(members);
    members->generation = event->generation;
    members->start = *event;
    members->start_ns = step->event->now_ns;
    members->leader = CDDPI_LEADER_IDLE;
    members->refusals = 0;
    give_ranks(members);
    if (was_running) {
        say_generation(step, !event->may_restart);
    }
    own = cddpi_member_own(members);
    if (members->phase == CDDPI_MEMBERS_RUN) {
        return; /* the ranks of the last generation have not ended here: the others have given this
                   node up, and it hears of that later */
    }
    if (own != NULL && own->ranks > 0) {
        members->phase = CDDPI_MEMBERS_RUN;
        cddpi_member_do(step, CDDPI_DO_RUN);
        return;
    }
    members->phase = CDDPI_MEMBERS_AWAIT;
    if (own != NULL && own->is_there && members->nodes >= members->most) {
        cddpi_member_say(step, "the job has its %d node%s: this one waits until one of them leaves",
                         members->nodes, members->nodes == 1 ? "" : "s");
    }
}
