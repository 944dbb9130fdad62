/* net.h - a group whose ranks are on several hosts: what a rank knows of it.
 *
 * Inside a host the ranks use the transport in shared memory (`inner`). Between hosts one rank of
 * each speaks for a piece of a collective: a leader, or, on root's host in a collective that has a
 * root, root itself. The first leader is the host's lowest rank; where one core cannot fill the
 * link, each host has as many others, its next ranks, and they have the pieces in turn. A piece
 * goes up (its data come to the leader), across (leaders exchange) and down (the result goes to the
 * others). Several pieces are under way at once. All ranks of a host do the same operations of the
 * inner transport in the same order, which depends on the number of pieces only. */
#ifndef CDDPI_GROUP_NET_NET_H
#define CDDPI_GROUP_NET_NET_H

#include "group/net/carrier.h"
#include "group/net/net_plan.h"
#include "group/net/net_room.h"
#include "group/transports.h"

enum {
    NET_WINDOW = 4, /* pieces of a leader that are under way at once */
    NET_MAX_LEADERS = 4,
    NET_PIECES = NET_WINDOW * NET_MAX_LEADERS,
    NET_HEAD_ROUND = 31 /* in tags: not a piece's round, but the comparison of calls */
};

struct net_collective;

struct net_backend {
    struct cddpi_backend base; /* first: see net_of() */
    int rank;
    int size;
    uint32_t timeout_ms;

    /* which rank is on which host */
    int host;
    int host_count;
    int local_rank;
    int local_size;
    int *host_of;     /* by rank */
    int *local_of;    /* by rank: its place among those of its host */
    int *by_host;     /* all ranks, those of host 0 first */
    int *first;       /* by host, and one more: where its ranks begin in by_host */
    int *leaders;     /* by host: its lowest rank */
    int leader_count; /* of each host; no host has fewer ranks than this */

    const struct cddpi_transport *inner_transport;
    struct cddpi_backend *inner;
    uint64_t inner_collectives; /* so far */

    struct cddpi_carrier *_Atomic carrier; /* NULL: there is one host, or it is not open yet */
    struct cddpi_carrier *_Atomic watch;   /* see watch.c; NULL: the carrier sees by itself */
    char token[256];                       /* carriers borrow both */
    char job[320];
    _Atomic bool uses_carrier; /* this rank has begun a transfer */
    int64_t moved_ns;          /* when a transfer was begun or ended last */
    bool is_memory_lent;       /* the carrier may still use what failed operations had: it stays */
    int64_t failed_ns;         /* when it was first seen that a peer is gone or ended the group */
    struct cddpi_link link;    /* as all leaders of a host together fill it */
    double link_of_one_bytes_per_s;
    struct cddpi_tree tree;
    struct net_plan plans[CDDPI_ALGORITHMS];
    struct net_plan *root_plans; /* of reduce, by host of the root */

    struct net_collective *collective; /* the one under way, or room for the next one */
    struct net_room rooms[NET_PIECES]; /* of its pieces */

    int wake_fd;               /* an eventfd: ends a sleep on descriptors */
    _Atomic bool sleeps;       /* on the inner transport or on descriptors */
    _Atomic bool waits_inside; /* an operation of the inner transport is under way */
    _Atomic bool is_told;      /* an abort of this host was sent to others, or one of theirs came */
    _Atomic bool is_from_afar; /* the abort came from another host */
};

static inline struct net_backend *net_of(struct cddpi_backend *base)
{
    return (struct net_backend *)(void *)base;
}

static inline const struct net_backend *net_of_const(const struct cddpi_backend *base)
{
    return (const struct net_backend *)(const void *)base;
}

static inline bool net_is_leader(const struct net_backend *net)
{
    return net->local_rank == 0;
}

/* The @p number-th leader of @p host. */
static inline int net_leader(const struct net_backend *net, int host, int number)
{
    return net->by_host[net->first[host] + number];
}

static inline int net_host_size(const struct net_backend *net, int host)
{
    return net->first[host + 1] - net->first[host];
}

#endif
