/* reach.h - which of a host's addresses another host reaches. */
#ifndef CDDPI_GROUP_REACH_H
#define CDDPI_GROUP_REACH_H

#include <cddp/status.h>

#include <stdint.h>

enum { CDDPI_REACH_MOST = 8, CDDPI_REACH_BYTES = 46 };

/* Numeric addresses, the kernel's order. */
struct cddpi_addresses {
    int32_t count;
    char of[CDDPI_REACH_MOST][CDDPI_REACH_BYTES];
};

/** This host's addresses, but for loopback's and those that need an interface's name. */
void cddpi_own_addresses(struct cddpi_addresses *out);

/** Try to connect to @p port at all @p addresses at once: @p out is the first that answers.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: none of them does, and why. */
CDDP_CHECKED cddp_status cddpi_reachable_address(const struct cddpi_addresses *addresses,
                                                 uint16_t port, uint32_t timeout_ms,
                                                 char out[CDDPI_REACH_BYTES]);

#endif
