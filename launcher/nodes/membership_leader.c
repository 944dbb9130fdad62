/* membership_leader.c - owns what the node that leads decides: when the next generation begins, and
 * when and how the job ends. */
#include "launcher/nodes/membership_own.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    SETTLE_MS = 500,      /* after a node has come: others may be about to come, too */
    LEAST_LIFE_MS = 1000, /* of a generation, before it ends because a node has come */
    LEAVE_MS = 10000,     /* how long node 0 waits at the end for nodes to receive END */
    REFUSAL_MS = 1000,    /* before a generation that could not be started is tried again */
    MOST_REFUSALS = 3     /* times in a row */
};

static int64_t after(const struct member_step *step, int64_t milliseconds)
{
    return step->event->now_ns + milliseconds * 1000000;
}

static bool have_all_left(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (member->node != members->self && member->is_there && !member->has_left) {
            return false;
        }
    }
    return true;
}

void cddpi_leader_end(struct member_step *step, int exit_status)
{
    struct cddpi_membership *members = step->members;

    cddpi_member_publish(step, CDDPI_EVENT_END)->exit_status = exit_status & 255;
    members->exit_status = exit_status;
    if (!cddpi_member_serves(members)) { /* it hears END like all others, if that counts */
        members->leader = CDDPI_LEADER_ENDS;
        return;
    }
    members->leader = CDDPI_LEADER_IDLE;
    members->phase = CDDPI_MEMBERS_LEAVE;
    members->wait_ns = after(step, LEAVE_MS);
}

/* Whether a member has asked for the change, so that it need not settle. */
static bool is_asked(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (member->ranks > 0 && member->is_there &&
            (member->is_leaving || member->nproc != member->ranks)) {
            return true;
        }
    }
    return false;
}

/* Why members change, as a sentence without its full stop. */
static void word_change(const struct cddpi_membership *members, char *out, size_t bytes)
{
    const char *verb = NULL;
    const struct cddpi_job_member *named = NULL;
    int others = -1;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];
        const char *does = !member->is_there                                    ? NULL
                           : member->ranks > 0 && member->is_leaving            ? "leaves"
                           : member->ranks == 0 && cddpi_member_is_next(member) ? "has come"
                           : member->ranks > 0 && member->nproc != member->ranks
                               ? member->nproc < member->ranks ? "has a rank less" : "gets a rank"
                               : NULL;

        if (does != NULL) {
            others++;
            verb = named == NULL ? does : verb;
            named = named == NULL ? member : named;
        }
    }
    if (named == NULL && members->leaving_rank >= 0) {
        snprintf(out, bytes, "rank %d leaves, and another takes its place", members->leaving_rank);
    } else if (named == NULL) {
        snprintf(out, bytes, "members change");
    } else if (members->is_alone && members->leaving_rank >= 0) {
        snprintf(out, bytes, "rank %d leaves", members->leaving_rank);
    } else if (members->is_alone) {
        snprintf(out, bytes, "from %d to %d ranks", named->ranks, named->nproc);
    } else {
        snprintf(out, bytes, "%s %s", cddpi_member_name(members, named->node), verb);
        if (others > 0) {
            size_t used = strlen(out);

            snprintf(out + used, bytes - used, ", and %d other%s", others, others == 1 ? "" : "s");
        }
    }
}

/* While ranks run: let them save and end if the members are to change. Returns when to look
 * again. */
