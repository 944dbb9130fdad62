/* cost.c - estimates how long sums between hosts take on a given link, to choose the best algorithm
 * and piece size.
 *
 * A round takes
 *
 *     latency + (messages - 1) * message + bytes / bandwidth + merged bytes / speed of merging
 *
 * with the maximum of each over all hosts, as in Hockney's model with reductions: Thakur,
 * Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
 * There, with one node per host, p hosts, latency a, b seconds per byte and c seconds per reduced
 * byte:
 *
 *     recursive doubling                      lg p (a + n b + n c)
 *     recursive halving, doubling back        2 lg p a + 2 (p - 1)/p n b + (p - 1)/p n c
 *     (neither a power of two: a fold more)   + 2 a + 2 n b + n c
 *
 * and, with p - 1 messages at once, each of which costs m, except the first:
 *
 *     exchange            a + (p - 2) m + (p - 1) n b + (p - 1) n c
 *     direct          2 (a + (p - 2) m) + 2 (p - 1)/p n b + (p - 1)/p n c
 *
 * Here a host may have several nodes, if its ranks do not make up one; each node is a message. A
 * sum may be wider than the data. */
#include "group/net/net_schedule.h"

#include "base/alloc.h"

#include <math.h>

/* The parts of a time; those of different pieces overlap. */
struct cost {
    double latency_s; /* only waiting */
    double wire_s;    /* time in which the wire, or the thread that feeds it, is busy */
    double merge_s;   /* time in which a core is busy */
};

/* The maximum cost of each message after the first; it is less if even the latency is lower. */
static const double message_s = 5e-6;

static double each_message(const struct cddpi_link *link)
{
    return fmin(link->latency_s / 4, message_s);
}

static void add_round(struct cost *cost, const struct cddpi_link *link, double messages,
                      double bytes, double merged_bytes)
{
    cost->latency_s += link->latency_s;
    cost->wire_s += fmax(messages - 1, 0) * each_message(link) + bytes / link->bytes_per_s;
    cost->merge_s += merged_bytes / link->reduce_bytes_per_s;
}

static double bytes_of(const struct cddpi_tree_load *load, double leaf_bytes, double sum_bytes)
{
    return load->leaves * leaf_bytes + load->sums * sum_bytes;
}

static int slots_of(const struct cddpi_tree_load *load)
{
    return load->leaves + load->sums;
}

static struct cost exchange(const struct cddpi_tree *tree, const struct cddpi_link *link,
                            double leaf, double sum)
{
    struct cost cost = {0};
    int to = tree->hosts - 1;
    double sent = to * bytes_of(&tree->own, leaf, sum);
    double received = bytes_of(&tree->others, leaf, sum);

    add_round(&cost, link, fmax(to * slots_of(&tree->own), slots_of(&tree->others)),
              fmax(sent, received), tree->all.merges * sum);
    return cost;
}

static struct cost direct(const struct cddpi_tree *tree, const struct cddpi_link *link, double leaf,
                          double sum)
{
    struct cost cost = exchange(tree, link, leaf / tree->hosts, sum / tree->hosts);

    add_round(&cost, link, tree->hosts - 1, leaf * (tree->hosts - 1) / tree->hosts, 0);
    return cost;
}

static struct cost recursive(const struct cddpi_tree *tree, const struct cddpi_link *link,
                             double leaf, double sum, bool is_halving)
{
    struct cost cost = {0};
    struct cddpi_fold fold = cddpi_fold(tree->hosts);
    double share = 1;

    if (fold.extras > 0) {
        add_round(&cost, link, slots_of(&tree->fold), bytes_of(&tree->fold, leaf, sum),
                  tree->fold.merges * sum);
        add_round(&cost, link, 1, leaf, 0);
    }
    for (int round = 0; round < fold.rounds; round++) {
        const struct cddpi_tree_load *before = &tree->rounds[round];

        share /= is_halving ? 2 : 1;
        add_round(&cost, link, slots_of(before), bytes_of(before, leaf, sum) * share,
                  tree->rounds[round + 1].merges * sum * share);
    }
    for (int round = 0; is_halving && round < fold.rounds; round++) {
        add_round(&cost, link, 1, leaf * share, 0);
        share *= 2;
    }
    return cost;
}

static struct cost cost_of(const struct cddpi_tree *tree, const struct cddpi_link *link,
                           enum cddpi_algorithm algorithm, double leaf, double sum)
{
    if (tree->hosts == 1) {
        return (struct cost){0};
    }
    switch (algorithm) {
    case CDDPI_ALGORITHM_EXCHANGE:
        return exchange(tree, link, leaf, sum);
    case CDDPI_ALGORITHM_DIRECT:
        return direct(tree, link, leaf, sum);
    default:
        return recursive(tree, link, leaf, sum, algorithm == CDDPI_ALGORITHM_HALVING);
    }
}

