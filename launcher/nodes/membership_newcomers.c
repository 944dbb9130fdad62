/* membership_newcomers.c - owns what node 0 does about members that the job cannot use. */
#include "launcher/nodes/membership_own.h"

#include <stdio.h>

enum { MOST_EXPELLED = 2 }; /* at once: an event leads to few actions */

bool cddpi_member_is_next(const struct cddpi_job_member *member)
{
    return member->is_there && !member->is_leaving && !member->is_held && !member->is_out;
}

bool cddpi_newcomers_hold(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    struct cddpi_job_member *newcomer = NULL;
    struct cddpi_node_event *size;
    int left = members->most;

    for (int i = 0; i < members->count && left > 0; i++) {
        struct cddpi_job_member *member = &members->list[i];

        left -= cddpi_member_is_next(member);
        if (cddpi_member_is_next(member) && member->nproc > member->ranks) {
            newcomer = member;
        }
    }
    if (newcomer == NULL) {
        return false;
    }
    if (newcomer->ranks == 0) {
        newcomer->is_held = true;
        cddpi_member_say(step, "%s waits, since the job cannot use its rank%s now",
                         cddpi_member_name(members, newcomer->node),
                         newcomer->nproc == 1 ? "" : "s");
        return true;
    }
    newcomer->nproc = newcomer->ranks;
    cddpi_member_say(step, "the job goes on with as many ranks as before");
    size = cddpi_member_publish(step, CDDPI_EVENT_SIZE);
    size->node = newcomer->node;
    size->number = newcomer->nproc;
    return true;
}

/* Ranks have left @p member, and the configuration does not allow the rest, such as a part of a
 * pipeline: it gives up more of them or, if too few would be left, replaces those that have left.
 */
static void shrink(struct member_step *step, struct cddpi_job_member *member)
{
    const struct cddpi_membership *members = step->members;
    int least = members->is_alone ? members->least_ranks : 1;
    struct cddpi_node_event *size = cddpi_member_publish(step, CDDPI_EVENT_SIZE);

    member->nproc = member->nproc > least ? member->nproc - 1 : member->ranks;
    size->node = member->node;
    size->number = member->nproc;
}

bool cddpi_newcomers_shrink(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    struct cddpi_job_member *last = NULL;

    for (int i = 0; i < members->count; i++) {
        struct cddpi_job_member *member = &members->list[i];

        if (!cddpi_member_is_next(member)) {
            continue;
        }
        if (member->ranks > 0 && member->nproc < member->ranks) {
            shrink(step, member);
            return true;
        }
        last = member->node != members->self ? member : last;
    }
    if (last == NULL) {
        return false;
    }
    last->is_held = true;
    cddpi_member_say(step, "%s waits, since the job cannot use its rank%s now",
                     cddpi_member_name(members, last->node), last->nproc == 1 ? "" : "s");
    return true;
}

void cddpi_newcomers_release(struct cddpi_membership *members)
{
    bool has_room = false;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        has_room = has_room || (member->ranks > 0 &&
                                (!cddpi_member_is_next(member) || member->nproc < member->ranks));
    }
    for (int i = 0; has_room && i < members->count; i++) {
        members->list[i].is_held = false;
    }
}

bool cddpi_newcomers_were_useful(const struct cddpi_membership *members, int64_t lived_ms)
{
    int status = members->all.exit_status;

    return cddpi_restarts_has_got_on(&members->all, lived_ms) || status == 0 ||
           status == CDDPI_STOPPED_EARLY;
}

void cddpi_newcomers_prove(struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        members->list[i].is_new = members->list[i].is_new && members->list[i].ranks == 0;
    }
}

/* The others go on without @p member, which hears that and ends. */
static void expel(struct member_step *step, struct cddpi_job_member *member, enum cddpi_lost cause,
                  const char *why)
{
    struct cddpi_node_event *lost = cddpi_member_publish(step, CDDPI_EVENT_LOST);

    lost->node = member->node;
    lost->exit_status = 1;
    lost->number = (int)cause;
    snprintf(lost->text, sizeof lost->text, "%s", why);
    member->is_out = true;
    if (member->node == step->members->self) {
        return; /* it says so when it hears that */
    }
    cddpi_member_say(step, "going on without %s%s: %s",
                     cddpi_member_name(step->members, member->node),
                     member->is_new ? ", which came late" : "", why);
}

bool cddpi_newcomers_expel(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    const struct cddpi_node_event *failure = &members->failure;
    /* what a newcomer brings, such as other data, may be what ranks elsewhere fail of first */
    bool expels_all = members->restarts.fruitless > 0;
    int expelled = 0;

    for (int i = 0; i < members->count && members->is_elastic; i++) {
        struct cddpi_job_member *member = &members->list[i];
        bool has_failed = failure->kind == CDDPI_EVENT_FAILURE && failure->node == member->node;

        if (member->is_new && cddpi_member_is_next(member) && member->ranks > 0 &&
            member->node != members->self && expelled < MOST_EXPELLED &&
            (expels_all || has_failed)) {
            expel(step, member, CDDPI_LOST_NEWCOMER, "the job failed as soon as it took part");
            expelled++;
        }
    }
    return expelled > 0;
}

/* How many nodes could take part in the next generation, but for this one if @p others. Who is held
 * now may be useful then. */
static int count_able(const struct cddpi_membership *members, bool others)
{
    int able = 0;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        able += member->is_there && !member->is_leaving && !member->is_out && !member->is_unable &&
                !(others && member->node == members->self);
    }
    return able;
}

bool cddpi_newcomers_expel_self(struct member_step *step)
{
    struct cddpi_membership *members = step->members;

    if (!members->is_elastic || members->outside_store == NULL ||
        count_able(members, true) < members->least) {
        return false;
    }
    expel(step, cddpi_member_own(members), CDDPI_LOST_UNABLE,
          "it could not start the next generation");
    return true;
}

/* A host may have no process, descriptor or disk space left, or no program any more, while the
 * others could go on. In the first generation it is more likely that the job was started wrongly,
 * and its user is there to hear that at once. */
bool cddpi_newcomers_expel_unable(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    const struct cddpi_node_event *failure = &members->failure;
    const struct cddpi_job_member *culprit = cddpi_membership_find(members, failure->node);
    int expelled = 0;

    if (!members->is_elastic || failure->kind != CDDPI_EVENT_FAILURE || culprit == NULL ||
        !culprit->is_unable ||
        (cddpi_member_own(members)->is_unable && members->outside_store == NULL)) {
        return false;
    }
    if (!cddpi_member_is_next(culprit)) {
        return true; /* it goes by itself, or another leader has expelled it */
    }
    if (members->generation == 0 || count_able(members, false) < members->least) {
        return false;
    }
    for (int i = 0; i < members->count && expelled < MOST_EXPELLED; i++) {
        struct cddpi_job_member *member = &members->list[i];

        if (cddpi_member_is_next(member) && member->is_unable) {
            expel(step, member, CDDPI_LOST_UNABLE, "its ranks could not be started");
            expelled++;
        }
    }
    return expelled > 0;
}
