/* server_client.c - owns one connection of the TCP store's server: the proof, requests and replies.
 * The server works on at most one request per connection, so a client can make it hold no more than
 * one message and one reply in memory. */
#include "store/server_client.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/silence.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    READ_BYTES = 4096, /* minimum room for a read */
    END_MS = 900000    /* a client whose machine is gone is dropped after this time */
};

static void answer_all(struct cddpi_client_host *host, struct cddpi_waiter *woken);

static void list_add(struct cddpi_clients *list, struct cddpi_client *client)
{
    client->list = list;
    client->next = NULL;
    client->previous = list->last;
    if (list->last != NULL) {
        list->last->next = client;
    } else {
        list->first = client;
    }
    list->last = client;
    list->count++;
}

static void list_remove(struct cddpi_client *client)
{
    struct cddpi_clients *list = client->list;

    if (client->previous != NULL) {
        client->previous->next = client->next;
    } else {
        list->first = client->next;
    }
    if (client->next != NULL) {
        client->next->previous = client->previous;
    } else {
        list->last = client->previous;
    }
    list->count--;
}

void cddpi_client_close(struct cddpi_client_host *host, struct cddpi_client *client)
{
    if (client->closed) {
        return;
    }
    client->closed = true;
    cddpi_table_unpark(host->table, &client->waiter);
    /* A forked process may have a copy of the descriptor, so closing is not enough: shut the
     * connection down, and remove it from epoll, which would report it while a copy exists. */
    (void)epoll_ctl(host->epoll_fd, EPOLL_CTL_DEL, client->stream.fd, NULL);
    (void)shutdown(client->stream.fd, SHUT_RDWR);
    cddpi_own_fd_close(client->stream.fd);
    cddpi_buffer_fini(&client->in);
    cddpi_value_release(client->body);
    client->body = NULL;
    cddpi_cipher_destroy(client->stream.cipher);
    client->stream.cipher = NULL;
    list_remove(client);
    list_add(&host->closed, client);
}

static void say_last_word(struct cddpi_client_host *host, struct cddpi_client *client)
{
    const struct cddpi_wire_buffer *word = &client->last_word;

    if (word->bytes > 0) {
        struct cddpi_slice key = {word->data, client->last_word_key};
        struct cddpi_slice value = {word->data + key.bytes, word->bytes - key.bytes};

        (void)cddpi_client_set(host, key, value); /* no memory: others notice the loss later */
    }
}

void cddpi_client_reap(struct cddpi_client_host *host)
{
    while (host->closed.first != NULL) {
        struct cddpi_client *client = host->closed.first;

        list_remove(client);
        say_last_word(host, client); /* may close other clients and so lengthen the list */
        cddpi_buffer_fini(&client->last_word);
        cddpi_free(client);
    }
}

static void watch(struct cddpi_client_host *host, struct cddpi_client *client, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = client};

    if (epoll_ctl(host->epoll_fd, EPOLL_CTL_MOD, client->stream.fd, &event) != 0) {
        cddpi_client_close(host, client);
    }
}

void cddpi_client_hello(uint8_t out[CDDPI_WIRE_HELLO_BYTES], uint32_t state,
                        const uint8_t nonce[CDDPI_NONCE_BYTES])
{
    cddpi_greeting_put(CDDPI_WIRE_MAGIC, CDDPI_WIRE_VERSION, out);
    cddpi_put_u32(out + 12, state);
    memcpy(out + 16, nonce, CDDPI_NONCE_BYTES);
}

