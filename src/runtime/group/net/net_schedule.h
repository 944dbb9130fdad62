/* net_schedule.h - which host sends what to which, when they reduce or gather: pure functions,
 * without memory or sockets, so that a test can run all hosts of a schedule in one process.
 *
 * A sum over ranks is a tree: node i of level 0 is rank i, node i of level l + 1 is the sum of
 * nodes 2i and 2i + 1 of level l, or, where there is no 2i + 1, is node 2i. A host can sum alone
 * the largest nodes all of whose ranks it has: its parts. What is left goes between hosts. */
#ifndef CDDPI_GROUP_NET_SCHEDULE_H
#define CDDPI_GROUP_NET_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A node of the tree. A single rank is always of level 0, also at the tree's edge. */
struct cddpi_tree_node {
    int first; /* lowest rank */
    int count; /* ranks below it, which follow each other */
    int level;
};

/* How much is carried: nodes that are a single rank, nodes that are sums; and merges made of them.
 */
struct cddpi_tree_load {
    int leaves, sums, merges;
};

enum { CDDPI_TREE_ROUNDS = 31 };

/* The parts of every host, those of host 0 first; within a host in rank order. */
struct cddpi_tree {
    int ranks;
    int hosts;
    int part_count;
    struct cddpi_tree_node *parts;
    int *first_part; /* by host, and one more: where its parts begin */

    /* For the cost of algorithms; each the most of any host. */
    struct cddpi_tree_load all;    /* of all hosts together */
    struct cddpi_tree_load own;    /* what a host has */
    struct cddpi_tree_load others; /* what it does not have */
    struct cddpi_tree_load fold;   /* what an extra host hands in, and merges where it does */
    struct cddpi_tree_load rounds[CDDPI_TREE_ROUNDS + 1]; /* what a host has after so many rounds of
                                    doubling, and the merges of the last of them */
};

/** Cut the tree over @p ranks ranks into the parts of hosts.
 *  @param host_of  By rank; hosts count from 0, each has a rank.
 *  @param out      Release with cddpi_tree_fini().
 *  @return false: no memory. */
bool cddpi_tree_init(int ranks, const int *host_of, int hosts, struct cddpi_tree *out);
void cddpi_tree_fini(struct cddpi_tree *tree);

/** Whether @p left and @p right are the two halves of a node, which then is @p out. */
bool cddpi_tree_siblings(const struct cddpi_tree *tree, struct cddpi_tree_node left,
                         struct cddpi_tree_node right, struct cddpi_tree_node *out);

/* A node that somebody has, and the slot it is in. */
struct cddpi_held {
    struct cddpi_tree_node node;
    int slot;
};

/** Merge all siblings among @p held, as often as that goes: subtree by subtree, children before
 *  parents. The sum stays in the left one's slot.
 *  @param merged  NULL, or called for each merge.
 *  @return how many are left, which now stand first in @p held, in rank order. */
int cddpi_held_merge(const struct cddpi_tree *tree, struct cddpi_held *held, int count,
                     void (*merged)(void *context, int slot, int other), void *context);

/** What hosts [first_host, end_host) hold once they have merged all that they can.
 *  @param out  Room for all their parts.
 *  @return how many. */
int cddpi_held_by(const struct cddpi_tree *tree, int first_host, int end_host,
                  struct cddpi_held *out);

/* Some number of hosts as a power of two: `extras` hosts 1, 3, 5 ... leave their parts to the host
 * before them, and the others have a place each, in order. */
struct cddpi_fold {
    int power;  /* places */
    int rounds; /* log2(power) */
    int extras;
};
struct cddpi_fold cddpi_fold(int hosts);

/** The host at @p place; at `power` the number of hosts. */
int cddpi_fold_host(const struct cddpi_fold *fold, int place);

/* A step of one host's schedule. Slots hold sums of nodes; slot p begins as part p where the host
 * has it, so it holds a single rank's data, in the caller's type, while that part has level 0 and
 * nothing was merged into it, and a sum otherwise. Ranges count `ranges` equal shares of the data.
 */
enum cddpi_step_kind {
    CDDPI_STEP_SEND,      /* slot `slot` to host `host` */
    CDDPI_STEP_RECV,      /* slot `slot` from host `host` */
    CDDPI_STEP_MERGE,     /* slot `slot` += slot `other`; left operand first */
    CDDPI_STEP_FINISH,    /* the result = slot `slot`, which is now the tree's root */
    CDDPI_STEP_SEND_DONE, /* a range of the result to host `host` */
    CDDPI_STEP_RECV_DONE  /* a range of the result from host `host` */
};

