/* net_exchange.c - owns how ranks exchange small structs while their group is created: ranks of one
 * host through the inner transport, leaders through the store of the rendezvous or, for a part of a
 * group, through that group's messages. */
#include "group/net/net_exchange.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum {
    SLICE_MS = 500,      /* ms between two checks whether a rank has refused, */
    SLICE_PER_HOSTS = 4, /* plus the number of hosts divided by this, since all hosts check */
    KEY_BYTES = 96,
    SPINS = 200,
    CHECK_NS = 50000000,
    /* A leader that waited for other hosts until the deadline knows which host did not answer.
     * Other leaders wait this much longer than the deadline for its refusal, and the ranks of its
     * host even longer. */
    LATE_MS = 3000,
    LEADER_MS = 8000
};

static const char refused_key[] = "net/refused";

/* Sleep until a rank of this host has advanced, or until it is time to check whether all are alive.
 * If there are more ranks than cores, ranks that poll would starve their leader. */
static cddp_status sleep_inner(struct net_backend *net, struct cddpi_group_op *op, bool *out_done)
{
    uint32_t ticket = net->inner->ops->prepare_sleep(net->inner, op);
    cddp_status status = net->inner->ops->advance(net->inner, op, out_done);

    if (status == CDDP_OK && !*out_done) {
        (void)net->inner->ops->sleep(net->inner, ticket, CHECK_NS);
    }
    net->inner->ops->end_sleep(net->inner);
    return status;
}

/* Run one operation of the inner transport until it is done. */
static cddp_status run_inner(struct net_backend *net, struct cddpi_group_op *op)
{
    const struct cddpi_backend_ops *ops = net->inner->ops;
    int64_t more_ns = net_is_leader(net) ? 0 : LEADER_MS * INT64_C(1000000);
    int64_t check_at = 0;
    bool done = false;
    cddp_status status;

    op->number = ++net->inner_collectives;
    op->start_ns = cddpi_now_ns();
    op->deadline_ns = cddpi_deadline_ns(net->timeout_ms) + more_ns;
    for (int round = 0;; round++) {
        int64_t now_ns;

        CDDPI_TRY_GOTO(fail, status,
                       round < SPINS ? ops->advance(net->inner, op, &done)
                                     : sleep_inner(net, op, &done));
        if (done) {
            return CDDP_OK;
        }
        now_ns = cddpi_now_ns();
        if (now_ns > check_at) {
            CDDPI_TRY_GOTO(fail, status, ops->check(net->inner, op, true));
            check_at = cddpi_now_ns() + CHECK_NS;
        }
        if (now_ns > op->deadline_ns) {
            CDDPI_TRY_GOTO(fail, status, ops->expired(net->inner, op));
        }
    }

fail:
    if (ops->drop != NULL) {
        ops->drop(net->inner, op);
    }
    return status;
}

void cddpi_net_refuse(struct cddpi_rendezvous *rendezvous, int rank, cddp_status status)
{
    (void)cddpi_fail_name(status, rank);
    (void)cddpi_refusal_set(rendezvous, refused_key, status);
}

/* Write the key of part @p part of what @p host's leader writes in exchange @p number. */
static void write_key(const struct net_exchange *exchange, int number, int host, size_t part,
                      char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "net/%016llx/%d/%d/%zu", (unsigned long long)exchange->nonce, number,
             host, part);
}

/* Leaders gather their data through a binomial tree over hosts. Let b be the lowest set bit of h.
 * The leader of host h reads what the leaders of h+1, h+2, h+4 ... below h+b have gathered, and
 * writes the parts of hosts h to h+b-1, which are contiguous, under its own key. So host 0's key
 * has everything, and all others read it there. Per exchange, each leader sends O(log H) requests,
 * and all together send O(H). */
static int end_of_subtree(const struct net_backend *net, int host)
{
    int end = host == 0 ? net->host_count : host + (host & -host);

    return end < net->host_count ? end : net->host_count;
}

/* Find the host that does not answer: follow the chain of leaders from @p host, each of which waits
 * for the next, to the one that waits for no other. */
static int find_missing(const struct net_exchange *exchange, int host)
{
    const struct net_backend *net = exchange->net;

    for (int step = 1; host + step < end_of_subtree(net, host); step *= 2) {
        char key[KEY_BYTES];
        void *value;

        write_key(exchange, exchange->number, host + step, 0, key);
        if (cddp_store_try_get(exchange->rendezvous->store, key, &value, NULL) != CDDP_OK) {
            return find_missing(exchange, host + step);
        }
        cddp_free(value);
    }
    return host;
}

