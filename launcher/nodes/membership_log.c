/* membership_log.c - owns what each event of the job's log means to a node. */
#include "launcher/nodes/membership_own.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

void cddpi_membership_word_given_up(const struct cddpi_membership *members, int64_t slept_ms,
                                    char *out, size_t bytes)
{
    bool has_others = members->outside_store == NULL;

    for (int i = 0; i < members->count; i++) {
        has_others = has_others ||
                     (members->list[i].is_there && members->list[i].node != members->self);
    }
    snprintf(out, bytes,
             has_others ? "this host did not answer for %.1f s, so the others went on without it"
                        : "this host did not answer for %.1f s, so it was given up",
             (double)slept_ms / 1000);
}

/* Say, once, that this node stood still and was given up. */
static void say_given_up(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    char words[160];

    if (!members->is_expelled) {
        members->is_expelled = true;
        cddpi_membership_word_given_up(members, step->event->slept_ms, words, sizeof words);
        cddpi_member_say(step, "%s", words);
    }
}

/* Whether @p event is what a node receives if the others have given it up. */
static bool may_be_gone(const struct cddpi_membership *members,
                        const struct cddpi_node_event *event)
{
    return event->kind == CDDPI_EVENT_CUT ||
           (event->kind == CDDPI_EVENT_LOST &&
            (event->node == members->self ||
             (members->outside_store == NULL &&
              (members->self == CDDPI_LEADER || event->node == CDDPI_LEADER))));
}

static void say_failure(struct member_step *step, const struct cddpi_node_event *event)
{
    const struct cddpi_membership *members = step->members;

    if (event->kind == CDDPI_EVENT_CUT && members->outside_store != NULL) {
        cddpi_member_say(step, "the job's store at %s is lost: %s", members->outside_store,
                         event->text);
    } else if (event->kind == CDDPI_EVENT_CUT) {
        cddpi_member_say(step, "%s is lost: %s", cddpi_member_name(members, CDDPI_LEADER),
                         event->text);
    } else {
        cddpi_member_say(step, "%s%s: %s", cddpi_member_name(members, event->node),
                         event->kind == CDDPI_EVENT_LOST ? " is lost" : "", event->text);
    }
}

/* Tell the ranks here that ranks elsewhere have failed. */
static void tell_ranks(struct member_step *step, const struct cddpi_node_event *event)
{
    const struct cddpi_membership *members = step->members;
    struct cddpi_job_event *job;

    if (members->phase != CDDPI_MEMBERS_RUN) {
        return;
    }
    if (event->kind == CDDPI_EVENT_LOST && event->node != members->self &&
        cddpi_member_leads(members)) {
        /* the lost node's cddp-run could not tell the ranks that wait for its ranks, so the leader
         * does */
        struct cddpi_membership_action *action = cddpi_member_do(step, CDDPI_DO_TELL_LOSS);

        snprintf(action->text, sizeof action->text, "%s is lost: %s",
                 cddpi_member_name(members, event->node), event->text);
    }
    if (event->kind != CDDPI_EVENT_FAILURE || event->node != members->self) {
        job = &cddpi_member_do(step, CDDPI_DO_TELL)->job;
        /* the others go on without this node: its ranks must not save any more, and are killed */
        job->kind = members->is_elastic && event->kind == CDDPI_EVENT_LOST &&
                            event->node == members->self
                        ? CDDPI_JOB_ORPHANED
                        : CDDPI_JOB_FAILED_THERE;
        job->exit_status = event->exit_status;
        job->may_restart = event->may_restart;
    }
}

/* This node leaves the job, as it was asked to. */
static void leave(struct member_step *step, int exit_status)
{
    step->members->has_left = true;
    cddpi_member_say(step, "this node has left the job");
    cddpi_member_publish(step, CDDPI_EVENT_BYE)->exit_status = exit_status;
    cddpi_member_finish(step, exit_status);
}

/* The ranks of this generation have ended on all nodes: nodes that were asked to leave are gone. */
static void let_go(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    const struct cddpi_job_member *own = cddpi_member_own(members);

    for (int i = 0; i < members->count; i++) {
        if (members->list[i].is_leaving) {
            members->list[i].is_there = false;
        }
    }
    if (own != NULL && own->is_leaving && members->phase == CDDPI_MEMBERS_ENDED) {
        leave(step, members->own.exit_status == 0 ? 0 : CDDPI_STOPPED_EARLY);
    }
}

