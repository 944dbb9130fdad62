/* net.h - owns a rank's private data about a group whose ranks are on several hosts.
 *
 * Within a host, the ranks use the shared memory transport (`inner`). Between hosts, one rank of
 * each host acts for the host in a piece of a collective: a leader, or, on the root's host, the
 * root. The first leader is the host's lowest rank. If one core cannot saturate the link, the
 * host's next ranks are leaders, too, the same number on each host, and they take the pieces in
 * turn. A piece goes up (the leader gets the data of its host), across (leaders exchange) and down
 * (the other ranks get the result). Several pieces are in progress at once. All ranks of a host run
 * the same operations of the inner transport in the same order, which depends only on the number of
 * pieces. */
#ifndef CDDPI_GROUP_NET_NET_H
#define CDDPI_GROUP_NET_NET_H

#include "group/net/carrier.h"
#include "group/net/net_plan.h"
#include "group/net/net_room.h"
#include "group/transports.h"

enum {
    NET_WINDOW = 4, /* pieces of one leader that are in progress at once */
    NET_MAX_LEADERS = 4,
    NET_PIECES = NET_WINDOW * NET_MAX_LEADERS,
    NET_HEAD_ROUND = 31 /* a round number in tags: it marks the comparison of calls, not a piece */
};

struct net_collective;

struct net_backend {
    struct cddpi_backend base; /* first: see net_of() */
    int rank;
    int size;
    uint32_t timeout_ms;

    /* which host each rank is on */
    int host;
    int host_count;
    int local_rank;
    int local_size;
    int *host_of;  /* by rank */
    int *local_of; /* by rank: its index among the ranks of its host */
    int *by_host;  /* all ranks, sorted by host */
    int *first;    /* by host: where its ranks begin in by_host; has one entry more, for the end */
    int *leaders;  /* by host: its lowest rank */
    int leader_count; /* number of leaders of each host; no host has fewer ranks */

    struct cddpi_backend *inner; /* of cddpi_shm_transport */
    uint64_t inner_collectives;  /* so far */

    struct cddpi_carrier *_Atomic carrier; /* NULL: there is only one host, or it is not open yet */
    /* see watch.c; NULL: the carrier itself detects hosts that disappear */
    struct cddpi_carrier *_Atomic watch;
    char token[256]; /* carriers borrow both */
    char job[320];
    _Atomic bool uses_carrier; /* this rank has started a transfer */
    int64_t moved_ns;          /* when a transfer last started or ended */
    bool is_memory_lent; /* the carrier may still use the memory of failed operations, so it is
                            never released */
    int64_t failed_ns;   /* when this rank first noticed that a peer is gone or ended the group */
    struct cddpi_link link; /* as used by all leaders of a host together */
    double link_of_one_bytes_per_s;
    struct cddpi_tree tree;
    struct net_plan plans[CDDPI_ALGORITHMS];
    struct net_plan *root_plans; /* plans of reduce, by the root's host */

    struct net_collective *collective; /* the current collective, or memory for the next */
    struct net_room rooms[NET_PIECES]; /* memory for its pieces */

    int wake_fd;               /* an eventfd that ends a sleep on descriptors */
    _Atomic bool sleeps;       /* this rank sleeps in the inner transport or on descriptors */
    _Atomic bool waits_inside; /* an operation of the inner transport is in progress */
    /* this host's abort was sent to the others, or an abort of theirs arrived */
    _Atomic bool is_told;
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

/* Leader number @p number of @p host. */
static inline int net_leader(const struct net_backend *net, int host, int number)
{
    return net->by_host[net->first[host] + number];
}

static inline int net_host_size(const struct net_backend *net, int host)
{
    return net->first[host + 1] - net->first[host];
}

#endif
