/* store_tcp.c - the store's client: sends a request and waits for its reply. A request whose
 * deadline has passed leaves the connection usable: what was not sent yet is sent before the next
 * one, and a late reply is recognised by its id. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/own_fd.h"
#include "store/store_wire.h"
#include "store/tcp_connect.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CANCEL_MS = 500,           /* how long a living server may take to answer a CANCEL */
    BACKLOG_BYTES = 128 << 20, /* unsent bytes of timed out requests, before giving up */
    REPLY_BYTES = CDDPI_STORE_LIST_BYTES
};

struct client {
    struct cddpi_store_backend base;
    struct cddpi_store_stream stream;
    uint32_t id; /* of the present request */
    bool broken;
    struct cddpi_wire_buffer out;
    size_t sent; /* of out */

    /* The reply that is coming: its head, then its body. */
    uint8_t head[CDDPI_WIRE_HEAD_BYTES];
    uint8_t *body;
    size_t have; /* bytes of both */
};

static cddp_status lost(struct client *client, int error)
{
    if (error == ENOMEM) { /* of encryption, which has changed nothing yet */
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a message");
    }
    client->broken = true;
    if (error == 0) {
        return cddpi_fail(CDDP_ERR_IO, "the server closed the connection");
    }
    return cddpi_fail_errno(CDDP_ERR_IO, error, "connection to the server");
}

static cddp_status send_blocked(struct client *client, int error)
{
    return error == EAGAIN || error == EWOULDBLOCK ? CDDP_OK : lost(client, error);
}

static cddp_status send_some(struct client *client)
{
    while (client->sent < client->out.bytes) {
        struct iovec parts[2] = {
            {client->out.data + client->sent, client->out.bytes - client->sent}, {NULL, 0}};
        ssize_t sent = cddpi_stream_send(&client->stream, parts);

        if (sent < 0) {
            return send_blocked(client, errno);
        }
        client->sent += (size_t)sent;
    }
    if (!cddpi_stream_flush(&client->stream)) {
        return send_blocked(client, errno);
    }
    cddpi_buffer_drop(&client->out, client->out.bytes);
    client->sent = 0;
    return CDDP_OK;
}

/* Where the next bytes of the reply go, and how many. */
static cddp_status next_part(struct client *client, struct cddpi_wire_head *head, uint8_t **out,
                             size_t *out_bytes)
{
    if (client->have < sizeof client->head) {
        *out = client->head + client->have;
        *out_bytes = sizeof client->head - client->have;
        return CDDP_OK;
    }
    cddpi_wire_get_head(client->head, head);
    if (head->body_bytes > REPLY_BYTES) {
        client->broken = true;
        return cddpi_fail(CDDP_ERR_IO, "the server sent a reply of %u bytes", head->body_bytes);
    }
    if (client->body == NULL) {
        client->body = cddpi_realloc(NULL, (size_t)head->body_bytes + 1);
        if (client->body == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a reply of %u bytes",
                              head->body_bytes);
        }
        client->body[head->body_bytes] = '\0';
    }
    *out = client->body + (client->have - sizeof client->head);
    *out_bytes = head->body_bytes - (client->have - sizeof client->head);
    return CDDP_OK;
}

/* Read what has arrived. *out_complete tells whether a whole reply is in head and body. */
static cddp_status receive_some(struct client *client, struct cddpi_wire_head *head,
                                bool *out_complete)
{
    for (;;) {
        uint8_t *to = NULL;
        size_t bytes = 0;
        struct iovec parts[2] = {{NULL, 0}, {NULL, 0}};
        ssize_t got;
        cddp_status status = next_part(client, head, &to, &bytes);

        if (status != CDDP_OK) {
            return status;
        }
        if (bytes == 0) {
            *out_complete = true;
            return CDDP_OK;
        }
        parts[0] = (struct iovec){to, bytes};
        got = cddpi_stream_recv(&client->stream, parts);
        if (got > 0) {
            client->have += (size_t)got;
        } else if (got == 0) {
            return lost(client, 0);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return CDDP_OK;
        } else {
            return lost(client, errno);
        }
    }
}