static void take_failure(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;
    struct cddpi_job_member *member = cddpi_membership_find(members, event->node);
    bool is_first = members->failure.kind == CDDPI_EVENT_NONE;
    bool is_lost = event->kind == CDDPI_EVENT_LOST;
    bool serves = members->outside_store == NULL && event->node == CDDPI_LEADER;
    /* all that its ranks had to do is done; without the store nothing goes on */
    bool has_ended = members->is_elastic && member != NULL && !serves && member->ranks > 0 &&
                     member->is_done;
    bool takes_part = member == NULL || (member->ranks > 0 && !has_ended);
    bool is_harmless = is_lost && !takes_part && members->generation >= 0;

    members->is_cut = members->is_cut || event->kind == CDDPI_EVENT_CUT;
    if (event->kind == CDDPI_EVENT_FAILURE && event->rank < 0 && member != NULL) {
        member->is_unable = true;
    }
    if (is_lost && member != NULL) {
        if (member->is_lost || !member->is_there) {
            return; /* several nodes watch it, or it has left */
        }
        member->is_lost = true;
        member->is_there = false;
    }
    if (members->end.kind != CDDPI_EVENT_NONE) {
        return; /* the job is over: nodes leave at different times */
    }
    if (is_harmless && event->node != members->self) {
        if (!members->is_silent) {
            cddpi_member_say(step, "%s, which %s, is gone", cddpi_member_name(members, event->node),
                             has_ended ? "has ended its ranks" : "waited");
        }
        return; /* no rank of this generation is concerned */
    }
    if (is_first && !is_harmless) {
        members->failure = *event;
    }
    if (may_be_gone(members, event) && (members->is_expelled || step->event->slept_ms > 0)) {
        say_given_up(step);
    } else if (!members->is_silent && (is_first || is_lost) &&
               (event->node != members->self ||
                (event->kind == CDDPI_EVENT_CUT && members->outside_store != NULL))) {
        say_failure(step, event);
    } else if (is_lost && event->node == members->self) {
        cddpi_member_say(step, "the others go on without this node: %s", event->text);
    }
    tell_ranks(step, event);
    if (is_lost && cddpi_member_all_done(members) && members->generation >= 0) {
        let_go(step);
    }
}

static void take_follow(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;

    if (members->follow.kind == CDDPI_EVENT_NONE) {
        members->follow = *event;
    }
    if (members->phase == CDDPI_MEMBERS_RUN) {
        struct cddpi_job_event *job = &cddpi_member_do(step, CDDPI_DO_TELL)->job;

        job->kind = CDDPI_JOB_HEARD;
        job->exit_status = event->exit_status;
        job->may_restart = event->may_restart;
    }
}

