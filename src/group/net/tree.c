/* tree.c - the tree of a sum over ranks, and which of its nodes each host can sum alone. */
#include "group/net/schedule.h"

#include "base/alloc.h"

#include <string.h>

/* The largest node that begins at @p first and ends at @p end or before. */
static struct cddpi_tree_node node_at(int ranks, int first, int end)
{
    struct cddpi_tree_node node = {first, 1, 0};
    int64_t size = 1;

    /* a node of the next level begins here, too, and is larger, and still inside */
    while (first % (2 * size) == 0 && size < ranks - first) {
        int64_t last = first + 2 * size < ranks ? first + 2 * size : ranks;

        if (last > end) {
            break;
        }
        size *= 2;
        node.count = (int)(last - first);
        node.level++;
    }
    return node;
}

bool cddpi_tree_siblings(const struct cddpi_tree *tree, struct cddpi_tree_node left,
                         struct cddpi_tree_node right, struct cddpi_tree_node *out)
{
    int64_t size = (int64_t)1 << left.level;
    int64_t end = left.first + 2 * size < tree->ranks ? left.first + 2 * size : tree->ranks;

    if (left.first % (2 * size) != 0 || left.first + size != right.first ||
        right.first + right.count != end) {
        return false;
    }
    *out = (struct cddpi_tree_node){left.first, (int)(end - left.first), left.level + 1};
    return true;
}

/* Each host's number of parts, or, with @p out, the parts themselves where first_part says, which
 * then counts up. Nodes lie inside each other or apart: the largest from the left are the parts. */
static void cut(const int *host_of, struct cddpi_tree *tree, bool count_only)
{
    int end = 0;

    for (int first = 0; first < tree->ranks;) {
        struct cddpi_tree_node node;
        int host = host_of[first];

        while (end <= first || (end < tree->ranks && host_of[end] == host)) {
            end++;
        }
        node = node_at(tree->ranks, first, end);
        if (count_only) {
            tree->first_part[host + 1]++;
        } else {
            tree->parts[tree->first_part[host]++] = node;
        }
        first += node.count;
    }
}

bool cddpi_tree_init(int ranks, const int *host_of, int hosts, struct cddpi_tree *out)
{
    struct cddpi_tree tree = {.ranks = ranks, .hosts = hosts};

    tree.first_part = cddpi_zalloc_array((size_t)hosts + 1, sizeof *tree.first_part);
    if (tree.first_part == NULL) {
        return false;
    }
    cut(host_of, &tree, true);
    for (int host = 0; host < hosts; host++) {
        tree.first_part[host + 1] += tree.first_part[host];
    }
    tree.part_count = tree.first_part[hosts];
    tree.parts = cddpi_zalloc_array((size_t)tree.part_count, sizeof *tree.parts);
    if (tree.parts == NULL) {
        cddpi_tree_fini(&tree);
        return false;
    }
    cut(host_of, &tree, false);
    /* each host's place has moved to the next one's */
    memmove(tree.first_part + 1, tree.first_part, (size_t)hosts * sizeof *tree.first_part);
    tree.first_part[0] = 0;
    *out = tree;
    return true;
}

void cddpi_tree_fini(struct cddpi_tree *tree)
{
    cddpi_free(tree->parts);
    cddpi_free(tree->first_part);
    *tree = (struct cddpi_tree){0};
}
