/* heads.c - owns the comparison of calls. Each rank compares with the ranks of its host. Each host
 * compares with other hosts: per collective, each leader sends one fingerprint to the leaders with
 * the same number on other hosts. */
#include "group/net/heads.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/net/net_collective.h"
#include "group/net/transfer.h"

#include <stdio.h>
#include <string.h>

/* With more hosts than this, each compares only with the hosts at distances 1, 2, 4 ..., which
 * still connects all of them. */
enum { ALL_HOSTS = 8 };

enum { INDEX_HEAD, INDEX_WEIGHTS };

static bool is_partner(const struct net_backend *net, const struct net_collective *collective,
                       int host)
{
    int distance = host - net->host;

    if (distance == 0) {
        return false;
    }
    if (net->host_count <= ALL_HOSTS || collective->op->weighted ||
        collective->op->kind == CDDPI_BARRIER) {
        return true;
    }
    distance = distance < 0 ? distance + net->host_count : distance;
    if ((distance & (distance - 1)) == 0) {
        return true;
    }
    distance = net->host_count - distance;
    return (distance & (distance - 1)) == 0;
}

static struct cddpi_transfer transfer_of(const struct net_backend *net,
                                         const struct net_collective *collective, int host,
                                         bool is_send, unsigned index, void *data, size_t bytes)
{
    return (struct cddpi_transfer){
        .peer = net_leader(net, host, net->local_rank),
        .channel = CDDPI_NET_COLLECTIVES,
        .tag = cddpi_net_tag(collective->op->number, 0, NET_HEAD_ROUND, index),
        .is_send = is_send,
        .data = data,
        .bytes = bytes};
}

static cddp_status start_weights(struct net_backend *net, struct net_collective *collective,
                                 int host)
{
    struct cddpi_transfer *send = &collective->head_sends[2 * host + 1];
    struct cddpi_transfer *recv = &collective->head_recvs[2 * host + 1];
    double *weights = collective->weights;
    size_t own = (size_t)net_host_size(net, net->host) * sizeof *weights;
    size_t theirs = (size_t)net_host_size(net, host) * sizeof *weights;

    *send = transfer_of(net, collective, host, true, INDEX_WEIGHTS, weights + net->first[net->host],
                        own);
    *recv = transfer_of(net, collective, host, false, INDEX_WEIGHTS, weights + net->first[host],
                        theirs);
    CDDPI_TRY(cddpi_net_start(net, send));
    return cddpi_net_start(net, recv);
}

cddp_status cddpi_net_heads_begin(struct net_backend *net, struct net_collective *collective)
{
    cddp_status status = CDDP_OK;

    for (int host = 0; host < 2 * net->host_count; host++) {
        collective->head_sends[host] = collective->head_recvs[host] = (struct cddpi_transfer){
            .is_done = true};
    }
    for (int i = 0; i < net->local_size && collective->op->weighted; i++) {
        collective->weights[net->first[net->host] + i] = collective->heads[i].weight;
    }
    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        struct cddpi_transfer *send = &collective->head_sends[2 * host];
        struct cddpi_transfer *recv = &collective->head_recvs[2 * host];

        if (!is_partner(net, collective, host)) {
            continue;
        }
        *send = transfer_of(net, collective, host, true, INDEX_HEAD, &collective->mine,
                            sizeof collective->mine);
        *recv = transfer_of(net, collective, host, false, INDEX_HEAD, &collective->peer_heads[host],
                            sizeof collective->mine);
        status = cddpi_net_start(net, send);
        if (status == CDDP_OK) {
            status = cddpi_net_start(net, recv);
        }
        if (status == CDDP_OK && collective->op->weighted) {
            status = start_weights(net, collective, host);
        }
    }
    return status;
}

static cddp_status fail_mismatch(const struct net_collective *collective, const char *text)
{
    return cddpi_call_mismatch(collective->op, text);
}

static const struct cddpi_call *call_of_head(const void *context, int rank)
{
    const struct net_head *heads = context;

    return &heads[rank].call;
}

cddp_status cddpi_net_heads_compare(struct net_backend *net, struct net_collective *collective)
{
    const int *names = net->by_host + net->first[net->host];
    char text[900];

    for (int i = 0; i < net->local_size; i++) {
        if (!cddpi_call_same(&collective->heads[i].call, &collective->mine.call)) {
            cddpi_call_describe_all(call_of_head, collective->heads, names, net->local_size, text,
                                    sizeof text);
            return fail_mismatch(collective, text);
        }
    }
    return CDDP_OK;
}

/* Check that @p host's leader made the same call as this one. */
static cddp_status compare_host(const struct net_backend *net,
                                const struct net_collective *collective, int host)
{
    struct net_head pair[2] = {collective->mine, collective->peer_heads[host]};
    int names[2] = {net->rank, net_leader(net, host, net->local_rank)};
    char text[400];

    if (cddpi_call_same(&pair[0].call, &pair[1].call)) {
        return CDDP_OK;
    }
    if (names[0] > names[1]) {
        pair[0] = collective->peer_heads[host];
        pair[1] = collective->mine;
        names[0] = names[1];
        names[1] = net->rank;
    }
    cddpi_call_describe_all(call_of_head, pair, names, 2, text, sizeof text);
    return fail_mismatch(collective, text);
}

cddp_status cddpi_net_heads_advance(struct net_backend *net, struct net_collective *collective,
                                    bool *out_done)
{
    bool all = cddpi_net_are_done(collective->head_sends, 2 * (size_t)net->host_count);

    for (int host = 0; host < net->host_count; host++) {
        struct cddpi_transfer *recv = &collective->head_recvs[2 * host];

        if (!recv->is_done || !recv[1].is_done) {
            all = false;
        }
        if (recv->is_done && recv->bytes > 0) {
            cddp_status status = compare_host(net, collective, host);

            if (status != CDDP_OK) {
                return status;
            }
            recv->bytes = 0; /* compared */
        }
    }
    *out_done = all;
    return CDDP_OK;
}
