/* net_measure.c - measures the link between hosts when a group is created: a few milliseconds of
 * small and of large messages between neighbours. The slowest pair counts.
 */
#include "group/net/net_measure.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/net/transfer.h"
#include "group/net/watch.h"
#include "kernels/cpu/reduce.h"

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
    LONG_PAUSE_NS = 2000000
};

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
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && !cddpi_net_are_done(transfers, count)) {
        int64_t now = cddpi_now_ns();
        struct cddpi_failure failure;

        status = cddpi_net_progress(net);
        if (status == CDDP_OK && cddpi_net_hosts_aborted(net, &failure)) {
            status = cddpi_fail_again(CDDP_ERR_PEER, &failure);
        }
        if (status == CDDP_OK && now > pause_from) {
            struct timespec pause = {0, now < pause_from + LONG_NS ? PAUSE_NS : LONG_PAUSE_NS};

            status = cddpi_net_check_hosts(net);
            nanosleep(&pause, NULL);
        }
        if (status == CDDP_OK && now > deadline) {
            status = cddpi_fail(CDDP_ERR_TIMEOUT, "net: rank %d did not answer within %u ms",
                                transfers[0].peer, net->timeout_ms);
        }
    }
    return status;
}

cddp_status cddpi_net_swap(struct net_backend *net, int peer, unsigned index, unsigned char *buffer,
                           size_t bytes)
{
    struct cddpi_transfer both[2];
    cddp_status status = CDDP_OK;

    for (int i = 0; i < 2; i++) {
        both[i] = (struct cddpi_transfer){
            .peer = peer,
            .channel = CDDPI_NET_COLLECTIVES,
            .tag = cddpi_net_tag(0, index / 256, NET_MEASURE_ROUND, index % 256),
            .is_send = i == 0,
            .data = buffer + (size_t)i * bytes,
            .bytes = bytes,
            .cut_bytes = CDDPI_CUT_BYTES};
    }
    CDDPI_TRY(status);
    for (int i = 0; i < 2; i++) {
        CDDPI_TRY(cddpi_net_start(net, &both[i]));
    }
    return wait_for(net, both, 2);
}

cddp_status cddpi_net_agree_on_messages(struct net_backend *net,
                                        const struct cddpi_exchange *exchange, cddp_status mine,
                                        const void *own, size_t bytes, void *out_all)
{
    struct cddpi_failure failure;

    if (mine == CDDP_OK) {
        return cddpi_agree_and_gather_by(exchange, mine, own, bytes, out_all);
    }
    (void)cddpi_fail_name(mine, net->rank);
    failure = *cddpi_last_failure();
    cddpi_net_abort_hosts(net, &failure);
    (void)cddpi_fail_again(mine, &failure);
    (void)!cddpi_agree_and_gather_by(exchange, mine, own, bytes, out_all);
    return cddpi_fail_again(mine, &failure);
}

/* Measure bytes per second: send several large messages in both directions, one after the other. */
static cddp_status swap_large(struct net_backend *net, int peer, unsigned *index, int count,
                              unsigned char *buffer, double *out_bytes_per_s)
{
    int64_t begin = cddpi_now_ns();
    cddp_status status = CDDP_OK;

    for (int i = 0; i < count && status == CDDP_OK; i++) {
        status = cddpi_net_swap(net, peer, (*index)++, buffer, LARGE_BYTES);
    }
    *out_bytes_per_s = (double)count * LARGE_BYTES / ((double)(cddpi_now_ns() - begin) * 1e-9);
    return status;
}

/* Measure a fast link again. Whether transfers are cut depends on the link's speed, and a fast link
 * is easily taken for a slow one, since a single disturbance takes longer than the message.
 * Measuring again costs little; it requires that both sides have found the link fast. */
static cddp_status look_again(struct net_backend *net, int peer, unsigned *index,
                              unsigned char *buffer, double *bytes_per_s)
{
    const double fast = 2e8;
    double both[2] = {*bytes_per_s, 0};
    cddp_status status;

    memcpy(buffer, &both[0], sizeof both[0]);
    status = cddpi_net_swap(net, peer, (*index)++, buffer, SMALL_BYTES);
    memcpy(&both[1], buffer + SMALL_BYTES, sizeof both[1]);
    if (both[0] < fast || both[1] < fast) {
        return status;
    }
    *bytes_per_s = 0;
    for (int row = 0; row < LOOK_AGAIN_ROWS && status == CDDP_OK; row++) {
        double rate;

        status = swap_large(net, peer, index, LOOK_AGAIN_SWAPS, buffer, &rate);
        if (row >= SKIP_ROWS && rate > *bytes_per_s) {
            *bytes_per_s = rate;
        }
    }
    return status;
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
    cddp_status status = CDDP_OK;

    for (unsigned i = 0; i < ROUND_TRIPS && status == CDDP_OK; i++) {
        status = cddpi_net_swap(net, peer, i, buffer, SMALL_BYTES);
        ends[i + 1] = cddpi_now_ns();
        if (i > 0 && (ends[i + 1] - ends[i - 1]) / 2 < least) {
            least = (ends[i + 1] - ends[i - 1]) / 2;
        }
    }
    for (unsigned i = 0; i < 2 && status == CDDP_OK; i++) { /* the first opens TCP's windows */
        status = swap_large(net, peer, &index, 1, buffer, &out->bytes_per_s);
    }
    if (status == CDDP_OK && net->carrier->ops->cuts) {
        status = look_again(net, peer, &index, buffer, &out->bytes_per_s);
    }
    out->latency_s = (double)least * 1e-9;
    out->is_measured = true;
    return status;
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

    if (buffer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory to measure the link");
    }
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
    struct measured *all = cddpi_zalloc_array((size_t)net->size, sizeof *all);
    struct measured mine = {0};
    struct cddpi_link link = {0};
    cddp_status status = all != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory");

    if (status == CDDP_OK && net_is_leader(net)) {
        status = measure_link(net, &mine);
    }
    status = cddpi_net_agree_on_messages(net, exchange, status, &mine, sizeof mine, all);
    for (int rank = 0; rank < net->size && status == CDDP_OK; rank++) {
        const struct measured *one = &all[rank];

        if (!one->is_measured) {
            continue;
        }
        if (link.bytes_per_s == 0 || one->bytes_per_s < link.bytes_per_s) {
            link.bytes_per_s = one->bytes_per_s;
        }
        if (link.reduce_bytes_per_s == 0 || one->reduce_bytes_per_s < link.reduce_bytes_per_s) {
            link.reduce_bytes_per_s = one->reduce_bytes_per_s;
        }
        link.latency_s = one->latency_s > link.latency_s ? one->latency_s : link.latency_s;
    }
    cddpi_free(all);
    CDDPI_TRY(status);
    net->link = link;
    return CDDP_OK;
}
