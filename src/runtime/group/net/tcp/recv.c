/* recv.c - receives messages into the caller's memory. Only the caller's thread calls this.
 *
 * A piece for which there is no recv yet stays in the socket, and its connection is not read until
 * there is one. Messages of a channel begin in the order in which they were sent, whichever
 * connections their pieces use. */
#include "group/net/tcp/tcp.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>

enum { CALLS_AT_ONCE = 8 /* after these, other connections get their turn */ };

static cddp_status fail_mismatch(struct tcp_socket *socket, const struct cddpi_transfer *transfer)
{
    char name[TCP_TEXT_BYTES];

    cddpi_tcp_pair_name(socket->pair, name, sizeof name);
    return cddpi_fail(CDDP_ERR_MISMATCH,
                      "%s sends %" PRIu64 " bytes where this rank receives %zu bytes (%s, tag %u)",
                      name, socket->in_frame.total, transfer->bytes,
                      transfer->channel == CDDPI_NET_MESSAGES ? "messages" : "collectives",
                      transfer->tag);
}

/* The recv for the piece whose head has arrived; NULL: there is none yet. A new message goes to the
 * first recv with its tag, and only after all earlier messages have begun. */
static struct cddpi_transfer *find(const struct tcp_link *link, const struct tcp_frame *frame)
{
    bool is_new = frame->number == link->received;

    for (struct cddpi_transfer *at = link->recvs.first; at != NULL; at = tcp_progress(at)->next) {
        const struct tcp_progress *progress = tcp_progress(at);

        if (progress->is_matched ? progress->number == frame->number
                                 : is_new && at->tag == frame->tag) {
            return at;
        }
    }
    return NULL;
}

/* Record that @p bytes more of the piece have arrived. */
static void advance(struct tcp_socket *socket, size_t bytes, bool *out_any)
{
    struct cddpi_transfer *transfer = socket->in;

    socket->in_at += bytes;
    tcp_progress(transfer)->moved += bytes;
    if (socket->in_at == socket->in_end) {
        socket->in = NULL;
        if (tcp_progress(transfer)->moved == transfer->bytes) {
            cddpi_tcp_list_remove(&socket->link->recvs, transfer);
            transfer->is_done = true;
            *out_any = true;
        }
    }
}

/* Find the destination of the piece whose head has arrived. */
static cddp_status begin_piece(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any)
{
    const struct tcp_frame *frame = &socket->in_frame;
    struct cddpi_transfer *transfer = find(socket->link, frame);
    struct tcp_progress *progress;

    if (transfer == NULL) {
        socket->is_stalled = true;
        if ((int32_t)(frame->number - socket->link->received) < 0) {
            cddpi_tcp_socket_lost(tcp, socket, EPROTO); /* the message was already complete */
        }
        return CDDP_OK;
    }
    progress = tcp_progress(transfer);
    if (frame->total != transfer->bytes) {
        return fail_mismatch(socket, transfer);
    }
    if (!progress->is_matched) {
        progress->is_matched = true;
        progress->number = frame->number;
        socket->link->received++;
    } else if (frame->bytes > transfer->bytes - progress->moved) {
        cddpi_tcp_socket_lost(tcp, socket, EPROTO);
        return CDDP_OK;
    }
    socket->is_stalled = false;
    socket->in = transfer;
    socket->in_at = frame->offset;
    socket->in_end = frame->offset + frame->bytes;
    advance(socket, 0, out_any);
    return CDDP_OK;
}

/* Decode the head at the start of the buffer. */
static cddp_status get_frame(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any)
{
    int error = cddpi_tcp_frame_get(socket->buffer->data + socket->begin, &socket->signed_in,
                                    &socket->in_frame);

    if (error != 0) {
        cddpi_tcp_socket_lost(tcp, socket, error);
        return CDDP_OK;
    }
    socket->begin += TCP_FRAME_BYTES;
    if (socket->in_frame.kind == TCP_FRAME_GOODBYE) {
        atomic_store(&socket->pair->left, true);
        return CDDP_OK;
    }
    return begin_piece(tcp, socket, out_any);
}

/* Process the data in the buffer as far as possible. */
static cddp_status parse(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any)
{
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && !socket->is_dead && !socket->is_stalled) {
        size_t have = socket->end - socket->begin;

        if (socket->in != NULL) {
            uint64_t left = socket->in_end - socket->in_at;
            size_t bytes = have < left ? have : (size_t)left;

            if (bytes == 0) {
                break;
            }
            memcpy((uint8_t *)socket->in->data + socket->in_at,
                   socket->buffer->data + socket->begin, bytes);
            socket->begin += bytes;
            advance(socket, bytes, out_any);
        } else if (have < TCP_FRAME_BYTES) {
            break;
        } else {
            status = get_frame(tcp, socket, out_any);
        }
    }
    return status;
}

