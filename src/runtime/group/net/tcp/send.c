/* send.c - sends messages in pieces from the caller's memory. Only the caller's thread calls this.
 *
 * A message waits in its channel until a connection takes a piece of it. Small messages are sent
 * whole; large ones in pieces, over all idle connections. Small messages are held until the flush,
 * so that everything that one operation sends to a host leaves in one call. */
#include "group/net/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    STRIPED_BYTES = 1 << 20, /* messages of at least this size are cut */
    PIECE_BYTES = 512 << 10,
    CALLS_AT_ONCE = 4 /* after these, other connections get their turn */
};

/* Bytes of data that still fit between the heads. */
static size_t room(const struct tcp_socket *socket)
{
    return sizeof socket->out_head->data - socket->out_head_end;
}

/* Assign the next @p bytes of @p transfer to the socket. Removes the message from its channel when
 * nothing is left of it. */
static void take(struct tcp_socket *socket, struct cddpi_transfer *transfer, uint64_t bytes)
{
    struct tcp_progress *progress = tcp_progress(transfer);
    struct tcp_frame frame = {.kind = TCP_FRAME_PIECE,
                              .tag = transfer->tag,
                              .number = progress->number,
                              .total = transfer->bytes,
                              .offset = progress->assigned,
                              .bytes = bytes};

    cddpi_tcp_frame_put(&frame, &socket->signed_out, socket->out_head->data + socket->out_head_end);
    socket->out_head_end += TCP_FRAME_BYTES;
    progress->assigned += bytes;
    if (progress->assigned == transfer->bytes) {
        cddpi_tcp_list_remove(&socket->link->sends, transfer);
    }
}

/* Copy a small message after its head, so that several messages leave in one call. */
static bool take_small(struct tcp_socket *socket, struct cddpi_transfer *transfer)
{
    if (transfer->bytes > TCP_SMALL_BYTES || tcp_progress(transfer)->assigned > 0 ||
        socket->batch_count == TCP_BATCH_MESSAGES ||
        room(socket) < TCP_FRAME_BYTES + transfer->bytes) {
        return false;
    }
    take(socket, transfer, transfer->bytes);
    if (transfer->bytes > 0) {
        memcpy(socket->out_head->data + socket->out_head_end, transfer->data, transfer->bytes);
        socket->out_head_end += transfer->bytes;
    }
    socket->batch[socket->batch_count++] = transfer;
    return true;
}

static void take_piece(const struct tcp_carrier *tcp, struct tcp_socket *socket,
                       struct cddpi_transfer *transfer)
{
    uint64_t begin = tcp_progress(transfer)->assigned;
    uint64_t bytes = transfer->bytes - begin;

    if (tcp->sockets > 1 && transfer->bytes >= STRIPED_BYTES && bytes > PIECE_BYTES) {
        bytes = PIECE_BYTES;
    }
    take(socket, transfer, bytes);
    socket->out = transfer;
    socket->out_at = begin;
    socket->out_end = begin + bytes;
}

/* Give the socket data from its channel: small messages, and the next piece of a larger one.
 */
static cddp_status fill(struct tcp_carrier *tcp, struct tcp_socket *socket)
{
    struct cddpi_transfer *next;

    socket->out_head_sent = socket->out_head_end = 0;
    if (socket->link->sends.first == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_tcp_buffer_take(&tcp->data_buffers, &socket->out_head));
    while ((next = socket->link->sends.first) != NULL) {
        if (!take_small(socket, next)) {
            break;
        }
    }
    if (next != NULL && room(socket) >= TCP_FRAME_BYTES &&
        (next->bytes > TCP_SMALL_BYTES || socket->out_head_end == 0)) {
        take_piece(tcp, socket, next);
    }
    return CDDP_OK;
}

