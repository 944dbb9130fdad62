/* net_open.c - opens a group over several hosts. First the ranks of each host share memory, then
 * the leaders connect, then they measure the link between them. A part of a group is opened in the
 * same way, with the larger group's collectives instead of the store. */
#include "group/net/net_open.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "group/net/net_collective.h"
#include "group/net/net_exchange.h"
#include "group/net/net_plan.h"
#include "group/net/watch.h"
#include "store/auth.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void cddpi_net_release(struct net_backend *net)
{
    if (net == NULL) {
        return;
    }
    cddpi_net_watch_close(net);
    if (net->carrier != NULL) {
        net->carrier->ops->close(net->carrier);
    }
    if (net->inner != NULL) {
        net->inner->ops->close(net->inner);
    }
    for (int i = 0; i < CDDPI_ALGORITHMS; i++) {
        cddpi_net_plan_fini(&net->plans[i]);
    }
    cddpi_net_collective_close(net);
    if (net->tree.parts != NULL) {
        cddpi_tree_fini(&net->tree);
    }
    cddpi_fd_close(&net->wake_fd);
    cddpi_wipe(net->token, sizeof net->token);
    cddpi_free(net->host_of);
    cddpi_free(net->local_of);
    cddpi_free(net->by_host);
    cddpi_free(net->first);
    cddpi_free(net->leaders);
    cddpi_free(net);
}

static cddp_status fail_memory(int ranks)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory for %d ranks", ranks);
}

/* Set the tables of ranks and hosts from host_of. */
static cddp_status fill_tables(struct net_backend *net)
{
    size_t size = (size_t)net->size;
    size_t hosts;

    for (int rank = 0; rank < net->size; rank++) {
        if (net->host_of[rank] >= net->host_count) {
            net->host_count = net->host_of[rank] + 1;
        }
    }
    hosts = (size_t)net->host_count;
    net->host = net->host_of[net->rank];
    net->local_of = cddpi_zalloc_array(size, sizeof *net->local_of);
    net->by_host = cddpi_zalloc_array(size, sizeof *net->by_host);
    net->first = cddpi_zalloc_array(hosts + 1, sizeof *net->first);
    net->leaders = cddpi_zalloc_array(hosts, sizeof *net->leaders);
    if (net->local_of == NULL || net->by_host == NULL || net->first == NULL ||
        net->leaders == NULL ||
        !cddpi_tree_init(net->size, net->host_of, net->host_count, &net->tree)) {
        return fail_memory(net->size);
    }
    for (int rank = 0; rank < net->size; rank++) {
        net->first[net->host_of[rank] + 1]++;
    }
    for (int host = 0; host < net->host_count; host++) {
        net->first[host + 1] += net->first[host];
    }
    for (int rank = 0; rank < net->size; rank++) {
        /* `leaders` is a counter until all ranks have their place */
        int host = net->host_of[rank];

        net->local_of[rank] = net->leaders[host]++;
        net->by_host[net->first[host] + net->local_of[rank]] = rank;
    }
    for (int host = 0; host < net->host_count; host++) {
        net->leaders[host] = net->by_host[net->first[host]];
    }
    net->local_rank = net->local_of[net->rank];
    net->local_size = net_host_size(net, net->host);
    net->leader_count = 1; /* until the link is measured */
    return CDDP_OK;
}

/* @p host_of: by rank; copied. */
static cddp_status create_backend(int rank, int size, uint32_t timeout_ms, const int *host_of,
                                  struct net_backend **out)
{
    struct net_backend *net = cddpi_zalloc(sizeof *net);
    cddp_status status;

    if (net == NULL) {
        return fail_memory(size);
    }
    net->rank = rank;
    net->size = size;
    net->timeout_ms = timeout_ms;
    net->base.ops = &cddpi_net_ops;
    net->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    net->host_of = cddpi_zalloc_array((size_t)size, sizeof *net->host_of);
    if (net->wake_fd < 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "net: an eventfd");
        goto fail;
    }
    if (net->host_of == NULL) {
        status = fail_memory(size);
        goto fail;
    }
    memcpy(net->host_of, host_of, (size_t)size * sizeof *net->host_of);
    CDDPI_TRY_GOTO(fail, status, fill_tables(net));
    CDDPI_TRY_GOTO(fail, status, cddpi_net_collective_open(net));
    *out = net;
    return CDDP_OK;