static bool asks_to_end(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

static void take_signal(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;

    if (asks_to_end(event->number)) {
        members->asked_signal = event->number;
    }
    members->is_preempted = members->is_preempted || event->number == SIGUSR1;
    if (members->phase == CDDPI_MEMBERS_RUN) {
        cddpi_member_tell_signal(step, event->number, event->node);
    }
}

static void take_done(struct member_step *step, const struct cddpi_node_event *event,
                      struct cddpi_job_member *member)
{
    struct cddpi_membership *members = step->members;

    if (member == NULL) {
        return;
    }
    member->is_done = true;
    members->has_saved = members->has_saved || event->has_saved;
    members->has_checkpoint = members->has_checkpoint || event->has_saved;
    members->has_kept = members->has_kept || event->has_kept;
    if (members->other_status == 0) {
        members->other_status = event->exit_status;
    }
    if (event->number != 0) {
        members->stuck_node = event->node;
    }
    if (cddpi_member_all_done(members)) {
        let_go(step);
    }
}

/* So many nodes have come that this one finds no place: no START can name it. */
static void turn_away(struct member_step *step)
{
    struct cddpi_membership_action *action = cddpi_member_do(step, CDDPI_DO_SAY);

    snprintf(action->text, sizeof action->text, "%d nodes have come to this job: no more can",
             step->members->count);
    cddpi_member_finish(step, 1);
}

static void take_join(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;

    if (event->number < 1 || cddpi_membership_find(members, event->node) != NULL) {
        return;
    }
    if (cddpi_membership_add(members, event->node, event->text, event->number) == NULL) {
        if (event->node == members->self) {
            turn_away(step);
        }
        return;
    }
    cddpi_membership_find(members, event->node)->is_new = true;
    for (int i = 0; i < members->count; i++) {
        members->list[i].is_held = false; /* together with the new one it may be useful */
    }
    members->joined_ns = step->event->now_ns;
    if (!members->is_silent && event->node != members->self) {
        cddpi_member_say(step, "%s has come", cddpi_member_name(members, event->node));
    } else if (event->node == members->self && members->nodes >= members->most) {
        cddpi_member_say(step, "the job has its %d nodes: this one waits until one of them leaves",
                         members->nodes);
    }
}

/* @p member is asked to leave. If it takes no part in this generation, or that has ended on all
 * nodes, it is gone at once. */
static void take_leave(struct member_step *step, struct cddpi_job_member *member)
{
    struct cddpi_membership *members = step->members;

    if (member == NULL || member->is_leaving) {
        return;
    }
    member->is_leaving = true;
    if (!members->is_silent && member->node != members->self) {
        cddpi_member_say(step, "%s leaves the job", cddpi_member_name(members, member->node));
    }
    if (member->ranks == 0 || cddpi_member_all_done(members)) {
        member->is_there = false;
    }
    if (member->node == members->self && !member->is_there) {
        leave(step, CDDPI_STOPPED_EARLY);
    }
}

static void take_change(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;

    members->change = *event;
    if (!members->is_silent || cddpi_member_leads(members)) {
        cddpi_member_say(step, "%s: ranks save, and go on with other members", event->text);
    }
    if (members->phase == CDDPI_MEMBERS_RUN) {
        struct cddpi_job_event *job = &cddpi_member_do(step, CDDPI_DO_TELL)->job;

        job->kind = CDDPI_JOB_CHANGED;
        job->number = event->rank >= 0 ? 0 : SIGTERM;
    }
}

/* The job is over, so its ranks end, too. */
static void tell_end(struct member_step *step)
{
    struct cddpi_job_event *job = &cddpi_member_do(step, CDDPI_DO_TELL)->job;

    job->kind = CDDPI_JOB_FAILED_THERE;
    job->exit_status = step->members->end.exit_status;
}

void cddpi_member_take_end(struct member_step *step, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = step->members;

    members->end = *event;
    if (members->self >= 0 && !cddpi_member_serves(members) &&
        members->phase != CDDPI_MEMBERS_RUN) {
        cddpi_member_publish(step, CDDPI_EVENT_BYE)->exit_status = event->exit_status;
        cddpi_member_finish(step, event->exit_status);
    } else if (members->phase == CDDPI_MEMBERS_RUN) {
        tell_end(step); /* node 0 does not wait for its ranks */
    }
}

/* Whether @p event was told by, or is about, a node that takes no part any more, or belongs to
 * another generation. */
static bool is_stale(const struct cddpi_membership *members, const struct cddpi_node_event *event,
                     const struct cddpi_job_member *member)
{
    switch (event->kind) {
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_FOLLOW:
    case CDDPI_EVENT_DONE:
        return event->node >= 0 &&
               (member == NULL || member->is_lost || event->generation != members->generation);
    case CDDPI_EVENT_LOST:
        return event->node >= 0 && member == NULL;
    case CDDPI_EVENT_CHANGE:
        return event->generation != members->generation ||
               !cddpi_member_may_decide(members, event->node);
    case CDDPI_EVENT_START:
    case CDDPI_EVENT_END:
        return !cddpi_member_may_decide(members, event->node);
    case CDDPI_EVENT_SIGNAL:
    case CDDPI_EVENT_LEAVE:
    case CDDPI_EVENT_SIZE:
        return event->node >= 0 && (member == NULL || member->is_lost || !member->is_there);
    default:
        return false;
    }
}

void cddpi_member_hear(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    const struct cddpi_node_event *event = step->event->heard;
    struct cddpi_job_member *member = cddpi_membership_find(members, event->node);

    if (is_stale(members, event, member)) {
        return;
    }
    switch (event->kind) {
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_LOST:
    case CDDPI_EVENT_CUT:
        take_failure(step, event);
        break;
    case CDDPI_EVENT_FOLLOW:
        take_follow(step, event);
        break;
    case CDDPI_EVENT_SIGNAL:
        take_signal(step, event);
        break;
    case CDDPI_EVENT_DONE:
        take_done(step, event, member);
        break;
    case CDDPI_EVENT_START:
        cddpi_member_take_start(step, event);
        break;
    case CDDPI_EVENT_END:
        cddpi_member_take_end(step, event);
        break;
    case CDDPI_EVENT_BYE:
        if (member != NULL) {
            member->has_left = true;
        }
        break;
    case CDDPI_EVENT_JOIN:
        take_join(step, event);
        break;
    case CDDPI_EVENT_LEAVE:
        members->leaving_rank = event->rank >= 0 ? event->rank : members->leaving_rank;
        take_leave(step, member);
        break;
    case CDDPI_EVENT_SIZE:
        if (event->number > 0 && member != NULL) {
            member->nproc = event->number;
            members->leaving_rank = event->rank;
        }
        break;
    case CDDPI_EVENT_CHANGE:
        take_change(step, event);
        break;
    case CDDPI_EVENT_REFUSED:
        if (cddpi_member_leads(members) && !members->is_silent) {
            cddpi_member_say(step, "not let in: %s", event->text);
        }
        break;
    case CDDPI_EVENT_SAVING:
    case CDDPI_EVENT_SAVED:
    case CDDPI_EVENT_CARD:
    case CDDPI_EVENT_NONE:
        break;
    }
}

void cddpi_membership_catch_up(const struct cddpi_membership *members,
                               struct cddpi_membership_actions *out)
{
    struct cddpi_membership copy = *members; /* nothing changes: only the ranks are told */
    const struct cddpi_membership_event event = {.kind = CDDPI_MEMBERS_TIME};
    struct member_step step = {&copy, &event, out};

    out->count = 0;
    if (members->failure.kind != CDDPI_EVENT_NONE) {
        tell_ranks(&step, &members->failure);
    }
    if (members->follow.kind != CDDPI_EVENT_NONE) {
        take_follow(&step, &members->follow);
    }
    if (members->change.kind != CDDPI_EVENT_NONE) {
        copy.is_silent = true;
        copy.self = cddpi_member_leads(&copy) ? -1 : copy.self;
        take_change(&step, &members->change);
    }
    if (members->asked_signal != 0) {
        cddpi_member_tell_signal(&step, members->asked_signal, -1);
    }
    if (members->end.kind != CDDPI_EVENT_NONE) {
        tell_end(&step);
    }
}
