/* heads.c - owns the comparison of calls. Each rank compares with the ranks of its host. Each host
 * compares with other hosts: per collective, each leader sends one fingerprint to the leaders with
 * the same number on other hosts. */
#include "group/net/heads.h"

#include "base/error.h"
#include "group/net/transfer.h"

/* With more hosts than this, each compares only with the hosts at distances 1, 2, 4 ..., which
 * still connects all of them. */
enum { ALL_HOSTS = 8 };

/* The two messages between two hosts. */
enum { INDEX_HEAD, INDEX_WEIGHTS };

static bool is_partner(const struct net_backend *net, int host)
{
    const struct cddpi_group_op *op = net->collective->op;
    int distance = (host - net->host + net->host_count) % net->host_count;
    int back = net->host_count - distance;

    if (distance == 0) {
        return false;
    }
    return net->host_count <= ALL_HOSTS || op->weighted || op->kind == CDDPI_BARRIER ||
           (distance & (distance - 1)) == 0 || (back & (back - 1)) == 0;
}

/* Start to send @p own to @p host's leader, and to receive @p theirs. */
static cddp_status start_swap(struct net_backend *net, int host, unsigned index, void *own,
                              size_t own_bytes, void *theirs, size_t their_bytes)
{
    struct cddpi_transfer *send = &net->collective->others[host].sends[index];
    struct cddpi_transfer *recv = &net->collective->others[host].recvs[index];

    *send = (struct cddpi_transfer){
        .peer = net_leader(net, host, net->local_rank),
        .channel = CDDPI_NET_COLLECTIVES,
        .tag = cddpi_net_tag(net->collective->op->number, 0, NET_HEAD_ROUND, index),
        .data = theirs,
        .bytes = their_bytes};
    *recv = *send;
    send->is_send = true;
    send->data = own;
    send->bytes = own_bytes;
    CDDPI_TRY(cddpi_net_start(net, send));
    return cddpi_net_start(net, recv);
}

cddp_status cddpi_net_heads_begin(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    struct net_head *mine = &collective->mine;
    double *weights = collective->weights;

    for (int i = 0; i < net->local_size && collective->op->weighted; i++) {
        weights[net->first[net->host] + i] = collective->heads[i].weight;
    }
    for (int host = 0; host < net->host_count; host++) {
        struct net_other *other = &collective->others[host];

        for (int i = 0; i < 2; i++) {
            other->sends[i] = other->recvs[i] = (struct cddpi_transfer){.is_done = true};
        }
    }
    for (int host = 0; host < net->host_count; host++) {
        if (!is_partner(net, host)) {
            continue;
        }
        CDDPI_TRY(start_swap(net, host, INDEX_HEAD, mine, sizeof *mine,
                             &collective->others[host].head, sizeof *mine));
        if (collective->op->weighted) {
            CDDPI_TRY(start_swap(net, host, INDEX_WEIGHTS, weights + net->first[net->host],
                                 (size_t)net->local_size * sizeof *weights,
                                 weights + net->first[host],
                                 (size_t)net_host_size(net, host) * sizeof *weights));
        }
    }
    return CDDP_OK;
}

static const struct cddpi_call *call_of_head(const void *context, int rank)
{
    const struct net_head *heads = context;

    return &heads[rank].call;
}

/* Fail with the calls of @p count ranks, whose numbers are @p names. */
static cddp_status fail_mismatch(const struct net_backend *net, const struct net_head *heads,
                                 const int *names, int count)
{
    char text[900];

    cddpi_call_describe_all(call_of_head, heads, names, count, text, sizeof text);
    return cddpi_call_mismatch(net->collective->op, text);
}

cddp_status cddpi_net_heads_compare(const struct net_backend *net)
{
    const struct net_collective *collective = net->collective;

    for (int i = 0; i < net->local_size; i++) {
        if (!cddpi_call_same(&collective->heads[i].call, &collective->mine.call)) {
            return fail_mismatch(net, collective->heads, net->by_host + net->first[net->host],
                                 net->local_size);
        }
    }
    return CDDP_OK;
}

/* Check that @p host's leader made the same call as this one. */
static cddp_status compare_host(const struct net_backend *net, int host)
{
    const struct net_head *mine = &net->collective->mine;
    const struct net_head *theirs = &net->collective->others[host].head;
    int peer = net_leader(net, host, net->local_rank);
    bool is_first = net->rank < peer;

    return cddpi_call_same(&mine->call, &theirs->call)
               ? CDDP_OK
               : fail_mismatch(
                     net,
                     (struct net_head[]){is_first ? *mine : *theirs, is_first ? *theirs : *mine},
                     (int[]){is_first ? net->rank : peer, is_first ? peer : net->rank}, 2);
}

cddp_status cddpi_net_heads_advance(struct net_backend *net, bool *out_done)
{
    bool all = true;

    for (int host = 0; host < net->host_count; host++) {
        struct net_other *other = &net->collective->others[host];
        struct cddpi_transfer *recv = &other->recvs[INDEX_HEAD];

        if (recv->is_done && recv->bytes > 0) {
            CDDPI_TRY(compare_host(net, host));
            recv->bytes = 0; /* compared */
        }
        all = all && cddpi_net_are_done(other->sends, 2) && cddpi_net_are_done(other->recvs, 2);
    }
    *out_done = all;
    return CDDP_OK;
}
