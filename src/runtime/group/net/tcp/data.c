/* data.c - owns the caller's side of the carrier: starts transfers, advances them, and handles the
 * data connections. One thread at a time, without the lock unless a comment says so. */
#include "group/net/tcp/tcp.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "group/net/tcp/attempt.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS = 32,
    CONNECTING_MS = 100 /* how long a rank that fails waits for connections that are being made */
};

static struct tcp_link *link_of(struct tcp_carrier *tcp, int peer, enum cddpi_net_channel channel)
{
    struct tcp_pair *pair;
    struct tcp_link *link;

    pthread_mutex_lock(&tcp->lock);
    pair = cddpi_tcp_pair(tcp, peer);
    pthread_mutex_unlock(&tcp->lock);
    if (pair == NULL || pair->links[channel] != NULL) {
        return pair != NULL ? pair->links[channel] : NULL;
    }
    link = cddpi_zalloc(sizeof *link);
    if (link == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "tcp: no memory for rank %d", peer);
        return NULL;
    }
    link->pair = pair;
    link->channel = channel;
    pair->links[channel] = link;
    return link;
}

static cddp_status keep(struct tcp_carrier *tcp, cddp_status status)
{
    if (status != CDDP_OK && tcp->data_status == CDDP_OK) {
        tcp->data_status = status;
        tcp->data_failure = *cddpi_last_failure();
    }
    return status;
}

/* Put a connection that has arrived into its link. */
static cddp_status place(struct tcp_carrier *tcp, struct tcp_socket *socket)
{
    enum cddpi_net_channel channel = (enum cddpi_net_channel)((socket->slot - 1) / tcp->sockets);
    bool any = false;

    socket->next = tcp->all_sockets;
    tcp->all_sockets = socket;
    socket->link = link_of(tcp, socket->pair->peer, channel);
    if (socket->link == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    socket->link->sockets[(socket->slot - 1) % tcp->sockets] = socket;
    cddpi_tcp_socket_watch(tcp, socket, EPOLLIN);
    return cddpi_tcp_socket_send(tcp, socket, &any);
}

static cddp_status take_arrived(struct tcp_carrier *tcp)
{
    struct tcp_socket *arrived;
    eventfd_t count;
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&tcp->lock);
    arrived = tcp->arrived;
    tcp->arrived = NULL;
    atomic_store(&tcp->has_arrived, false);
    (void)eventfd_read(tcp->data_wake_fd, &count);
    pthread_mutex_unlock(&tcp->lock);
    while (arrived != NULL) {
        struct tcp_socket *socket = arrived;
        cddp_status placed;

        arrived = socket->next;
        placed = place(tcp, socket);
        status = status == CDDP_OK ? placed : status;
    }
    return status;
}

/* Request connections for a channel that has its first transfer. */
static void want(struct tcp_carrier *tcp, struct tcp_link *link)
{
    pthread_mutex_lock(&tcp->lock);
    link->pair->wanted |= tcp_slots_of(tcp, link->channel) | 1u << TCP_CONTROL_SLOT;
    pthread_mutex_unlock(&tcp->lock);
    link->is_wanted = true;
    cddpi_tcp_wake(tcp);
}

/* Whether a transfer waits for a peer that has closed everything. What it sent before has then been
 * read, and a message that came too early keeps its connection open. */
static bool misses(const struct tcp_carrier *tcp, const struct tcp_link *link)
{
    bool sends = false;

    for (unsigned i = 0; i < tcp->sockets; i++) {
        const struct tcp_socket *socket = link->sockets[i];

        if (socket != NULL && !socket->is_dead) {
            return false;
        }
        sends = sends || (socket != NULL && tcp_sends(socket));
    }
    return sends || cddpi_tcp_link_has_transfers(link);
}

/* Say whether transfers wait for those that left. */
static void answer(struct tcp_carrier *tcp)
{
    pthread_mutex_lock(&tcp->lock);
    for (int rank = 0; rank < tcp->params.world_size; rank++) {
        struct tcp_pair *pair = tcp->pairs[rank];

        for (int channel = 0; pair != NULL && pair->is_asked && channel < CDDPI_NET_CHANNELS;
             channel++) {
            const struct tcp_link *link = pair->links[channel];

            pair->is_missed = pair->is_missed || (link != NULL && misses(tcp, link));
        }
        if (pair != NULL) {
            pair->is_asked = false;
        }
    }
    pthread_mutex_unlock(&tcp->lock);
    cddpi_tcp_wake(tcp);
}

