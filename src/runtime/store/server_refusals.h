/* server_refusals.h - whom a TCP store's server has refused, so that who waits for others can be
 * told that one has come with another token. Strangers can make as many of these as they like: a
 * few are kept, one for each address and reason. With the server's lock. */
#ifndef CDDPI_STORE_SERVER_REFUSALS_H
#define CDDPI_STORE_SERVER_REFUSALS_H

#include "store/server.h"

struct cddpi_refusals {
    struct cddpi_store_refusal rows[CDDPI_STORE_REFUSALS]; /* newest first */
    int count;
    int logged; /* so that strangers do not fill the log */
};

/** Remember that the client behind @p fd was refused. */
void cddpi_refusals_add(struct cddpi_refusals *refusals, int fd, enum cddpi_refused why);

#endif
