/* slow_ranks.c - owns the rules for stragglers. */
#include "launcher/supervise/slow_ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

void cddpi_slow_ranks_begin(struct cddpi_slow_ranks *slow)
{
    slow->count = 0;
    slow->is_replacing = false;
    memset(slow->named, 0, sizeof slow->named);
}

static const struct cddpi_followed_rank *find(const struct cddpi_followed_rank *list, int count,
                                              int rank)
{
    for (int i = 0; i < count; i++) {
        if (list[i].last.rank == rank) {
            return &list[i];
        }
    }
    return NULL;
}

static int count_stragglers(const struct cddpi_slow_ranks *slow)
{
    int count = 0;

    for (int i = 0; i < slow->count; i++) {
        count += slow->list[i].is_straggler;
    }
    return count;
}

bool cddpi_slow_ranks_take(struct cddpi_slow_ranks *slow, const struct cddpi_slow_rank *ranks,
                           int count, int64_t measured_ms)
{
    struct cddpi_followed_rank before[CDDPI_REPORT_SLOW_RANKS];
    int before_count = slow->count;
    int before_stragglers = count_stragglers(slow);
    int kept = 0;

    memcpy(before, slow->list, sizeof before);
    slow->count = 0;
    for (int i = 0; i < count && slow->count < CDDPI_REPORT_SLOW_RANKS; i++) {
        const struct cddpi_followed_rank *old = find(before, before_count, ranks[i].rank);
        struct cddpi_followed_rank *now = &slow->list[slow->count];

        if (ranks[i].factor < slow->factor ||
            find(slow->list, slow->count, ranks[i].rank) != NULL) {
            continue;
        }
        *now = old != NULL ? *old : (struct cddpi_followed_rank){.reports = 0};
        now->last = ranks[i];
        now->reports++;
        now->slow_ms += measured_ms;
        now->is_straggler = now->slow_ms >= slow->patience_ms &&
                            now->reports >= CDDPI_STRAGGLER_REPORTS;
        kept += old != NULL && old->is_straggler;
        slow->count++;
    }
    return kept != before_stragglers || count_stragglers(slow) != before_stragglers;
}

struct cddpi_followed_rank *cddpi_slow_ranks_next(struct cddpi_slow_ranks *slow)
{
    struct cddpi_followed_rank *next = NULL;

    for (int i = 0; i < slow->count; i++) {
        struct cddpi_followed_rank *each = &slow->list[i];

        if (each->is_straggler && !each->is_decided &&
            (next == NULL || each->last.factor > next->last.factor)) {
            next = each;
        }
    }
    return next;
}

bool cddpi_slow_ranks_names(struct cddpi_slow_ranks *slow, int rank)
{
    unsigned char bit = (unsigned char)(1 << rank % 8);
    bool names = (slow->named[rank / 8] & bit) == 0;

    slow->named[rank / 8] |= bit;
    return names;
}

const struct cddpi_job_member *cddpi_member_of_rank(const struct cddpi_membership *members,
                                                    int rank)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (rank >= member->first_rank && rank < member->first_rank + member->ranks) {
            return member;
        }
    }
    return NULL;
}

/* When a rank was replaced last where @p rank is; NULL: never, or too long ago to count. */
static const struct cddpi_replaced_place *find_replaced(const struct cddpi_slow_ranks *slow,
                                                        const struct cddpi_membership *members,
                                                        const struct cddpi_job_member *member,
                                                        int rank, int64_t now_ns)
{
    int local_rank = members->is_alone ? rank - member->first_rank : -1;

    for (int i = 0; i < CDDPI_REPLACED && i < slow->replacements; i++) {
        const struct cddpi_replaced_place *each = &slow->replaced[i];

        if (each->local_rank == local_rank && strcmp(each->host, member->host) == 0 &&
            now_ns - each->at_ns < CDDPI_REPLACED_AGAIN_S * INT64_C(1000000000)) {
            return each;
        }
    }
    return NULL;
}

/* Nodes that can be in the next generation without @p member. */
static int count_others(const struct cddpi_membership *members,
                        const struct cddpi_job_member *member)
{
    int count = 0;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *each = &members->list[i];

        count += each != member && each->is_there && !each->is_leaving && !each->is_held;
    }
    return count;
}