/* Wait for @p key, @p bytes bytes, from @p host's leader. */
static cddp_status take_key(struct net_exchange *exchange, const char *key, int host, void *out,
                            size_t bytes)
{
    struct cddpi_rendezvous *rendezvous = exchange->rendezvous;
    int most = SLICE_MS + exchange->net->host_count / SLICE_PER_HOSTS;
    uint32_t timeout_ms = rendezvous->env->join_timeout_ms;
    int64_t late_ns = cddpi_deadline_ns(timeout_ms < LATE_MS ? timeout_ms : LATE_MS);
    int64_t deadline_ns = late_ns > rendezvous->deadline_ns ? late_ns : rendezvous->deadline_ns;

    for (;;) {
        size_t length = 0;
        void *value;
        int left = cddpi_left_ms(deadline_ns);
        int slice = left > most ? most : left > 0 ? left : 1;
        cddp_status status = cddp_store_get(rendezvous->store, key, (uint32_t)slice, &value,
                                            &length);

        if (status == CDDP_OK) {
            bool fits = length == bytes;

            if (fits) {
                memcpy(out, value, bytes);
            }
            cddp_free(value);
            return fits ? CDDP_OK
                        : cddpi_fail(CDDP_ERR_FORMAT,
                                     "joining: rank %d says %zu bytes, not %zu: another version "
                                     "of cddp?",
                                     exchange->net->leaders[host], length, bytes);
        }
        if (status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        CDDPI_TRY(cddpi_refusal_look(rendezvous, refused_key));
        if (left <= slice) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "joining: rank %d did not come to %s within %u ms",
                              exchange->net->leaders[find_missing(exchange, host)],
                              rendezvous->env->store, rendezvous->env->join_timeout_ms);
        }
    }
}

/* Take what @p host's leader has gathered of its subtree, or, if it is this host, give it. Values
 * in the store are limited in size, so longer data gets several keys. */
static cddp_status pass_subtree(struct net_exchange *exchange, int host, unsigned char *all,
                                size_t bytes)
{
    const struct net_backend *net = exchange->net;
    unsigned char *data = all + (size_t)net->first[host] * bytes;
    int ranks = net->first[end_of_subtree(net, host)] - net->first[host];
    size_t left = (size_t)ranks * bytes;
    bool gives = host == net->host;

    if (gives) {
        exchange->bytes_given[exchange->number % 2] = left;
    }
    for (size_t part = 0; left > 0; part++) {
        size_t part_bytes = left < exchange->part_bytes ? left : exchange->part_bytes;
        char key[KEY_BYTES];

        write_key(exchange, exchange->number, host, part, key);
        CDDPI_TRY(gives ? cddp_store_set(exchange->rendezvous->store, key, data, part_bytes)
                        : take_key(exchange, key, host, data, part_bytes));
        data += part_bytes;
        left -= part_bytes;
    }
    return CDDP_OK;
}

/* Delete the keys of the previous exchange, which all leaders have completed. */
static void delete_given(struct net_exchange *exchange)
{
    size_t whole = exchange->bytes_given[(exchange->number - 1) % 2];

    for (size_t part = 0; exchange->number > 1 && part * exchange->part_bytes < whole; part++) {
        char key[KEY_BYTES];

        write_key(exchange, exchange->number - 1, exchange->net->host, part, key);
        cddpi_rendezvous_delete(exchange->rendezvous, key);
    }
}

static cddp_status exchange_by_store(struct net_exchange *exchange, unsigned char *all,
                                     size_t bytes)
{
    const struct net_backend *net = exchange->net;
    int end = end_of_subtree(net, net->host);

    for (int step = 1; net->host + step < end; step *= 2) {
        CDDPI_TRY(pass_subtree(exchange, net->host + step, all, bytes));
    }
    CDDPI_TRY(pass_subtree(exchange, net->host, all, bytes));
    if (net->host != 0) {
        CDDPI_TRY(pass_subtree(exchange, 0, all, bytes));
    }
    delete_given(exchange);
    return CDDP_OK;
}

static cddp_status exchange_by_messages(struct net_exchange *exchange, unsigned char *all,
                                        size_t bytes)
{
    struct net_backend *net = exchange->net;
    cddp_work **works = cddpi_zalloc_array((size_t)net->host_count, sizeof *works);
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(works != NULL, "split: no memory");
    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        if (host != net->host) {
            status = cddp_send(exchange->parent, all + (size_t)net->first[net->host] * bytes,
                               (size_t)net->local_size * bytes, CDDP_U8,
                               exchange->ranks_of_parent[net->leaders[host]], &works[host]);
        }
    }
    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        if (host != net->host) {
            status = cddp_recv(exchange->parent, all + (size_t)net->first[host] * bytes,
                               (size_t)net_host_size(net, host) * bytes, CDDP_U8,
                               exchange->ranks_of_parent[net->leaders[host]], NULL);
        }
    }
    for (int host = 0; host < net->host_count; host++) {
        if (works[host] != NULL) {
            cddp_status sent = cddp_work_wait(works[host]);

            status = status == CDDP_OK ? sent : status;
            cddp_work_destroy(works[host]);
        }
    }
    cddpi_free(works);
    return status;
}