/* Send a few bytes, which always fit into the socket's buffer. False: the client is gone. */
static bool send_small(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static void prepare_socket(int fd)
{
    int on = 1;
    int idle_s = 60; /* of silence before keepalive probes ask whether the machine still lives */

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    cddpi_silence_repeat(fd, END_MS);
}

void cddpi_client_accept(struct cddpi_client_host *host, int fd, int64_t auth_deadline_ns)
{
    struct cddpi_client *client = cddpi_zalloc(sizeof *client);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES];

    if (client == NULL) {
        cddpi_own_fd_close(fd);
        return;
    }
    prepare_socket(fd);
    client->stream.fd = fd;
    client->auth_deadline_ns = auth_deadline_ns;
    cddpi_random_bytes(client->nonce, sizeof client->nonce);
    cddpi_client_hello(hello, CDDPI_WIRE_READY, client->nonce);
    if (!send_small(fd, hello, sizeof hello) ||
        epoll_ctl(host->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        cddpi_own_fd_close(fd);
        cddpi_free(client);
        return;
    }
    list_add(&host->authenticating, client);
}

/* Decide on the client's offer. Returns 0 (accepted: @p out_accept is written, and all later data
 * is encrypted) or an enum cddpi_refused. */
static uint32_t judge_offer(struct cddpi_client_host *host, struct cddpi_client *client,
                            struct cddpi_session *session, uint8_t *out_accept)
{
    const uint8_t *offer = client->in.data + 16;
    enum cddpi_refused why = CDDPI_REFUSED_TOKEN;

    if (cddpi_session_check(session, host->key, client->nonce, offer)) {
        if (cddpi_session_accept(session, 0, host->ciphers, out_accept)) {
            return 0;
        }
        why = CDDPI_REFUSED_CIPHER;
    }
    cddpi_refusals_add(&host->refusals, client->stream.fd, why);
    return why;
}

/* The client's answer is complete: accept the client or refuse it. */
static void check_auth(struct cddpi_client_host *host, struct cddpi_client *client)
{
    uint8_t welcome[CDDPI_WIRE_WELCOME_BYTES] = {0};
    struct cddpi_session session;
    uint32_t refused = judge_offer(host, client, &session, welcome + 4);

    if (refused == 0) {
        client->stream.cipher = cddpi_cipher_create(&session);
    }
    cddpi_session_wipe(&session);
    if (refused == 0 && client->stream.cipher == NULL) {
        cddpi_client_close(host, client); /* no memory: the client connects again later */
        return;
    }
    cddpi_put_u32(welcome, refused);
    if (!send_small(client->stream.fd, welcome, sizeof welcome) || refused != 0) {
        cddpi_client_close(host, client);
        return;
    }
    client->authenticated = true;
    client->in.bytes = 0;
    list_remove(client);
    list_add(&host->authenticated, client);
}

/* Whether the bytes so far can be the beginning of an answer. */
static bool may_be_answer(struct cddpi_client_host *host, const struct cddpi_client *client)
{
    enum cddpi_greeting greeting = cddpi_greeting_check(CDDPI_WIRE_MAGIC, CDDPI_WIRE_VERSION,
                                                        client->in.data, client->in.bytes);

    if (greeting == CDDPI_GREETING_OTHER_VERSION) {
        cddpi_refusals_add(&host->refusals, client->stream.fd, CDDPI_REFUSED_VERSION);
    }
    return greeting == CDDPI_GREETING_OK;
}

/* Sending the reply failed: if the socket is full, wait until it is writable, else close. */
static void reply_blocked(struct cddpi_client_host *host, struct cddpi_client *client, int error)
{
    if (error != EAGAIN && error != EWOULDBLOCK) {
        cddpi_client_close(host, client);
    } else if (!client->replying) {
        client->replying = true;
        watch(host, client, EPOLLOUT);
    }
}

/* Send as much of the rest of the reply as the socket accepts. */
static void send_reply(struct cddpi_client_host *host, struct cddpi_client *client)
{
    size_t body_bytes = client->body != NULL ? client->body->bytes : 0;
    size_t total = CDDPI_WIRE_HEAD_BYTES + body_bytes;

    while (client->sent < total) {
        size_t of_head = client->sent < CDDPI_WIRE_HEAD_BYTES ? client->sent : sizeof client->head;
        size_t of_body = client->sent - of_head;
        struct iovec parts[2] = {
            {client->head + of_head, sizeof client->head - of_head},
            {body_bytes > 0 ? client->body->data + of_body : NULL, body_bytes - of_body}};
        ssize_t sent = cddpi_stream_send(&client->stream, parts);

        if (sent < 0) {
            reply_blocked(host, client, errno);
            return;
        }
        client->sent += (size_t)sent;
    }
    if (!cddpi_stream_flush(&client->stream)) {
        reply_blocked(host, client, errno);
        return;
    }
    cddpi_value_release(client->body);
    client->body = NULL;
    cddpi_stream_rest(&client->stream);
    if (client->replying) {
        client->replying = false;
        watch(host, client, EPOLLIN);
    }
}

/* Begin to send a reply. Takes ownership of @p value. */
static void reply(struct cddpi_client_host *host, struct cddpi_client *client, uint32_t id,
                  cddp_status status, bool flag, struct cddpi_table_value *value)
{
    struct cddpi_wire_head head = {value != NULL ? (uint32_t)value->bytes : 0, id,
                                   (uint8_t)(-(int)status), flag};

    cddpi_wire_put_head(client->head, &head);
    client->body = value;
    client->sent = 0;
    if (status == CDDP_OK) {
        client->served++;
        host->served.requests++;
        host->served.most = client->served > host->served.most ? client->served : host->served.most;
    }
    send_reply(host, client);
}

/* Get the head of the message at @p offset in the buffer. False: the message is not complete, or it
 * is invalid and the client is closed. */
static bool first_message(struct cddpi_client_host *host, struct cddpi_client *client,
                          size_t offset, struct cddpi_wire_head *out)
{
    size_t have = client->in.bytes - offset;
    struct cddpi_wire_head head;
    size_t limit;

    if (have < CDDPI_WIRE_HEAD_BYTES) {
        return false;
    }
    cddpi_wire_get_head(client->in.data + offset, &head);
    if (!cddpi_wire_body_limit(head.code, &limit) || head.body_bytes > limit) {
        cddpi_client_close(host, client);
        return false;
    }
    *out = head;
    return have >= CDDPI_WIRE_HEAD_BYTES + head.body_bytes;
}

static size_t message_bytes(const struct cddpi_wire_head *head)
{
    return CDDPI_WIRE_HEAD_BYTES + (size_t)head->body_bytes;
}

/* Wait for the first of @p keys that does not exist. False: all exist, or there is no memory.
 * Keys before the cursor are checked again only after the others exist, and only if any key was
 * deleted meanwhile. So the cost of a WAIT is proportional to its number of keys, whatever other
 * clients delete. */
static bool park(struct cddpi_client_host *host, struct cddpi_client *client,
                 struct cddpi_slice keys, cddp_status *out_status)
{
    struct cddpi_slice missing;

    *out_status = CDDP_OK;
    while (!cddpi_table_first_missing(host->table, keys, &client->cursor, &missing)) {
        if (client->deletes == cddpi_table_deletes(host->table)) {
            return false;
        }
        client->deletes = cddpi_table_deletes(host->table);
        client->cursor = 0;
    }
    if (!cddpi_table_park(host->table, missing, &client->waiter)) {
        *out_status = CDDP_ERR_NO_MEMORY;
        return false;
    }
    return true;
}

/* Answer a WAIT or GET, or make it wait (again). While it waits, its message stays in the buffer.
 */
static void serve_waiting(struct cddpi_client_host *host, struct cddpi_client *client,
                          const struct cddpi_wire_head *head)
{
    struct cddpi_slice keys = {client->in.data + CDDPI_WIRE_HEAD_BYTES, head->body_bytes};
    struct cddpi_table_value *value = NULL;
    cddp_status status;

    /* the body of both is "keys"; a GET has one */
    client->parked = park(host, client, keys, &status);
    if (client->parked) {
        return;
    }
    if (status == CDDP_OK && head->code == CDDPI_STORE_GET) {
        struct cddpi_store_request request;
        struct cddpi_effect effect;
        struct cddpi_table_outcome outcome;

        (void)cddpi_wire_decode(head, keys.data, &request); /* it was checked on arrival */
        cddpi_table_decide(host->table, &request, &effect, &outcome);
        status = outcome.status;
        value = outcome.value;
    }
    cddpi_buffer_drop(&client->in, message_bytes(head));
    reply(host, client, head->id, status, false, value);
}

/* Carry out an operation that does not wait. @p woken: the clients that waited for its key. */
static struct cddpi_table_outcome change(struct cddpi_client_host *host,
                                         const struct cddpi_store_request *request,
                                         struct cddpi_waiter **woken)
{
    struct cddpi_effect effect;
    struct cddpi_table_outcome outcome;

    cddpi_table_decide(host->table, request, &effect, &outcome);
    if (outcome.status == CDDP_OK && !cddpi_table_commit(host->table, &effect, woken)) {
        outcome.status = CDDP_ERR_NO_MEMORY;
    }
    if (outcome.status != CDDP_OK) {
        cddpi_value_release(outcome.value);
        outcome.value = NULL;
    }
    cddpi_effect_fini(&effect);
    return outcome;
}

static void serve_at_once(struct cddpi_client_host *host, struct cddpi_client *client,
                          const struct cddpi_wire_head *head,
                          const struct cddpi_store_request *request)
{
    struct cddpi_waiter *woken = NULL;
    struct cddpi_table_outcome outcome = change(host, request, &woken);

    cddpi_buffer_drop(&client->in, message_bytes(head));
    reply(host, client, head->id, outcome.status, outcome.flag, outcome.value);
    answer_all(host, woken);
}

/* Store the client's last word; it replaces an earlier one. */
static void keep_last_word(struct cddpi_client_host *host, struct cddpi_client *client,
                           const struct cddpi_wire_head *head,
                           const struct cddpi_store_request *request)
{
    struct cddpi_wire_buffer word = {NULL, 0, 0};
    bool is_kept = cddpi_buffer_reserve(&word, request->key.bytes + request->value.bytes);

    if (is_kept) {
        cddpi_buffer_append(&word, request->key.data, request->key.bytes);
        cddpi_buffer_append(&word, request->value.data, request->value.bytes);
        cddpi_buffer_fini(&client->last_word);
        client->last_word = word;
        client->last_word_key = request->key.bytes;
    }
    cddpi_buffer_drop(&client->in, message_bytes(head));
    reply(host, client, head->id, is_kept ? CDDP_OK : CDDP_ERR_NO_MEMORY, false, NULL);
}

bool cddpi_client_set(struct cddpi_client_host *host, struct cddpi_slice key,
                      struct cddpi_slice value)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_SET, .key = key, .value = value};
    struct cddpi_waiter *woken = NULL;
    struct cddpi_table_outcome outcome = change(host, &request, &woken);

    answer_all(host, woken);
    return outcome.status == CDDP_OK; /* the outcome of a SET has no value to release */
}

