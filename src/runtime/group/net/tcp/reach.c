/* reach.c - tries to connect to all addresses of a host at once. */
#include "group/net/tcp/address.h"

#include "base/clock.h"
#include "base/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One attempt. fd is -1 once it has failed, with the reason stored. */
struct reach_attempt {
    int fd;
    int error;
};

static struct reach_attempt begin(const struct tcp_address *to, uint16_t port)
{
    struct sockaddr_storage address;
    socklen_t bytes = cddpi_tcp_sockaddr(to, port, &address);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return (struct reach_attempt){-1, errno};
    }
    if (connect(fd, (const void *)&address, bytes) != 0 && errno != EINPROGRESS) {
        struct reach_attempt failed = {-1, errno};

        close(fd);
        return failed;
    }
    return (struct reach_attempt){fd, 0};
}

/* Whether an attempt has succeeded. Closes an attempt that failed. */
static bool look(struct reach_attempt *attempt)
{
    socklen_t bytes = sizeof attempt->error;

    if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &attempt->error, &bytes) == 0 &&
        attempt->error == 0) {
        return true;
    }
    close(attempt->fd);
    attempt->fd = -1;
    return false;
}

/* The index of the first attempt that succeeds; -1: no attempt did before the deadline. */
static int await_first(struct reach_attempt *attempts, int count, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd polled[TCP_MAX_ADDRESSES];
        int left_ms = cddpi_left_ms(deadline_ns);
        bool any = false;

        for (int i = 0; i < count; i++) {
            polled[i] = (struct pollfd){attempts[i].fd, POLLOUT, 0};
            any = any || attempts[i].fd >= 0;
        }
        if (!any || left_ms == 0 || (poll(polled, (nfds_t)count, left_ms) < 0 && errno != EINTR)) {
            return -1;
        }
        for (int i = 0; i < count; i++) {
            if (attempts[i].fd >= 0 && polled[i].revents != 0 && look(&attempts[i])) {
                return i;
            }
        }
    }
}

static void write_host(const struct tcp_address *address, char out[TCP_HOST_TEXT_BYTES])
{
    if (inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->bytes, out,
                  TCP_HOST_TEXT_BYTES) == NULL) {
        out[0] = '\0';
    }
}

static cddp_status fail_unreachable(const struct tcp_offer *peer, const int *order, int count,
                                    const struct reach_attempt *attempts, uint32_t timeout_ms)
{
    char tried[1200] = "";
    size_t used = 0;

    for (int i = 0; i < count && used < sizeof tried; i++) {
        char host[TCP_HOST_TEXT_BYTES];

        write_host(&peer->addresses[order[i]], host);
        used += (size_t)snprintf(tried + used, sizeof tried - used, "%s%s (%s)",
                                 used > 0 ? ", " : "", host,
                                 attempts[i].fd < 0 ? strerror(attempts[i].error) : "no answer");
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "no address of host %s answers at port %u within %u ms: %s", peer->host,
                      peer->port, timeout_ms, used > 0 ? tried : "it has none but loopback's");
}

cddp_status cddpi_tcp_reachable(const struct tcp_offer *peer, uint32_t timeout_ms,
                                char out[TCP_HOST_TEXT_BYTES])
{
    struct reach_attempt attempts[TCP_MAX_ADDRESSES];
    struct tcp_offer own = {0};
    int order[TCP_MAX_ADDRESSES];
    int count;
    int first;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_tcp_offer_make(&own));
    count = cddpi_tcp_offer_order(&own, peer, order);
    for (int i = 0; i < count; i++) {
        attempts[i] = begin(&peer->addresses[order[i]], peer->port);
    }
    first = await_first(attempts, count, cddpi_deadline_ns(timeout_ms));
    if (first >= 0) {
        write_host(&peer->addresses[order[first]], out);
    } else {
        status = fail_unreachable(peer, order, count, attempts, timeout_ms);
    }
    for (int i = 0; i < count; i++) {
        cddpi_fd_close(&attempts[i].fd);
    }
    return status;
}
