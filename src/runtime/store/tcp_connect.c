/* tcp_connect.c - owns connecting to the TCP store's server: it tries again until the deadline, and
 * does the client's part of the handshake. */
#include "store/store_stream.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interface.h"
#include "base/log.h"
#include "base/number.h"
#include "base/silence.h"
#include "store/auth.h"
#include "store/server.h"
#include "store/store.h"
#include "store/store_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 5,
    LONGEST_PAUSE_MS = 500,
    LOG_MS = 3000,     /* log a warning after waiting this long */
    CONNECT_MS = 10000 /* per address; then try the host's next one */
};

struct address {
    struct cddpi_address at;
    int64_t unknown_since_ns; /* since when the name has not resolved; 0: it has resolved */
};

/* What the client needs for the handshake. */
struct secret {
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint32_t ciphers;
};

/* How an attempt ended. Until the other side has proved the token, it may be the server of another
 * job, which ends soon, or an attacker, and its answers prove nothing. So no refusal is final, but
 * the first one is logged at once. */
enum tcp_connect_attempt { ATTEMPT_OK, ATTEMPT_FAILED, ATTEMPT_REFUSED };

cddp_status cddpi_address_parse(const char *text, struct cddpi_address *out)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t host_bytes;
    int64_t port;

    if (colon == NULL || !cddpi_parse_integer(colon + 1, 1, 65535, &port)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "no port from 1 to 65535 at the end of the address");
    }
    host_bytes = (size_t)(colon - text);
    if (host_bytes >= 2 && host[0] == '[' && host[host_bytes - 1] == ']') {
        host++;
        host_bytes -= 2;
    } else if (memchr(host, ':', host_bytes) != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "an IPv6 address must stand in brackets");
    }
    if (host_bytes == 0 || host_bytes >= sizeof out->host) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "no host, or one of more than %zu bytes",
                          sizeof out->host - 1);
    }
    memcpy(out->host, host, host_bytes);
    out->host[host_bytes] = '\0';
    out->port = (uint16_t)port;
    return CDDP_OK;
}

void cddpi_address_url(const struct cddpi_address *address, char out[CDDPI_ADDRESS_BYTES])
{
    snprintf(out, CDDPI_ADDRESS_BYTES,
             strchr(address->host, ':') != NULL ? "tcp://[%s]:%u" : "tcp://%s:%u", address->host,
             address->port);
}

/* Wait until @p fd is ready for @p events or has an error. False: the deadline has passed. */
static bool wait_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = fd, .events = events};
    int ready;

    do {
        ready = poll(&entry, 1, cddpi_left_ms(deadline_ns));
    } while ((ready < 0 && errno == EINTR) || (ready == 0 && cddpi_left_ms(deadline_ns) > 0));
    return ready > 0;
}

/* TCP self-connect: if no process listens on a port of this machine, and the kernel happens to
 * choose that port as the socket's own, then connect() connects the socket to itself. */
static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage self = {0};
    struct sockaddr_storage peer = {0};
    socklen_t self_bytes = sizeof self;
    socklen_t peer_bytes = sizeof peer;

    return getsockname(fd, (struct sockaddr *)&self, &self_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 &&
           self_bytes == peer_bytes && memcmp(&self, &peer, self_bytes) == 0;
}