fail:
    cddpi_net_release(net);
    return status;
}

static void log_link(const struct net_backend *net)
{
    if (net->rank == 0) {
        cddpi_log(CDDPI_LOG_INFO,
                  "net: %d ranks on %d hosts over %s: latency %.1f us, %.0f MB/s each way by %d %s "
                  "a host (one alone: %.0f)",
                  net->size, net->host_count, net->carrier->ops->name, net->link.latency_s * 1e6,
                  net->link.bytes_per_s / 1e6, net->leader_count,
                  net->leader_count == 1 ? "leader" : "leaders",
                  net->link_of_one_bytes_per_s / 1e6);
    }
}

/* Connect the hosts, once the inner transport is open. */
static cddp_status connect_hosts(struct net_backend *net, uint32_t generation,
                                 struct net_exchange *exchange)
{
    struct cddpi_carrier_params params = {.rank = net->rank,
                                          .world_size = net->size,
                                          .host_of = net->host_of,
                                          .leaders = net->leaders,
                                          .host_count = net->host_count,
                                          .job = net->job,
                                          .generation = generation,
                                          .token = net->token,
                                          .timeout_ms = net->timeout_ms,
                                          .exchange = &exchange->base,
                                          .wake = cddpi_net_wake_by_carrier,
                                          .wake_context = net,
                                          .host_failed = cddpi_net_host_failed};
    const struct cddpi_carrier_ops *row;
    struct cddpi_carrier *carrier = NULL;

    if (net->host_count == 1) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_carrier_agree(&exchange->base, &row));
    if (net->rank == 0) {
        cddpi_carrier_warn(row);
    }
    CDDPI_TRY(row->open(&params, &carrier));
    atomic_store(&net->carrier, carrier);
    CDDPI_TRY(cddpi_net_watch_open(net, &params));
    CDDPI_TRY(cddpi_net_measure(net, &exchange->base));
    CDDPI_TRY(cddpi_net_choose_leaders(net, &exchange->base));
    log_link(net);
    return CDDP_OK;
}

cddp_status cddpi_net_open(const struct cddpi_members *members, struct cddpi_backend **out)
{
    const struct cddpi_launch_env *env = members->env;
    struct net_exchange exchange;
    struct net_backend *net;
    cddp_status status = create_backend(env->rank, env->world_size, env->join_timeout_ms,
                                        members->host_of, &net);

    if (status != CDDP_OK) {
        if (members->rendezvous != NULL) {
            cddpi_net_refuse(members->rendezvous, env->rank, status);
        }
        return status;
    }
    snprintf(net->token, sizeof net->token, "%s", env->token);
    snprintf(net->job, sizeof net->job, "%s", env->job);
    cddpi_net_exchange_init(&exchange, net);
    exchange.rendezvous = members->rendezvous;
    exchange.nonce = members->nonce;
    status = cddpi_shm_transport.cpu.open(members, &net->inner);
    if (status == CDDP_OK) {
        status = connect_hosts(net, env->generation, &exchange);
    }
    if (status != CDDP_OK && members->rendezvous != NULL) {
        cddpi_net_refuse(members->rendezvous, env->rank, status);
    } else if (members->rendezvous != NULL) {
        cddpi_members_joined(members); /* before any rank may begin to join another group */
        status = cddpi_agree_by(&exchange.base, CDDP_OK);
        if (status == CDDP_OK) {
            cddpi_net_exchange_end(&exchange);
        }
    }
    if (status != CDDP_OK) {
        struct cddpi_failure failure = *cddpi_last_failure();

        if (net->inner != NULL) {
            net->inner->ops->abort(net->inner, &failure);
        }
        cddpi_net_release(net);
        return cddpi_fail_again(status, &failure);
    }
    *out = &net->base;
    return CDDP_OK;
}

/* What ranks exchange when they split a group. */
struct split_place {
    int32_t first; /* the parent's rank that becomes the part's rank 0; -1: joins no part */
    int32_t rank;  /* in the part */
    int32_t host;
};

