/* net_schedule.h - decides which host sends what to which host in a reduction or gather. These are
 * pure functions without sockets or data, so that a test can run all hosts of a schedule in one
 * process.
 *
 * A sum over ranks is a tree. Node i of level 0 is rank i. Node i of level l + 1 is the sum of
 * nodes 2i and 2i + 1 of level l; if there is no node 2i + 1, it is node 2i. A host's parts are the
 * largest nodes of which it has all ranks; it can sum those alone. The other sums need transfers
 * between hosts. */
#ifndef CDDPI_GROUP_NET_SCHEDULE_H
#define CDDPI_GROUP_NET_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A node of the tree. A single rank always has level 0, even at the tree's edge. */
struct cddpi_tree_node {
    int first; /* lowest rank */
    int count; /* number of ranks below it, which are consecutive */
    int level;
};

/* An amount of work: number of nodes that are a single rank, of nodes that are sums, and of merges.
 */
struct cddpi_tree_load {
    int leaves, sums, merges;
};

enum { CDDPI_TREE_ROUNDS = 31 };

/* The parts of all hosts, sorted by host and within a host by rank. */
struct cddpi_tree {
    int ranks;
    int hosts;
    int part_count;
    struct cddpi_tree_node *parts;
    int *first_part; /* by host: where its parts begin; has one entry more, for the end */

    /* For the cost of algorithms; each except `all` is the maximum of any host. */
    struct cddpi_tree_load all;    /* of all hosts together */
    struct cddpi_tree_load own;    /* the nodes that a host has */
    struct cddpi_tree_load others; /* the nodes that a host does not have */
    /* the nodes that an extra host hands to another, and the merges there */
    struct cddpi_tree_load fold;
    /* by number of doubling rounds: the nodes that a host has after them, and the merges of the
     * last round */
    struct cddpi_tree_load rounds[CDDPI_TREE_ROUNDS + 1];
};

/** Cut the tree over @p ranks ranks into the parts of hosts.
 *  @param host_of  By rank: its host. Hosts are numbered from 0, and each has at least one rank.
 *  @param out      Release with cddpi_tree_fini().
 *  @return False: no memory. */
bool cddpi_tree_init(int ranks, const int *host_of, int hosts, struct cddpi_tree *out);
void cddpi_tree_fini(struct cddpi_tree *tree);

/** Whether @p left and @p right are the two halves of a node, which then is @p out. */
bool cddpi_tree_siblings(const struct cddpi_tree *tree, struct cddpi_tree_node left,
                         struct cddpi_tree_node right, struct cddpi_tree_node *out);

/* A node that a host has, and its slot. */
struct cddpi_held {
    struct cddpi_tree_node node;
    int slot;
};

/** Merge siblings among @p held until no two are left: subtree by subtree, children before parents.
 *  The sum stays in the left sibling's slot.
 *  @param merged  Called for each merge; may be NULL.
 *  @return How many nodes are left; they are now the first in @p held, in rank order. */
int cddpi_held_merge(const struct cddpi_tree *tree, struct cddpi_held *held, int count,
                     void (*merged)(void *context, int slot, int other), void *context);

/** The nodes of hosts [first_host, end_host) once all possible merges are done.
 *  @param out  Room for all their parts.
 *  @return How many nodes. */
int cddpi_held_by(const struct cddpi_tree *tree, int first_host, int end_host,
                  struct cddpi_held *out);

/* Reduces the number of hosts to a power of two. The `extras` hosts 1, 3, 5 ... give their parts to
 * the host before them; each other host has a place, in order. */
struct cddpi_fold {
    int power;  /* places */
    int rounds; /* log2(power) */
    int extras;
};
struct cddpi_fold cddpi_fold(int hosts);

/** The host at @p place; for place `power`: the number of hosts. */
int cddpi_fold_host(const struct cddpi_fold *fold, int place);

/* A step of one host's schedule. Slots hold sums of nodes. Slot p starts as part p if the host has
 * that part. It holds a single rank's data in the caller's type if the part has level 0 and nothing
 * was merged into it; otherwise it holds a sum. Ranges are numbers of shares: the data is divided
 * into `ranges` equal shares.
 */
enum cddpi_step_kind {
    CDDPI_STEP_SEND,      /* slot `slot` to host `host` */
    CDDPI_STEP_RECV,      /* slot `slot` from host `host` */
    CDDPI_STEP_MERGE,     /* slot `slot` += slot `other`; `slot` is the left operand */
    CDDPI_STEP_FINISH,    /* result = slot `slot`, which is now the tree's root */
    CDDPI_STEP_SEND_DONE, /* a range of the result to host `host` */
    CDDPI_STEP_RECV_DONE  /* a range of the result from host `host` */
};