static int64_t consider_change(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int64_t settled_ns = members->joined_ns + SETTLE_MS * INT64_C(1000000);
    int64_t lived_ns = members->start_ns + LEAST_LIFE_MS * INT64_C(1000000);
    int64_t due_ns = settled_ns > lived_ns ? settled_ns : lived_ns;
    struct cddpi_node_event *event;

    if (!members->is_elastic || members->change.kind != CDDPI_EVENT_NONE ||
        members->failure.kind != CDDPI_EVENT_NONE || members->follow.kind != CDDPI_EVENT_NONE ||
        members->asked_signal != 0 || members->has_asked_change ||
        (members->leaving_rank < 0 && !cddpi_next_is_other(members))) {
        return CDDPI_JOB_NEVER;
    }
    if (members->leaving_rank < 0 && !is_asked(members) && step->event->now_ns < due_ns) {
        return due_ns;
    }
    members->has_asked_change = true;
    event = cddpi_member_publish(step, CDDPI_EVENT_CHANGE);
    event->rank = members->leaving_rank;
    word_change(members, event->text, sizeof event->text);
    return CDDPI_JOB_NEVER;
}

static void start(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    struct cddpi_membership_action *action = cddpi_member_do(step, CDDPI_DO_START);

    action->event.kind = CDDPI_EVENT_START;
    action->event.generation = members->generation + 1;
    action->event.may_restart = members->is_restart;
    action->event.has_saved = members->was_useful;
    action->event.exit_status = members->restarts.fruitless;
    (void)cddpi_next_list(members, action->event.text, &action->number);
    members->leader = CDDPI_LEADER_STARTS;
}

/* Start the next generation if enough nodes are there; else wait for them. */
static void start_or_gather(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int count = cddpi_next_count(members);

    if (count >= members->least) {
        start(step);
        return;
    }
    members->leader = CDDPI_LEADER_GATHERS;
    members->wait_ns = after(step, members->gather_ms);
    cddpi_member_say(step,
                     "%d node%s left, and the job needs %d: waiting for others for up to %g s "
                     "(--timeout)",
                     count, count == 1 ? " is" : "s are", members->least,
                     (double)members->gather_ms / 1000);
}

static void give_up_gathering(struct member_step *step)
{
    struct cddpi_membership *members = step->members;

    cddpi_member_say(step,
                     "too few nodes: %d of at least %d after %g s. The job ends; started again, it "
                     "goes on from its last checkpoint",
                     cddpi_next_count(members), members->least, (double)members->gather_ms / 1000);
    cddpi_leader_end(step, CDDPI_TOO_FEW);
}

/* How the generation ended on all nodes. */
static void judge(struct cddpi_membership *members)
{
    const struct cddpi_node_event *failure = members->failure.kind != CDDPI_EVENT_NONE
                                                 ? &members->failure
                                                 : &members->follow;

    if (members->is_alone) { /* its ranks' failures are in no log */
        members->all = members->own;
        return;
    }
    members->all.has_saved = members->has_saved;
    members->all.has_kept = members->has_kept;
    members->all.may_restart = failure->kind != CDDPI_EVENT_NONE && failure->may_restart &&
                               members->stuck_node < 0;
    members->all.exit_status = failure->kind != CDDPI_EVENT_NONE ? failure->exit_status
                                                                 : members->other_status;
}

/* The exit status of a job whose ranks were ended by the signal that asked it to end. They were
 * only starting, since they would have saved; but an elastic job may have saved before. */
static int status_of_signal(const struct cddpi_membership *members)
{
    return members->is_elastic && members->has_checkpoint ? CDDPI_STOPPED_EARLY
                                                          : 128 + members->asked_signal;
}

/* Whether a node was lost while its ranks ran. */
static bool has_lost_some(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (member->ranks > 0 && member->is_lost && !member->is_done) {
            return true;
        }
    }
    return false;
}

/* Whether a node of this generation is lost, also after its ranks have ended. */
static bool is_short_of_nodes(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        if (members->list[i].ranks > 0 && members->list[i].is_lost) {
            return true;
        }
    }
    return false;
}

/* Members were expelled. If the leader is among them, another node decides. */
static void go_on_without(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    const struct cddpi_job_member *own = cddpi_member_own(members);

    if (own->is_out) {
        members->leader = CDDPI_LEADER_ENDS;
        members->exit_status = members->own.exit_status != 0 ? members->own.exit_status : 1;
        return;
    }
    start_or_gather(step);
}

