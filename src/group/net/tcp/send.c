/* send.c - sends messages in pieces from the caller's memory. The caller's thread's.
 *
 * A message waits in its channel until a connection takes a piece of it: small ones whole, large
 * ones in pieces that go over all connections that have nothing else to do. */
#include "group/net/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    STRIPED_BYTES = 1 << 20, /* messages from this size on are cut */
    PIECE_BYTES = 512 << 10,
    CALLS_AT_ONCE = 4 /* then others have their turn */
};

/* Give the socket the next piece of its channel. False: there is none. */
static bool take_piece(const struct cddpi_carrier *tcp, struct tcp_socket *socket)
{
    struct cddpi_transfer *transfer = socket->link->sends.first;
    struct tcp_progress *progress;
    struct tcp_frame frame = {.kind = TCP_FRAME_PIECE};

    if (transfer == NULL) {
        return false;
    }
    progress = tcp_progress(transfer);
    frame.tag = transfer->tag;
    frame.number = progress->number;
    frame.total = transfer->bytes;
    frame.offset = progress->assigned;
    frame.bytes = transfer->bytes - progress->assigned;
    if (tcp->sockets > 1 && transfer->bytes >= STRIPED_BYTES && frame.bytes > PIECE_BYTES) {
        frame.bytes = PIECE_BYTES;
    }
    cddpi_tcp_frame_put(&frame, socket->out_head);
    socket->out = transfer;
    socket->out_head_sent = 0;
    socket->out_at = frame.offset;
    socket->out_end = frame.offset + frame.bytes;
    progress->assigned = socket->out_end;
    if (progress->assigned == transfer->bytes) {
        cddpi_tcp_list_remove(&socket->link->sends, transfer);
    }
    return true;
}

/* The stream has taken @p bytes of the socket's piece. */
static void advance(struct tcp_socket *socket, size_t bytes, bool *out_any)
{
    size_t of_head = TCP_FRAME_BYTES - socket->out_head_sent;
    struct cddpi_transfer *transfer = socket->out;

    of_head = bytes < of_head ? bytes : of_head;
    socket->out_head_sent += of_head;
    socket->out_at += bytes - of_head;
    if (socket->out_head_sent < TCP_FRAME_BYTES || socket->out_at < socket->out_end) {
        tcp_progress(transfer)->moved += bytes - of_head;
        return;
    }
    socket->out = NULL;
    tcp_progress(transfer)->moved += bytes - of_head;
    if (tcp_progress(transfer)->moved == transfer->bytes) {
        transfer->is_done = true;
        *out_any = true;
    }
}

cddp_status cddpi_tcp_socket_send(struct cddpi_carrier *tcp, struct tcp_socket *socket,
                                  bool *out_any)
{
    bool is_clear = true; /* the socket takes more */

    for (int call = 0; call < CALLS_AT_ONCE && is_clear && !socket->is_dead; call++) {
        struct iovec parts[2];
        ssize_t taken;

        if (socket->out == NULL && !take_piece(tcp, socket)) {
            break;
        }
        parts[0].iov_base = socket->out_head + socket->out_head_sent;
        parts[0].iov_len = TCP_FRAME_BYTES - socket->out_head_sent;
        parts[1].iov_len = (size_t)(socket->out_end - socket->out_at);
        parts[1].iov_base = parts[1].iov_len > 0 ? (uint8_t *)socket->out->data + socket->out_at
                                                 : NULL;
        taken = cddpi_stream_send(&socket->stream, parts);
        if (taken >= 0) {
            is_clear = tcp->encrypts || (size_t)taken == parts[0].iov_len + parts[1].iov_len;
            advance(socket, (size_t)taken, out_any);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            is_clear = false;
        } else {
            cddpi_tcp_socket_lost(tcp, socket, errno);
        }
    }
    if (!socket->is_dead) {
        bool is_flushed = cddpi_stream_flush(&socket->stream);

        cddpi_tcp_socket_watch(
            tcp, socket,
            (socket->events & EPOLLIN) |
                (socket->out != NULL || !is_flushed || socket->link->sends.first != NULL ? EPOLLOUT
                                                                                         : 0));
    }
    return CDDP_OK;
}

cddp_status cddpi_tcp_send(struct cddpi_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer)
{
    cddp_status status = CDDP_OK;
    bool any = false;

    tcp_progress(transfer)->number = link->sent++;
    cddpi_tcp_list_append(&link->sends, transfer);
    for (unsigned i = 0; i < tcp->sockets && link->sends.first != NULL && status == CDDP_OK; i++) {
        struct tcp_socket *socket = link->sockets[i];

        if (socket != NULL && !socket->is_dead && socket->out == NULL) {
            status = cddpi_tcp_socket_send(tcp, socket, &any);
        }
    }
    return status;
}