/* Receive more data: first into the caller's memory, what follows into the buffer. @p out_more:
 * whether there may be more now. */
static cddp_status receive(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any,
                           bool *out_more)
{
    struct iovec parts[2];
    size_t direct = socket->in != NULL ? (size_t)(socket->in_end - socket->in_at) : 0;
    cddp_status status = cddpi_tcp_buffer_take(&tcp->data_buffers, &socket->buffer);
    ssize_t got;

    *out_more = false;
    if (status != CDDP_OK) {
        return status;
    }
    memmove(socket->buffer->data, socket->buffer->data + socket->begin,
            socket->end - socket->begin);
    socket->end -= socket->begin;
    socket->begin = 0;
    parts[0].iov_base = direct > 0 ? (uint8_t *)socket->in->data + socket->in_at : NULL;
    parts[0].iov_len = direct;
    parts[1].iov_base = socket->buffer->data + socket->end;
    parts[1].iov_len = sizeof socket->buffer->data - socket->end;
    got = cddpi_stream_recv(&socket->stream, parts);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return CDDP_OK;
    }
    if (got <= 0) {
        cddpi_tcp_socket_lost(tcp, socket, got < 0 ? errno : 0);
        return CDDP_OK;
    }
    if (direct > 0) {
        direct = (size_t)got < direct ? (size_t)got : direct;
        advance(socket, direct, out_any);
    }
    socket->end += (size_t)got - direct;
    *out_more = tcp->encrypts || (size_t)got == parts[0].iov_len + parts[1].iov_len;
    return CDDP_OK;
}

static cddp_status pump(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any)
{
    cddp_status status = parse(tcp, socket, out_any);
    bool more = true;

    /* epoll does not know about data inside the cipher, so read until there is no more */
    for (int call = 0; status == CDDP_OK && more && !socket->is_dead && !socket->is_stalled &&
                       (tcp->encrypts || call < CALLS_AT_ONCE);
         call++) {
        status = receive(tcp, socket, out_any, &more);
        if (status == CDDP_OK) {
            status = parse(tcp, socket, out_any);
        }
    }
    if (socket->begin == socket->end) {
        socket->begin = socket->end = 0;
        cddpi_tcp_buffer_put(&tcp->data_buffers, &socket->buffer);
    }
    if (!socket->is_dead) {
        cddpi_tcp_socket_watch(tcp, socket, (socket->events & EPOLLOUT) | EPOLLIN);
    }
    return status;
}

/* Continue with the pieces of this channel that waited for a recv, or for an earlier message. */
static cddp_status resume(struct tcp_carrier *tcp, struct tcp_link *link, bool *out_any)
{
    cddp_status status = CDDP_OK;
    bool any = true;

    while (any && status == CDDP_OK) {
        any = false;
        for (unsigned i = 0; i < tcp->sockets && status == CDDP_OK; i++) {
            struct tcp_socket *socket = link->sockets[i];

            if (socket != NULL && socket->is_stalled && !socket->is_dead &&
                find(link, &socket->in_frame) != NULL) {
                socket->is_stalled = false;
                status = begin_piece(tcp, socket, out_any);
                if (status == CDDP_OK) {
                    status = pump(tcp, socket, out_any);
                }
                any = true;
            }
        }
    }
    return status;
}

cddp_status cddpi_tcp_socket_recv(struct tcp_carrier *tcp, struct tcp_socket *socket, bool *out_any)
{
    bool was_stalled = socket->is_stalled;
    cddp_status status = was_stalled ? CDDP_OK : pump(tcp, socket, out_any);

    if (status == CDDP_OK) {
        status = resume(tcp, socket->link, out_any);
    }
    if (was_stalled && socket->is_stalled && !socket->is_dead) {
        /* more data has arrived after a piece without a recv; epoll would report it forever. That
           is rare, and the recv usually comes soon, so the events were left unchanged until now */
        cddpi_tcp_socket_watch(tcp, socket, socket->events & EPOLLOUT);
    }
    return status;
}

cddp_status cddpi_tcp_recv(struct tcp_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer)
{
    bool any = false;

    cddpi_tcp_list_append(&link->recvs, transfer);
    return resume(tcp, link, &any);
}
