/* store_tcp.c - owns the TCP store's client: it sends a request and waits for the reply. The
 * connection stays usable after a request has timed out: the next request first sends the rest of
 * the old one, and the client ignores a late reply by its id. */
#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/store_stream.h"
#include "store/store_wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CANCEL_MS = 500,           /* time for the server to answer a CANCEL */
    BACKLOG_BYTES = 128 << 20, /* most unsent bytes of requests that have timed out */
    REPLY_BYTES = CDDPI_STORE_LIST_BYTES
};

struct client {
    struct cddpi_store_backend base;
    struct cddpi_store_stream stream;
    uint32_t id; /* of the current request */
    bool broken; /* the connection is lost */
    struct cddpi_wire_buffer out;
    size_t sent; /* bytes of `out` that were sent */

    /* The reply that is being received: its head, then its body. */
    uint8_t head[CDDPI_WIRE_HEAD_BYTES];
    uint8_t *body;
    size_t have; /* received bytes of head and body together */
};

static cddp_status lost(struct client *client, int error)
{
    if (error == ENOMEM) { /* from encryption: nothing has changed, so the connection is usable */
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

/* Get where the next bytes of the reply go, and how many are missing there; 0: it is complete. */
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
        CDDPI_TRY_MEMORY(client->body != NULL, "no memory for a reply of %u bytes",
                         head->body_bytes);
        client->body[head->body_bytes] = '\0';
    }
    *out = client->body + (client->have - sizeof client->head);
    *out_bytes = head->body_bytes - (client->have - sizeof client->head);
    return CDDP_OK;
}

/* Read what has arrived. *out_complete becomes true if a complete reply is in head and body. */
static cddp_status receive_some(struct client *client, struct cddpi_wire_head *head,
                                bool *out_complete)
{
    for (;;) {
        uint8_t *to = NULL;
        size_t bytes = 0;
        struct iovec parts[2] = {{NULL, 0}, {NULL, 0}};
        ssize_t got;

        CDDPI_TRY(next_part(client, head, &to, &bytes));
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

/* Move the complete reply to @p out. False: it answers an earlier request, and is discarded. */
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

/* Send and receive until the reply is complete. CDDP_ERR_TIMEOUT is returned without an error text.
 */
static cddp_status exchange(struct client *client, int64_t deadline_ns,
                            struct cddpi_store_reply *out)
{
    for (;;) {
        struct pollfd entry = {.fd = client->stream.fd, .events = POLLIN};
        struct cddpi_wire_head head;
        bool complete = false;

        CDDPI_TRY(send_some(client));
        if (client->out.bytes > 0) {
            entry.events |= POLLOUT;
        }
        if (!cddpi_stream_has_more(&client->stream) &&
            poll(&entry, 1, cddpi_left_ms(deadline_ns)) < 0 && errno != EINTR) {
            return lost(client, errno);
        }
        CDDPI_TRY(receive_some(client, &head, &complete));
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

/* Cancel a waiting request whose deadline has passed. The reply says which keys were missing. */
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
        (void)shutdown(client->stream.fd, SHUT_RDWR); /* a clone() child may have a copy of fd */
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

    CDDPI_TRY_MEMORY(client != NULL, "no memory");
    client->base.ops = &tcp_ops;
    status = cddpi_tcp_connect(address, token, deadline_ns, &client->stream);
    if (status != CDDP_OK) {
        cddpi_free(client);
        return status;
    }
    *out = &client->base;
    return CDDP_OK;
}
