/* membership_own.h - one step of the machine, and what its parts call of each other:
 * membership_log.c and membership_start.c follow the log, membership_leader.c, membership_leads.c,
 * membership_next.c and membership_newcomers.c decide. Private to these. */
#ifndef CDDPI_LAUNCHER_MEMBERSHIP_OWN_H
#define CDDPI_LAUNCHER_MEMBERSHIP_OWN_H

#include "launcher/nodes/membership.h"

struct member_step {
    struct cddpi_membership *members;
    const struct cddpi_membership_event *event;
    struct cddpi_membership_actions *actions;
};

/* membership_list.c */
/** Append an action. */
struct cddpi_membership_action *cddpi_member_do(struct member_step *step,
                                                enum cddpi_membership_action_kind kind);
/** Append CDDPI_DO_PUBLISH of an event of this node and generation. */
struct cddpi_node_event *cddpi_member_publish(struct member_step *step,
                                              enum cddpi_node_event_kind kind);
/** Tell the user, except of what happened before this node came. */
void cddpi_member_say(struct member_step *step, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** This cddp-run ends. */
void cddpi_member_finish(struct member_step *step, int exit_status);
/** Whether no event can arrive any more that this node could wait for. */
bool cddpi_member_is_alone(const struct cddpi_membership *members);
/** Whether the ranks of all nodes of this generation have ended. */
bool cddpi_member_all_done(const struct cddpi_membership *members);

/** This node; NULL: it is not in the list yet, or is the cddp-run that started the nodes. */
struct cddpi_job_member *cddpi_member_own(const struct cddpi_membership *members);
/** Append CDDPI_DO_TELL of a signal that was sent to @p node (-1: unknown). */
void cddpi_member_tell_signal(struct member_step *step, int number, int node);

/* membership_leads.c */
/** The number of the node that leads; -1: no node is there. */
int cddpi_member_leader(const struct cddpi_membership *members);
/** Whether this node serves the job's store. */
bool cddpi_member_serves(const struct cddpi_membership *members);
/** Whether this node leads. */
bool cddpi_member_leads(const struct cddpi_membership *members);
/** Whether a START, CHANGE or END of @p node that is heard now counts. */
bool cddpi_member_may_decide(const struct cddpi_membership *members, int node);
/** If this node has become the leader, or has ceased to be it, begin afresh. */
void cddpi_member_note_leader(struct cddpi_membership *members);

/* membership_start.c */
/** START has arrived: its generation begins. */
void cddpi_member_take_start(struct member_step *step, const struct cddpi_node_event *event);

/* membership_log.c */
/** Process the event of the log that has been heard. */
void cddpi_member_hear(struct member_step *step);
/** END has arrived: the job is over. */
void cddpi_member_take_end(struct member_step *step, const struct cddpi_node_event *event);

/* membership_next.c */
/** List the nodes of the next generation, such as "0-2,5". Returns their number.
 *  @param out_ranks  The number of its ranks. */
int cddpi_next_list(const struct cddpi_membership *members, char out[CDDPI_EVENT_TEXT_BYTES],
                    int *out_ranks);
/** How many nodes the next generation has. */
int cddpi_next_count(const struct cddpi_membership *members);
/** Whether the next generation would have other members than this one. */
bool cddpi_next_is_other(const struct cddpi_membership *members);

/* membership_newcomers.c */
/** Whether @p member takes part in the next generation, as one of the first `most`. */
bool cddpi_member_is_next(const struct cddpi_job_member *member);
/** Node 0: the configuration does not allow so many ranks. Leave out the last node that has come
 *  since the generation before, or the ranks that a node got. Returns false if nothing is new. */
bool cddpi_newcomers_hold(struct member_step *step);

/** Node 0: the configuration does not allow the ranks that are left, such as a part of a pipeline.
 *  Take fewer, or (if a node would have too few) replace those that have left. Returns false if
 *  nobody is left to leave out. */
bool cddpi_newcomers_shrink(struct member_step *step);
/** Node 0: members are going, so those that were left out may be useful now. */
void cddpi_newcomers_release(struct cddpi_membership *members);

/** Leader: whether the generation that has ended after @p lived_ms, as members->all says, has done
 *  anything. */
bool cddpi_newcomers_were_useful(const struct cddpi_membership *members, int64_t lived_ms);
/** The generation that has ended did something: its newcomers are like the other members. */
void cddpi_newcomers_prove(struct cddpi_membership *members);
/** Node 0: a generation has failed. Expel newcomers of which it failed; returns false if there are
 *  none. */
bool cddpi_newcomers_expel(struct member_step *step);
/** Leader: a generation has failed since ranks of some nodes could not be started. Expel these
 * nodes if enough others are there, and if one of these may lead; else returns false. */
bool cddpi_newcomers_expel_unable(struct member_step *step);
/** Leader: it cannot start the next generation. Expel it, if enough others are there, and one of
 * them may lead; else returns false. */
bool cddpi_newcomers_expel_self(struct member_step *step);

/* membership_leader.c */
/** Leader: decide what is due now. */
void cddpi_leader_consider(struct member_step *step);
/** Leader: publish the end of the job. */
void cddpi_leader_end(struct member_step *step, int exit_status);
/** Leader: CDDPI_DO_START has failed. */
void cddpi_leader_take_refusal(struct member_step *step);

#endif
