/* net_transport.c - owns the transport "net" and its table of functions, through which the queue
 * drives a group over several hosts. */
#include "group/net/net_open.h"

#include "base/clock.h"
#include "base/error.h"
#include "group/join/link.h"
#include "group/net/net_collective.h"
#include "group/net/transfer.h"
#include "group/net/watch.h"
#include "group/watch/peer.h"
#include "kernels/cpu/reduce.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum {
    LOOK_NS = 500000, /* how long a rank sleeps that waits both for its own host and for others */
    /* A carrier without a descriptor is polled without sleep for this long after something
     * moved, */
    STILL_NS = 1000000,
    STILL_PER_SLEEP = 8, /* then polled after sleeps of the time since then, divided by this */
    /* The rank that knows best which rank is late must report first: a leader that waits for its
       own host, then ranks that wait for another host, then ranks that wait for a leader. */
    AFAR_MS = 1000,
    NEAR_MS = 2000,
    LAST_WORDS_MS = 100 /* how long a rank waits for data that a lost peer had sent */
};

/* The second carrier beside a blind one is not notified: it only matters that the connection to a
 * rank ends while others still wait for that rank. */
static void exits(struct cddpi_backend *backend)
{
    struct net_backend *net = net_of(backend);

    if (net->inner->ops->exits != NULL) {
        net->inner->ops->exits(net->inner);
    }
    if (net->carrier != NULL && net->carrier->ops->exits != NULL) {
        net->carrier->ops->exits(net->carrier);
    }
}

static void leave(struct cddpi_backend *backend)
{
    cddpi_net_release(net_of(backend));
}

/* Make this host's ranks and other hosts fail. Those that have already failed keep their
 * failure. */
static void abort_net(struct cddpi_backend *backend, const struct cddpi_failure *failure)
{
    struct net_backend *net = net_of(backend);
    struct cddpi_failure kept = *cddpi_last_failure();
    struct cddpi_failure named;

    (void)cddpi_fail_again((cddp_status)failure->status, failure);
    if (failure->status != CDDP_ERR_MISMATCH) { /* since a mismatch has no culprit */
        (void)cddpi_fail_name((cddp_status)failure->status, net->rank);
    }
    named = *cddpi_last_failure();
    (void)cddpi_fail_again((cddp_status)kept.status, &kept);
    net->inner->ops->abort(net->inner, failure);
    cddpi_net_abort_hosts(net, &named);
}

/* Another host's failure becomes this host's. */
static bool take_abort(struct net_backend *net, struct cddpi_failure *out)
{
    if (!cddpi_net_hosts_aborted(net, out)) {
        return false;
    }
    if (!atomic_exchange(&net->is_told, true)) {
        net->inner->ops->abort(net->inner, out);
        atomic_store(&net->is_from_afar, true);
    }
    return true;
}

static cddp_status broken(struct cddpi_backend *backend)
{
    struct net_backend *net = net_of(backend);
    struct cddpi_failure failure;
    bool came = take_abort(net, &failure);
    cddp_status status = net->inner->ops->broken(net->inner);

    if (status == CDDP_OK) {
        return CDDP_OK;
    }
    if (came && atomic_load(&net->is_from_afar)) {
        status = failure.status == CDDP_ERR_MISMATCH ? CDDP_ERR_MISMATCH : CDDP_ERR_PEER;
        return cddpi_fail_again(status, &failure);
    }
    cddpi_net_abort_hosts(net, cddpi_last_failure());
    return status;
}

/* "rank 4 (host b, 10.0.0.2, heard of 3.1 s ago), rank 8 ..." */
struct late {
    struct net_backend *net;
    struct cddpi_late *words;
};

static void note_late(void *context, int rank)
{
    struct late *late = context;
    char more[240] = "";

    cddpi_net_describe_peer(late->net, rank, more, sizeof more);
    cddpi_late_add_text(late->words, more);
}

/* Whether @p inside, an operation within the host, waits for another rank that knows more. */
static bool waits_for_leader(const struct net_backend *net, const struct cddpi_group_op *inside)
{
    return cddpi_net_has_root(inside->kind) ? inside->root != net->local_rank : !net_is_leader(net);
}

