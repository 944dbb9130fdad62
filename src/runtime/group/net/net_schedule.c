/* net_schedule.c - builds the schedules by which hosts get a sum over all ranks: one function per
 * algorithm. Their cost is in cost.c.
 *
 * Recursive doubling and halving pair neighbours first, so that siblings of the tree meet early and
 * few nodes stay unmerged. They need a power of two. If there are more hosts, some have an extra
 * neighbour, which gives them its parts at the start and gets the result at the end. */
#include "group/net/net_schedule.h"

#include "base/alloc.h"

#include <assert.h>

const char *const cddpi_algorithm_names[CDDPI_ALGORITHMS] = {
    [CDDPI_ALGORITHM_EXCHANGE] = "exchange",
    [CDDPI_ALGORITHM_DOUBLING] = "doubling",
    [CDDPI_ALGORITHM_DIRECT] = "direct",
    [CDDPI_ALGORITHM_HALVING] = "halving",
};

/* A schedule under construction. */
struct build {
    const struct cddpi_tree *tree;
    int host;
    int root_slot; /* the slot that becomes the tree's root */
    bool no_memory;
    int capacity;
    struct cddpi_net_schedule out;
    struct cddpi_held *own; /* the nodes that this host holds so far */
    int own_count;
    struct cddpi_held *other; /* the nodes that a partner holds */
};

static void add(struct build *build, struct cddpi_net_step step)
{
    struct cddpi_net_schedule *out = &build->out;

    if (out->count == build->capacity) {
        int capacity = build->capacity * 2 + 16;
        void *grown = cddpi_realloc(out->steps, (size_t)capacity * sizeof *out->steps);

        if (grown == NULL) {
            build->no_memory = true;
            return;
        }
        out->steps = grown;
        build->capacity = capacity;
    }
    out->steps[out->count++] = step;
}

/* A round's shares of the data. */
struct net_schedule_span {
    int round, begin, end;
};

static void send(struct build *build, int to, struct net_schedule_span span)
{
    for (int i = 0; i < build->own_count; i++) {
        add(build, (struct cddpi_net_step){CDDPI_STEP_SEND, span.round, to, build->own[i].slot, 0,
                                           span.begin, span.end, build->own[i].node.count});
    }
}

/* Receive from host @p from what hosts [first_host, end_host) have together. */
static void receive(struct build *build, int from, int first_host, int end_host,
                    struct net_schedule_span span)
{
    int count = cddpi_held_by(build->tree, first_host, end_host, build->other);

    for (int i = 0; i < count; i++) {
        build->own[build->own_count++] = build->other[i];
        add(build, (struct cddpi_net_step){CDDPI_STEP_RECV, span.round, from, build->other[i].slot,
                                           0, span.begin, span.end, build->other[i].node.count});
    }
}

struct merging {
    struct build *build;
    struct net_schedule_span span;
};

static void add_merge(void *context, int slot, int other)
{
    struct merging *merging = context;

    add(merging->build, (struct cddpi_net_step){CDDPI_STEP_MERGE, merging->span.round, -1, slot,
                                                other, merging->span.begin, merging->span.end, 0});
}

static void merge(struct build *build, struct net_schedule_span span)
{
    struct merging merging = {build, span};

    build->own_count = cddpi_held_merge(build->tree, build->own, build->own_count, add_merge,
                                        &merging);
}

static void finish(struct build *build, struct net_schedule_span span)
{
    assert(build->own_count == 1 && build->own[0].node.count == build->tree->ranks);
    add(build, (struct cddpi_net_step){CDDPI_STEP_FINISH, span.round, -1, build->own[0].slot, 0,
                                       span.begin, span.end, 0});
}

static void done(struct build *build, enum cddpi_step_kind kind, int host,
                 struct net_schedule_span span)
{
    add(build, (struct cddpi_net_step){kind, span.round, host, build->root_slot, 0, span.begin,
                                       span.end, 0});
}

/* Send all parts to @p root, or to all hosts. */
static void gather_parts(struct build *build, int root)
{
    struct net_schedule_span all = {0, 0, 1};
    int hosts = build->tree->hosts;

    build->out.ranges = 1;
    build->out.rounds = 1;
    for (int i = 1; i < hosts; i++) {
        int to = (build->host + i) % hosts;

        if (root == -1 || root == to) {
            send(build, to, all);
        }
    }
    if (root != -1 && root != build->host) {
        return;
    }
    for (int i = 1; i < hosts; i++) {
        int from = (build->host + hosts - i) % hosts;

        receive(build, from, from, from + 1, all);
    }
    merge(build, all);
    finish(build, all);
}

static void direct(struct build *build)
{
    int hosts = build->tree->hosts;
    int host = build->host;
    struct net_schedule_span mine = {0, host, host + 1};

    build->out.ranges = hosts;
    build->out.rounds = 2;
    for (int i = 1; i < hosts; i++) {
        int to = (host + i) % hosts;

        send(build, to, (struct net_schedule_span){0, to, to + 1});
    }
    for (int i = 1; i < hosts; i++) {
        int from = (host + hosts - i) % hosts;

        receive(build, from, from, from + 1, mine);
    }
    merge(build, mine);
    finish(build, mine);
    mine.round = 1;
    for (int i = 1; i < hosts; i++) {
        done(build, CDDPI_STEP_SEND_DONE, (host + i) % hosts, mine);
    }
    for (int i = 1; i < hosts; i++) {
        int from = (host + hosts - i) % hosts;

        done(build, CDDPI_STEP_RECV_DONE, from, (struct net_schedule_span){1, from, from + 1});
    }
}

