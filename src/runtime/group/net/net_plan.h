/* net_plan.h - owns the schedules of a group, and what a piece needs to follow one: memory for its
 * slots, and the sums of each round. */
#ifndef CDDPI_GROUP_NET_PLAN_H
#define CDDPI_GROUP_NET_PLAN_H

#include "group/net/net_schedule.h"
#include "kernels/cpu/reduce.h"

struct net_backend;
struct net_piece;

/* A schedule, with the data that each piece needs to follow it. */
struct net_plan {
    struct cddpi_net_schedule schedule;
    int *slot_begin, *slot_end; /* by slot: the range of shares that are received or summed there */
    bool is_made;
};

/** Create @p plan for @p algorithm, unless it exists. If @p root is a host's number, the result
 *  goes only to that host, whatever the algorithm. False: no memory. */
bool cddpi_net_plan_make(struct net_backend *net, enum cddpi_algorithm algorithm, int root,
                         struct net_plan *plan);
void cddpi_net_plan_fini(struct net_plan *plan);
/** Whether all ranks of the step's node have weight 0, so that nothing is sent. */
bool cddpi_net_adds_nothing(const struct net_backend *net, const struct cddpi_net_step *step);

/* The merges of one round, in memory of the piece's room. */
struct net_merging {
    struct cddpi_reduce_merges how;
    struct cddpi_reduce_merge *merges; /* the merges of `how`, writable */
    size_t begin, end;                 /* the range, in elements of the piece */
    bool is_empty;                     /* the round has no merges */
    bool finishes;                     /* how.root is the result */
};

/** Prepare the merges of the piece's current round; their operands are the slots. If the round
 *  produces the result, the caller must set where it goes. */
cddp_status cddpi_net_merging(const struct net_backend *net, struct net_piece *piece,
                              struct net_merging *out);

#endif