/* Connect to one address. Returns 0 or an errno. */
static int connect_one(const struct addrinfo *info, int64_t deadline_ns, int *out_fd)
{
    int64_t patience_ns = cddpi_deadline_ns(CONNECT_MS);
    int fd = cddpi_own_fd(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int on = 1;
    int error = 0;
    socklen_t bytes = sizeof error;

    if (fd < 0) {
        return errno;
    }
    if (connect(fd, info->ai_addr, info->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS || error == EINTR) {
            patience_ns = patience_ns < deadline_ns ? patience_ns : deadline_ns;
            if (!wait_for(fd, POLLOUT, patience_ns)) {
                error = ETIMEDOUT;
            } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
                error = errno;
            }
        }
    }
    if (error == 0 && is_connected_to_itself(fd)) {
        error = ECONNREFUSED;
    }
    if (error != 0) {
        cddpi_own_fd_close(fd);
        return error;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    cddpi_silence_repeat(fd, CDDPI_SILENCE_MOST_MS);
    *out_fd = fd;
    return 0;
}

static enum tcp_connect_attempt read_exactly(int fd, uint8_t *to, size_t bytes, int64_t deadline_ns)
{
    size_t have = 0;

    while (have < bytes) {
        ssize_t got = recv(fd, to + have, bytes - have, 0);

        if (got > 0) {
            have += (size_t)got;
        } else if (got == 0) {
            (void)cddpi_fail(CDDP_ERR_IO, "the server closed the connection during the greeting");
            return ATTEMPT_FAILED;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(fd, POLLIN, deadline_ns)) {
                (void)cddpi_fail(CDDP_ERR_TIMEOUT, "connected, but no cddp store answers");
                return ATTEMPT_FAILED;
            }
        } else if (errno != EINTR) {
            (void)cddpi_fail_errno(CDDP_ERR_IO, errno, "greeting");
            return ATTEMPT_FAILED;
        }
    }
    return ATTEMPT_OK;
}

static enum tcp_connect_attempt check_hello(int fd, const uint8_t *hello)
{
    uint8_t own[CDDPI_GREETING_BYTES];

    switch (cddpi_greeting_check(CDDPI_WIRE_MAGIC, CDDPI_WIRE_VERSION, hello, sizeof own)) {
    case CDDPI_GREETING_STRANGE:
        (void)cddpi_fail(CDDP_ERR_IO, "what listens there is not a cddp store");
        return ATTEMPT_REFUSED;
    case CDDPI_GREETING_OTHER_VERSION:
        /* tell the server this side's version, so that it knows why this client disconnects */
        cddpi_greeting_put(CDDPI_WIRE_MAGIC, CDDPI_WIRE_VERSION, own);
        (void)!send(fd, own, sizeof own, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)cddpi_fail(CDDP_ERR_IO, "the server speaks version %u of the protocol, not %d",
                         cddpi_get_u32(hello + 8), CDDPI_WIRE_VERSION);
        return ATTEMPT_REFUSED;
    default:
        break;
    }
    if (cddpi_get_u32(hello + 12) != CDDPI_WIRE_READY) {
        (void)cddpi_fail(CDDP_ERR_IO,
                         "the server is at its limit of open files (ulimit -n) and takes no more "
                         "clients");
        return ATTEMPT_FAILED;
    }
    return ATTEMPT_OK;
}

static enum tcp_connect_attempt check_welcome(struct cddpi_session *session, const uint8_t *welcome)
{
    uint32_t refused = cddpi_get_u32(welcome);

    if (refused == CDDPI_REFUSED_CIPHER) {
        (void)cddpi_fail(CDDP_ERR_CONFIG, "CDDP_CIPHER leaves no cipher that the server can use");
    } else if (refused != 0) {
        (void)cddpi_fail(CDDP_ERR_AUTH,
                         "the server refused the job's token; is CDDP_TOKEN that of this job?");
    } else if (!cddpi_session_confirm(session, 0, welcome + 4)) {
        (void)cddpi_fail(CDDP_ERR_AUTH, "the server does not know the job's token itself");
    } else {
        return ATTEMPT_OK;
    }
    return ATTEMPT_REFUSED;
}

