/* micro_tree.h - the tree over a step's micro-batches, as pure functions.
 *
 * Node i of level 0 is micro-batch i. Node i of level l + 1 is the sum of nodes 2i and 2i + 1 of
 * level l; if there is no node 2i + 1, it is node 2i. A rank has a run of micro-batches, and can
 * sum the nodes alone of which it has all micro-batches. Since the tree does not depend on how
 * micro-batches are spread over ranks, neither do the bits of its root. */
#ifndef CDDPI_DDP_MICRO_TREE_H
#define CDDPI_DDP_MICRO_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Micro-batches [first, first + count). */
struct cddpi_micro_node {
    uint64_t first, count;
};

/* A run has at most one node for each bit of a number on its way up, and one on its way down. */
enum { CDDPI_MICRO_NODES = 128 };

/** Whether @p left and @p right are the two halves of a node of the tree over @p all micro-batches.
 */
bool cddpi_micro_siblings(struct cddpi_micro_node left, struct cddpi_micro_node right,
                          uint64_t all);

/** Put @p node on top of @p stack, which has *depth nodes, and merge siblings on top of it.
 *  @return How many merges there were. */
int cddpi_micro_push(struct cddpi_micro_node *stack, int *depth, struct cddpi_micro_node node,
                     uint64_t all);

/** The nodes that rank @p rank can sum alone, in order. Returns how many there are: 0 if the rank
 *  has no micro-batch. @param out  Room for CDDPI_MICRO_NODES. */
int cddpi_micro_nodes(uint64_t all, int rank, int world_size, struct cddpi_micro_node *out);

/** How many nodes the rank with most has. */
int cddpi_micro_most_nodes(uint64_t all, int world_size);

/** Whether each rank has one node, and the tree over ranks is the top of the tree over
 *  micro-batches. Then an ordinary sum over ranks has its bits. */
bool cddpi_micro_is_tree_of_ranks(uint64_t all, int world_size);

#endif
