/* interface.c - owns the matching of interface names, and the checks of addresses of this machine.
 */
#include "base/interface.h"

#include "base/error.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool cddpi_interface_matches(const char *patterns, const char *name)
{
    bool excludes = false;
    bool is_whole = false;

    if (patterns == NULL || patterns[0] == '\0') {
        return true;
    }
    for (; *patterns == '^' || *patterns == '='; patterns++) {
        excludes = excludes || *patterns == '^';
        is_whole = is_whole || *patterns == '=';
    }
    for (size_t bytes; *patterns != '\0'; patterns += bytes + (patterns[bytes] == ',' ? 1 : 0)) {
        bytes = strcspn(patterns, ",");
        if (bytes > 0 && strncmp(name, patterns, bytes) == 0 &&
            (!is_whole || name[bytes] == '\0')) {
            return !excludes;
        }
    }
    return excludes;
}

cddp_status cddpi_interface_check_loopback(const char *host)
{
    struct ifreq request = {.ifr_name = "lo"};
    bool is_loopback = strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
                       strcmp(host, "::1") == 0;
    bool is_down = false;
    int fd = is_loopback ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;

    if (fd >= 0) {
        is_down = ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
        close(fd);
    }
    return is_down ? cddpi_fail(CDDP_ERR_UNAVAILABLE,
                                "%s: the loopback interface lo is down here, so processes of this "
                                "machine cannot reach each other (ip link set lo up)",
                                host)
                   : CDDP_OK;
}

bool cddpi_address_is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;

    return (address->sa_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == 127) ||
           (address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr));
}

int cddpi_address_probe(const struct sockaddr *address, socklen_t bytes, int timeout_ms)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd event = {.fd = fd, .events = POLLOUT};
    socklen_t error_bytes = sizeof(int);
    int error = 0;

    if (fd < 0) {
        return errno;
    }
    if (connect(fd, address, bytes) != 0) {
        error = errno;
        if (error == EINPROGRESS && poll(&event, 1, timeout_ms) == 1 &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0) {
            error = errno;
        }
    }
    close(fd);
    return error;
}
