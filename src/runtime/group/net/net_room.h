/* net_room.h - owns the memory for the pieces of a collective, which later collectives reuse. */
#ifndef CDDPI_GROUP_NET_ROOM_H
#define CDDPI_GROUP_NET_ROOM_H

#include <cddp/status.h>

#include <stddef.h>

struct net_backend;
struct cddpi_transfer; /* carrier.h */
struct net_slot;       /* net_collective.h */

/* Memory for one place of the window, which the pieces in that place use in turn. Later collectives
 * reuse it. */
struct net_room {
    struct net_block *blocks; /* from which a piece allocates step by step; the newest is largest */
    size_t used;              /* bytes used in the newest block */
    struct cddpi_transfer *transfers;
    size_t transfer_room; /* capacity of `transfers` */
    struct net_slot *slots;
    unsigned char **by_host; /* memory for collectives that move blocks */
};

/** Allocate @p bytes from the room's blocks, aligned to 64 bytes; NULL with an error text: no
 *  memory. */
void *cddpi_net_take(struct net_room *room, size_t bytes);
/** The same for bytes. */
CDDP_CHECKED cddp_status cddpi_net_take_bytes(struct net_room *room, size_t bytes,
                                              unsigned char **out);
/** Forget what was allocated, for the next piece. */
void cddpi_net_room_reset(struct net_room *room);
/** Make sure that @p room has memory for a piece with up to @p transfers transfers. */
cddp_status cddpi_net_room_reserve(const struct net_backend *net, struct net_room *room,
                                   size_t transfers);
void cddpi_net_room_fini(struct net_room *room);

#endif
