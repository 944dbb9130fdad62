/* refusal.h - lets a rank that cannot join notify the ranks that wait for it: it stores its failure
 * as a value in the rendezvous, "no STATUS RANK TEXT". */
#ifndef CDDPI_GROUP_REFUSAL_H
#define CDDPI_GROUP_REFUSAL_H

#include "group/join/rendezvous.h"

/** Store this thread's last failure, with @p status, under @p key. Keeps the failure; returns @p
 *  status. */
cddp_status cddpi_refusal_set(struct cddpi_rendezvous *rendezvous, const char *key,
                              cddp_status status);

/** Wait for a value that @p rank stores under @p key.
 *  @param out  Release with cddp_free().
 *  @return CDDP_OK; the refusal's status and text if the value is one; an error of the rendezvous,
 *          which names the missing ranks if @p deadline_ns passes. */
CDDP_CHECKED cddp_status cddpi_refusal_await(struct cddpi_rendezvous *rendezvous, const char *key,
                                             int rank, int64_t deadline_ns, char **out);

/** CDDP_ERR_PEER, with the text and the culprit, if a rank has stored a refusal under @p key.
 */
cddp_status cddpi_refusal_look(struct cddpi_rendezvous *rendezvous, const char *key);

#endif