static void add_late(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                     struct cddpi_late *words)
{
    struct net_backend *net = net_of(backend);
    const struct cddpi_group_op *inside = cddpi_net_inside(op);
    struct late late = {net, words};

    if (inside == NULL && net->carrier != NULL) {
        cddpi_net_waits_for(net, op, note_late, &late);
    } else if (inside != NULL && !waits_for_leader(net, inside)) {
        net->inner->ops->late(net->inner, inside, words);
    }
}

static cddp_status expired(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    struct net_backend *net = net_of(backend);
    const struct cddpi_group_op *inside = cddpi_net_inside(op);
    struct cddpi_late late = {.used = 0};
    char title[64];

    if (net->carrier != NULL) {
        int grace_ms = inside == NULL ? AFAR_MS : waits_for_leader(net, inside) ? NEAR_MS : 0;

        if (cddpi_now_ns() < op->deadline_ns + (int64_t)grace_ms * 1000000) {
            return CDDP_OK;
        }
    }
    if (inside != NULL) {
        return net->inner->ops->expired(net->inner, inside);
    }
    add_late(&net->base, op, &late);
    cddpi_op_title(op, title, sizeof title);
    return cddpi_late_fail(&late, title, op->start_ns, "its turn", "");
}

/* Delay a failure. A peer that is gone, or that ended the group, may first have sent everything
 * that this rank needs, so that data is received first. @p failure: CDDP_OK if there is no
 * failure. */
static cddp_status after_last_words(struct net_backend *net, cddp_status failure)
{
    int64_t now = cddpi_now_ns();

    if (failure != CDDP_OK && net->failed_ns == 0) {
        net->failed_ns = now;
    }
    return now - net->failed_ns < (int64_t)LAST_WORDS_MS * 1000000 ? CDDP_OK : failure;
}

static cddp_status check(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                         bool thorough)
{
    struct net_backend *net = net_of(backend);
    const struct cddpi_group_op *inside = cddpi_net_inside(op);
    struct cddpi_failure failure;
    char title[64];
    bool is_over;
    cddp_status status = CDDP_OK;

    if (inside != NULL) {
        status = net->inner->ops->check(net->inner, inside, thorough);
    }
    is_over = net->inner->ops->broken(net->inner) != CDDP_OK ||
              cddpi_net_hosts_aborted(net, &failure);
    if (status == CDDP_OK && is_over && after_last_words(net, CDDP_ERR_PEER) != CDDP_OK) {
        return broken(&net->base);
    }
    if (status == CDDP_OK && net->carrier != NULL) {
        status = after_last_words(net, cddpi_net_check_hosts(net));
        if (status != CDDP_OK) {
            cddpi_op_title(op, title, sizeof title);
            (void)cddpi_fail_prefix(status, "%s", title);
        }
    }
    return status;
}

static uint32_t prepare_sleep(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    struct net_backend *net = net_of(backend);
    uint32_t ticket = net->inner->ops->prepare_sleep(net->inner,
                                                     op != NULL ? cddpi_net_inside(op) : NULL);

    atomic_store(&net->sleeps, true);
    if (net->carrier != NULL) {
        net->carrier->ops->prepare_sleep(net->carrier);
    }
    return ticket;
}

static bool has_wire(const struct cddpi_backend *backend)
{
    const struct net_backend *net = net_of_const(backend);

    return net->carrier != NULL && net->carrier->ops->descriptor(net->carrier) >= 0;
}

/* How long a rank may sleep before it calls its carrier again. MPI advances only when it is called,
 * and a message takes several calls on both sides; a sleep between two of them would leave the wire
 * idle. So there is no sleep while something moves, as in MPI's own calls. If nothing has moved for
 * long, the peer is late for other reasons. */
static int64_t look_ns(const struct net_backend *net)
{
    int64_t still;

    if (has_wire(&net->base) || net->carrier == NULL) {
        return LOOK_NS;
    }
    still = cddpi_now_ns() - net->moved_ns;
    if (still < STILL_NS) {
        return 0;
    }
    return still / STILL_PER_SLEEP < LOOK_NS ? still / STILL_PER_SLEEP : LOOK_NS;
}

