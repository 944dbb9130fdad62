/* attempt.c - owns connections that are not open yet: begins and ends them. Anyone who can reach
 * the port can connect, so the resources of unknown peers are limited: a number of connections,
 * with a few hundred bytes and a few seconds each. Only the thread calls this, with the lock held.
 */
#include "group/net/tcp/attempt.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    LONGEST_PAUSE_MS = 1000,
    CONNECT_MS = 10000, /* after this, try another address, or the same one again */
    STRANGER_MS = 5000, /* limit for the proof */
    LOGGED_REFUSALS = 20,
    LOG_MS = 10000
};

void cddpi_tcp_search_pause(struct tcp_search *search, int64_t now_ns)
{
    search->begin_ns = now_ns + (int64_t)search->pause_ms * 1000000;
    search->pause_ms = search->pause_ms * 2 < LONGEST_PAUSE_MS ? search->pause_ms * 2
                                                               : LONGEST_PAUSE_MS;
    search->next = 0;
}

void cddpi_tcp_search_failed(struct tcp_pair *pair, const struct tcp_attempt *attempt,
                             const char *why, bool is_refusal)
{
    struct tcp_search *search = pair->search;
    char text[TCP_ADDRESS_TEXT_BYTES];

    cddpi_tcp_address_text(&attempt->address, text);
    snprintf(search->last, sizeof search->last, "%s: %.120s", text, why);
    if (is_refusal) {
        if (search->refusal[0] == '\0') {
            cddpi_log(CDDPI_LOG_WARN,
                      "tcp: rank %d on host %s: %s (who says that has proved nothing, so it is "
                      "tried again)",
                      pair->peer, pair->offer->host, search->last);
        }
        memcpy(search->refusal, search->last, sizeof search->refusal);
        search->pause_ms = LONGEST_PAUSE_MS; /* it is unlikely to change its answer */
    }
    if (pair->knows_address) {
        cddpi_tcp_search_pause(search, cddpi_now_ns());
    }
}

static void watch(struct tcp_carrier *tcp, struct tcp_attempt *attempt, int how, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = attempt};

    (void)epoll_ctl(tcp->net_epoll_fd, how, attempt->fd, &event);
}

