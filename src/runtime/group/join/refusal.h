/* refusal.h - how a rank that cannot join tells those that wait for it: its failure as a value of
 * the rendezvous, "no STATUS RANK TEXT". */
#ifndef CDDPI_GROUP_REFUSAL_H
#define CDDPI_GROUP_REFUSAL_H

#include "group/join/rendezvous.h"

/** Put this thread's failure, of @p status, under @p key. Keeps it; returns @p status. */
cddp_status cddpi_refusal_set(struct cddpi_rendezvous *rendezvous, const char *key,
                              cddp_status status);

/** CDDP_OK where @p value is no refusal; else the status in it, with its text. */
cddp_status cddpi_refusal_read(const char *value);

/** CDDP_ERR_PEER, with the text and the rank to blame, if a rank has put its refusal under @p key.
 */
cddp_status cddpi_refusal_look(struct cddpi_rendezvous *rendezvous, const char *key);

#endif
