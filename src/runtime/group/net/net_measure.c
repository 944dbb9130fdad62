/* net_measure.c - measures the link between hosts when a group is created, by a few milliseconds of
 * small and of large messages between neighbours, of which the slowest pair counts; and chooses how
 * many ranks of each host exchange data with other hosts: one, or several if one core cannot
 * saturate the link. */
#include "group/net/net_open.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "group/net/transfer.h"
#include "group/net/watch.h"
#include "kernels/cpu/reduce.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum {
    ROUND_TRIPS = 24,
    SMALL_BYTES = 64,
    LARGE_BYTES = 512 << 10,
    LOOK_AGAIN_SWAPS = 4, /* consecutive swaps of large messages */
    LOOK_AGAIN_ROWS = 8,
    SKIP_ROWS = 2, /* skipped first rows: a shaped link lets a few MiB pass at once */
    REDUCE_COUNT = 64 << 10,
    CHECK_NS = 1000000,
    PAUSE_NS = 20000,
    LONG_NS = 50000000, /* a rank that waits longer than this stops measuring */
    LONG_PAUSE_NS = 2000000,
    SWAPS = 6,      /* of LARGE_BYTES, to compare numbers of leaders */
    MEASURED = 256, /* swaps with a lower index belong to cddpi_net_measure() */
    /* a round number in tags, used with number 0, since no collective is in progress yet */
    MEASURE_ROUND = 30
};

static const double one_fills_s = 4e8; /* bytes per second that any core can move */
static const double worth_it = 1.25;   /* factor by which twice as many leaders must be faster */

/* What each leader has measured. */
struct measured {
    double latency_s, bytes_per_s, reduce_bytes_per_s;
    bool is_measured;
};

static cddp_status wait_for(struct net_backend *net, const struct cddpi_transfer *transfers,
                            size_t count)
{
    int64_t deadline = cddpi_deadline_ns(net->timeout_ms);
    int64_t pause_from = cddpi_now_ns() + CHECK_NS;

    while (!cddpi_net_are_done(transfers, count)) {
        int64_t now = cddpi_now_ns();
        struct cddpi_failure failure;

        CDDPI_TRY(cddpi_net_progress(net));
        if (cddpi_net_hosts_aborted(net, &failure)) {
            return cddpi_fail_again(CDDP_ERR_PEER, &failure);
        }
        if (now > pause_from) {
            struct timespec pause = {0, now < pause_from + LONG_NS ? PAUSE_NS : LONG_PAUSE_NS};

            CDDPI_TRY(cddpi_net_check_hosts(net));
            nanosleep(&pause, NULL);
        }
        if (now > deadline) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "net: rank %d did not answer within %u ms",
                              transfers[0].peer, net->timeout_ms);
        }
    }
    return CDDP_OK;
}

/* Send @p bytes to @p peer, which does the same, and receive the same number of bytes; waits.
 *  @param index   Distinguishes swaps with the same peer.
 *  @param buffer  The data to send, followed by room for the received data. */
static cddp_status swap(struct net_backend *net, int peer, unsigned index, unsigned char *buffer,
                        size_t bytes)
{
    struct cddpi_transfer both[2];

    for (int i = 0; i < 2; i++) {
        both[i] = (struct cddpi_transfer){
            .peer = peer,
            .channel = CDDPI_NET_COLLECTIVES,
            .tag = cddpi_net_tag(0, index / 256, MEASURE_ROUND, index % 256),
            .is_send = i == 0,
            .data = buffer + (size_t)i * bytes,
            .bytes = bytes,
            .cut_bytes = CDDPI_CUT_BYTES};
    }
    for (int i = 0; i < 2; i++) {
        CDDPI_TRY(cddpi_net_start(net, &both[i]));
    }
    return wait_for(net, both, 2);
}

/* Like cddpi_agree_and_gather_by(), for use after messages between leaders. If this rank failed, it
 * first notifies the ranks that may wait for its messages, and gets its own failure, since the
 * failures of the others follow from it. */
