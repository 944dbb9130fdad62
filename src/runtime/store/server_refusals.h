/* server_refusals.h - owns the list of clients that a TCP store's server has refused: a rank that
 * waits for others learns from it that one came with another token. Strangers can cause any number
 * of refusals, so the list is short, with one row per address and reason. The caller holds the
 * server's lock. */
#ifndef CDDPI_STORE_SERVER_REFUSALS_H
#define CDDPI_STORE_SERVER_REFUSALS_H

#include "store/server.h"

struct cddpi_refusals {
    struct cddpi_store_refusal rows[CDDPI_STORE_REFUSALS]; /* newest first */
    int count;
    int logged; /* refusals written to the log: limited, so that strangers cannot fill it */
};

/** Remember that the client on socket @p fd was refused. */
void cddpi_refusals_add(struct cddpi_refusals *refusals, int fd, enum cddpi_refused why);

#endif
