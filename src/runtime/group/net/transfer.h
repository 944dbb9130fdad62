/* transfer.h - starts what moves the data of a collective: transfers between hosts, with their
 * tags, and operations within a host. */
#ifndef CDDPI_GROUP_NET_TRANSFER_H
#define CDDPI_GROUP_NET_TRANSFER_H

#include "group/net/net_collective.h"

/** Whether one rank of a collective of @p kind is the root. */
bool cddpi_net_has_root(enum cddpi_kind kind);
/** The rank that acts for @p host in piece number @p piece. */
int cddpi_net_acting(const struct net_backend *net, int host, size_t piece);
/** Start @p transfer. Its struct must stay in place until it is done. */
cddp_status cddpi_net_start(struct net_backend *net, struct cddpi_transfer *transfer);
cddp_status cddpi_net_progress(struct net_backend *net);
/** Send what was started and held. @p out_any: whether a transfer completed. */
cddp_status cddpi_net_flush(struct net_backend *net, bool *out_any);
bool cddpi_net_are_done(const struct cddpi_transfer *transfers, size_t count);
/** Add a transfer of a piece's current round, and start it.
 *  @param index  Distinguishes the transfers between two hosts in one round and direction. */
cddp_status cddpi_net_piece_send(struct net_backend *net, struct net_piece *piece, int host,
                                 unsigned index, const void *data, size_t bytes);
cddp_status cddpi_net_piece_recv(struct net_backend *net, struct net_piece *piece, int host,
                                 unsigned index, void *data, size_t bytes);
/** The tag of a transfer of a collective. */
uint32_t cddpi_net_tag(uint64_t number, size_t piece, int round, unsigned index);
/** The round in a tag. */
int cddpi_net_tag_round(uint32_t tag);

/** Begin an operation among this host's ranks, as a part of the collective.
 *  @param root  A rank of the group; the first leader if @p kind has no root. */
void cddpi_net_inner_begin(struct net_backend *net, enum cddpi_kind kind, int root, const void *in,
                           void *out, size_t bytes);
/** Advance that operation. @p out_done: it has ended, or there was no operation. */
cddp_status cddpi_net_inner_advance(struct net_backend *net, bool *out_done);

#endif
