/* net_exchange.h - exchanges small structs among all ranks before there is a carrier. */
#ifndef CDDPI_GROUP_NET_EXCHANGE_H
#define CDDPI_GROUP_NET_EXCHANGE_H

#include "group/join/group_agree.h"
#include "group/join/rendezvous.h"
#include "group/net/net.h"

struct net_exchange {
    struct cddpi_exchange base; /* context: this struct */
    struct net_backend *net;
    /* leaders exchange through its store; NULL: through `parent` */
    struct cddpi_rendezvous *rendezvous;
    cddp_group *parent;         /* exchanges use its messages */
    const int *ranks_of_parent; /* by rank: its rank in `parent` */
    uint64_t nonce;             /* the group's nonce, part of keys in the store */
    int number;                 /* number of exchanges so far */
    size_t part_bytes;          /* maximum bytes of a value; tests set less */
    size_t bytes_given[2];      /* bytes written to the store by this and the previous exchange */
};
void cddpi_net_exchange_init(struct net_exchange *exchange, struct net_backend *net);
/** Clean up once all exchanges through the store have succeeded. */
void cddpi_net_exchange_end(struct net_exchange *exchange);
/** Notify leaders that wait in the rendezvous why this rank fails. Keeps the thread's failure. */
void cddpi_net_refuse(struct cddpi_rendezvous *rendezvous, int rank, cddp_status status);

#endif