/* While a request waits, only its CANCEL may follow; any other message closes the client. */
static void cancel(struct cddpi_client_host *host, struct cddpi_client *client,
                   const struct cddpi_wire_head *waiting)
{
    struct cddpi_slice keys = {client->in.data + CDDPI_WIRE_HEAD_BYTES, waiting->body_bytes};
    struct cddpi_table_value *missing = NULL;
    struct cddpi_wire_head head;

    if (!first_message(host, client, message_bytes(waiting), &head)) {
        return;
    }
    if (head.code != CDDPI_STORE_CANCEL || head.id != waiting->id) {
        cddpi_client_close(host, client);
        return;
    }
    cddpi_table_unpark(host->table, &client->waiter);
    client->parked = false;
    if (waiting->code == CDDPI_STORE_WAIT) {
        missing = cddpi_table_missing(host->table, keys); /* NULL: the reply names no keys */
    }
    cddpi_buffer_drop(&client->in, message_bytes(waiting) + message_bytes(&head));
    reply(host, client, waiting->id, CDDP_ERR_TIMEOUT, false, missing);
}

static void serve(struct cddpi_client_host *host, struct cddpi_client *client,
                  const struct cddpi_wire_head *head)
{
    struct cddpi_store_request request;

    if (!cddpi_wire_decode(head, client->in.data + CDDPI_WIRE_HEAD_BYTES, &request)) {
        cddpi_client_close(host, client);
        return;
    }
    switch (request.op) {
    case CDDPI_STORE_CANCEL: /* the request was answered before its CANCEL arrived */
        cddpi_buffer_drop(&client->in, message_bytes(head));
        break;
    case CDDPI_STORE_GET:
    case CDDPI_STORE_WAIT:
        client->cursor = 0;
        client->deletes = cddpi_table_deletes(host->table);
        serve_waiting(host, client, head);
        break;
    case CDDPI_STORE_LAST_WORD:
        keep_last_word(host, client, head, &request);
        break;
    default:
        serve_at_once(host, client, head, &request);
        break;
    }
}

