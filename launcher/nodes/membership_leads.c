/* membership_leads.c - owns which node leads. Node 0 serves the job's store and leads, unless the
 * store is in a process of its own (cddp-run --store). Then the first node of the list leads, and
 * when it is lost or leaves, the next one does. It is the one that came first, so it takes part in
 * each generation, and has rank 0: a leader without ranks could not let members change.
 *
 * Who leads is a function of the log up to an event, so all nodes agree on it without asking each
 * other: they may only be late. What a node has decided counts if that node leads where the
 * decision stands in the log. A decision that stands behind the leader's LOST is ignored by all. */
#include "launcher/nodes/membership_own.h"

int cddpi_member_leader(const struct cddpi_membership *members)
{
    const struct cddpi_job_member *leader = NULL;

    if (members->outside_store == NULL) {
        return CDDPI_LEADER;
    }
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (member->is_there && (leader == NULL || (leader->is_leaving && !member->is_leaving))) {
            leader = member;
        }
    }
    return leader != NULL ? leader->node : -1;
}

bool cddpi_member_serves(const struct cddpi_membership *members)
{
    return members->outside_store == NULL && members->self == CDDPI_LEADER;
}

bool cddpi_member_leads(const struct cddpi_membership *members)
{
    return members->self >= 0 && members->self == cddpi_member_leader(members);
}

bool cddpi_member_may_decide(const struct cddpi_membership *members, int node)
{
    return members->outside_store == NULL || node == cddpi_member_leader(members);
}

/* Nothing of what the last leader had begun to decide is known, except through the log, which this
 * node has heard. */
void cddpi_member_note_leader(struct cddpi_membership *members)
{
    bool leads = cddpi_member_leads(members);

    if (leads != members->leads) {
        members->leads = leads;
        members->leader = CDDPI_LEADER_IDLE;
        members->has_asked_change = members->change.kind != CDDPI_EVENT_NONE;
        members->restarts.made = members->made;
    }
}
