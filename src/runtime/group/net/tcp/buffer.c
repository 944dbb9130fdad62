/* buffer.c - owns the pools of buffers. */
#include "group/net/tcp/buffer.h"

#include "base/alloc.h"
#include "base/error.h"

enum { KEPT = 32 }; /* unused buffers that are kept; enough for leaders of 12 hosts */

cddp_status cddpi_tcp_buffer_take(struct tcp_pool *pool, struct tcp_buffer **buffer)
{
    if (*buffer != NULL) {
        return CDDP_OK;
    }
    if (pool->first != NULL) {
        *buffer = pool->first;
        pool->first = pool->first->next;
        pool->count--;
        return CDDP_OK;
    }
    *buffer = cddpi_zalloc(sizeof **buffer);
    return *buffer != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "tcp: no memory for %zu bytes of a message",
                            sizeof **buffer);
}

void cddpi_tcp_buffer_put(struct tcp_pool *pool, struct tcp_buffer **buffer)
{
    if (*buffer != NULL && pool->count < KEPT) {
        (*buffer)->next = pool->first;
        pool->first = *buffer;
        pool->count++;
    } else {
        cddpi_free(*buffer);
    }
    *buffer = NULL;
}

void cddpi_tcp_pool_close(struct tcp_pool *pool)
{
    while (pool->first != NULL) {
        struct tcp_buffer *buffer = pool->first;

        pool->first = buffer->next;
        cddpi_free(buffer);
    }
    pool->count = 0;
}