/* Hand the complete reply over, or forget it if it is not the one that is waited for. */
static bool take_reply(struct client *client, const struct cddpi_wire_head *head,
                       struct cddpi_store_reply *out)
{
    uint8_t *body = client->body;

    client->body = NULL;
    client->have = 0;
    cddpi_stream_rest(&client->stream);
    if (head->id != client->id) {
        cddpi_free(body);
        return false;
    }
    out->status = (cddp_status)(-(int)head->code);
    out->flag = head->flags == 1;
    out->data = body;
    out->bytes = head->body_bytes;
    return true;
}

/* Send and receive until the reply is there. CDDP_ERR_TIMEOUT has no text yet. */
static cddp_status exchange(struct client *client, int64_t deadline_ns,
                            struct cddpi_store_reply *out)
{
    for (;;) {
        struct pollfd entry = {.fd = client->stream.fd, .events = POLLIN};
        struct cddpi_wire_head head;
        bool complete = false;
        cddp_status status = send_some(client);

        if (status != CDDP_OK) {
            return status;
        }
        if (client->out.bytes > 0) {
            entry.events |= POLLOUT;
        }
        if (!cddpi_stream_has_more(&client->stream) &&
            poll(&entry, 1, cddpi_left_ms(deadline_ns)) < 0 && errno != EINTR) {
            return lost(client, errno);
        }
        status = receive_some(client, &head, &complete);
        if (status != CDDP_OK) {
            return status;
        }
        if (complete && take_reply(client, &head, out)) {
            return CDDP_OK;
        }
        if (!complete && cddpi_left_ms(deadline_ns) == 0) {
            return CDDP_ERR_TIMEOUT;
        }
    }
}

static cddp_status no_answer(void)
{
    return cddpi_fail(CDDP_ERR_TIMEOUT, "the server did not answer before the deadline");
}

/* The deadline of a waiting request has passed: take it back, and learn which keys were missing. */
static cddp_status cancel(struct client *client, struct cddpi_store_reply *out)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_CANCEL};
    cddp_status status;

    if (!cddpi_wire_encode(&request, client->id, &client->out)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a request");
    }
    status = exchange(client, cddpi_deadline_ns(CANCEL_MS), out);
    return status == CDDP_ERR_TIMEOUT ? no_answer() : status;
}

static cddp_status perform(struct cddpi_store_backend *backend,
                           const struct cddpi_store_request *request, int64_t deadline_ns,
                           struct cddpi_store_reply *out)
{
    struct client *client = (struct client *)backend;
    cddp_status status;

    if (client->broken) {
        return cddpi_fail(CDDP_ERR_IO, "the connection to the server was lost earlier");
    }
    if (client->out.bytes > BACKLOG_BYTES) {
        return cddpi_fail(CDDP_ERR_IO, "the server takes no more requests");
    }
    if (!cddpi_wire_encode(request, client->id + 1, &client->out)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a request");
    }
    client->id++;
    status = exchange(client, deadline_ns, out);
    if (status != CDDP_ERR_TIMEOUT) {
        return status;
    }
    if (request->op == CDDPI_STORE_GET || request->op == CDDPI_STORE_WAIT) {
        return cancel(client, out);
    }
    return no_answer();
}

static void close_client(struct cddpi_store_backend *backend, bool forked)
{
    struct client *client = (struct client *)backend;

    if (!forked) {
        (void)shutdown(client->stream.fd, SHUT_RDWR); /* a child of clone() may hold a copy */
    }
    cddpi_own_fd_close(client->stream.fd);
    cddpi_cipher_destroy(client->stream.cipher);
    cddpi_buffer_fini(&client->out);
    cddpi_free(client->body);
    cddpi_free(client);
}

static const struct cddpi_store_ops tcp_ops = {perform, close_client};

cddp_status cddpi_store_open_tcp(const char *address, const char *token, int64_t deadline_ns,
                                 struct cddpi_store_backend **out)
{
    struct client *client = cddpi_zalloc(sizeof *client);
    cddp_status status;

    if (client == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory");
    }
    client->base.ops = &tcp_ops;
    status = cddpi_tcp_connect(address, token, deadline_ns, &client->stream);
    if (status != CDDP_OK) {
        cddpi_free(client);
        return status;
    }
    *out = &client->base;
    return CDDP_OK;
}