/* Swap with the partner at each distance, nearest first: all slots, for all data or, when halving,
 * for the half that the partner keeps. Returns the range that this host has finished at the end. */
static struct net_schedule_span swap_sums(struct build *build, const struct cddpi_fold *fold,
                                          int place, struct net_schedule_span span, bool is_halving)
{
    for (int mask = 1; mask < fold->power; mask *= 2) {
        int group = (place ^ mask) & ~(mask - 1);
        int partner = cddpi_fold_host(fold, place ^ mask);
        int middle = (span.begin + span.end) / 2;
        struct net_schedule_span keep = span;
        struct net_schedule_span give = span;

        if (is_halving && (place & mask) == 0) {
            keep.end = give.begin = middle;
        } else if (is_halving) {
            keep.begin = give.end = middle;
        }
        send(build, partner, give);
        receive(build, partner, cddpi_fold_host(fold, group), cddpi_fold_host(fold, group + mask),
                keep);
        merge(build, keep);
        span = keep;
        span.round++;
    }
    finish(build,
           (struct net_schedule_span){span.round > 0 ? span.round - 1 : 0, span.begin, span.end});
    return span;
}

/* The second phase of halving: the range of each host doubles until all hosts have everything.
 * Returns the next round. */
static int swap_results(struct build *build, const struct cddpi_fold *fold, int place,
                        struct net_schedule_span span)
{
    for (int mask = fold->power / 2; mask > 0; mask /= 2) {
        int partner = cddpi_fold_host(fold, place ^ mask);
        int size = span.end - span.begin;
        int shift = (place & mask) == 0 ? size : -size;

        done(build, CDDPI_STEP_SEND_DONE, partner, span);
        done(build, CDDPI_STEP_RECV_DONE, partner,
             (struct net_schedule_span){span.round, span.begin + shift, span.end + shift});
        span.begin += shift < 0 ? shift : 0;
        span.end += shift > 0 ? shift : 0;
        span.round++;
    }
    return span.round;
}

static void recursive(struct build *build, bool is_halving)
{
    struct cddpi_fold fold = cddpi_fold(build->tree->hosts);
    struct net_schedule_span all = {0, 0, is_halving ? fold.power : 1};
    int host = build->host;
    int place = host < 2 * fold.extras ? host / 2 : host - fold.extras;
    bool is_folded = place < fold.extras;
    struct net_schedule_span last = all;
    struct net_schedule_span span;

    last.round = (fold.extras > 0) + fold.rounds * (is_halving ? 2 : 1);
    build->out.ranges = all.end;
    build->out.rounds = last.round + (fold.extras > 0);
    build->out.rounds += build->out.rounds == 0; /* one host: only the finish */
    if (is_folded && host % 2 == 1) {
        send(build, host - 1, all);
        done(build, CDDPI_STEP_RECV_DONE, host - 1, last);
        return;
    }
    if (is_folded) {
        receive(build, host + 1, host + 1, host + 2, all);
        merge(build, all);
    }
    all.round = fold.extras > 0;
    span = swap_sums(build, &fold, place, all, is_halving);
    if (is_halving) {
        span.round = swap_results(build, &fold, place, span);
    }
    assert(span.round == last.round);
    if (is_folded) {
        done(build, CDDPI_STEP_SEND_DONE, host + 1, last);
    }
}

bool cddpi_schedule_init(const struct cddpi_tree *tree, enum cddpi_algorithm algorithm, int host,
                         int root, struct cddpi_net_schedule *out)
{
    struct build build = {.tree = tree, .host = host};

    while (tree->parts[build.root_slot].first != 0) {
        build.root_slot++;
    }
    build.own = cddpi_zalloc_array((size_t)tree->part_count, sizeof *build.own);
    build.other = cddpi_zalloc_array((size_t)tree->part_count, sizeof *build.other);
    build.no_memory = build.own == NULL || build.other == NULL;
    if (!build.no_memory) {
        build.own_count = cddpi_held_by(tree, host, host + 1, build.own);
        if (root != -1 || algorithm == CDDPI_ALGORITHM_EXCHANGE) {
            gather_parts(&build, root);
        } else if (algorithm == CDDPI_ALGORITHM_DIRECT) {
            direct(&build);
        } else {
            recursive(&build, algorithm == CDDPI_ALGORITHM_HALVING);
        }
    }
    cddpi_free(build.own);
    cddpi_free(build.other);
    if (build.no_memory) {
        cddpi_schedule_fini(&build.out);
        return false;
    }
    *out = build.out;
    return true;
}

void cddpi_schedule_fini(struct cddpi_net_schedule *schedule)
{
    cddpi_free(schedule->steps);
    *schedule = (struct cddpi_net_schedule){0};
}

size_t cddpi_share_begin(size_t count, int ranges, int share)
{
    enum { WHOLE = 64 }; /* so that shares begin at cache lines for every type */
    size_t all = (size_t)ranges;
    size_t units = count / WHOLE;

    if (share >= ranges) {
        return count;
    }
    return (units / all * (size_t)share + units % all * (size_t)share / all) * WHOLE;
}