static void end_piece(struct tcp_socket *socket, bool *out_any)
{
    struct cddpi_transfer *transfer = socket->out;

    if (transfer != NULL && socket->out_at == socket->out_end) {
        socket->out = NULL;
        if (tcp_progress(transfer)->moved == transfer->bytes) {
            transfer->is_done = true;
            *out_any = true;
        }
    }
}

/* Record that the stream has taken @p bytes of the data being sent. */
static void advance(struct tcp_carrier *tcp, struct tcp_socket *socket, size_t bytes, bool *out_any)
{
    size_t of_head = socket->out_head_end - socket->out_head_sent;

    of_head = bytes < of_head ? bytes : of_head;
    socket->out_head_sent += of_head;
    if (socket->out_head_sent < socket->out_head_end) {
        return;
    }
    cddpi_tcp_buffer_put(&tcp->data_buffers, &socket->out_head);
    for (; socket->batch_count > 0; socket->batch_count--) {
        socket->batch[socket->batch_count - 1]->is_done = true;
        *out_any = true;
    }
    if (socket->out != NULL) {
        socket->out_at += bytes - of_head;
        tcp_progress(socket->out)->moved += bytes - of_head;
        end_piece(socket, out_any);
    }
}

cddp_status cddpi_tcp_socket_send(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any)
{
    bool is_clear = true; /* the socket accepts more data */

    for (int call = 0; call < CALLS_AT_ONCE && is_clear && !socket->is_dead; call++) {
        struct iovec parts[2];
        ssize_t taken;

        if (!tcp_sends(socket)) {
            cddp_status status = fill(tcp, socket);

            if (status != CDDP_OK) {
                return status;
            }
        }
        if (!tcp_sends(socket)) {
            break;
        }
        parts[0].iov_len = socket->out_head_end - socket->out_head_sent;
        parts[0].iov_base = parts[0].iov_len > 0 ? socket->out_head->data + socket->out_head_sent
                                                 : NULL;
        parts[1].iov_len = socket->out != NULL ? (size_t)(socket->out_end - socket->out_at) : 0;
        parts[1].iov_base = parts[1].iov_len > 0 ? (uint8_t *)socket->out->data + socket->out_at
                                                 : NULL;
        taken = cddpi_stream_send(&socket->stream, parts);
        if (taken >= 0) {
            is_clear = tcp->encrypts || (size_t)taken == parts[0].iov_len + parts[1].iov_len;
            advance(tcp, socket, (size_t)taken, out_any);
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
                (tcp_sends(socket) || !is_flushed || socket->link->sends.first != NULL ? EPOLLOUT
                                                                                       : 0));
    }
    return CDDP_OK;
}

/* Make the channel's idle connections send. */
static cddp_status send_waiting(struct tcp_carrier *tcp, struct tcp_link *link, bool *out_any)
{
    cddp_status status = CDDP_OK;

    for (unsigned i = 0; i < tcp->sockets && link->sends.first != NULL && status == CDDP_OK; i++) {
        struct tcp_socket *socket = link->sockets[i];

        if (socket != NULL && !socket->is_dead && !tcp_sends(socket)) {
            status = cddpi_tcp_socket_send(tcp, socket, out_any);
        }
    }
    return status;
}

cddp_status cddpi_tcp_send(struct tcp_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer)
{
    bool any = false;

    tcp_progress(transfer)->number = link->sent++;
    cddpi_tcp_list_append(&link->sends, transfer);
    if (transfer->bytes > TCP_SMALL_BYTES) {
        return send_waiting(tcp, link, &any);
    }
    if (!link->is_held) {
        link->is_held = true;
        link->next = tcp->held;
        tcp->held = link;
    }
    return CDDP_OK;
}

cddp_status cddpi_tcp_send_held(struct tcp_carrier *tcp, bool *out_any)
{
    cddp_status status = CDDP_OK;

    while (tcp->held != NULL && status == CDDP_OK) {
        struct tcp_link *link = tcp->held;

        tcp->held = link->next;
        link->is_held = false;
        status = send_waiting(tcp, link, out_any);
    }
    return status;
}