/* The generation has ended on all nodes: go on with other members, restart, or end the job. */
static void conclude(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int64_t pause_ms = 0;
    int64_t lived_ms = (step->event->now_ns - members->start_ns) / 1000000;
    bool has_lost = has_lost_some(members);
    enum cddpi_restart next;

    members->is_restart = false;
    judge(members);
    members->was_useful = cddpi_newcomers_were_useful(members, lived_ms);
    if (cddpi_restarts_has_got_on(&members->all, lived_ms)) { /* also if members change next */
        members->restarts.fruitless = 0;
    }
    if (members->asked_signal != 0 && members->all.exit_status == 128 + members->asked_signal) {
        members->all.exit_status = status_of_signal(members);
    }
    if (members->asked_signal != 0 || (members->all.exit_status == 0 && !has_lost) ||
        (members->is_preempted && members->all.exit_status == CDDPI_STOPPED_EARLY)) {
        cddpi_leader_end(step, members->all.exit_status);
        return;
    }
    /* members have changed, and that is no failure */
    if (members->is_elastic && (members->change.kind != CDDPI_EVENT_NONE || has_lost ||
                                (members->all.exit_status == CDDPI_STOPPED_EARLY &&
                                 (members->leaving_rank >= 0 || cddpi_next_is_other(members))))) {
        cddpi_newcomers_release(members);
        start_or_gather(step);
        return;
    }
    if (cddpi_newcomers_expel_unable(step) ||
        (!members->was_useful && cddpi_newcomers_expel(step))) {
        cddpi_newcomers_release(members);
        go_on_without(step);
        return;
    }
    members->all.may_restart = members->all.may_restart && !has_lost &&
                               (members->is_elastic || !is_short_of_nodes(members));
    if (members->stuck_node >= 0 && members->stuck_node != members->self) {
        cddpi_member_say(step, "the ranks of %s cannot start again: the job ends",
                         cddpi_member_name(members, members->stuck_node));
    }
    next = cddpi_restarts_next(&members->restarts, members->max_restarts, &members->all, lived_ms,
                               &pause_ms);
    if (next == CDDPI_RESTART_GIVE_UP && members->max_restarts >= 0) {
        cddpi_member_say(step,
                         "giving up, with %d restarts left: %d times in a row the job failed "
                         "within %d s and without a checkpoint",
                         members->max_restarts - members->restarts.made, CDDPI_MOST_FRUITLESS,
                         CDDPI_SHORT_LIFE_MS / 1000);
    } else if (next == CDDPI_RESTART_GIVE_UP) {
        cddpi_member_say(step,
                         "giving up: %d times in a row the job failed within %d s and without a "
                         "checkpoint",
                         CDDPI_MOST_FRUITLESS, CDDPI_SHORT_LIFE_MS / 1000);
    }
    if (next != CDDPI_RESTART_NOW) {
        cddpi_leader_end(step, members->all.exit_status);
        return;
    }
    members->is_restart = true;
    members->leader = CDDPI_LEADER_PAUSES;
    members->wait_ns = after(step, pause_ms);
}

/* Between generations: whether the job has to end instead. */
static bool end_early(struct member_step *step)
{
    struct cddpi_membership *members = step->members;

    if (members->is_cut) {
        cddpi_leader_end(step, members->all.exit_status != 0 ? members->all.exit_status : 1);
    } else if (members->asked_signal != 0) {
        cddpi_leader_end(step, status_of_signal(members));
    } else if (!members->is_elastic &&
               (members->failure.kind == CDDPI_EVENT_LOST || is_short_of_nodes(members))) {
        cddpi_leader_end(step, members->all.exit_status != 0 ? members->all.exit_status : 1);
    } else {
        return false;
    }
    return true;
}