/* A node that waits, and comes when another leaves; NULL: there is none. */
static const struct cddpi_job_member *find_spare(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *each = &members->list[i];

        if (each->is_there && each->ranks == 0 && !each->is_leaving && !each->is_held) {
            return each;
        }
    }
    return NULL;
}

static enum cddpi_replace_how decide_node(const struct cddpi_membership *members,
                                          const struct cddpi_job_member *member,
                                          struct cddpi_node_event *out,
                                          char out_text[CDDPI_REPLACE_TEXT_BYTES])
{
    const struct cddpi_job_member *spare = find_spare(members);

    if (member->node == CDDPI_LEADER && members->outside_store == NULL) {
        snprintf(out_text, CDDPI_REPLACE_TEXT_BYTES,
                 "It stays: its node serves the job's store, and cannot leave");
        return CDDPI_REPLACE_NOT;
    }
    if (count_others(members, member) < members->least) {
        snprintf(out_text, CDDPI_REPLACE_TEXT_BYTES,
                 "It stays: without its node, fewer than %d would be left (--nnodes)",
                 members->least);
        return CDDPI_REPLACE_NOT;
    }
    *out = (struct cddpi_node_event){
        .kind = CDDPI_EVENT_LEAVE, .node = member->node, .rank = -1, .number = SIGTERM};
    if (spare != NULL) {
        snprintf(out_text, CDDPI_REPLACE_TEXT_BYTES, "Its node leaves, and %s takes its place",
                 cddpi_member_name(members, spare->node));
    } else {
        snprintf(out_text, CDDPI_REPLACE_TEXT_BYTES,
                 "Its node leaves, and the others go on without it");
    }
    return CDDPI_REPLACE_NODE;
}

enum cddpi_replace_how cddpi_slow_ranks_decide(const struct cddpi_slow_ranks *slow,
                                               const struct cddpi_membership *members, int rank,
                                               int64_t now_ns, struct cddpi_node_event *out,
                                               char out_text[CDDPI_REPLACE_TEXT_BYTES])
{
    const struct cddpi_job_member *member = cddpi_member_of_rank(members, rank);
    const struct cddpi_replaced_place *before;

    out_text[0] = '\0';
    if (!slow->replaces || !members->is_elastic || member == NULL) {
        return CDDPI_REPLACE_NOT;
    }
    if (members->phase != CDDPI_MEMBERS_RUN || members->change.kind != CDDPI_EVENT_NONE ||
        members->failure.kind != CDDPI_EVENT_NONE || members->follow.kind != CDDPI_EVENT_NONE ||
        members->asked_signal != 0 || members->end.kind != CDDPI_EVENT_NONE || member->is_leaving ||
        slow->is_replacing) {
        return CDDPI_REPLACE_LATER;
    }
    before = find_replaced(slow, members, member, rank, now_ns);
    if (before != NULL) {
        snprintf(out_text, CDDPI_REPLACE_TEXT_BYTES,
                 "It stays: %s there was replaced %lld s ago, and at most one in %d minutes is",
                 members->is_alone ? "the rank" : "a node",
                 (long long)((now_ns - before->at_ns) / 1000000000), CDDPI_REPLACED_AGAIN_S / 60);
        return CDDPI_REPLACE_NOT;
    }
    if (!members->is_alone) {
        return decide_node(members, member, out, out_text);
    }
    *out = (struct cddpi_node_event){
        .kind = CDDPI_EVENT_SIZE, .node = member->node, .rank = rank, .number = member->nproc};
    snprintf(out_text, CDDPI_REPLACE_TEXT_BYTES, "A new process takes its place");
    return CDDPI_REPLACE_PROCESS;
}

void cddpi_slow_ranks_note(struct cddpi_slow_ranks *slow, const struct cddpi_membership *members,
                           int rank, enum cddpi_replace_how how, int64_t now_ns)
{
    const struct cddpi_job_member *member = cddpi_member_of_rank(members, rank);
    struct cddpi_replaced_place *place = &slow->replaced[slow->replacements++ % CDDPI_REPLACED];

    snprintf(place->host, sizeof place->host, "%s", member->host);
    place->local_rank = how == CDDPI_REPLACE_PROCESS ? rank - member->first_rank : -1;
    place->at_ns = now_ns;
    slow->is_replacing = true;
}