/* Do the handshake. All failures set an error text. */
static enum tcp_connect_attempt greet_with(struct cddpi_session *session,
                                           struct cddpi_store_stream *stream,
                                           const struct secret *secret, int64_t deadline_ns)
{
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES];
    uint8_t answer[CDDPI_WIRE_ANSWER_BYTES] = {0};
    uint8_t welcome[CDDPI_WIRE_WELCOME_BYTES];
    enum tcp_connect_attempt attempt = read_exactly(stream->fd, hello, sizeof hello, deadline_ns);

    if (attempt == ATTEMPT_OK) {
        attempt = check_hello(stream->fd, hello);
    }
    if (attempt != ATTEMPT_OK) {
        return attempt;
    }
    cddpi_greeting_put(CDDPI_WIRE_MAGIC, CDDPI_WIRE_VERSION, answer);
    cddpi_session_offer(session, secret->key, hello + 16, secret->ciphers, answer + 16);
    if (send(stream->fd, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer) {
        (void)cddpi_fail_errno(CDDP_ERR_IO, errno, "greeting");
        return ATTEMPT_FAILED;
    }
    attempt = read_exactly(stream->fd, welcome, sizeof welcome, deadline_ns);
    if (attempt == ATTEMPT_OK) {
        attempt = check_welcome(session, welcome);
    }
    if (attempt == ATTEMPT_OK) {
        stream->cipher = cddpi_cipher_create(session);
        if (stream->cipher == NULL) {
            (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for encryption");
            attempt = ATTEMPT_FAILED;
        }
    }
    return attempt;
}

static enum tcp_connect_attempt greet(struct cddpi_store_stream *stream,
                                      const struct secret *secret, int64_t deadline_ns)
{
    struct cddpi_session session;
    enum tcp_connect_attempt attempt = greet_with(&session, stream, secret, deadline_ns);

    cddpi_session_wipe(&session);
    return attempt;
}

static enum tcp_connect_attempt fail_name(struct address *address, int error)
{
    int64_t now_ns = cddpi_now_ns();

    if (address->unknown_since_ns == 0) {
        address->unknown_since_ns = now_ns;
    }
    (void)cddpi_fail(CDDP_ERR_IO, "the name %s has not resolved for %lld s: %s", address->at.host,
                     (long long)((now_ns - address->unknown_since_ns + 500000000) / 1000000000),
                     gai_strerror(error));
    return ATTEMPT_FAILED;
}

/* Try all addresses of the name until one connects or refuses. Once an address has refused, the
 * others are not tried, so that the refusal is what the user gets to read. */
static enum tcp_connect_attempt try_address(struct address *address, const struct secret *secret,
                                            int64_t deadline_ns,
                                            struct cddpi_store_stream *out_stream)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *infos = NULL;
    enum tcp_connect_attempt attempt = ATTEMPT_FAILED;
    char port[8];
    int error;

    snprintf(port, sizeof port, "%u", address->at.port);
    error = getaddrinfo(address->at.host, port, &hints, &infos);
    if (error != 0) {
        /* not final: in a cluster the name may become known soon, so the caller tries again */
        return fail_name(address, error);
    }
    address->unknown_since_ns = 0;
    for (const struct addrinfo *info = infos; info != NULL && attempt == ATTEMPT_FAILED;
         info = info->ai_next) {
        struct cddpi_store_stream stream = {.fd = -1};

        error = connect_one(info, deadline_ns, &stream.fd);
        if (error != 0) {
            (void)cddpi_fail_errno(CDDP_ERR_IO, error, "connect");
            continue;
        }
        attempt = greet(&stream, secret, deadline_ns);
        if (attempt == ATTEMPT_OK) {
            *out_stream = stream;
        } else {
            cddpi_cipher_destroy(stream.cipher);
            cddpi_own_fd_close(stream.fd);
        }
    }
    freeaddrinfo(infos);
    return attempt;
}

