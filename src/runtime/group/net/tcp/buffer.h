/* buffer.h - memory for small messages and what surrounds large ones. A connection has a buffer
 * only while something is in it, so a carrier holds as many as are in use at once, not two for each
 * connection. A pool has one user: the caller's thread, or who has the carrier's lock. */
#ifndef CDDPI_GROUP_NET_TCP_BUFFER_H
#define CDDPI_GROUP_NET_TCP_BUFFER_H

#include <cddp/status.h>

#include <stddef.h>
#include <stdint.h>

enum {
    TCP_SMALL_BYTES = 4096, /* a message of so many bytes is sent and received by one call, */
    TCP_BATCH_BYTES = TCP_SMALL_BYTES + 256 /* with others that are as small as a few heads */
};

struct tcp_buffer {
    struct tcp_buffer *next;
    uint8_t data[TCP_BATCH_BYTES];
};

struct tcp_pool {
    struct tcp_buffer *first; /* those that are not in use */
    size_t count;
};

/** See that *@p buffer is one; its data are undefined if it was NULL.
 *  @return CDDP_OK or CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_tcp_buffer_take(struct tcp_pool *pool, struct tcp_buffer **buffer);
/** Give *@p buffer back, which becomes NULL; it may be that already. */
void cddpi_tcp_buffer_put(struct tcp_pool *pool, struct tcp_buffer **buffer);
/** Release those that are not in use. */
void cddpi_tcp_pool_close(struct tcp_pool *pool);

#endif
