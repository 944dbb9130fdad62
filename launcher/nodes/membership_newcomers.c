/* membership_newcomers.c - owns what node 0 does about members that the job cannot use. */
#include "launcher/nodes/membership_own.h"

bool cddpi_member_is_next(const struct cddpi_member *member)
{
    return member->is_there && !member->is_leaving && !member->is_held;
}

bool cddpi_newcomers_hold(struct member_step *step)
{
    struct cddpi_membership *members = step->members;
    struct cddpi_member *newcomer = NULL;
    struct cddpi_node_event *size;
    int left = members->most;

    for (int i = 0; i < members->count && left > 0; i++) {
        struct cddpi_member *member = &members->list[i];

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

void cddpi_newcomers_release(struct cddpi_membership *members)
{
    bool has_room = false;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_member *member = &members->list[i];

        has_room = has_room || (member->ranks > 0 &&
                                (!cddpi_member_is_next(member) || member->nproc < member->ranks));
    }
    for (int i = 0; has_room && i < members->count; i++) {
        members->list[i].is_held = false;
    }
}
