/* net_room.h - memory for the pieces of a collective, which stays for later ones. */
#ifndef CDDPI_GROUP_NET_ROOM_H
#define CDDPI_GROUP_NET_ROOM_H

#include <cddp/status.h>

#include <stddef.h>

struct net_backend;
struct cddpi_transfer; /* carrier.h */
struct net_slot;       /* net_collective.h */

/* Memory that a piece takes bit by bit, and that stays for the next one. */
struct net_arena {
    struct net_block *blocks; /* all; the newest is the largest */
    size_t used;              /* of the newest */
};

/* Memory of the pieces that have one place of the window in turn. It stays for later collectives.
 */
struct net_room {
    struct net_arena arena;
    struct cddpi_transfer *transfers;
    size_t transfer_count; /* that `transfers` has room for */
    struct net_slot *slots;
    unsigned char **by_host;
};

/** @p bytes of the arena, aligned to 64; NULL with a text: no memory. */
void *cddpi_net_take(struct net_arena *arena, size_t bytes);
void cddpi_net_arena_reset(struct net_arena *arena);
void cddpi_net_arena_fini(struct net_arena *arena);
/** Make sure that @p room has memory for a piece with up to @p transfers transfers. */
cddp_status cddpi_net_room_reserve(const struct net_backend *net, struct net_room *room,
                                   size_t transfers);
void cddpi_net_room_fini(struct net_room *room);

#endif
