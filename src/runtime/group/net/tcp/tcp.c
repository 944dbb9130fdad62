/* tcp.c - opens and closes the tcp carrier. Ranks exchange their addresses, and leaders connect at
 * once. */
#include "group/net/tcp/tcp.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/env.h"
#include "group/net/tcp/congestion.h"
#include "store/auth.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEFAULT_SOCKETS = 2, SLICE_MS = 500, SLICE_PER_HOSTS = 4 };

static cddp_status probe(void)
{
    return CDDP_OK; /* every machine has TCP */
}

/* Listen on a port that the kernel chooses, at all addresses. Connections to addresses that were
 * not offered are closed. */
static cddp_status start_listening(struct tcp_carrier *tcp)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof bound;
    int off = 0;
    int fd = cddpi_own_fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
                    bind(fd, (const struct sockaddr *)&any6, sizeof any6) != 0)) {
        cddpi_own_fd_close(fd);
        fd = -1;
    }
    if (fd < 0) { /* a kernel without IPv6 */
        fd = cddpi_own_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (fd >= 0 && bind(fd, (const struct sockaddr *)&any4, sizeof any4) != 0) {
            cddpi_own_fd_close(fd);
            fd = -1;
        }
    }
    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "tcp: a socket to listen on");
    }
    tcp->listener.listen_fd = fd;
    if (listen(fd, SOMAXCONN) != 0 || getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "tcp: listen");
    }
    tcp->own.port = ntohs(bound.ss_family == AF_INET6
                              ? ((const struct sockaddr_in6 *)(const void *)&bound)->sin6_port
                              : ((const struct sockaddr_in *)(const void *)&bound)->sin_port);
    tcp->listener.port = tcp->own.port;
    return CDDP_OK;
}

static cddp_status make_descriptors(struct tcp_carrier *tcp)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    tcp->net_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp->data_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp->net_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->data_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->net_epoll_fd < 0 || tcp->data_epoll_fd < 0 || tcp->net_wake_fd < 0 ||
        tcp->data_wake_fd < 0 ||
        epoll_ctl(tcp->data_epoll_fd, EPOLL_CTL_ADD, tcp->data_wake_fd, &event) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "tcp: event loops");
    }
    return CDDP_OK;
}

static cddp_status read_settings(struct tcp_carrier *tcp)
{
    tcp->sockets = (uint32_t)cddpi_env_integer(CDDPI_ENV_SOCKETS, 1, TCP_MAX_SOCKETS,
                                               DEFAULT_SOCKETS);
    tcp->limit_ms = cddpi_silence_limit_ms(0);
    CDDPI_TRY(cddpi_token_check(tcp->params.token, "tcp: the port between hosts"));
    CDDPI_TRY(cddpi_tcp_congestion_check());
    CDDPI_TRY(cddpi_encryption(tcp->params.token, &tcp->encrypts));
    return cddpi_ciphers(&tcp->ciphers);
}

static cddp_status want_leaders(struct tcp_carrier *tcp)
{
    for (int host = 0; tcp->leads && host < tcp->params.host_count; host++) {
        int leader = tcp->params.leaders[host];

        if (leader != tcp->params.rank) {
            struct tcp_pair *pair = cddpi_tcp_pair(tcp, leader);

            if (pair == NULL) {
                return CDDP_ERR_NO_MEMORY;
            }
            pair->wanted = 1u << TCP_CONTROL_SLOT;
            if (!tcp->params.only_control) {
                pair->wanted |= tcp_slots_of(tcp, CDDPI_NET_COLLECTIVES);
            }
        }
    }
    return CDDP_OK;
}

/* The part of opening that needs no other rank. */
static cddp_status prepare_alone(struct tcp_carrier *tcp)
{
    size_t ranks = (size_t)tcp->params.world_size;

    CDDPI_TRY(read_settings(tcp));
    tcp->offers = cddpi_zalloc_array(ranks, sizeof *tcp->offers);
    tcp->pairs = cddpi_zalloc_array(ranks, sizeof *tcp->pairs);
    CDDPI_TRY_MEMORY(tcp->offers != NULL && tcp->pairs != NULL, "tcp: no memory for %zu ranks",
                     ranks);
    CDDPI_TRY(make_descriptors(tcp));
    CDDPI_TRY(cddpi_tcp_offer_make(&tcp->own));
    CDDPI_TRY(start_listening(tcp));
    CDDPI_TRY(want_leaders(tcp));
    tcp->own.version = TCP_VERSION;
    tcp->own.sockets = tcp->sockets;
    tcp->own.encrypts = tcp->encrypts;
    tcp->own.ciphers = (uint16_t)tcp->ciphers;
    return CDDP_OK;
}

