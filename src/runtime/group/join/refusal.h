/* refusal.h - lets a rank that cannot join notify the ranks that wait for it: it stores its failure
 * as a value in the rendezvous, "no STATUS RANK TEXT". */
#ifndef CDDPI_GROUP_REFUSAL_H
#define CDDPI_GROUP_REFUSAL_H

#include "group/join/rendezvous.h"

/** Store this thread's last failure, with @p status, under @p key. Keeps the failure; returns @p
 *  status. */
cddp_status cddpi_refusal_set(struct cddpi_rendezvous *rendezvous, const char *key,
                              cddp_status status);

/** CDDP_OK if @p value is not a refusal; else the refusal's status and text. */
cddp_status cddpi_refusal_read(const char *value);

/** CDDP_ERR_PEER, with the text and the culprit, if a rank has stored a refusal under @p key.
 */
cddp_status cddpi_refusal_look(struct cddpi_rendezvous *rendezvous, const char *key);

#endif
