/* address.h - under which addresses this host can be reached, what ranks tell each other about
 * that, and in which order one tries those of another. */
#ifndef CDDPI_GROUP_NET_TCP_ADDRESS_H
#define CDDPI_GROUP_NET_TCP_ADDRESS_H

#include "base/error.h"
#include "base/machine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    TCP_MAX_ADDRESSES = 16,
    TCP_HOST_BYTES = 64,
    TCP_INTERFACE_BYTES = 16,
    TCP_NETWORK_BYTES = CDDPI_MACHINE_BYTES + 24,
    TCP_ADDRESS_TEXT_BYTES = 80
};

struct tcp_address {
    uint8_t family; /* 4 or 6 */
    uint8_t is_loopback;
    uint8_t prefix_bits; /* of its network */
    uint8_t unused;
    uint32_t speed; /* Mbit/s, as the interface says; 0: it does not say */
    uint8_t bytes[16];
    char interface[TCP_INTERFACE_BYTES];
};

/* What a rank tells all others before they connect; no pointers, zero where it is unused. Its
 * length is that of version 1, so that ranks of both understand why they cannot talk. */
struct tcp_offer {
    uint32_t version;
    uint32_t sockets;  /* CDDP_SOCKETS, which must be the same everywhere */
    uint16_t encrypts; /* CDDP_ENCRYPT, likewise */
    uint16_t ciphers;  /* that it can use: a mask of which all ranks need one in common */
    uint16_t port;
    uint16_t count;
    char host[TCP_HOST_BYTES];       /* its name */
    char network[TCP_NETWORK_BYTES]; /* equal for those that share a loopback interface */
    struct tcp_address addresses[TCP_MAX_ADDRESSES];
};

/** Fill in host, network and the addresses of interfaces that are up.
 *  @return CDDP_ERR_ARGUMENT: CDDP_SOCKET_IFNAME leaves none. */
CDDP_CHECKED cddp_status cddpi_tcp_offer_make(struct tcp_offer *out);

/** Whether an offer that came from another rank is well formed. */
bool cddpi_tcp_offer_is_valid(const struct tcp_offer *offer);

/** In which order to try @p peer's addresses: those in a network that is also ours first, faster
 *  interfaces before slower ones, loopback last and only where it is the same one.
 *  @return how many of them @p out_order has. */
int cddpi_tcp_offer_order(const struct tcp_offer *own, const struct tcp_offer *peer,
                          int out_order[TCP_MAX_ADDRESSES]);

/** The offered address that @p local is, this host's end of a connection; NULL: none. */
const struct tcp_address *cddpi_tcp_offer_find(const struct tcp_offer *own,
                                               const struct sockaddr_storage *local);

socklen_t cddpi_tcp_sockaddr(const struct tcp_address *address, uint16_t port,
                             struct sockaddr_storage *out);

/** "10.0.0.7 port 4242", "[fd00::7] port 4242". */
void cddpi_tcp_address_text(const struct sockaddr_storage *address,
                            char out[TCP_ADDRESS_TEXT_BYTES]);

#endif