static cddp_status compare_offer(const struct tcp_carrier *tcp, int rank)
{
    const struct tcp_offer *other = &tcp->offers[rank];

    if (other->version != tcp->own.version || !cddpi_tcp_offer_is_valid(other)) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "tcp: rank %d speaks version %u of the protocol between hosts, not %u",
                          rank, other->version, tcp->own.version);
    }
    if (other->sockets != tcp->own.sockets || other->encrypts != tcp->own.encrypts) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "tcp: rank %d on host %s has CDDP_SOCKETS=%u and CDDP_ENCRYPT=%u, rank "
                          "%d on host %s has CDDP_SOCKETS=%u and CDDP_ENCRYPT=%u",
                          rank, other->host, other->sockets, other->encrypts, tcp->params.rank,
                          tcp->own.host, tcp->own.sockets, tcp->own.encrypts);
    }
    return CDDP_OK;
}

/* Gives the same result on all ranks, since each compares all offers. */
static cddp_status compare_ciphers(const struct tcp_carrier *tcp)
{
    uint32_t common = ~0u;

    for (int rank = 0; rank < tcp->params.world_size; rank++) {
        common &= tcp->offers[rank].ciphers;
        if (common == 0) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "tcp: no cipher is left that rank %d on host %s and those before it "
                              "can all use; CDDP_CIPHER must be the same on all ranks, or unset",
                              rank, tcp->offers[rank].host);
        }
    }
    return CDDP_OK;
}

/* Exchange addresses with all ranks, if all could prepare; @p status is this rank's. */
static cddp_status exchange_offers(const struct cddpi_exchange *exchange, cddp_status status,
                                   struct tcp_carrier *tcp)
{
    void *all;

    CDDPI_TRY(cddpi_agree_and_gather_by(exchange, status, tcp != NULL ? &tcp->own : NULL,
                                        sizeof tcp->own, &all));
    memcpy(tcp->offers, all, (size_t)tcp->params.world_size * sizeof *tcp->offers);
    cddpi_free(all);
    for (int rank = 0; rank < tcp->params.world_size; rank++) {
        CDDPI_TRY(compare_offer(tcp, rank));
    }
    return compare_ciphers(tcp);
}

static bool is_connected(const struct tcp_carrier *tcp)
{
    for (int host = 0; tcp->leads && host < tcp->params.host_count; host++) {
        const struct tcp_pair *pair = tcp->pairs[tcp->params.leaders[host]];

        if (tcp->params.leaders[host] != tcp->params.rank &&
            (pair == NULL || (pair->wanted & ~pair->filled) != 0)) {
            return false;
        }
    }
    return true;
}

/* The time between two checks whether a rank has given up, since each check costs a request. */
static int64_t slice_ns(const struct tcp_carrier *tcp)
{
    return (SLICE_MS + tcp->params.host_count / SLICE_PER_HOSTS) * INT64_C(1000000);
}

/* Wait until the thread has connected all leaders. */
static cddp_status connect_leaders(struct tcp_carrier *tcp)
{
    const struct cddpi_exchange *exchange = tcp->params.exchange;
    /* later than the deadline of the search, whose error text says more */
    int64_t deadline_ns = cddpi_deadline_ns(tcp->params.timeout_ms) + INT64_C(2000000000);
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&tcp->lock);
    while (!is_connected(tcp) && !atomic_load(&tcp->has_failed) && status == CDDP_OK &&
           cddpi_now_ns() < deadline_ns) {
        int64_t until_ns = cddpi_now_ns() + slice_ns(tcp);
        struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};

        if (pthread_cond_timedwait(&tcp->opened, &tcp->lock, &until) != 0 &&
            exchange->check != NULL) {
            pthread_mutex_unlock(&tcp->lock);
            status = exchange->check(exchange->context);
            pthread_mutex_lock(&tcp->lock);
        }
    }
    if (status == CDDP_OK && !is_connected(tcp)) {
        status = atomic_load(&tcp->has_failed)
                     ? cddpi_tcp_check(&tcp->base)
                     : cddpi_fail(CDDP_ERR_TIMEOUT, "tcp: hosts did not connect for %u ms",
                                  tcp->params.timeout_ms);
    }
    pthread_mutex_unlock(&tcp->lock);
    return status;
}

