/* net_room.c - owns memory for the pieces of a collective. */
#include "group/net/net_room.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/net/net_collective.h"

enum { BLOCK_BYTES = 256 << 10 };

struct net_block {
    struct net_block *next;
    size_t bytes;
    unsigned char *data;
};

void *cddpi_net_take(struct net_room *room, size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64;
    struct net_block *newest = room->blocks;
    void *taken;

    if (newest == NULL || newest->bytes - room->used < whole) {
        size_t least = newest != NULL ? 2 * newest->bytes : BLOCK_BYTES;
        struct net_block *block = cddpi_zalloc(sizeof *block);

        if (block != NULL) {
            block->bytes = whole > least ? whole : least;
            block->data = cddpi_alloc_aligned(block->bytes);
        }
        if (block == NULL || block->data == NULL) {
            cddpi_free(block);
            (void)cddpi_fail(CDDP_ERR_NO_MEMORY,
                             "no memory for a collective between hosts: %zu "
                             "bytes",
                             whole);
            return NULL;
        }
        block->next = newest;
        room->blocks = newest = block;
        room->used = 0;
    }
    taken = newest->data + room->used;
    room->used += whole;
    return taken;
}

cddp_status cddpi_net_take_bytes(struct net_room *room, size_t bytes, unsigned char **out)
{
    *out = cddpi_net_take(room, bytes);
    return *out != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
}

static void free_blocks(struct net_block *block)
{
    while (block != NULL) {
        struct net_block *next = block->next;

        cddpi_free(block->data);
        cddpi_free(block);
        block = next;
    }
}

/* Keeps only the newest block, which is the largest. */
void cddpi_net_room_reset(struct net_room *room)
{
    room->used = 0;
    if (room->blocks != NULL) {
        free_blocks(room->blocks->next);
        room->blocks->next = NULL;
    }
}

cddp_status cddpi_net_room_reserve(const struct net_backend *net, struct net_room *room,
                                   size_t transfers)
{
    size_t parts = (size_t)net->tree.part_count;
    size_t hosts = (size_t)net->host_count;

    if (room->slots == NULL) {
        room->slots = cddpi_zalloc_array(parts, sizeof *room->slots);
    }
    if (room->by_host == NULL) {
        room->by_host = cddpi_zalloc_array(hosts, sizeof *room->by_host);
    }
    if (room->transfer_room < transfers) { /* no transfer is in progress, since a piece begins */
        cddpi_free(room->transfers);
        room->transfers = cddpi_zalloc_array(transfers, sizeof *room->transfers);
        room->transfer_room = room->transfers != NULL ? transfers : 0;
    }
    if (room->slots == NULL || room->by_host == NULL || room->transfer_room < transfers) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "no memory for a collective between hosts: %zu transfers", transfers);
    }
    return CDDP_OK;
}

void cddpi_net_room_fini(struct net_room *room)
{
    free_blocks(room->blocks);
    cddpi_free(room->transfers);
    cddpi_free(room->slots);
    cddpi_free(room->by_host);
}