static struct tcp_attempt *add(struct tcp_carrier *tcp, int fd,
                               const struct sockaddr_storage *address, int64_t timeout_ms)
{
    struct tcp_attempt *attempt = cddpi_zalloc(sizeof *attempt);
    int on = 1;

    if (attempt == NULL) {
        cddpi_own_fd_close(fd);
        return NULL;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    attempt->watched = TCP_WATCHED_ATTEMPT;
    attempt->fd = fd;
    attempt->address = *address;
    attempt->deadline_ns = cddpi_now_ns() + timeout_ms * 1000000;
    attempt->next = tcp->attempts;
    tcp->attempts = attempt;
    return attempt;
}

void cddpi_tcp_attempt_start(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                             const struct sockaddr_storage *address, const char *interface)
{
    int fd = cddpi_own_fd(
        socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    struct tcp_attempt failed = {.address = *address};
    struct tcp_attempt *attempt = fd >= 0 ? add(tcp, fd, address, CONNECT_MS) : NULL;
    socklen_t bytes = address->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                    : sizeof(struct sockaddr_in6);

    if (attempt == NULL) {
        cddpi_tcp_search_failed(pair, &failed, strerror(fd < 0 ? errno : ENOMEM), false);
        return;
    }
    attempt->pair = pair;
    attempt->slot = slot;
    if (interface != NULL) {
        memcpy(attempt->interface, interface, sizeof attempt->interface);
    } else {
        pair->trying |= 1u << slot;
    }
    pair->search->active++;
    attempt->state = TCP_CONNECTING;
    if (connect(fd, (const struct sockaddr *)address, bytes) != 0 && errno != EINPROGRESS &&
        errno != EINTR) {
        cddpi_tcp_attempt_end(tcp, attempt, strerror(errno), false);
        return;
    }
    watch(tcp, attempt, EPOLL_CTL_ADD, EPOLLOUT);
}

void cddpi_tcp_attempt_accept(struct tcp_carrier *tcp, int fd,
                              const struct sockaddr_storage *address)
{
    struct tcp_attempt *attempt = add(tcp, fd, address, STRANGER_MS);
    uint8_t hello[TCP_HELLO_BYTES];

    if (attempt == NULL) {
        return;
    }
    attempt->came_in = true;
    attempt->state = TCP_AWAITS_ANSWER;
    tcp->strangers++;
    cddpi_random_bytes(attempt->server_nonce, sizeof attempt->server_nonce);
    cddpi_tcp_hello_put(attempt->server_nonce, hello);
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof hello) {
        cddpi_tcp_attempt_end(tcp, attempt, NULL, false);
        return;
    }
    watch(tcp, attempt, EPOLL_CTL_ADD, EPOLLIN);
}

/* Log a line for each refused peer, unless there are very many. */
static void log_refusal(struct tcp_carrier *tcp, const struct tcp_attempt *attempt, const char *why)
{
    int64_t now_ns = cddpi_now_ns();
    char text[TCP_ADDRESS_TEXT_BYTES];

    if (now_ns > tcp->refusals_ns + LOG_MS * INT64_C(1000000)) {
        if (tcp->refusals > LOGGED_REFUSALS) {
            cddpi_log(CDDPI_LOG_WARN, "tcp: refused %d more connections",
                      tcp->refusals - LOGGED_REFUSALS);
        }
        tcp->refusals_ns = now_ns;
        tcp->refusals = 0;
    }
    if (tcp->refusals++ < LOGGED_REFUSALS) {
        cddpi_tcp_address_text(&attempt->address, text);
        cddpi_log(CDDPI_LOG_WARN, "tcp: refused a connection from %s: %s", text, why);
    }
}

void cddpi_tcp_attempt_end(struct tcp_carrier *tcp, struct tcp_attempt *attempt, const char *why,
                           bool is_refusal)
{
    if (attempt->is_closed) {
        return;
    }
    attempt->is_closed = true;
    if (attempt->came_in && attempt->state == TCP_AWAITS_ANSWER) {
        tcp->strangers--;
    }
    if (attempt->fd >= 0) {
        (void)epoll_ctl(tcp->net_epoll_fd, EPOLL_CTL_DEL, attempt->fd, NULL);
        cddpi_own_fd_close(attempt->fd);
    }
    cddpi_cipher_destroy(attempt->cipher);
    attempt->cipher = NULL;
    cddpi_session_wipe(&attempt->session);
    if (!attempt->came_in) {
        attempt->pair->search->active--;
        if (attempt->interface[0] == '\0') {
            attempt->pair->trying &= ~(1u << attempt->slot);
        }
        if (why != NULL) {
            cddpi_tcp_search_failed(attempt->pair, attempt, why, is_refusal);
        }
    } else if (why != NULL && !tcp->is_closing) {
        log_refusal(tcp, attempt, why);
    }
}

void cddpi_tcp_attempts_expire(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns)
{
    struct tcp_attempt **at = &tcp->attempts;

    while (*at != NULL) {
        struct tcp_attempt *attempt = *at;

        if (!attempt->is_closed && now_ns >= attempt->deadline_ns) {
            cddpi_tcp_attempt_end(tcp, attempt,
                                  attempt->state == TCP_CONNECTING      ? "it does not answer"
                                  : attempt->state == TCP_AWAITS_ANSWER ? "it proves nothing"
                                                                        : "connected, but it does "
                                                                          "not go on",
                                  false);
        }
        if (attempt->is_closed) {
            *at = attempt->next;
            cddpi_free(attempt);
        } else {
            *next_ns = attempt->deadline_ns < *next_ns ? attempt->deadline_ns : *next_ns;
            at = &attempt->next;
        }
    }
}

/* The oldest connection of an unknown peer, or NULL. New ones are put at the front of the list. */
static struct tcp_attempt *find_oldest(const struct tcp_carrier *tcp)
{
    struct tcp_attempt *oldest = NULL;

    for (struct tcp_attempt *attempt = tcp->attempts; attempt != NULL; attempt = attempt->next) {
        if (!attempt->is_closed && attempt->came_in && attempt->state == TCP_AWAITS_ANSWER) {
            oldest = attempt;
        }
    }
    return oldest;
}

int64_t cddpi_tcp_attempts_oldest_ns(const struct tcp_carrier *tcp)
{
    const struct tcp_attempt *oldest = find_oldest(tcp);

    return oldest != NULL ? oldest->deadline_ns - STRANGER_MS * INT64_C(1000000) : INT64_MAX;
}

bool cddpi_tcp_attempts_drop_oldest(struct tcp_carrier *tcp)
{
    struct tcp_attempt *oldest;

    while ((oldest = find_oldest(tcp)) != NULL) {
        cddpi_tcp_attempt_event(tcp, oldest); /* its proof may have arrived by now */
        if (!oldest->is_closed && oldest->state != TCP_AWAITS_ANSWER) {
            continue;
        }
        cddpi_tcp_attempt_end(tcp, oldest, "too many connections prove nothing", false);
        return true;
    }
    return false;
}

void cddpi_tcp_attempts_close(struct tcp_carrier *tcp)
{
    while (tcp->attempts != NULL) {
        struct tcp_attempt *attempt = tcp->attempts;

        if (tcp->owner == getpid()) {
            cddpi_tcp_attempt_end(tcp, attempt, NULL, false);
        } else if (!attempt->is_closed) {
            /* in a forked child the epoll belongs to the parent, too */
            cddpi_own_fd_close(attempt->fd);
            cddpi_cipher_destroy(attempt->cipher);
            cddpi_session_wipe(&attempt->session);
        }
        tcp->attempts = attempt->next;
        cddpi_free(attempt);
    }
}