static cddp_status agree_on_messages(struct net_backend *net, const struct cddpi_exchange *exchange,
                                     cddp_status mine, const void *own, size_t bytes, void **out)
{
    struct cddpi_failure failure;

    if (mine == CDDP_OK) {
        return cddpi_agree_and_gather_by(exchange, mine, own, bytes, out);
    }
    (void)cddpi_fail_name(mine, net->rank);
    failure = *cddpi_last_failure();
    cddpi_net_abort_hosts(net, &failure);
    (void)cddpi_fail_again(mine, &failure);
    (void)!cddpi_agree_and_gather_by(exchange, mine, own, bytes, out);
    return cddpi_fail_again(mine, &failure);
}

/* Measure bytes per second: send several large messages in both directions, one after the other. */
static cddp_status swap_large(struct net_backend *net, int peer, unsigned *index, int count,
                              unsigned char *buffer, double *out_bytes_per_s)
{
    int64_t begin = cddpi_now_ns();

    for (int i = 0; i < count; i++) {
        CDDPI_TRY(swap(net, peer, (*index)++, buffer, LARGE_BYTES));
    }
    *out_bytes_per_s = (double)count * LARGE_BYTES / ((double)(cddpi_now_ns() - begin) * 1e-9);
    return CDDP_OK;
}

/* Measure a fast link again. Whether transfers are cut depends on the link's speed, and a fast link
 * is easily taken for a slow one, since a single disturbance takes longer than the message.
 * Measuring again costs little; it requires that both sides have found the link fast. */
static cddp_status look_again(struct net_backend *net, int peer, unsigned *index,
                              unsigned char *buffer, double *bytes_per_s)
{
    const double fast = 2e8;
    double both[2] = {*bytes_per_s, 0};

    memcpy(buffer, &both[0], sizeof both[0]);
    CDDPI_TRY(swap(net, peer, (*index)++, buffer, SMALL_BYTES));
    memcpy(&both[1], buffer + SMALL_BYTES, sizeof both[1]);
    if (both[0] < fast || both[1] < fast) {
        return CDDP_OK;
    }
    *bytes_per_s = 0;
    for (int row = 0; row < LOOK_AGAIN_ROWS; row++) {
        double rate;

        CDDPI_TRY(swap_large(net, peer, index, LOOK_AGAIN_SWAPS, buffer, &rate));
        if (row >= SKIP_ROWS && rate > *bytes_per_s) {
            *bytes_per_s = rate;
        }
    }
    return CDDP_OK;
}

/* Measure with the leader of @p host, which does the same. One side may be ahead, so that its
 * message arrives before the other side waits for it. What one swap saves, the next one takes
 * longer, so two consecutive swaps count together. */
static cddp_status measure_pair(struct net_backend *net, int host, unsigned char *buffer,
                                struct measured *out)
{
    int peer = net->leaders[host];
    int64_t ends[ROUND_TRIPS + 1] = {cddpi_now_ns()};
    int64_t least = INT64_MAX;
    unsigned index = ROUND_TRIPS;

    for (unsigned i = 0; i < ROUND_TRIPS; i++) {
        CDDPI_TRY(swap(net, peer, i, buffer, SMALL_BYTES));
        ends[i + 1] = cddpi_now_ns();
        if (i > 0 && (ends[i + 1] - ends[i - 1]) / 2 < least) {
            least = (ends[i + 1] - ends[i - 1]) / 2;
        }
    }
    for (unsigned i = 0; i < 2; i++) { /* the first opens TCP's windows */
        CDDPI_TRY(swap_large(net, peer, &index, 1, buffer, &out->bytes_per_s));
    }
    if (net->carrier->ops->cuts) {
        CDDPI_TRY(look_again(net, peer, &index, buffer, &out->bytes_per_s));
    }
    out->latency_s = (double)least * 1e-9;
    out->is_measured = true;
    return CDDP_OK;
}

