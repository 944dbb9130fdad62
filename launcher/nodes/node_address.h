/* node_address.h - addresses at which machines reach each other's store: "tcp://host:port", or
 * several "host:port" separated by commas, of which the first that answers is used. */
#ifndef CDDPI_LAUNCHER_ADDRESS_H
#define CDDPI_LAUNCHER_ADDRESS_H

#include "store/store_stream.h"

#include <stdbool.h>

enum { CDDPI_URL_BYTES = 4096 };

/** Parse the next "host:port" of @p text, and advance @p text past it and a comma.
 *  @return CDDP_ERR_ARGUMENT: @p text does not have this form. */
CDDP_CHECKED cddp_status cddpi_address_next(const char **text, struct cddpi_address *out);

enum cddpi_locality {
    CDDPI_LOCAL_UNKNOWN, /* the name has no address, perhaps not yet */
    CDDPI_LOCAL_NOT,
    CDDPI_LOCAL_LOOPBACK, /* this machine, at an address that other machines cannot reach */
    CDDPI_LOCAL_REACHABLE
};

/** Whether @p host is this machine. @p resolves: query the name service, too. */
enum cddpi_locality cddpi_address_locality(const char *host, bool resolves);

/** Whether @p host is this machine, at any of its addresses. */
bool cddpi_address_is_local(const char *host, bool resolves);

/** Write every address of this machine with @p port, as "tcp://a:port,b:port": first those of @p
 *  interfaces that are up (in the syntax of CDDP_SOCKET_IFNAME; NULL: the value of that variable),
 *  then the loopback address. */
void cddpi_address_own(const char *interfaces, uint16_t port, char out[CDDPI_URL_BYTES]);

/** The local address from which packets to @p to are sent; "127.0.0.1" if there is none. */
void cddpi_address_towards(const struct cddpi_address *to, char *out, size_t bytes);

#endif
