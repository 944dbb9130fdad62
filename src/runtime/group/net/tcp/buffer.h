/* buffer.h - owns buffers for small messages and for the heads of large ones. A connection has a
 * buffer only while it holds data, so a carrier has only as many as are in use at once, not two per
 * connection. A pool has one user: the caller's thread, or the thread that holds the carrier's
 * lock. */
#ifndef CDDPI_GROUP_NET_TCP_BUFFER_H
#define CDDPI_GROUP_NET_TCP_BUFFER_H

#include <cddp/status.h>

#include <stddef.h>
#include <stdint.h>

enum {
    TCP_SMALL_BYTES = 4096, /* a message of up to this size is sent and received by one call, */
    TCP_BATCH_BYTES = TCP_SMALL_BYTES + 256 /* together with others as small as a few heads */
};

struct tcp_buffer {
    struct tcp_buffer *next;
    uint8_t data[TCP_BATCH_BYTES];
};

struct tcp_pool {
    struct tcp_buffer *first; /* list of unused buffers */
    size_t count;
};

/** Make sure that *@p buffer is a buffer. If it was NULL, its data is undefined.
 *  @return CDDP_OK or CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_tcp_buffer_take(struct tcp_pool *pool, struct tcp_buffer **buffer);
/** Return *@p buffer to the pool and set it to NULL; it may already be NULL. */
void cddpi_tcp_buffer_put(struct tcp_pool *pool, struct tcp_buffer **buffer);
/** Release the unused buffers. */
void cddpi_tcp_pool_close(struct tcp_pool *pool);

#endif