/* Suspect a peer that has left or whose connection broke, if transfers wait for it: it takes part
 * in nothing new. */
static void look_for_life(struct tcp_carrier *tcp, struct tcp_link *link)
{
    bool is_dead = atomic_load(&link->pair->left);

    for (unsigned i = 0; i < tcp->sockets; i++) {
        is_dead = is_dead || (link->sockets[i] != NULL && link->sockets[i]->is_dead);
    }
    if (is_dead && cddpi_tcp_link_has_transfers(link)) {
        pthread_mutex_lock(&tcp->lock);
        cddpi_tcp_pair_suspect(tcp, link->pair, "its connection is closed");
        pthread_mutex_unlock(&tcp->lock);
    }
}

static cddp_status fail_again(const struct tcp_carrier *tcp)
{
    if (tcp->is_forgotten) {
        return cddpi_fail(CDDP_ERR_BROKEN, "tcp: the group has failed");
    }
    return cddpi_fail_again(tcp->data_status, &tcp->data_failure);
}

cddp_status cddpi_tcp_start(struct cddpi_carrier *carrier, struct cddpi_transfer *transfer)
{
    struct tcp_carrier *tcp = tcp_of(carrier);
    struct tcp_link *link;
    cddp_status status;

    if (tcp->is_forgotten || tcp->data_status != CDDP_OK) {
        return fail_again(tcp);
    }
    link = link_of(tcp, transfer->peer, transfer->channel);
    if (link == NULL) {
        return keep(tcp, CDDP_ERR_NO_MEMORY);
    }
    memset(transfer->state, 0, sizeof transfer->state);
    transfer->is_done = false;
    if (!link->is_wanted) {
        want(tcp, link);
    }
    status = transfer->is_send ? cddpi_tcp_send(tcp, link, transfer)
                               : cddpi_tcp_recv(tcp, link, transfer);
    if (status == CDDP_OK && !transfer->is_done) {
        look_for_life(tcp, link);
    }
    return keep(tcp, status);
}

static cddp_status handle_event(struct tcp_carrier *tcp, const struct epoll_event *event,
                                bool *out_any)
{
    struct tcp_socket *socket = event->data.ptr;
    cddp_status status = CDDP_OK;

    if (socket == NULL || socket->is_dead) {
        /* NULL: the event means that a connection has arrived */
        return CDDP_OK;
    }
    if ((event->events & EPOLLOUT) != 0) {
        status = cddpi_tcp_socket_send(tcp, socket, out_any);
    }
    if (status == CDDP_OK && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 &&
        !socket->is_dead) {
        int64_t now_ns = cddpi_now_ns();

        status = cddpi_tcp_socket_recv(tcp, socket, out_any);
        atomic_store(&socket->pair->heard_ns, now_ns);
    }
    return status;
}

cddp_status cddpi_tcp_progress(struct cddpi_carrier *carrier, bool *out_any)
{
    struct tcp_carrier *tcp = tcp_of(carrier);
    struct epoll_event events[EVENTS];
    bool has_arrived = atomic_load(&tcp->has_arrived);
    cddp_status status = CDDP_OK;
    int count;

    *out_any = false;
    if (tcp->is_forgotten || tcp->data_status != CDDP_OK) {
        return fail_again(tcp);
    }
    if (has_arrived) {
        status = take_arrived(tcp);
        *out_any = true; /* a transfer may have completed */
    }
    if (status == CDDP_OK) {
        status = cddpi_tcp_send_held(tcp, out_any);
    }
    count = epoll_wait(tcp->data_epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count && status == CDDP_OK; i++) {
        status = handle_event(tcp, &events[i], out_any);
    }
    if (has_arrived) {
        answer(tcp);
    }
    return keep(tcp, status);
}

cddp_status cddpi_tcp_flush(struct cddpi_carrier *carrier, bool *out_any)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    *out_any = false;
    if (tcp->held == NULL) {
        return CDDP_OK;
    }
    if (tcp->is_forgotten || tcp->data_status != CDDP_OK) {
        return fail_again(tcp);
    }
    return keep(tcp, cddpi_tcp_send_held(tcp, out_any));
}