struct cddpi_net_step {
    enum cddpi_step_kind kind;
    int round; /* sends and recvs of a round go at once; merges and finishes of a round come when
                  its recvs are done, and its sends, too, where they would write what is being sent;
                  the next round comes when all is done */
    int host;  /* -1 where there is none */
    int slot, other; /* of the result's sends and recvs: the root's slot */
    int begin, end;  /* shares of the data */
    int ranks;       /* of a sum that is sent or received: how many it is over */
};

struct cddpi_net_schedule {
    struct cddpi_net_step *steps; /* sorted by round; within one: sends, recvs, then the rest */
    int count;
    int rounds;
    int ranges; /* into how many shares the data is cut: cddpi_share_begin() */
};

/** Where share @p share of @p ranges begins, in elements of any type; at @p ranges: @p count. */
size_t cddpi_share_begin(size_t count, int ranges, int share);

enum cddpi_algorithm {
    CDDPI_ALGORITHM_EXCHANGE, /* everyone sends its parts to everyone: one round */
    CDDPI_ALGORITHM_DOUBLING, /* recursive doubling: log2(hosts) rounds, or, if that is not whole,
                                 two more than its whole part */
    CDDPI_ALGORITHM_DIRECT,   /* reduce-scatter to each share's owner, all-gather: two rounds */
    CDDPI_ALGORITHM_HALVING,  /* recursive halving, then doubling: 2 log2(hosts), or 2 + 2 times
                                 its whole part */
    CDDPI_ALGORITHMS
};
extern const char *const cddpi_algorithm_names[CDDPI_ALGORITHMS];

/** The schedule by which host @p host takes part in an all-reduce, where every host gets the
 *  result.
 *  @param root  -1: all; else only this host gets it, and all send their parts to it in one round,
 *               whatever the algorithm.
 *  @return false: no memory. */
bool cddpi_schedule_init(const struct cddpi_tree *tree, enum cddpi_algorithm algorithm, int host,
                         int root, struct cddpi_net_schedule *out);
void cddpi_schedule_fini(struct cddpi_net_schedule *schedule);

/* What links between hosts can do, measured when the group forms. */
struct cddpi_link {
    double latency_s;          /* half a round trip of a small message */
    double bytes_per_s;        /* in one direction, while the other is as busy */
    double reduce_bytes_per_s; /* how fast one core adds two arrays */
};

enum { CDDPI_PIECES_UNDER_WAY = 4 }; /* of an operation, at a time */

/** The seconds that @p algorithm takes in one piece between hosts: its rounds one after the other.
 *  @param leaf_bytes  Size of the data in the caller's type.
 *  @param sum_bytes   The same as partial sums, which are wider for 16-bit types. */
double cddpi_algorithm_seconds(const struct cddpi_tree *tree, const struct cddpi_link *link,
                               enum cddpi_algorithm algorithm, size_t leaf_bytes, size_t sum_bytes);

/** In how many bytes a large operation is best cut, so that its pieces overlap: whole 64 bytes. */
size_t cddpi_piece_bytes(const struct cddpi_link *link, int hosts, size_t bytes);

/* A carrier's messages at most, where a link is slow: they and their headers are below the 64 KiB
 * up to which Open MPI sends over TCP without asking. */
enum { CDDPI_CUT_BYTES = 60 << 10 };

/** Into messages of how many bytes a transfer is cut between two hosts that both send: of
 *  CDDPI_CUT_BYTES, or, on a link that is faster, 0: uncut. */
size_t cddpi_cut_bytes(const struct cddpi_link *link);

/** The seconds of an all-reduce, within the hosts and between them, in pieces of @p piece_bytes (of
 *  leaf_bytes), of which CDDPI_PIECES_UNDER_WAY overlap. */
double cddpi_pieces_seconds(const struct cddpi_tree *tree, const struct cddpi_link *link,
                            enum cddpi_algorithm algorithm, size_t leaf_bytes, size_t sum_bytes,
                            size_t piece_bytes);

/** The algorithm that takes the shortest time, and how long: an exchange in one piece, the others
 *  in pieces of cddpi_piece_bytes().
 *  @param out_s  May be NULL. */
enum cddpi_algorithm cddpi_algorithm_choose(const struct cddpi_tree *tree,
                                            const struct cddpi_link *link, size_t leaf_bytes,
                                            size_t sum_bytes, double *out_s);

#endif
