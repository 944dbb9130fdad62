/* net_room.h - owns the memory for the pieces of a collective, which later collectives reuse. */
#ifndef CDDPI_GROUP_NET_ROOM_H
#define CDDPI_GROUP_NET_ROOM_H

#include <cddp/status.h>

#include <stddef.h>

struct net_backend;
struct cddpi_transfer; /* carrier.h */
struct net_slot;       /* net_collective.h */

/* Memory that a piece allocates from step by step, and that the next piece reuses. */
struct net_arena {
    struct net_block *blocks; /* all blocks; the newest is the largest */
    size_t used;              /* bytes used in the newest block */
};

/* Memory for one place of the window, which the pieces in that place use in turn. Later collectives
 * reuse it.
 */
struct net_room {
    struct net_arena arena;
    struct cddpi_transfer *transfers;
    size_t transfer_count; /* capacity of `transfers` */
    struct net_slot *slots;
    unsigned char **by_host;
};

/** Allocate @p bytes from the arena, aligned to 64 bytes; NULL with an error text: no memory. */
void *cddpi_net_take(struct net_arena *arena, size_t bytes);
/** The same for bytes. */
CDDP_CHECKED cddp_status cddpi_net_take_bytes(struct net_arena *arena, size_t bytes,
                                              unsigned char **out);
void cddpi_net_arena_reset(struct net_arena *arena);
/** Make sure that @p room has memory for a piece with up to @p transfers transfers. */
cddp_status cddpi_net_room_reserve(const struct net_backend *net, struct net_room *room,
                                   size_t transfers);
void cddpi_net_room_fini(struct net_room *room);

#endif