bool cddpi_store_is_refused(const char *url, int64_t deadline_ns)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *infos = NULL;
    struct cddpi_address at;
    bool is_refused = false;
    char port[8];

    if (strncmp(url, "tcp://", 6) != 0 || cddpi_address_parse(url + 6, &at) != CDDP_OK) {
        return false;
    }
    snprintf(port, sizeof port, "%u", at.port);
    if (getaddrinfo(at.host, port, &hints, &infos) != 0) {
        return false;
    }
    for (const struct addrinfo *info = infos; info != NULL; info = info->ai_next) {
        int fd = -1;
        int error = connect_one(info, deadline_ns, &fd);

        if (error == 0) {
            cddpi_own_fd_close(fd);
        }
        is_refused = error == ECONNREFUSED;
        if (!is_refused) {
            break;
        }
    }
    freeaddrinfo(infos);
    return is_refused;
}

/* The state of the attempts to connect. */
struct tcp_connect_search {
    struct address address;
    struct secret secret;
    bool was_refused;
    struct cddpi_failure refusal; /* the last refusal, if was_refused */
    int64_t log_ns;               /* when to log that it still waits; 0: already logged */
};

static void note_refusal(struct tcp_connect_search *search, const char *text, int64_t deadline_ns)
{
    search->refusal = *cddpi_last_failure();
    if (!search->was_refused) {
        cddpi_log(
            CDDPI_LOG_WARN,
            "store tcp://%s: %s (who says that has proved nothing, so it is tried again for %d s)",
            text, search->refusal.text, cddpi_left_ms(deadline_ns) / 1000);
        search->was_refused = true;
        search->log_ns = 0;
    }
}

/* Word the failure after the deadline has passed. */
static cddp_status give_up(const struct tcp_connect_search *search, enum tcp_connect_attempt last)
{
    if (!search->was_refused) {
        return cddpi_fail_prefix(CDDP_ERR_TIMEOUT, "not open at the deadline; last attempt");
    }
    if (last != ATTEMPT_REFUSED) {
        (void)cddpi_fail_suffix(CDDP_ERR_TIMEOUT, "; before that: %s", search->refusal.text);
    }
    return cddpi_fail_prefix((cddp_status)search->refusal.status,
                             "not open at the deadline; last attempt");
}

static cddp_status find(struct tcp_connect_search *search, const char *text, int64_t deadline_ns,
                        struct cddpi_store_stream *out)
{
    uint32_t pause = FIRST_PAUSE_MS;

    for (;;) {
        enum tcp_connect_attempt attempt = try_address(&search->address, &search->secret,
                                                       deadline_ns, out);

        if (attempt == ATTEMPT_OK) {
            return CDDP_OK;
        }
        if (attempt == ATTEMPT_REFUSED) {
            note_refusal(search, text, deadline_ns);
            pause = LONGEST_PAUSE_MS; /* a refusal seldom changes soon */
        }
        if (search->log_ns != 0 && cddpi_left_ms(search->log_ns) == 0) {
            cddpi_log(CDDPI_LOG_WARN, "store tcp://%s: waiting, %s", text, cddp_last_error());
            search->log_ns = 0;
        }
        cddpi_pause(pause * 1000, deadline_ns);
        if (cddpi_left_ms(deadline_ns) == 0) {
            /* another attempt would time out at once and hide why this one failed */
            return give_up(search, attempt);
        }
        pause = pause * 2 < LONGEST_PAUSE_MS ? pause * 2 : LONGEST_PAUSE_MS;
    }
}

cddp_status cddpi_tcp_connect(const char *text, const char *token, int64_t deadline_ns,
                              struct cddpi_store_stream *out)
{
    struct tcp_connect_search search = {.log_ns = cddpi_deadline_ns(LOG_MS)};
    bool encrypts_data;
    cddp_status status;

    CDDPI_TRY(cddpi_address_parse(text, &search.address.at));
    CDDPI_TRY(cddpi_interface_check_loopback(search.address.at.host));
    CDDPI_TRY(cddpi_encryption(token, &encrypts_data));
    CDDPI_TRY(cddpi_ciphers(&search.secret.ciphers));
    cddpi_store_key(token, search.secret.key);
    status = find(&search, text, deadline_ns, out);
    sodium_memzero(&search.secret, sizeof search.secret);
    return status;
}