/* Exchange among leaders: @p all is in the order of by_host, and has this host's part. */
static cddp_status exchange_of_leaders(struct net_exchange *exchange, unsigned char *all,
                                       size_t bytes)
{
    struct net_backend *net = exchange->net;
    cddp_status status = CDDP_OK;

    if (net->host_count > 1) {
        status = exchange->rendezvous != NULL ? exchange_by_store(exchange, all, bytes)
                                              : exchange_by_messages(exchange, all, bytes);
    }
    if (status != CDDP_OK) {
        if (exchange->rendezvous != NULL) {
            cddpi_net_refuse(exchange->rendezvous, net->rank, status);
        }
        /* the host's ranks wait for this one */
        net->inner->ops->abort(net->inner, cddpi_last_failure());
    }
    return status;
}

static cddp_status all_gather(void *context, const void *own, size_t bytes, void *out_all)
{
    struct net_exchange *exchange = context;
    struct net_backend *net = exchange->net;
    size_t total = bytes * (size_t)net->size;
    unsigned char *all = cddpi_zalloc(total);
    struct cddpi_group_op gather = {.kind = CDDPI_GATHER, .type = CDDP_U8, .count = bytes};
    struct cddpi_group_op give = {.kind = CDDPI_BROADCAST, .type = CDDP_U8, .count = total};
    cddp_status status;

    if (all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory for %zu bytes", total);
        net->inner->ops->abort(net->inner, cddpi_last_failure());
        return status;
    }
    exchange->number++;
    gather.in = own;
    gather.out = all + (size_t)net->first[net->host] * bytes;
    give.in = give.out = all;
    CDDPI_TRY_GOTO(out, status, run_inner(net, &gather));
    if (net_is_leader(net)) {
        CDDPI_TRY_GOTO(out, status, exchange_of_leaders(exchange, all, bytes));
    }
    CDDPI_TRY_GOTO(out, status, run_inner(net, &give));
    for (int i = 0; i < net->size; i++) {
        memcpy((unsigned char *)out_all + (size_t)net->by_host[i] * bytes, all + (size_t)i * bytes,
               bytes);
    }

out:
    cddpi_free(all);
    return status;
}

/* Whether another rank has given up, checked through the store or group of this exchange. */
static cddp_status check(void *context)
{
    const struct net_exchange *exchange = context;

    return exchange->rendezvous != NULL
               ? cddpi_refusal_look(exchange->rendezvous, refused_key)
               : exchange->parent->backend->ops->broken(exchange->parent->backend);
}

void cddpi_net_exchange_init(struct net_exchange *exchange, struct net_backend *net)
{
    *exchange = (struct net_exchange){.net = net, .part_bytes = CDDP_STORE_VALUE_BYTES};
    exchange->base = (struct cddpi_exchange){
        .context = exchange, .world_size = net->size, .all_gather = all_gather, .check = check};
}

/* If rank 0 will close the store, it waits until all leaders have read everything: they count
 * themselves, and the last one sets a key. If the key does not come, a leader has failed, which the
 * group will detect. */
void cddpi_net_exchange_end(struct net_exchange *exchange)
{
    struct net_backend *net = exchange->net;
    struct cddpi_rendezvous *rendezvous = exchange->rendezvous;
    char count[KEY_BYTES];
    char all[KEY_BYTES];

    if (!net_is_leader(net) || net->host_count == 1 ||
        (!rendezvous->env->hosts_store && !rendezvous->env->removes_file)) {
        return;
    }
    snprintf(count, sizeof count, "net/%016llx/left", (unsigned long long)exchange->nonce);
    snprintf(all, sizeof all, "net/%016llx/all-left", (unsigned long long)exchange->nonce);
    if (net->rank == 0) {
        void *value;

        if (cddpi_rendezvous_await(rendezvous, all, net->leaders[net->host_count - 1],
                                   rendezvous->deadline_ns, &value, NULL) == CDDP_OK) {
            cddp_free(value);
        }
    } else {
        int64_t left = 0;

        if (cddp_store_add(rendezvous->store, count, 1, &left) == CDDP_OK &&
            left == net->host_count - 1) {
            /* rank 0 may close the store before it answers */
            (void)!cddp_store_set(rendezvous->store, all, "", 0);
        }
    }
}
