/* ctl_request.h - decides whether a request of cddp-ctl is possible, and words the job's status.
 * Without I/O. */
#ifndef CDDPI_LAUNCHER_CTL_REQUEST_H
#define CDDPI_LAUNCHER_CTL_REQUEST_H

#include "launcher/ctl/ctl_message.h"
#include "launcher/nodes/nodes.h"
#include "launcher/supervise/slow_ranks.h"

/** What @p request asks the members of the job for.
 *  @param trains     The ranks are cddp-train, which can write a checkpoint on the way.
 *  @param out        The event to publish; kind NONE: there is none, and the request only waits.
 *  @param out_text   If false: the reason.
 *  @return false: it is not possible. */
bool cddpi_ctl_decide(const struct cddpi_membership *members,
                      const struct cddpi_ctl_request *request, bool trains,
                      struct cddpi_node_event *out, char out_text[CDDPI_CTL_TEXT_BYTES]);

/** @p event is published for @p request. If that named a host, from now on its node's number
 * counts.
 */
void cddpi_ctl_name_node(struct cddpi_ctl_request *request, const struct cddpi_node_event *event);

/** Whether what @p request asked for, when @p generation ran, has happened; if so, @p out_text says
 *  it. */
bool cddpi_ctl_has_happened(const struct cddpi_membership *members,
                            const struct cddpi_ctl_request *request, int generation,
                            char out_text[CDDPI_CTL_TEXT_BYTES]);

/** Put what @p members says into @p out, of which the caller sets the rest. */
void cddpi_ctl_describe(const struct cddpi_membership *members, int64_t now_ns,
                        struct cddpi_ctl_answer *out);

/** Add the stragglers to @p out, which has none. */
void cddpi_ctl_describe_slow(const struct cddpi_slow_ranks *slow, struct cddpi_ctl_answer *out);

/** Add the cards that are left out to @p out, which has none. */
void cddpi_ctl_describe_cards(const struct cddpi_node_cards *cards, struct cddpi_ctl_answer *out);

/** The members that @p answer tells of, for the functions above.
 *  @param list  Becomes the list of @p out. */
bool cddpi_ctl_members_of(const struct cddpi_ctl_answer *answer, struct cddpi_membership *out,
                          struct cddpi_job_member list[CDDPI_CTL_ROWS]);

#endif
