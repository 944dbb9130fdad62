/* leaders.c - chooses how many ranks of each host exchange data with other hosts: one, or several
 * if one core cannot saturate the link. */
#include "group/net/leaders.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "group/net/net_measure.h"

#include <string.h>

enum { SWAPS = 6, SWAP_BYTES = 512 << 10 };

static const double one_fills_s = 4e8; /* bytes per second that any core can move */
static const double worth_it = 1.25;   /* factor by which twice as many leaders must be faster */

/* How much a rank has moved, and when, by its host's clock. */
struct moved {
    int64_t begin_ns, end_ns;
    int64_t bytes; /* 0: it had no peer */
};

/* The largest number of leaders for which every host has ranks. */
static int most_leaders(const struct net_backend *net)
{
    int most = NET_MAX_LEADERS;

    for (int host = 0; host < net->host_count; host++) {
        most = net_host_size(net, host) < most ? net_host_size(net, host) : most;
    }
    return most;
}

/* Get CDDP_LEADERS from all ranks; 0: the number must be measured. */
static cddp_status agree_on_wish(struct net_backend *net, const struct cddpi_exchange *exchange,
                                 int *out)
{
    int mine = (int)cddpi_env_integer(CDDPI_ENV_LEADERS, 1, NET_MAX_LEADERS, 0);
    int *all = cddpi_zalloc_array((size_t)net->size, sizeof *all);
    cddp_status status = cddpi_agree_and_gather_by(
        exchange, all != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory"), &mine,
        sizeof mine, all);

    for (int rank = 0; rank < net->size && status == CDDP_OK; rank++) {
        if (all[rank] != all[0]) {
            status = cddpi_fail(CDDP_ERR_MISMATCH,
                                "CDDP_LEADERS differs: rank 0 has %d and rank %d %d (0: unset)",
                                all[0], rank, all[rank]);
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
    unsigned index = NET_MEASURED + (unsigned)leaders * SWAPS;
    cddp_status status = CDDP_OK;

    if (neighbour >= net->host_count || net->local_rank >= leaders) {
        return CDDP_OK;
    }
    out->begin_ns = cddpi_now_ns();
    for (unsigned i = 0; i < SWAPS && status == CDDP_OK; i++) {
        status = cddpi_net_swap(net, net_leader(net, neighbour, net->local_rank), index + i, buffer,
                                bytes);
    }
    out->end_ns = cddpi_now_ns();
    out->bytes = (int64_t)(SWAPS * bytes);
    return status;
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
    struct moved *all = cddpi_zalloc_array((size_t)net->size, sizeof *all);
    unsigned char *buffer = cddpi_alloc_aligned(2 * (size_t)SWAP_BYTES);
    struct moved mine = {0};
    cddp_status status = cddpi_agree_by(
        exchange, all != NULL && buffer != NULL
                      ? CDDP_OK
                      : cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory to measure the link"));

    if (status == CDDP_OK) {
        memset(buffer, 0, 2 * (size_t)SWAP_BYTES);
        /* the first messages connect; after that all leaders begin at once */
        status = move_data(net, leaders, buffer, 1, &mine);
        status = cddpi_net_agree_on_messages(net, exchange, status, &mine, sizeof mine, all);
    }
    if (status == CDDP_OK) {
        status = move_data(net, leaders, buffer, SWAP_BYTES, &mine);
        status = cddpi_net_agree_on_messages(net, exchange, status, &mine, sizeof mine, all);
    }
    if (status == CDDP_OK) {
        *out = slowest_host(net, all);
    }
    cddpi_free(all);
    cddpi_free(buffer);
    return status;
}

/* Set the link's rate once the number of leaders is known: plans are based on the rate of all
 * leaders. */
static cddp_status measure_together(struct net_backend *net, const struct cddpi_exchange *exchange)
{
    double rate;

    CDDPI_TRY(measure_rate(net, exchange, net->leader_count, &rate));
    net->link.bytes_per_s = rate;
    return CDDP_OK;
}

cddp_status cddpi_net_choose_leaders(struct net_backend *net, const struct cddpi_exchange *exchange)
{
    int most = most_leaders(net);
    int wish;
    double rate;
    cddp_status status = agree_on_wish(net, exchange, &wish);

    net->link_of_one_bytes_per_s = net->link.bytes_per_s;
    if (status == CDDP_OK && wish > 0) {
        net->leader_count = wish < most ? wish : most;
        return net->leader_count > 1 ? measure_together(net, exchange) : CDDP_OK;
    }
    if (status != CDDP_OK || most == 1 || net->link.bytes_per_s < one_fills_s) {
        return status;
    }
    status = measure_rate(net, exchange, 1, &rate);
    for (int leaders = 2; leaders <= most && status == CDDP_OK; leaders *= 2) {
        double more;

        status = measure_rate(net, exchange, leaders, &more);
        if (status == CDDP_OK && more < worth_it * rate) {
            break;
        }
        net->leader_count = leaders;
        rate = more;
        net->link.bytes_per_s = rate; /* used to plan sums and buckets */
    }
    return status;
}
