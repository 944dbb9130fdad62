/* node_address.h - addresses by which machines reach each other's store: "tcp://host:port", or
 * several hosts and ports with commas between them, of which the first that answers is meant. */
#ifndef CDDPI_LAUNCHER_ADDRESS_H
#define CDDPI_LAUNCHER_ADDRESS_H

#include <cddp/status.h>

#include <stdbool.h>

enum { CDDPI_ADDRESS_BYTES = 272, CDDPI_URL_BYTES = 4096 };

struct cddpi_address {
    char host[256]; /* a name or an address, without brackets */
    uint16_t port;
};

/** Read the next "host:port" of @p text, which moves on past it and a comma.
 *  @return CDDP_ERR_ARGUMENT: @p text is not of this form. */
CDDP_CHECKED cddp_status cddpi_address_next(const char **text, struct cddpi_address *out);

/** "tcp://host:port". */
void cddpi_address_url(const struct cddpi_address *address, char out[CDDPI_ADDRESS_BYTES]);

enum cddpi_locality {
    CDDPI_LOCAL_UNKNOWN, /* the name has no address, perhaps not yet */
    CDDPI_LOCAL_NOT,
    CDDPI_LOCAL_LOOPBACK, /* this machine, but at this address no other machine reaches it */
    CDDPI_LOCAL_REACHABLE
};

/** Whether @p host is this machine. @p resolves: also ask the name service. */
enum cddpi_locality cddpi_address_locality(const char *host, bool resolves);

/** The same as yes or no. */
bool cddpi_address_is_local(const char *host, bool resolves);

/** Every address of this machine with @p port, as "tcp://a:port,b:port": those of @p interfaces
 *  (in the syntax of CDDP_SOCKET_IFNAME; NULL: what that says) which are up, then the loopback
 *  address. */
void cddpi_address_own(const char *interfaces, uint16_t port, char out[CDDPI_URL_BYTES]);

/** Our address from which packets go to @p to; "127.0.0.1" if there is none. */
void cddpi_address_towards(const struct cddpi_address *to, char *out, size_t bytes);

#endif