struct cddpi_net_step {
    enum cddpi_step_kind kind;
    int round; /* all sends and recvs of a round start at once; its merges and finishes run when its
                  recvs are done, and also its sends, if they would overwrite data being sent; the
                  next round starts when all are done */
    int host;  /* -1: no host */
    int slot, other; /* for sends and recvs of the result: the root's slot */
    int begin, end;  /* range of shares of the data */
    int ranks;       /* number of ranks in the sum that is sent or received */
};

struct cddpi_net_schedule {
    /* sorted by round; within a round: sends, recvs, then the others */
    struct cddpi_net_step *steps;
    int count;
    int rounds;
    int ranges; /* number of shares of the data, see cddpi_share_begin() */
};

/** The first element of share @p share of @p ranges; for @p share == @p ranges: @p count. */
size_t cddpi_share_begin(size_t count, int ranges, int share);

enum cddpi_algorithm {
    CDDPI_ALGORITHM_EXCHANGE, /* every host sends its parts to every other: one round */
    CDDPI_ALGORITHM_DOUBLING, /* recursive doubling: log2(hosts) rounds; if not a power of two: 2 +
                                 floor(log2(hosts)) */
    CDDPI_ALGORITHM_DIRECT,   /* reduce-scatter to each share's owner, all-gather: two rounds */
    CDDPI_ALGORITHM_HALVING,  /* recursive halving, then doubling: 2 log2(hosts) rounds; if not a
                                 power of two: 2 + 2 floor(log2(hosts)) */
    CDDPI_ALGORITHMS
};
extern const char *const cddpi_algorithm_names[CDDPI_ALGORITHMS];

/** Create the schedule of @p host in an all-reduce, in which every host gets the result.
 *  @param root  -1: all hosts; else only this host gets the result, and all others send their parts
 *               to it in one round, whatever the algorithm.
 *  @return False: no memory. */
bool cddpi_schedule_init(const struct cddpi_tree *tree, enum cddpi_algorithm algorithm, int host,
                         int root, struct cddpi_net_schedule *out);
void cddpi_schedule_fini(struct cddpi_net_schedule *schedule);

/* The performance of links between hosts, measured when the group is created. */
struct cddpi_link {
    double latency_s;          /* half a round trip of a small message */
    double bytes_per_s;        /* in one direction, while the other direction is as busy */
    double reduce_bytes_per_s; /* how fast one core adds two arrays */
};

enum { CDDPI_PIECES_UNDER_WAY = 4 }; /* of an operation, at a time */

/** The seconds that @p algorithm takes for one piece between hosts, with its rounds in sequence.
 *  @param leaf_bytes  Size of the data in the caller's type.
 *  @param sum_bytes   Size of the data as partial sums, which are wider for 16-bit types. */
double cddpi_algorithm_seconds(const struct cddpi_tree *tree, const struct cddpi_link *link,
                               enum cddpi_algorithm algorithm, size_t leaf_bytes, size_t sum_bytes);

/** The best piece size, in bytes, for a large operation, so that its pieces overlap; a multiple of
 *  64. */
size_t cddpi_piece_bytes(const struct cddpi_link *link, int hosts, size_t bytes);

/* Maximum size of a carrier's messages on a slow link. With headers they are below 64 KiB, up to
 * which Open MPI sends eagerly over TCP. */
enum { CDDPI_CUT_BYTES = 60 << 10 };

/** The message size into which a transfer is cut when both hosts send: CDDPI_CUT_BYTES; on a faster
 *  link 0, that is uncut. */
size_t cddpi_cut_bytes(const struct cddpi_link *link);

/** The seconds of an all-reduce, within hosts and between them, in pieces of @p piece_bytes (out of
 *  leaf_bytes), of which CDDPI_PIECES_UNDER_WAY overlap. */
double cddpi_pieces_seconds(const struct cddpi_tree *tree, const struct cddpi_link *link,
                            enum cddpi_algorithm algorithm, size_t leaf_bytes, size_t sum_bytes,
                            size_t piece_bytes);

/** The fastest algorithm and its time. Assumes that an exchange is done in one piece, the other
 *  algorithms in pieces of cddpi_piece_bytes().
 *  @param out_s  May be NULL. */
enum cddpi_algorithm cddpi_algorithm_choose(const struct cddpi_tree *tree,
                                            const struct cddpi_link *link, size_t leaf_bytes,
                                            size_t sum_bytes, double *out_s);

#endif