/* Sleep until a descriptor is ready; if the carrier has no descriptor, until it must be polled. */
static bool sleep_on_descriptors(struct net_backend *net, int64_t ns)
{
    int carrier_fd = net->carrier != NULL ? net->carrier->ops->descriptor(net->carrier) : -1;
    struct pollfd entries[2] = {{net->wake_fd, POLLIN, 0}, {carrier_fd, POLLIN, 0}};
    bool blind = net->carrier != NULL && carrier_fd < 0;
    int64_t most = blind ? look_ns(net) : ns;
    int64_t limit = most < ns ? most : ns;
    struct timespec time = {limit / 1000000000, limit % 1000000000};
    bool woken;

    if (blind && limit == 0) {
        sched_yield();
        return true;
    }
    woken = ppoll(entries, 2, &time, NULL) != 0 || blind;

    if ((entries[0].revents & POLLIN) != 0) {
        uint64_t count;

        (void)!read(net->wake_fd, &count, sizeof count);
    }
    return woken;
}

static bool sleep_net(struct cddpi_backend *backend, uint32_t ticket, int64_t ns)
{
    struct net_backend *net = net_of(backend);
    int64_t until = cddpi_now_ns() + ns;

    if (!atomic_load(&net->waits_inside)) {
        return sleep_on_descriptors(net, ns);
    }
    if (!atomic_load(&net->uses_carrier)) {
        return net->inner->ops->sleep(net->inner, ticket, ns);
    }
    for (int64_t left = ns; left > 0; left = until - cddpi_now_ns()) {
        int64_t look = look_ns(net);

        if ((look > 0 && net->inner->ops->sleep(net->inner, ticket, left < look ? left : look)) ||
            sleep_on_descriptors(net, 0)) {
            return true;
        }
    }
    return false;
}

static void end_sleep(struct cddpi_backend *backend)
{
    struct net_backend *net = net_of(backend);

    atomic_store(&net->sleeps, false);
    net->inner->ops->end_sleep(net->inner);
}

static void free_memory(struct cddpi_backend *backend, void *memory)
{
    struct net_backend *net = net_of(backend);

    net->inner->ops->free_memory(net->inner, memory);
}

static void cores(const struct cddpi_backend *backend, struct cddpi_cores *out)
{
    cddpi_shm_transport.cpu.cores(net_of_const(backend)->inner, out);
}

const struct cddpi_backend_ops cddpi_net_ops = {
    .close = leave,
    .advance = cddpi_net_advance,
    .check = check,
    .drop = cddpi_net_drop,
    .late = add_late,
    .expired = expired,
    .prepare_sleep = prepare_sleep,
    .sleep = sleep_net,
    .end_sleep = end_sleep,
    .exits = exits,
    .wake = cddpi_net_wake,
    .abort = abort_net,
    .broken = broken,
    .free_memory = free_memory,
    .interfaces = cddpi_net_interfaces,
    .has_wire = has_wire}; /* otherwise a thread would poll all the time */

/* See cddpi_group_link(). */
static bool describe_link(const struct cddpi_backend *backend, cddp_type type,
                          struct cddpi_group_link *out)
{
    const struct net_backend *net = net_of_const(backend);
    double widening = (double)cddp_type_bytes(cddpi_reduce_sum_type(type, CDDP_OP_SUM)) /
                      (double)cddp_type_bytes(type);

    if (net->host_count == 1 || !(net->link.bytes_per_s > 0) ||
        !(net->link.reduce_bytes_per_s > 0)) {
        return false;
    }
    out->carrier = net->carrier->ops->name;
    out->hosts = net->host_count;
    out->is_measured = true;
    out->latency_s = net->link.latency_s;
    out->bytes_per_s = net->link.bytes_per_s;
    out->reduce_bytes_per_s = net->link.reduce_bytes_per_s;
    for (int i = 0; i < CDDPI_LINK_SIZES; i++) {
        double bytes = cddpi_link_size(i);

        (void)cddpi_algorithm_choose(&net->tree, &net->link, (size_t)bytes,
                                     (size_t)(bytes * widening), &out->all_reduce_s[i]);
    }
    return true;
}

static cddp_status probe(const struct cddpi_members *members)
{
    (void)members;
    return CDDP_OK;
}

const struct cddpi_transport cddpi_net_transport = {.name = "net",
                                                    .carries = CDDPI_MEMORY_CPU,
                                                    .cpu = {.probe = probe,
                                                            .open = cddpi_net_open,
                                                            .split = cddpi_net_split,
                                                            .cores = cores,
                                                            .link = describe_link}};