/* Whether a peer may see this rank end before the pair has a control connection. */
static bool is_connecting(const struct tcp_carrier *tcp)
{
    const uint32_t control = 1u << TCP_CONTROL_SLOT;

    for (const struct tcp_attempt *at = tcp->attempts; at != NULL; at = at->next) {
        if (!at->is_closed && at->pair != NULL) {
            return true;
        }
    }
    for (int rank = 0; rank < tcp->params.world_size && !atomic_load(&tcp->has_failed); rank++) {
        const struct tcp_pair *pair = tcp->pairs[rank];

        if (pair != NULL && pair->filled != 0 && (pair->filled & control) == 0 &&
            !atomic_load(&pair->left)) {
            return true;
        }
    }
    return false;
}

void cddpi_tcp_await_connections(struct tcp_carrier *tcp)
{
    int64_t deadline_ns = cddpi_deadline_ns(CONNECTING_MS);
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    int error = 0;

    pthread_mutex_lock(&tcp->lock);
    while (tcp->has_thread && is_connecting(tcp) && error == 0) {
        error = pthread_cond_timedwait(&tcp->opened, &tcp->lock, &until);
    }
    pthread_mutex_unlock(&tcp->lock);
}

bool cddpi_tcp_forget(struct cddpi_carrier *carrier)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    if (!tcp->is_forgotten && tcp->owner == getpid()) {
        cddpi_tcp_await_connections(tcp);
    }
    tcp->is_forgotten = true;
    for (struct tcp_socket *socket = tcp->all_sockets; socket != NULL; socket = socket->next) {
        /* data in the middle of a message has no meaning any more */
        cddpi_tcp_socket_watch(tcp, socket, 0);
        socket->is_dead = true;
        socket->out = NULL;
        socket->out_head_sent = socket->out_head_end = 0;
        socket->batch_count = 0;
        socket->in = NULL;
        if (socket->link != NULL) {
            memset(&socket->link->sends, 0, sizeof socket->link->sends);
            memset(&socket->link->recvs, 0, sizeof socket->link->recvs);
        }
    }
    pthread_mutex_lock(&tcp->lock); /* a peer that connects right now creates its pair */
    for (int rank = 0; rank < tcp->params.world_size; rank++) {
        for (int channel = 0; tcp->pairs[rank] != NULL && channel < CDDPI_NET_CHANNELS; channel++) {
            struct tcp_link *link = tcp->pairs[rank]->links[channel];

            if (link != NULL) {
                memset(&link->sends, 0, sizeof link->sends);
                memset(&link->recvs, 0, sizeof link->recvs);
            }
        }
    }
    pthread_mutex_unlock(&tcp->lock);
    return true;
}

int cddpi_tcp_descriptor(struct cddpi_carrier *carrier)
{
    struct tcp_carrier *tcp = tcp_of(carrier);

    return tcp->data_epoll_fd;
}

void cddpi_tcp_prepare_sleep(struct cddpi_carrier *carrier)
{
    (void)carrier; /* epoll always has the events that each connection waits for */
}

/* Send a goodbye if no piece is being sent, so that the peer expects the end of the connection. */
static void leave(struct tcp_carrier *tcp, struct tcp_socket *socket)
{
    struct tcp_frame goodbye = {.kind = TCP_FRAME_GOODBYE};
    uint8_t frame[TCP_FRAME_BYTES];
    struct iovec parts[2] = {{frame, sizeof frame}, {NULL, 0}};
    uint8_t rest[4096];

    if (!socket->is_dead && !tcp_sends(socket) && tcp->owner == getpid()) {
        cddpi_tcp_frame_put(&goodbye, &socket->signed_out, frame);
        (void)!cddpi_stream_send(&socket->stream, parts);
        (void)shutdown(socket->stream.fd, SHUT_WR);
        /* with unread data, the kernel would reset the connection, and drop data in transit */
        while (recv(socket->stream.fd, rest, sizeof rest, MSG_DONTWAIT) > 0) {
            continue;
        }
    }
}

void cddpi_tcp_data_close(struct tcp_carrier *tcp)
{
    if (tcp->owner == getpid() && atomic_load(&tcp->has_arrived)) {
        (void)take_arrived(tcp);
    }
    while (tcp->all_sockets != NULL) {
        struct tcp_socket *socket = tcp->all_sockets;

        tcp->all_sockets = socket->next;
        leave(tcp, socket);
        cddpi_own_fd_close(socket->stream.fd);
        cddpi_cipher_destroy(socket->stream.cipher);
        cddpi_tcp_buffer_put(&tcp->data_buffers, &socket->out_head);
        cddpi_tcp_buffer_put(&tcp->data_buffers, &socket->buffer);
        sodium_memzero(socket, sizeof *socket);
        cddpi_free(socket);
    }
    cddpi_tcp_pool_close(&tcp->data_buffers);
}