/* Measure how fast one core adds. */
static double measure_reduce(unsigned char *buffer)
{
    struct cddpi_reduce how = {CDDP_F32, CDDP_OP_SUM, 2, 1, NULL};
    const void *sources[2] = {buffer, buffer + REDUCE_COUNT * sizeof(float)};
    void *out = buffer;
    int64_t begin = cddpi_now_ns();

    cddpi_reduce(&how, &out, sources, REDUCE_COUNT);
    begin = cddpi_now_ns();
    cddpi_reduce(&how, &out, sources, REDUCE_COUNT);
    return (double)(REDUCE_COUNT * sizeof(float)) / ((double)(cddpi_now_ns() - begin + 1) * 1e-9);
}

/* Measure leaders with their neighbours: first 0 with 1, 2 with 3 ..., so that each has one partner
 * at a time. */
static cddp_status measure_link(struct net_backend *net, struct measured *out)
{
    unsigned char *buffer = cddpi_alloc_aligned(2 * (size_t)LARGE_BYTES);
    int neighbour = net->host ^ 1;
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(buffer != NULL, "net: no memory to measure the link");
    memset(buffer, 0, 2 * (size_t)LARGE_BYTES);
    if (neighbour < net->host_count) {
        status = measure_pair(net, neighbour, buffer, out);
    }
    out->reduce_bytes_per_s = measure_reduce(buffer);
    cddpi_free(buffer);
    return status;
}

cddp_status cddpi_net_measure(struct net_backend *net, const struct cddpi_exchange *exchange)
{
    struct measured mine = {0};
    struct cddpi_link link = {0, INFINITY, INFINITY};
    void *all;
    cddp_status status = net_is_leader(net) ? measure_link(net, &mine) : CDDP_OK;

    CDDPI_TRY(agree_on_messages(net, exchange, status, &mine, sizeof mine, &all));
    for (int rank = 0; rank < net->size; rank++) {
        const struct measured *one = (const struct measured *)all + rank;

        if (!one->is_measured) {
            continue;
        }
        link.latency_s = fmax(link.latency_s, one->latency_s);
        link.bytes_per_s = fmin(link.bytes_per_s, one->bytes_per_s);
        link.reduce_bytes_per_s = fmin(link.reduce_bytes_per_s, one->reduce_bytes_per_s);
    }
    cddpi_free(all);
    net->link = link;
    return CDDP_OK;
}

/* How much a rank has moved, and when, by its host's clock. */
struct moved {
    int64_t begin_ns, end_ns;
    int64_t bytes; /* 0: it had no peer */
};

/* Get CDDP_LEADERS from all ranks; 0: the number must be measured. */
static cddp_status agree_on_wish(struct net_backend *net, const struct cddpi_exchange *exchange,
                                 int *out)
{
    int mine = (int)cddpi_env_integer(CDDPI_ENV_LEADERS, 1, NET_MAX_LEADERS, 0);
    cddp_status status = CDDP_OK;
    const int *wishes;
    void *all;

    CDDPI_TRY(cddpi_agree_and_gather_by(exchange, CDDP_OK, &mine, sizeof mine, &all));
    wishes = all;
    for (int rank = 0; rank < net->size && status == CDDP_OK; rank++) {
        if (wishes[rank] != wishes[0]) {
            status = cddpi_fail(CDDP_ERR_MISMATCH,
                                "CDDP_LEADERS differs: rank 0 has %d and rank %d %d (0: unset)",
                                wishes[0], rank, wishes[rank]);
        }
    }
    cddpi_free(all);
    *out = mine;
    return status;
}

/* Exchange @p bytes several times with the neighbour host's leader of the same number. */
static cddp_status move_data(struct net_backend *net, int leaders, unsigned char *buffer,
                             size_t bytes, struct moved *out)
{
    int neighbour = net->host ^ 1;
    unsigned index = MEASURED + (unsigned)leaders * SWAPS;

    if (neighbour >= net->host_count || net->local_rank >= leaders) {
        return CDDP_OK;
    }
    out->begin_ns = cddpi_now_ns();
    for (unsigned i = 0; i < SWAPS; i++) {
        CDDPI_TRY(swap(net, net_leader(net, neighbour, net->local_rank), index + i, buffer, bytes));
    }
    out->end_ns = cddpi_now_ns();
    out->bytes = (int64_t)(SWAPS * bytes);
    return CDDP_OK;
}

