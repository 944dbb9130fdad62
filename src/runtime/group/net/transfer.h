/* transfer.h - starts transfers between hosts, and computes their tags. */
#ifndef CDDPI_GROUP_NET_TRANSFER_H
#define CDDPI_GROUP_NET_TRANSFER_H

#include "group/net/net_collective.h"

/** Whether one rank of a collective of @p kind is the root. */
bool cddpi_net_has_root(enum cddpi_kind kind);
/** The rank that acts for @p host in piece number @p piece. */
int cddpi_net_acting(const struct net_backend *net, const struct net_collective *collective,
                     int host, size_t piece);
/** Start @p transfer. Its struct must stay in place until it is done. */
cddp_status cddpi_net_start(struct net_backend *net, struct cddpi_transfer *transfer);
cddp_status cddpi_net_progress(struct net_backend *net);
/** Send what was started and held. @p out_any: whether a transfer completed. */
cddp_status cddpi_net_flush(struct net_backend *net, bool *out_any);
bool cddpi_net_are_done(const struct cddpi_transfer *transfers, size_t count);
/** Add a transfer of a piece's current round, and start it.
 *  @param index  Distinguishes the transfers between two hosts in one round and direction. */
cddp_status cddpi_net_piece_send(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece, int host, unsigned index,
                                 const void *data, size_t bytes);
cddp_status cddpi_net_piece_recv(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece, int host, unsigned index, void *data,
                                 size_t bytes);
/** The tag of a transfer of a collective. */
uint32_t cddpi_net_tag(uint64_t number, size_t piece, int round, unsigned index);
/** The round in a tag. */
int cddpi_net_tag_round(uint32_t tag);

#endif
