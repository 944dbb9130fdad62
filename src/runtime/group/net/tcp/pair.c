/* pair.c - owns what a rank knows about a rank on another host: its connections, and whether it is
 * lost. Call everything with the carrier's lock held. */
#include "group/net/tcp/tcp.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "group/net/tcp/congestion.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct tcp_pair *cddpi_tcp_pair(struct tcp_carrier *tcp, int peer)
{
    struct tcp_pair *pair = tcp->pairs[peer];

    if (pair != NULL) {
        return pair;
    }
    pair = cddpi_zalloc(sizeof *pair);
    if (pair == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "tcp: no memory for rank %d", peer);
        return NULL;
    }
    pair->peer = peer;
    pair->leads = tcp->leads && tcp->params.leaders[tcp->params.host_of[peer]] == peer;
    pair->offer = &tcp->offers[peer];
    atomic_init(&pair->heard_ns, cddpi_now_ns());
    tcp->pairs[peer] = pair;
    return pair;
}

void cddpi_tcp_pair_destroy(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    if (pair == NULL) {
        return;
    }
    if (pair->control != NULL) {
        if (pair->control->is_open) {
            cddpi_own_fd_close(pair->control->stream.fd);
        }
        cddpi_cipher_destroy(pair->control->stream.cipher);
        cddpi_tcp_buffer_put(&tcp->control_buffers, &pair->control->in);
        cddpi_tcp_buffer_put(&tcp->control_buffers, &pair->control->out);
        cddpi_free(pair->control);
    }
    for (int channel = 0; channel < CDDPI_NET_CHANNELS; channel++) {
        cddpi_free(pair->links[channel]);
    }
    cddpi_free(pair->search);
    cddpi_free(pair);
}

void cddpi_tcp_pair_name(const struct tcp_pair *pair, char *out, size_t bytes)
{
    if (pair->via[0] != '\0') {
        snprintf(out, bytes, "rank %d on host %s (%s)", pair->peer, pair->offer->host, pair->via);
    } else {
        snprintf(out, bytes, "rank %d on host %s", pair->peer, pair->offer->host);
    }
}

static void fail_pair(struct tcp_carrier *tcp, struct tcp_pair *pair, cddp_status status,
                      const char *why, bool has_left)
{
    char name[TCP_TEXT_BYTES];

    if (atomic_load(&tcp->has_failed) || tcp->is_closing) {
        return;
    }
    cddpi_tcp_pair_name(pair, name, sizeof name);
    (void)cddpi_fail(status, "%s %s", name, why);
    cddpi_error_blame(pair->peer);
    if (has_left) {
        cddpi_error_left();
    }
    tcp->failure = *cddpi_last_failure();
    atomic_store(&tcp->has_failed, true);
    tcp->needs_wake = true;
    pthread_cond_broadcast(&tcp->opened);
}

void cddpi_tcp_pair_failed(struct tcp_carrier *tcp, struct tcp_pair *pair, cddp_status status,
                           const char *why)
{
    fail_pair(tcp, pair, status, why, false);
}

void cddpi_tcp_pair_left(struct tcp_carrier *tcp, struct tcp_pair *pair)
{
    fail_pair(tcp, pair, CDDP_ERR_PEER, "has left the group, while this rank still waits for it",
              true);
}

void cddpi_tcp_pair_lost(struct tcp_carrier *tcp, struct tcp_pair *pair, const char *format, ...)
{
    char why[2 * TCP_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    cddpi_tcp_pair_failed(tcp, pair, CDDP_ERR_PEER, why);
}

void cddpi_tcp_pair_suspect(struct tcp_carrier *tcp, struct tcp_pair *pair, const char *why)
{
    if (pair->suspected_ns == 0) {
        pair->suspected_ns = cddpi_now_ns();
        snprintf(pair->suspicion, sizeof pair->suspicion, "is lost: %s", why);
    }
    cddpi_tcp_wake(tcp);
}

void cddpi_tcp_pair_show(struct tcp_carrier *tcp)
{
    atomic_store(&tcp->has_arrived, true);
    (void)eventfd_write(tcp->data_wake_fd, 1);
    tcp->needs_wake = true;
}

/* Give a data connection to the caller's thread. */
static bool fill_data(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                      struct cddpi_store_stream *stream, const struct cddpi_session *session)
{
    struct tcp_socket *socket = cddpi_zalloc(sizeof *socket);

    if (socket == NULL) {
        return false;
    }
    cddpi_tcp_congestion_choose(stream->fd);
    cddpi_silence_repeat(stream->fd, CDDPI_SILENCE_MOST_MS);
    socket->stream = *stream;
    cddpi_tcp_signature_init(&socket->signed_out, session, true);
    cddpi_tcp_signature_init(&socket->signed_in, session, false);
    socket->pair = pair;
    socket->slot = slot;
    socket->next = tcp->arrived;
    tcp->arrived = socket;
    cddpi_tcp_pair_show(tcp);
    return true;
}

void cddpi_tcp_pair_fill(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                         struct cddpi_store_stream *stream, const struct cddpi_session *session)
{
    bool is_first = pair->filled == 0;
    bool filled = slot == TCP_CONTROL_SLOT ? cddpi_tcp_control_open(tcp, pair, stream)
                                           : fill_data(tcp, pair, slot, stream, session);

    if (!filled) {
        cddpi_own_fd_close(stream->fd);
        cddpi_cipher_destroy(stream->cipher);
        cddpi_tcp_pair_lost(tcp, pair, "cannot be connected: this rank has no memory for it");
        return;
    }
    pair->filled |= 1u << slot;
    atomic_store(&pair->heard_ns, cddpi_now_ns());
    if (is_first) {
        cddpi_log(CDDPI_LOG_INFO, "tcp: connected to rank %d on host %s: %s", pair->peer,
                  pair->offer->host, pair->via);
    }
    pthread_cond_broadcast(&tcp->opened);
}

void cddpi_tcp_wake(struct tcp_carrier *tcp)
{
    (void)eventfd_write(tcp->net_wake_fd, 1);
}