/* Set the part's tables: the host of each of its ranks, with hosts renumbered by lowest rank, and
 * each rank's number in the parent. */
static void tables_of_part(const struct split_place *places, int parent_size, int first, int size,
                           int *host_of, int *ranks_of_parent)
{
    int hosts = 0;

    for (int r = 0; r < parent_size; r++) {
        if (places[r].first == first) {
            ranks_of_parent[places[r].rank] = r;
        }
    }
    for (int rank = 0; rank < size; rank++) {
        int host = hosts;

        for (int before = 0; before < rank && host == hosts; before++) {
            if (places[ranks_of_parent[before]].host == places[ranks_of_parent[rank]].host) {
                host = host_of[before];
            }
        }
        host_of[rank] = host;
        hosts += host == hosts;
    }
}

/* Share memory with the part's ranks on this host. All ranks of @p group take part. */
static cddp_status split_inside(cddp_group *group, struct net_backend *net,
                                const struct cddpi_open_params *params, const int *ranks_of_parent)
{
    struct cddpi_open_params local = *params;
    int first = 0;

    if (net != NULL) {
        local = (struct cddpi_open_params){net->local_rank, net->local_size, params->timeout_ms,
                                           net->by_host + net->first[net->host]};
        first = ranks_of_parent[net->leaders[net->host]];
    }
    return cddpi_shm_transport.cpu.split(group, &local, first, net != NULL,
                                         net != NULL ? &net->inner : &(struct cddpi_backend *){0});
}

static cddp_status connect_part(cddp_group *group, struct net_backend *net,
                                const int *ranks_of_parent)
{
    struct net_exchange exchange;
    const struct net_backend *parent = net_of_const(group->backend);

    /* ranks of another part, or of another split, must be refused */
    snprintf(net->job, sizeof net->job, "%.200s, split %llu, part of %d", parent->job,
             (unsigned long long)group->collectives, ranks_of_parent[0]);
    memcpy(net->token, parent->token, sizeof net->token);
    cddpi_net_exchange_init(&exchange, net);
    exchange.parent = group;
    exchange.ranks_of_parent = ranks_of_parent;
    return connect_hosts(net, group->generation, &exchange);
}

cddp_status cddpi_net_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out)
{
    struct net_backend *parent = net_of(group->backend);
    struct split_place mine = {joins ? first : -1, params->rank, parent->host};
    size_t size = (size_t)params->world_size;
    int *host_of = cddpi_zalloc_array(size, sizeof *host_of);
    int *ranks_of_parent = cddpi_zalloc_array(size, sizeof *ranks_of_parent);
    struct net_backend *net = NULL;
    void *places = NULL;
    struct cddpi_failure failure;
    cddp_status status;
    cddp_status own = host_of != NULL && ranks_of_parent != NULL ? CDDP_OK
                                                                 : fail_memory(params->world_size);

    CDDPI_TRY_GOTO(out, status, cddpi_all_gather_bytes(group, &mine, sizeof mine, &places));
    if (own == CDDP_OK && joins) {
        tables_of_part(places, group->world_size, first, params->world_size, host_of,
                       ranks_of_parent);
        own = create_backend(params->rank, params->world_size, group->timeout_ms, host_of, &net);
    }
    CDDPI_TRY_GOTO(out, status, cddpi_agree(group, own));
    CDDPI_TRY_GOTO(out, status, split_inside(group, net, params, ranks_of_parent));
    status = net != NULL ? connect_part(group, net, ranks_of_parent) : CDDP_OK;
    if (status == CDDP_OK) {
        status = cddpi_agree(group, CDDP_OK);
    } else { /* its peers may wait for messages from it in the larger group */
        cddp_group_abort(group, cddp_last_error());
    }

out:
    cddpi_free(places);
    cddpi_free(host_of);
    cddpi_free(ranks_of_parent);
    if (status != CDDP_OK) {
        failure = *cddpi_last_failure();
        cddpi_net_release(net);
        return cddpi_fail_again(status, &failure);
    }
    *out = net != NULL ? &net->base : NULL;
    return CDDP_OK;
}
