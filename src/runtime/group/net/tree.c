/* tree.c - owns the tree of a sum over ranks, and which of its nodes each host can sum alone. */
#include "group/net/net_schedule.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* The largest node that begins at @p first and does not go beyond @p end. */
static struct cddpi_tree_node node_at(int ranks, int first, int end)
{
    struct cddpi_tree_node node = {first, 1, 0};
    int64_t size = 1;

    /* a larger node, of the next level, begins here, too, and is still inside */
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

static int by_first(const void *a, const void *b)
{
    return ((const struct cddpi_held *)a)->node.first - ((const struct cddpi_held *)b)->node.first;
}

int cddpi_held_merge(const struct cddpi_tree *tree, struct cddpi_held *held, int count,
                     void (*merged)(void *context, int slot, int other), void *context)
{
    int depth = 0;

    qsort(held, (size_t)count, sizeof *held, by_first);
    for (int i = 0; i < count; i++) {
        struct cddpi_tree_node parent;

        held[depth++] = held[i];
        while (depth > 1 &&
               cddpi_tree_siblings(tree, held[depth - 2].node, held[depth - 1].node, &parent)) {
            if (merged != NULL) {
                merged(context, held[depth - 2].slot, held[depth - 1].slot);
            }
            held[depth - 2].node = parent;
            depth--;
        }
    }
    return depth;
}

int cddpi_held_by(const struct cddpi_tree *tree, int first_host, int end_host,
                  struct cddpi_held *out)
{
    int count = 0;

    for (int slot = tree->first_part[first_host]; slot < tree->first_part[end_host]; slot++) {
        out[count++] = (struct cddpi_held){tree->parts[slot], slot};
    }
    return cddpi_held_merge(tree, out, count, NULL, NULL);
}

struct cddpi_fold cddpi_fold(int hosts)
{
    struct cddpi_fold fold = {1, 0, 0};

    while (fold.power <= hosts / 2) {
        fold.power *= 2;
        fold.rounds++;
    }
    fold.extras = hosts - fold.power;
    return fold;
}

int cddpi_fold_host(const struct cddpi_fold *fold, int place)
{
    return place < fold->extras ? 2 * place : place + fold->extras;
}

/* Count each host's parts; or, unless @p count_only, write the parts at the indices in first_part,
 * which are then increased. Two nodes are nested or disjoint, so the largest nodes from the left
 * are the parts. */
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

static void add_node(struct cddpi_tree_load *load, const struct cddpi_tree_node *node)
{
    load->leaves += node->count == 1;
    load->sums += node->count > 1;
}

static void keep_largest(struct cddpi_tree_load *most, const struct cddpi_tree_load *load)
{
    most->leaves = load->leaves > most->leaves ? load->leaves : most->leaves;
    most->sums = load->sums > most->sums ? load->sums : most->sums;
    most->merges = load->merges > most->merges ? load->merges : most->merges;
}

/* The load of hosts [first_host, end_host) together; before their merges they had @p before
 * nodes. */
static struct cddpi_tree_load load_of(const struct cddpi_tree *tree, int first_host, int end_host,
                                      struct cddpi_held *room, int *before)
{
    int count = cddpi_held_by(tree, first_host, end_host, room);
    struct cddpi_tree_load load = {0, 0, *before - count};

    for (int i = 0; i < count; i++) {
        add_node(&load, &room[i].node);
    }
    *before = count;
    return load;
}

static int parts_of(const struct cddpi_tree *tree, int host)
{
    return tree->first_part[host + 1] - tree->first_part[host];
}

/* @p nodes: by place, its number of nodes. */
static void weigh_rounds(struct cddpi_tree *tree, struct cddpi_held *room, int *nodes)
{
    struct cddpi_fold fold = cddpi_fold(tree->hosts);

    for (int place = 0; place < fold.power; place++) {
        int host = cddpi_fold_host(&fold, place);
        int end = cddpi_fold_host(&fold, place + 1);
        int before = parts_of(tree, host) + (end - host == 2 ? parts_of(tree, host + 1) : 0);
        struct cddpi_tree_load load = load_of(tree, host, end, room, &before);

        nodes[place] = before;
        keep_largest(&tree->rounds[0], &load);
        tree->rounds[0].merges = 0;
        if (end - host == 2) {
            before = parts_of(tree, host + 1);
            tree->fold.merges = load.merges > tree->fold.merges ? load.merges : tree->fold.merges;
            load = load_of(tree, host + 1, end, room, &before);
            keep_largest(&tree->fold, &load);
        }
    }
    for (int round = 1; round <= fold.rounds; round++) {
        for (int group = 0; group < fold.power >> round; group++) {
            int first = cddpi_fold_host(&fold, group << round);
            int end = cddpi_fold_host(&fold, (group + 1) << round);
            int before = nodes[2 * group] + nodes[2 * group + 1];
            struct cddpi_tree_load load = load_of(tree, first, end, room, &before);

            nodes[group] = before;
            keep_largest(&tree->rounds[round], &load);
        }
    }
}

static bool weigh(struct cddpi_tree *tree)
{
    struct cddpi_held *room = cddpi_zalloc_array((size_t)tree->part_count, sizeof *room);
    int *nodes = cddpi_zalloc_array((size_t)tree->hosts, sizeof *nodes);

    if (room != NULL && nodes != NULL) {
        for (int p = 0; p < tree->part_count; p++) {
            add_node(&tree->all, &tree->parts[p]);
        }
        for (int host = 0; host < tree->hosts; host++) {
            int before = parts_of(tree, host);
            struct cddpi_tree_load own = load_of(tree, host, host + 1, room, &before);
            struct cddpi_tree_load others = {tree->all.leaves - own.leaves,
                                             tree->all.sums - own.sums, 0};

            keep_largest(&tree->own, &own);
            keep_largest(&tree->others, &others);
        }
        tree->all.merges = tree->part_count - 1;
        weigh_rounds(tree, room, nodes);
    }
    cddpi_free(room);
    cddpi_free(nodes);
    return room != NULL && nodes != NULL;
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
    /* each host's index has moved to that of the next host */
    memmove(tree.first_part + 1, tree.first_part, (size_t)hosts * sizeof *tree.first_part);
    tree.first_part[0] = 0;
    if (!weigh(&tree)) {
        cddpi_tree_fini(&tree);
        return false;
    }
    *out = tree;
    return true;
}

void cddpi_tree_fini(struct cddpi_tree *tree)
{
    cddpi_free(tree->parts);
    cddpi_free(tree->first_part);
    *tree = (struct cddpi_tree){0};
}
