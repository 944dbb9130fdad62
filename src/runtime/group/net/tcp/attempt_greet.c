/* attempt_greet.c - owns the handshake of a connection, one message at a time: both sides prove the
 * job's token and agree on the connection's purpose. Only the thread calls this, with the lock
 * held. */
#include "group/net/tcp/attempt.h"

#include "base/clock.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum { GREETING_MS = 10000 }; /* per message, except the first of an unknown peer */

/* Send a few bytes. They always fit into the socket's buffer, unless the peer is gone. */
static bool send_small(const struct tcp_attempt *attempt, const void *data, size_t bytes)
{
    return send(attempt->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static void describe_way(const struct tcp_attempt *attempt, struct tcp_pair *pair)
{
    char text[TCP_ADDRESS_TEXT_BYTES];

    if (pair->via[0] != '\0') {
        return;
    }
    cddpi_tcp_address_text(&attempt->address, text);
    if (attempt->came_in) {
        snprintf(pair->via, sizeof pair->via, "from %s", text);
    } else if (attempt->interface[0] != '\0') {
        snprintf(pair->via, sizeof pair->via, "%s, %s", text, attempt->interface);
    } else {
        snprintf(pair->via, sizeof pair->via, "%s", text);
    }
}

/* The connection is open: give it to the pair. */
static void use(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    struct cddpi_store_stream stream = {attempt->fd, attempt->cipher};

    (void)epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_DEL, attempt->fd, NULL);
    attempt->fd = -1;
    attempt->cipher = NULL;
    describe_way(attempt, attempt->pair);
    cddpi_tcp_pair_fill(tcp, attempt->pair, attempt->slot, &stream, &attempt->session);
    cddpi_tcp_attempt_end(tcp, attempt, NULL, false);
}

/* Derive the keys from the handshake, and create a cipher if one is wanted. */
static bool begin_cipher(const struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    if (!tcp_is_encrypted(tcp, attempt->slot)) {
        return true;
    }
    attempt->cipher = cddpi_cipher_create(&attempt->session);
    if (attempt->cipher != NULL && attempt->slot != TCP_CONTROL_SLOT) {
        cddpi_cipher_bulk(attempt->cipher);
    }
    return attempt->cipher != NULL;
}

static void get_hello(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    struct tcp_answer answer;
    uint8_t message[TCP_ANSWER_BYTES];
    uint8_t key[CDDPI_AUTH_KEY_BYTES];

    answer.purpose = (struct tcp_purpose){.from = (uint32_t)tcp->params.rank,
                                          .to = (uint32_t)attempt->pair->peer,
                                          .generation = tcp->params.generation,
                                          .slot = attempt->slot,
                                          .sockets = tcp->sockets,
                                          .encrypts = tcp->encrypts};
    memcpy(answer.purpose.job, tcp->job, sizeof answer.purpose.job);
    attempt->purpose = answer.purpose;
    cddpi_tcp_key(tcp->params.token, &attempt->purpose, key);
    cddpi_session_offer(&attempt->session, key, attempt->data + 12, tcp->ciphers, answer.offer);
    sodium_memzero(key, sizeof key);
    cddpi_tcp_answer_put(&answer, message);
    if (!send_small(attempt, message, sizeof message)) {
        cddpi_tcp_attempt_end(tcp, attempt, "it closed the connection during the greeting", false);
        return;
    }
    attempt->state = TCP_AWAITS_WELCOME;
}

static const char *refusal_text(enum tcp_reply reply)
{
    switch (reply) {
    case TCP_WRONG_TOKEN:
        return "it refused the job's token; is CDDP_TOKEN that of this job?";
    case TCP_WRONG_JOB:
        return "what listens there is another rank, or of another job or generation";
    default:
        return "it has other settings of CDDP_SOCKETS, CDDP_ENCRYPT or CDDP_CIPHER";
    }
}

static void get_welcome(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    struct tcp_pair *pair = attempt->pair;
    struct tcp_welcome welcome;
    const uint8_t used = TCP_USED;

    if (!cddpi_tcp_welcome_get(attempt->data, &welcome)) {
        cddpi_tcp_attempt_end(tcp, attempt, "it does not speak cddp's protocol", false);
        return;
    }
    if (welcome.reply != TCP_WELCOME && welcome.reply != TCP_HAVE_ONE) {
        /* another job may use this address on its own host; another address may lead to the peer */
        cddpi_tcp_attempt_end(tcp, attempt, refusal_text(welcome.reply),
                              welcome.reply != TCP_WRONG_JOB);
        return;
    }
    if (!cddpi_session_confirm(&attempt->session, welcome.reply, welcome.accept)) {
        cddpi_tcp_attempt_end(tcp, attempt, "it does not know the job's token itself", true);
        return;
    }
    pair->knows_address = true; /* it leads to the peer */
    pair->address = attempt->address;
    if (welcome.reply == TCP_HAVE_ONE || (pair->filled & 1u << attempt->slot) != 0) {
        cddpi_tcp_attempt_end(tcp, attempt, NULL, false);
    } else if (!begin_cipher(tcp, attempt)) {
        cddpi_tcp_attempt_end(tcp, attempt, "this rank has no memory for it", false);
    } else if (tcp->params.rank < pair->peer && !send_small(attempt, &used, sizeof used)) {
        cddpi_tcp_attempt_end(tcp, attempt, "it closed the connection during the greeting", false);
    } else {
        use(tcp, attempt);
    }
}

/* Whether this rank can grant what the answer requests. Its proof is checked later. */
static enum tcp_reply judge(const struct tcp_carrier *tcp, const struct tcp_purpose *purpose)
{
    const struct cddpi_carrier_params *params = &tcp->params;

    if (memcmp(purpose->job, tcp->job, sizeof tcp->job) != 0 ||
        purpose->generation != params->generation || purpose->to != (uint32_t)params->rank ||
        purpose->from >= (uint32_t)params->world_size ||
        params->host_of[purpose->from] == params->host_of[params->rank]) {
        return TCP_WRONG_JOB;
    }
    if (purpose->sockets != tcp->sockets || purpose->encrypts != tcp->encrypts ||
        purpose->slot >= 1 + CDDPI_NET_CHANNELS * tcp->sockets) {
        return TCP_WRONG_SETTINGS;
    }
    return TCP_WELCOME;
}

static void refuse(struct tcp_carrier *tcp, struct tcp_attempt *attempt, enum tcp_reply reply)
{
    static const char *const texts[TCP_REPLIES] = {
        [TCP_WRONG_TOKEN] = "it does not know the job's token",
        [TCP_WRONG_JOB] = "it belongs to another job or generation, or looks for another rank",
        [TCP_WRONG_SETTINGS] =
            "it has other settings of CDDP_SOCKETS, CDDP_ENCRYPT or CDDP_CIPHER"};
    struct tcp_welcome welcome = {.reply = reply};
    uint8_t message[TCP_WELCOME_BYTES];

    cddpi_tcp_welcome_put(&welcome, message);
    (void)send_small(attempt, message, sizeof message);
    cddpi_tcp_attempt_end(tcp, attempt, texts[reply], false);
}

/* The other side has proved the token, so it is no longer an unknown peer. */
static void admit(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    struct tcp_pair *pair = cddpi_tcp_pair(tcp, (int)attempt->purpose.from);
    struct tcp_welcome welcome = {.reply = TCP_WELCOME};
    uint8_t message[TCP_WELCOME_BYTES];

    if (pair == NULL) {
        cddpi_tcp_attempt_end(tcp, attempt, "this rank has no memory for it", false);
        return;
    }
    attempt->slot = attempt->purpose.slot;
    if ((pair->filled & 1u << attempt->slot) != 0) {
        welcome.reply = TCP_HAVE_ONE;
    }
    if (!cddpi_session_accept(&attempt->session, welcome.reply, tcp->ciphers, welcome.accept)) {
        refuse(tcp, attempt, TCP_WRONG_SETTINGS);
        return;
    }
    if (welcome.reply == TCP_WELCOME && !begin_cipher(tcp, attempt)) {
        cddpi_tcp_attempt_end(tcp, attempt, "this rank has no memory for it", false);
        return;
    }
    attempt->pair = pair;
    cddpi_tcp_welcome_put(&welcome, message);
    if (!send_small(attempt, message, sizeof message) || welcome.reply == TCP_HAVE_ONE) {
        cddpi_tcp_attempt_end(tcp, attempt, NULL, false);
    } else if (tcp->params.rank < pair->peer) {
        use(tcp, attempt);
    } else {
        tcp->strangers--;
        attempt->state = TCP_AWAITS_USE;
        attempt->deadline_ns = cddpi_deadline_ns(GREETING_MS);
    }
}

static void get_answer(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    struct tcp_answer answer;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    enum tcp_reply reply;

    cddpi_tcp_answer_get(attempt->data, &answer);
    attempt->purpose = answer.purpose;
    reply = judge(tcp, &answer.purpose);
    if (reply == TCP_WELCOME) {
        cddpi_tcp_key(tcp->params.token, &attempt->purpose, key);
        if (!cddpi_session_check(&attempt->session, key, attempt->server_nonce, answer.offer)) {
            reply = TCP_WRONG_TOKEN;
        }
        sodium_memzero(key, sizeof key);
    }
    if (reply != TCP_WELCOME) {
        refuse(tcp, attempt, reply);
    } else {
        admit(tcp, attempt);
    }
}

static void get_use(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    if (attempt->data[0] != TCP_USED || (attempt->pair->filled & 1u << attempt->slot) != 0) {
        cddpi_tcp_attempt_end(tcp, attempt, NULL, false);
    } else {
        use(tcp, attempt);
    }
}

static void greet(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    switch (attempt->state) {
    case TCP_AWAITS_HELLO:
        get_hello(tcp, attempt);
        break;
    case TCP_AWAITS_WELCOME:
        get_welcome(tcp, attempt);
        break;
    case TCP_AWAITS_ANSWER:
        get_answer(tcp, attempt);
        break;
    default:
        get_use(tcp, attempt);
        break;
    }
}

static void finish_connect(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = attempt};
    int error = 0;
    socklen_t bytes = sizeof error;

    if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
        error = errno;
    }
    if (error != 0) {
        cddpi_tcp_attempt_end(tcp, attempt, strerror(error), false);
        return;
    }
    attempt->state = TCP_AWAITS_HELLO;
    attempt->deadline_ns = cddpi_deadline_ns(GREETING_MS);
    (void)epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_MOD, attempt->fd, &event);
}

