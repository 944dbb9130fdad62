/* net_exchange.h - small structs among all ranks, before there is a carrier. */
#ifndef CDDPI_GROUP_NET_EXCHANGE_H
#define CDDPI_GROUP_NET_EXCHANGE_H

#include "group/join/group_agree.h"
#include "group/join/rendezvous.h"
#include "group/net/net.h"

struct net_exchange {
    struct cddpi_exchange base; /* context: this struct */
    struct net_backend *net;
    struct cddpi_rendezvous *rendezvous; /* leaders meet in its store; NULL: by the group below */
    cddp_group *parent;                  /* and by its messages */
    const int *ranks_of_parent;          /* by rank: the one there */
    uint64_t nonce;                      /* of the group, in keys of the store */
    int number;                          /* of exchanges so far */
    size_t part_bytes;                   /* the most of a value; tests set less */
    size_t bytes_given[2];               /* to the store, by this and the last exchange */
};
void cddpi_net_exchange_init(struct net_exchange *exchange, struct net_backend *net);
/** All exchanges by the store are through, well. */
void cddpi_net_exchange_end(struct net_exchange *exchange);
/** Run one operation of the inner transport to its end. */
cddp_status cddpi_net_run_inner(struct net_backend *net, struct cddpi_group_op *op);
/** Tell leaders that wait in the rendezvous why this rank fails. Keeps the thread's failure. */
void cddpi_net_refuse(struct cddpi_rendezvous *rendezvous, int rank, cddp_status status);

#endif
