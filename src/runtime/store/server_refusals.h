/* server_refusals.h - the clients that a TCP store's server has refused, so that a rank that waits
 * for others learns that one came with another token. Strangers can cause any number of refusals,
 * so only a few are kept, one for each address and reason. The caller holds the server's lock. */
#ifndef CDDPI_STORE_SERVER_REFUSALS_H
#define CDDPI_STORE_SERVER_REFUSALS_H

#include "store/server.h"

struct cddpi_refusals {
    struct cddpi_store_refusal rows[CDDPI_STORE_REFUSALS]; /* newest first */
    int count;
    int logged; /* so that strangers do not fill the log */
};

/** Remember that the client connected to @p fd was refused. */
void cddpi_refusals_add(struct cddpi_refusals *refusals, int fd, enum cddpi_refused why);

#endif