/* How many bytes the state waits for; never read more. */
static size_t wanted_bytes(const struct tcp_attempt *attempt)
{
    switch (attempt->state) {
    case TCP_AWAITS_HELLO:
        return TCP_HELLO_BYTES;
    case TCP_AWAITS_WELCOME:
        return TCP_WELCOME_BYTES;
    case TCP_AWAITS_ANSWER:
        return TCP_ANSWER_BYTES;
    default:
        return 1;
    }
}

/* Find an error in the message; NULL: no error. */
static const char *objection(const struct tcp_attempt *attempt)
{
    if (attempt->state != TCP_AWAITS_HELLO && attempt->state != TCP_AWAITS_ANSWER) {
        return NULL;
    }
    switch (cddpi_greeting_check(TCP_MAGIC, TCP_VERSION, attempt->data, attempt->have)) {
    case CDDPI_GREETING_STRANGE:
        return "it does not speak cddp's protocol (an HTTP client, a port scanner?)";
    case CDDPI_GREETING_OTHER_VERSION:
        return "it speaks another version of cddp's protocol";
    default:
        return NULL;
    }
}

static void end_of_stream(struct tcp_carrier *tcp, struct tcp_attempt *attempt, int error)
{
    if (attempt->state == TCP_AWAITS_USE) {
        cddpi_tcp_attempt_end(tcp, attempt, NULL, false); /* another connection was faster */
    } else if (error != 0) {
        cddpi_tcp_attempt_end(tcp, attempt, strerror(error), false);
    } else {
        cddpi_tcp_attempt_end(tcp, attempt, "it closed the connection during the greeting", false);
    }
}

void cddpi_tcp_attempt_event(struct tcp_carrier *tcp, struct tcp_attempt *attempt)
{
    if (attempt->is_closed) {
        return;
    }
    if (attempt->state == TCP_CONNECTING) {
        finish_connect(tcp, attempt);
        return;
    }
    while (!attempt->is_closed) {
        size_t wanted = wanted_bytes(attempt);
        ssize_t got = recv(attempt->fd, attempt->data + attempt->have, wanted - attempt->have,
                           MSG_DONTWAIT);
        const char *why;

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (got <= 0) {
            end_of_stream(tcp, attempt, got < 0 ? errno : 0);
            return;
        }
        attempt->have += (size_t)got;
        why = objection(attempt);
        if (why != NULL) {
            cddpi_tcp_attempt_end(tcp, attempt, why, false);
        } else if (attempt->have == wanted) {
            attempt->have = 0;
            greet(tcp, attempt);
        }
    }
}
