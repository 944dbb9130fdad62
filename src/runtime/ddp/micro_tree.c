/* micro_tree.c - the tree over a step's micro-batches: which nodes a rank has, and how they meet.
 */
#include "ddp/micro_tree.h"

#include <cddp/sampler.h>

bool cddpi_micro_siblings(struct cddpi_micro_node left, struct cddpi_micro_node right, uint64_t all)
{
    uint64_t half = left.count; /* a left node is never cut off by the edge of the tree */
    uint64_t rest = all - left.first;

    return (half & (half - 1)) == 0 && left.first / half % 2 == 0 && left.first % half == 0 &&
           right.first == left.first + half &&
           right.count == (rest < 2 * half ? rest : 2 * half) - half;
}

int cddpi_micro_push(struct cddpi_micro_node *stack, int *depth, struct cddpi_micro_node node,
                     uint64_t all)
{
    int merges = 0;

    while (*depth > 0 && cddpi_micro_siblings(stack[*depth - 1], node, all)) {
        node = (struct cddpi_micro_node){stack[*depth - 1].first,
                                         stack[*depth - 1].count + node.count};
        (*depth)--;
        merges++;
    }
    stack[(*depth)++] = node;
    return merges;
}

/* How many micro-batches the largest node has that begins at @p at and ends at @p end or before. */
static uint64_t largest_node(uint64_t all, uint64_t at, uint64_t end)
{
    uint64_t count = 1;

    while (count < all - at && count < (uint64_t)1 << 62 && at % (2 * count) == 0 &&
           (2 * count <= end - at || end == all)) {
        count *= 2;
    }
    return count < end - at ? count : end - at; /* the tree's edge cuts nodes off */
}

int cddpi_micro_nodes(uint64_t all, int rank, int world_size, struct cddpi_micro_node *out)
{
    cddp_share share = cddp_share_of(0, all, rank, world_size);
    uint64_t end = share.first + share.count;
    int count = 0;

    for (uint64_t at = share.first; at < end; at += out[count++].count) {
        out[count] = (struct cddpi_micro_node){at, largest_node(all, at, end)};
    }
    return count;
}

int cddpi_micro_most_nodes(uint64_t all, int world_size)
{
    struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
    int most = 0;

    for (int rank = 0; rank < world_size; rank++) {
        int count = cddpi_micro_nodes(all, rank, world_size, nodes);

        most = count > most ? count : most;
    }
    return most;
}

/* The sum of node @p index of level @p level of the tree over ranks. Returns false if it is no node
 * of the tree over micro-batches. */
static bool sum_of_ranks(uint64_t all, int world_size, int level, int index,
                         struct cddpi_micro_node *out)
{
    struct cddpi_micro_node right;

    if (level == 0) {
        struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
        int count = cddpi_micro_nodes(all, index, world_size, nodes);

        *out = nodes[0];
        return count == 1;
    }
    if (!sum_of_ranks(all, world_size, level - 1, 2 * index, out)) {
        return false;
    }
    if (((int64_t)(2 * index + 1) << (level - 1)) >= world_size) {
        return true;
    }
    if (!sum_of_ranks(all, world_size, level - 1, 2 * index + 1, &right) ||
        !cddpi_micro_siblings(*out, right, all)) {
        return false;
    }
    out->count += right.count;
    return true;
}

bool cddpi_micro_is_tree_of_ranks(uint64_t all, int world_size)
{
    struct cddpi_micro_node root;
    int level = 0;

    while ((int64_t)1 << level < world_size) {
        level++;
    }
    return sum_of_ranks(all, world_size, level, 0, &root);
}