/* The leader awaits or has ended its ranks, and nothing of it runs. */
static void consider_next(struct member_step *step)
{
    struct cddpi_membership *members = step->members;

    switch (members->leader) {
    case CDDPI_LEADER_IDLE:
        if (members->generation < 0) { /* the first generation */
            if (!end_early(step)) {
                start_or_gather(step);
            }
        } else if (members->is_cut) {
            (void)end_early(step);
        } else if (cddpi_member_all_done(members)) {
            conclude(step);
        }
        break;
    case CDDPI_LEADER_PAUSES:
        if (!end_early(step) && step->event->now_ns >= members->wait_ns) {
            start_or_gather(step);
        }
        break;
    case CDDPI_LEADER_GATHERS:
        if (end_early(step)) {
            break;
        }
        if (cddpi_next_count(members) >= members->least) {
            if (step->event->now_ns >= members->joined_ns + SETTLE_MS * INT64_C(1000000)) {
                start_or_gather(step);
            }
        } else if (step->event->now_ns >= members->wait_ns) {
            give_up_gathering(step);
        }
        break;
    case CDDPI_LEADER_STARTS:
        if (members->is_cut) {
            (void)end_early(step); /* it will never hear its START */
        }
        break;
    case CDDPI_LEADER_ENDS:
        break;
    }
}

/* When time alone changes something. */
static void set_deadline(struct member_step *step, int64_t change_ns)
{
    struct cddpi_membership *members = step->members;
    int64_t settled_ns = members->joined_ns + SETTLE_MS * INT64_C(1000000);

    members->deadline_ns = change_ns;
    if (members->phase == CDDPI_MEMBERS_LEAVE || members->leader == CDDPI_LEADER_PAUSES) {
        members->deadline_ns = members->wait_ns;
    } else if (members->leader == CDDPI_LEADER_GATHERS) {
        members->deadline_ns = cddpi_next_count(members) >= members->least ? settled_ns
                                                                           : members->wait_ns;
    }
}

void cddpi_leader_consider(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int64_t change_ns = CDDPI_JOB_NEVER;

    if (members->phase == CDDPI_MEMBERS_RUN) {
        change_ns = consider_change(step);
    } else if (members->phase == CDDPI_MEMBERS_AWAIT || members->phase == CDDPI_MEMBERS_ENDED) {
        consider_next(step);
    }
    if (members->leader == CDDPI_LEADER_ENDS && members->is_cut) {
        cddpi_member_finish(step, members->exit_status);
        return;
    }
    if (members->phase == CDDPI_MEMBERS_LEAVE &&
        (members->is_cut || have_all_left(members) || step->event->now_ns >= members->wait_ns)) {
        cddpi_member_finish(step, members->exit_status);
        return;
    }
    set_deadline(step, change_ns);
}

void cddpi_leader_take_refusal(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    int number = step->event->number;

    if (members->leader != CDDPI_LEADER_STARTS) {
        return;
    }
    members->leader = CDDPI_LEADER_IDLE;
    if (number != CDDPI_REFUSED_CONFIG && members->generation >= 0 &&
        members->refusals < MOST_REFUSALS) { /* a slow file system, or no process left */
        members->refusals++;
        members->leader = CDDPI_LEADER_PAUSES;
        members->wait_ns = after(step, REFUSAL_MS);
        cddpi_member_say(step, "generation %d cannot be started now (status %d): trying again",
                         members->generation + 1, number);
    } else if (number != CDDPI_REFUSED_CONFIG && members->generation >= 0 &&
               cddpi_newcomers_expel_self(step)) {
        go_on_without(step);
    } else if (members->is_elastic && members->generation >= 0 &&
               (cddpi_newcomers_hold(step) ||
                (number == CDDPI_REFUSED_CONFIG && cddpi_newcomers_shrink(step)))) {
        start_or_gather(step);
    } else {
        cddpi_leader_end(step, number);
    }
}
