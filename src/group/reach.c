/* reach.c - lists this host's addresses, and finds out which of another's answer. */
#include "group/reach.h"

#include "base/clock.h"
#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The text of an address that others may reach. */
static bool write_address(const struct ifaddrs *interface, char out[CDDPI_REACH_BYTES])
{
    const struct sockaddr *address = interface->ifa_addr;

    if (address == NULL || (interface->ifa_flags & IFF_UP) == 0 ||
        (interface->ifa_flags & IFF_LOOPBACK) != 0) {
        return false;
    }
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;

        return inet_ntop(AF_INET, &v4->sin_addr, out, CDDPI_REACH_BYTES) != NULL;
    }
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;

        return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
               inet_ntop(AF_INET6, &v6->sin6_addr, out, CDDPI_REACH_BYTES) != NULL;
    }
    return false;
}

void cddpi_own_addresses(struct cddpi_addresses *out)
{
    struct ifaddrs *interfaces = NULL;

    memset(out, 0, sizeof *out);
    if (getifaddrs(&interfaces) != 0) {
        return;
    }
    for (struct ifaddrs *i = interfaces; i != NULL && out->count < CDDPI_REACH_MOST;
         i = i->ifa_next) {
        if (write_address(i, out->of[out->count])) {
            out->count++;
        }
    }
    freeifaddrs(interfaces);
}

static socklen_t parse(const char *text, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (void *)out;
    struct sockaddr_in6 *v6 = (void *)out;

    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        return sizeof *v6;
    }
    return 0;
}

/* One attempt; fd is -1 once it has failed, with the reason. */
struct attempt {
    int fd;
    int error;
};

static void begin(struct attempt *attempt, const char *text, uint16_t port)
{
    struct sockaddr_storage address;
    socklen_t bytes = parse(text, port, &address);

    *attempt = (struct attempt){-1, EINVAL};
    if (bytes == 0) {
        return;
    }
    attempt->fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (attempt->fd < 0) {
        attempt->error = errno;
    } else if (connect(attempt->fd, (const void *)&address, bytes) != 0 && errno != EINPROGRESS) {
        attempt->error = errno;
        close(attempt->fd);
        attempt->fd = -1;
    }
}

/* Whether an attempt has succeeded. One that failed is closed. */
static bool look(struct attempt *attempt)
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

/* Which attempt succeeds first; -1: none until the deadline. */
static int await_first(struct attempt *attempts, int count, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd polled[CDDPI_REACH_MOST];
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

static cddp_status fail_unreachable(const struct cddpi_addresses *addresses, uint16_t port,
                                    const struct attempt *attempts, uint32_t timeout_ms)
{
    char tried[1024] = "";
    size_t used = 0;

    for (int i = 0; i < addresses->count && used < sizeof tried; i++) {
        used += (size_t)snprintf(tried + used, sizeof tried - used, "%s%s (%s)",
                                 used > 0 ? ", " : "", addresses->of[i],
                                 attempts[i].fd < 0 ? strerror(attempts[i].error) : "no answer");
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "joining: no address of rank 0's host answers at port %u within %u ms: %s. "
                      "Set CDDP_STORE=tcp://host:port to an address of that host which the others "
                      "reach, and CDDP_TOKEN to a secret",
                      port, timeout_ms, used > 0 ? tried : "it has none but loopback's");
}

cddp_status cddpi_reachable_address(const struct cddpi_addresses *addresses, uint16_t port,
                                    uint32_t timeout_ms, char out[CDDPI_REACH_BYTES])
{
    struct attempt attempts[CDDPI_REACH_MOST];
    cddp_status status = CDDP_OK;
    int first;

    for (int i = 0; i < addresses->count; i++) {
        begin(&attempts[i], addresses->of[i], port);
    }
    first = await_first(attempts, addresses->count, cddpi_deadline_ns(timeout_ms));
    if (first >= 0) {
        memcpy(out, addresses->of[first], CDDPI_REACH_BYTES);
    } else {
        status = fail_unreachable(addresses, port, attempts, timeout_ms);
    }
    for (int i = 0; i < addresses->count; i++) {
        if (attempts[i].fd >= 0) {
            close(attempts[i].fd);
        }
    }
    return status;
}