/* Bytes per second of the slowest host, from the start of its first leader to the end of its
 * last. */
static double slowest_host(const struct net_backend *net, const struct moved *all)
{
    double slowest = 0;

    for (int host = 0; host < net->host_count; host++) {
        struct moved whole = {INT64_MAX, 0, 0};
        double rate;

        for (int i = net->first[host]; i < net->first[host + 1]; i++) {
            const struct moved *one = &all[net->by_host[i]];

            if (one->bytes > 0) {
                whole.bytes += one->bytes;
                whole.begin_ns = one->begin_ns < whole.begin_ns ? one->begin_ns : whole.begin_ns;
                whole.end_ns = one->end_ns > whole.end_ns ? one->end_ns : whole.end_ns;
            }
        }
        if (whole.bytes > 0) {
            rate = (double)whole.bytes * 1e9 / (double)(whole.end_ns - whole.begin_ns + 1);
            slowest = slowest == 0 || rate < slowest ? rate : slowest;
        }
    }
    return slowest;
}

/* Measure the rate of @p leaders of each host together. */
static cddp_status measure_rate(struct net_backend *net, const struct cddpi_exchange *exchange,
                                int leaders, double *out)
{
    unsigned char *buffer = cddpi_alloc_aligned(2 * (size_t)LARGE_BYTES);
    struct moved mine = {0};
    void *all = NULL;
    cddp_status status = CDDP_OK;

    if (buffer != NULL) {
        memset(buffer, 0, 2 * (size_t)LARGE_BYTES);
    } else {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory to measure the link");
    }
    CDDPI_TRY_GOTO(out, status, cddpi_agree_by(exchange, status));
    /* the first messages connect; after that all leaders begin at once */
    status = move_data(net, leaders, buffer, 1, &mine);
    CDDPI_TRY_GOTO(out, status, agree_on_messages(net, exchange, status, &mine, sizeof mine, &all));
    cddpi_free(all);
    all = NULL;
    status = move_data(net, leaders, buffer, LARGE_BYTES, &mine);
    CDDPI_TRY_GOTO(out, status, agree_on_messages(net, exchange, status, &mine, sizeof mine, &all));
    *out = slowest_host(net, all);

out:
    cddpi_free(all);
    cddpi_free(buffer);
    return status;
}

cddp_status cddpi_net_choose_leaders(struct net_backend *net, const struct cddpi_exchange *exchange)
{
    int most = NET_MAX_LEADERS; /* for which every host has ranks */
    int wish;
    double rate;

    for (int host = 0; host < net->host_count; host++) {
        most = net_host_size(net, host) < most ? net_host_size(net, host) : most;
    }
    CDDPI_TRY(agree_on_wish(net, exchange, &wish));
    net->link_of_one_bytes_per_s = net->link.bytes_per_s;
    if (wish > 0) {
        net->leader_count = wish < most ? wish : most;
        /* plans of sums and buckets are based on the rate of all leaders */
        return net->leader_count > 1
                   ? measure_rate(net, exchange, net->leader_count, &net->link.bytes_per_s)
                   : CDDP_OK;
    }
    if (most == 1 || net->link.bytes_per_s < one_fills_s) {
        return CDDP_OK;
    }
    CDDPI_TRY(measure_rate(net, exchange, 1, &rate));
    for (int leaders = 2; leaders <= most; leaders *= 2) {
        double more;

        CDDPI_TRY(measure_rate(net, exchange, leaders, &more));
        if (more < worth_it * rate) {
            break;
        }
        net->leader_count = leaders;
        net->link.bytes_per_s = rate = more;
    }
    return CDDP_OK;
}
