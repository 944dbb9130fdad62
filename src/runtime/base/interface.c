/* interface.c - owns the matching of interface names, and the check of the loopback interface. */
#include "base/interface.h"

#include "base/error.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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