double cddpi_algorithm_seconds(const struct cddpi_tree *tree, const struct cddpi_link *link,
                               enum cddpi_algorithm algorithm, size_t leaf_bytes, size_t sum_bytes)
{
    struct cost cost = cost_of(tree, link, algorithm, (double)leaf_bytes, (double)sum_bytes);

    return cost.latency_s + cost.wire_s + cost.merge_s;
}

/* One of n pieces passes alone. Each other piece adds the time of the busier of wire and core; if
 * that does not hide the waiting, it adds its own time divided by the number of pieces in progress.
 * Hosts with several ranks also reduce each piece before, and copy it afterwards. Each rank does a
 * share of that, so all of them together take as long as one core with one array. */
double cddpi_pieces_seconds(const struct cddpi_tree *tree, const struct cddpi_link *link,
                            enum cddpi_algorithm algorithm, size_t leaf_bytes, size_t sum_bytes,
                            size_t piece_bytes)
{
    double pieces = piece_bytes < leaf_bytes ? ceil((double)leaf_bytes / (double)piece_bytes) : 1;
    struct cost piece = cost_of(tree, link, algorithm, (double)leaf_bytes / pieces,
                                (double)sum_bytes / pieces);
    double alone_s;

    if (tree->ranks > tree->hosts) {
        piece.merge_s += 2 * (double)leaf_bytes / pieces / link->reduce_bytes_per_s;
    }
    alone_s = piece.latency_s + piece.wire_s + piece.merge_s;
    return alone_s +
           (pieces - 1) * fmax(fmax(piece.wire_s, piece.merge_s), alone_s / CDDPI_PIECES_UNDER_WAY);
}

enum cddpi_algorithm cddpi_algorithm_choose(const struct cddpi_tree *tree,
                                            const struct cddpi_link *link, size_t leaf_bytes,
                                            size_t sum_bytes, double *out_s)
{
    enum cddpi_algorithm best = CDDPI_ALGORITHM_EXCHANGE;
    double best_s = INFINITY;
    size_t piece_bytes = cddpi_piece_bytes(link, tree->hosts, leaf_bytes);

    for (int a = 0; a < CDDPI_ALGORITHMS; a++) {
        /* an exchange is used for little data, in one piece */
        double seconds = cddpi_pieces_seconds(
            tree, link, (enum cddpi_algorithm)a, leaf_bytes, sum_bytes,
            a == CDDPI_ALGORITHM_EXCHANGE ? leaf_bytes : piece_bytes);

        if (seconds < best_s) {
            best = (enum cddpi_algorithm)a;
            best_s = seconds;
        }
    }
    if (out_s != NULL) {
        *out_s = best_s;
    }
    return best;
}

/* The messages of a piece of p bytes cost o seconds. At both ends nothing overlaps: p bytes are
 * reduced within the host before the wire starts, and copied after it has ended, 2 p / r seconds in
 * total. So n bytes take n / p o + 2 p / r longer than their time on the wire, with a minimum at p
 * = sqrt(n o r / 2). A piece is at least as long as the wire could send while waiting for two
 * rounds, so that two pieces hide each other's waiting. */
size_t cddpi_piece_bytes(const struct cddpi_link *link, int hosts, size_t bytes)
{
    const double least = 64 << 10;
    const double most = 4 << 20; /* larger pieces drop out of the cache between their stages */
    double others = hosts > 1 ? hosts - 1 : 1;
    double messages_s = 2 * others * each_message(link);
    double best = sqrt((double)bytes * messages_s * link->reduce_bytes_per_s / 2);
    double in_wait = 2 * link->latency_s * link->bytes_per_s * hosts / (2 * others);

    best = fmin(fmax(fmax(best, least), in_wait), fmax(most, in_wait));
    return best < (double)bytes ? cddpi_align((size_t)best) : cddpi_align(bytes > 0 ? bytes : 1);
}

/* Open MPI over TCP uses a rendezvous for messages above 64 KiB: it announces the message, waits
 * for the answer, and then puts the whole message into the connection's queue. The answer waits in
 * the queue of the other direction, after the data that is sent there. So the second side waits
 * until the first has sent everything, and the two directions take turns. Shorter messages are sent
 * eagerly, at the price of a copy at both ends. That pays only if the copies are several times as
 * fast as the link.
 *
 * Eager messages are buffered if the peer is late. In collectives, in which all ranks wait for each
 * other, that is never more than a few pieces. */
size_t cddpi_cut_bytes(const struct cddpi_link *link)
{
    const double fast = 2e9; /* 16 Gbit/s */

    return link->bytes_per_s < fast ? CDDPI_CUT_BYTES : 0;
}
