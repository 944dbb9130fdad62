/* membership_next.c - owns which members the next generation has: the first that are there, as many
 * as the user allows, as START can name, and as a job may have ranks. All that the leader asks
 * about the next generation is asked here, so that the answers agree. */
#include "launcher/nodes/membership_own.h"

#include <stdio.h>
#include <string.h>

/* The members that are taken so far. */
struct next_members {
    char *text;   /* such as "0-2,5", of CDDPI_EVENT_TEXT_BYTES */
    size_t begin; /* of the last range in the text */
    int first, last;
    int count, ranks;
};

/* Take @p member, the next of the list. Returns whether it is. */
static bool take(const struct cddpi_membership *members, const struct cddpi_job_member *member,
                 struct next_members *next)
{
    bool goes_on = next->count > 0 && member->node == next->last + 1;
    int first = goes_on ? next->first : member->node;
    size_t begin = goes_on ? next->begin : strlen(next->text);
    char range[32];
    int bytes;

    if (!cddpi_member_is_next(member) || next->count == members->most ||
        member->nproc > CDDPI_MAX_WORLD_SIZE - next->ranks) {
        return false;
    }
    bytes = snprintf(range, sizeof range, first == member->node ? "%s%d" : "%s%d-%d",
                     begin > 0 ? "," : "", first, member->node);
    if (begin + (size_t)bytes >= CDDPI_EVENT_TEXT_BYTES) {
        return false; /* a text that was cut off would name other nodes */
    }
    memcpy(next->text + begin, range, (size_t)bytes + 1);
    next->begin = begin;
    next->first = first;
    next->last = member->node;
    next->count++;
    next->ranks += member->nproc;
    return true;
}

int cddpi_next_list(const struct cddpi_membership *members, char out[CDDPI_EVENT_TEXT_BYTES],
                    int *out_ranks)
{
    struct next_members next = {.text = out};

    out[0] = '\0';
    for (int i = 0; i < members->count; i++) {
        (void)take(members, &members->list[i], &next);
    }
    *out_ranks = next.ranks;
    return next.count;
}

int cddpi_next_count(const struct cddpi_membership *members)
{
    char text[CDDPI_EVENT_TEXT_BYTES];
    int ranks;

    return cddpi_next_list(members, text, &ranks);
}

bool cddpi_next_is_other(const struct cddpi_membership *members)
{
    char text[CDDPI_EVENT_TEXT_BYTES] = "";
    struct next_members next = {.text = text};

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];
        int ranks = take(members, member, &next) ? member->nproc : 0;

        if (ranks != member->ranks && !member->is_lost) {
            return true;
        }
    }
    return false;
}