static void serve_buffer(struct cddpi_client_host *host, struct cddpi_client *client)
{
    struct cddpi_wire_head head;

    while (!client->closed && !client->replying && first_message(host, client, 0, &head)) {
        if (client->parked) {
            cancel(host, client, &head);
            if (client->parked) {
                return;
            }
        } else {
            serve(host, client, &head);
        }
    }
}

/* Answer the requests whose key has appeared. */
static void answer_all(struct cddpi_client_host *host, struct cddpi_waiter *woken)
{
    while (woken != NULL) {
        struct cddpi_client *client =
            (struct cddpi_client *)((char *)woken - offsetof(struct cddpi_client, waiter));
        struct cddpi_wire_head head;

        woken = woken->next; /* read it now: serve_waiting() may put the waiter into a list */
        cddpi_wire_get_head(client->in.data, &head);
        serve_waiting(host, client, &head);
    }
}

/* Make room for the next read; returns how much. Before the proof there is only room for the
 * answer; later the buffer at most doubles, so it grows only as fast as bytes arrive. */
static size_t room_for_read(struct cddpi_client *client)
{
    size_t room;

    if (!client->authenticated) {
        room = CDDPI_WIRE_ANSWER_BYTES - client->in.bytes;
    } else {
        room = client->in.bytes > READ_BYTES ? client->in.bytes : READ_BYTES;
    }
    return cddpi_buffer_reserve(&client->in, room) ? room : 0;
}

static void read_some(struct cddpi_client_host *host, struct cddpi_client *client)
{
    size_t room = room_for_read(client);
    struct iovec parts[2] = {{client->in.data + client->in.bytes, room}, {NULL, 0}};
    ssize_t got = room > 0 ? cddpi_stream_recv(&client->stream, parts) : 0;

    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return;
    }
    if (got <= 0) {
        cddpi_client_close(host, client);
        return;
    }
    client->in.bytes += (size_t)got;
    if (client->authenticated) {
        serve_buffer(host, client);
    } else if (!may_be_answer(host, client)) {
        cddpi_client_close(host, client);
    } else if (client->in.bytes == CDDPI_WIRE_ANSWER_BYTES) {
        check_auth(host, client);
    }
}

void cddpi_client_event(struct cddpi_client_host *host, struct cddpi_client *client,
                        uint32_t events)
{
    if (client->closed) {
        return;
    }
    if (client->replying) {
        send_reply(host, client);
        if (!client->closed && !client->replying) {
            serve_buffer(host, client);
        }
    } else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        read_some(host, client);
    }
    while (!client->closed && !client->replying && cddpi_stream_has_more(&client->stream)) {
        read_some(host, client); /* epoll does not report bytes that the cipher has buffered */
    }
}