static void close_carrier(struct cddpi_carrier *carrier)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    if (tcp == NULL) {
        return;
    }
    if (tcp->owner == getpid()) {
        if (tcp->pairs != NULL) {
            cddpi_tcp_await_connections(tcp);
        }
        cddpi_tcp_thread_stop(tcp);
        if (tcp->pairs != NULL) {
            cddpi_tcp_control_goodbye(tcp);
        }
    } /* otherwise this is a forked child, which only closes its descriptors */
    cddpi_tcp_attempts_close(tcp);
    cddpi_tcp_data_close(tcp);
    for (int rank = 0; tcp->pairs != NULL && rank < tcp->params.world_size; rank++) {
        cddpi_tcp_pair_destroy(tcp, tcp->pairs[rank]);
    }
    cddpi_tcp_pool_close(&tcp->control_buffers);
    cddpi_own_fd_close(tcp->listener.listen_fd);
    cddpi_own_fd_close(tcp->net_epoll_fd);
    cddpi_own_fd_close(tcp->net_wake_fd);
    cddpi_own_fd_close(tcp->data_epoll_fd);
    cddpi_own_fd_close(tcp->data_wake_fd);
    pthread_cond_destroy(&tcp->opened);
    pthread_mutex_destroy(&tcp->lock);
    cddpi_free(tcp->pairs);
    cddpi_free(tcp->offers);
    cddpi_free(tcp);
}

static struct tcp_carrier *create(const struct cddpi_carrier_params *params)
{
    struct tcp_carrier *tcp = cddpi_zalloc(sizeof *tcp);
    pthread_condattr_t attributes;

    if (tcp == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "tcp: no memory");
        return NULL;
    }
    tcp->base.ops = &cddpi_tcp_carrier;
    tcp->params = *params;
    tcp->owner = getpid();
    tcp->leads = params->leaders[params->host_of[params->rank]] == params->rank;
    cddpi_tcp_listener_init(tcp);
    tcp->net_epoll_fd = tcp->net_wake_fd = -1;
    tcp->data_epoll_fd = tcp->data_wake_fd = -1;
    cddpi_tcp_job(params->job, tcp->job);
    pthread_mutex_init(&tcp->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&tcp->opened, &attributes);
    pthread_condattr_destroy(&attributes);
    return tcp;
}

static cddp_status open_carrier(const struct cddpi_carrier_params *params,
                                struct cddpi_carrier **out)
{
    struct tcp_carrier *tcp = create(params);
    cddp_status status = tcp != NULL ? prepare_alone(tcp) : CDDP_ERR_NO_MEMORY;

    status = exchange_offers(params->exchange, status, tcp);
    if (status == CDDP_OK) {
        status = tcp->leads || !params->only_control ? cddpi_tcp_thread_start(tcp) : CDDP_OK;
        if (status == CDDP_OK) {
            status = connect_leaders(tcp);
        }
        status = cddpi_agree_by(params->exchange, status);
    }
    if (status != CDDP_OK) {
        if (tcp != NULL) {
            close_carrier(&tcp->base);
        }
        return status;
    }
    *out = &tcp->base;
    return CDDP_OK;
}

const struct cddpi_carrier_ops cddpi_tcp_carrier = {.name = "tcp",
                                                    .probe = probe,
                                                    .open = open_carrier,
                                                    .close = close_carrier,
                                                    .start = cddpi_tcp_start,
                                                    .progress = cddpi_tcp_progress,
                                                    .flush = cddpi_tcp_flush,
                                                    .forget = cddpi_tcp_forget,
                                                    .descriptor = cddpi_tcp_descriptor,
                                                    .prepare_sleep = cddpi_tcp_prepare_sleep,
                                                    .check = cddpi_tcp_check,
                                                    .describe = cddpi_tcp_describe,
                                                    .abort = cddpi_tcp_abort,
                                                    .aborted = cddpi_tcp_aborted,
                                                    .exits = cddpi_tcp_exits,
                                                    .interfaces = cddpi_tcp_interfaces};
