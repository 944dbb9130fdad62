/* address.h - owns the addresses at which this host can be reached, the offer in which ranks
 * exchange them, and the order in which a rank tries a peer's addresses. */
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
    TCP_ADDRESS_TEXT_BYTES = 80,
    TCP_HOST_TEXT_BYTES = 46 /* an address alone */
};

struct tcp_address {
    uint8_t family; /* 4 or 6 */
    uint8_t is_loopback;
    uint8_t prefix_bits; /* bits of its network prefix */
    uint8_t unused;
    uint32_t speed; /* Mbit/s, as reported by the interface; 0: not reported */
    uint8_t bytes[16];
    char interface[TCP_INTERFACE_BYTES];
};

/* What a rank sends to all others before they connect; no pointers; unused bytes are zero. It has
 * the length of version 1, so that ranks of both versions can say why they cannot connect. */
struct tcp_offer {
    uint32_t version;
    uint32_t sockets;  /* CDDP_SOCKETS, which must be equal on all ranks */
    uint16_t encrypts; /* CDDP_ENCRYPT, likewise */
    uint16_t ciphers;  /* mask of ciphers that it can use; all ranks need one in common */
    uint16_t port;
    uint16_t count;
    char host[TCP_HOST_BYTES];       /* its name */
    char network[TCP_NETWORK_BYTES]; /* equal on ranks that share a loopback interface */
    struct tcp_address addresses[TCP_MAX_ADDRESSES];
};

/** Fill in host, network and the addresses of all interfaces that are up.
 *  @return CDDP_ERR_ARGUMENT: CDDP_SOCKET_IFNAME excludes all. */
CDDP_CHECKED cddp_status cddpi_tcp_offer_make(struct tcp_offer *out);

/** Whether an offer received from another rank is valid. */
bool cddpi_tcp_offer_is_valid(const struct tcp_offer *offer);

/** The order in which to try @p peer's addresses: first those in a network that this host is also
 *  in; faster interfaces before slower ones; loopback last, and only if both ranks share it.
 *  @return Number of addresses in @p out_order. */
int cddpi_tcp_offer_order(const struct tcp_offer *own, const struct tcp_offer *peer,
                          int out_order[TCP_MAX_ADDRESSES]);

/** Whether @p own, an address of this host, is in a network that has an address of @p peer. */
bool cddpi_tcp_offer_is_near(const struct tcp_offer *peer, const struct tcp_address *own);

/** The offered address that equals @p local, this host's end of a connection; NULL: there is
 *  none. */
const struct tcp_address *cddpi_tcp_offer_find(const struct tcp_offer *own,
                                               const struct sockaddr_storage *local);

socklen_t cddpi_tcp_sockaddr(const struct tcp_address *address, uint16_t port,
                             struct sockaddr_storage *out);

/** "10.0.0.7 port 4242", "[fd00::7] port 4242". */
void cddpi_tcp_address_text(const struct sockaddr_storage *address,
                            char out[TCP_ADDRESS_TEXT_BYTES]);

/** Reach a host from this one, for a rendezvous (reach.c): try to connect to all addresses of
 *  @p peer at its port at once. @p out: the first address that answers, as text.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE with the reason: no address answers; errors of
 *  cddpi_tcp_offer_make(). */
CDDP_CHECKED cddp_status cddpi_tcp_reachable(const struct tcp_offer *peer, uint32_t timeout_ms,
                                             char out[TCP_HOST_TEXT_BYTES]);

#endif
