/* congestion.c - chooses the kernel's congestion control algorithm for data connections.
 *
 * Many hosts have BBR as their default. It is designed for the internet: it sends by a timer, at a
 * rate that it has measured, and every ten seconds it sends almost nothing for a while to measure
 * the path again (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5),
 * 2016). Between hosts of one network, which all wait for the slowest message, that costs up to a
 * third of the bandwidth; doc/performance.md has numbers. */
#include "group/net/tcp/congestion.h"

#include "base/child.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

enum {
    NAME_BYTES = 16, /* with the final zero; the kernel's limit */
    NEAR_US = 1000   /* round trips within one network take less */
};

/* The replacement for BBR. Every kernel has it, and lets every user select it. On a short path it
 * uses more of a link's bandwidth than CUBIC, the other common default. */
static const char for_neighbours[] = "reno";

static bool set(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

static const char *chosen(void)
{
    const char *name = cddpi_env(CDDPI_ENV_CONGESTION);

    return name != NULL && name[0] != '\0' ? name : NULL;
}

cddp_status cddpi_tcp_congestion_check(void)
{
    const char *name = chosen();
    cddp_status status = CDDP_OK;
    int fd;

    if (name == NULL || strcmp(name, "system") == 0) {
        return CDDP_OK;
    }
    fd = cddpi_own_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "tcp: make a socket");
    }
    if (!set(fd, name)) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT,
                            "tcp: CDDP_CONGESTION=%s: %s; what this host has is in "
                            "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
                            name, errno == EPERM ? "this user may not use it" : strerror(errno));
    }
    cddpi_own_fd_close(fd);
    return status;
}

bool cddpi_tcp_congestion_is_unfit(const char *system, uint32_t round_trip_us)
{
    return strncmp(system, "bbr", 3) == 0 && round_trip_us < NEAR_US;
}

/* The shortest round trip so far; UINT32_MAX: not known. */
static uint32_t round_trip_us(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) {
        return UINT32_MAX;
    }
    return info.tcpi_min_rtt;
}

static void log_once(const char *name, const char *system)
{
    static atomic_bool is_logged;

    if (!atomic_exchange(&is_logged, true)) {
        cddpi_log(CDDPI_LOG_INFO,
                  "tcp: to hosts that are near, %s decides how fast is sent, in the place of %s, "
                  "this host's default (CDDP_CONGESTION)",
                  name, system);
    }
}

void cddpi_tcp_congestion_choose(int fd)
{
    const char *name = chosen();
    char system[NAME_BYTES + 1] = "";
    socklen_t bytes = NAME_BYTES;

    if (name != NULL) {
        if (strcmp(name, "system") != 0) {
            (void)set(fd, name);
        }
        return;
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, system, &bytes) != 0 ||
        !cddpi_tcp_congestion_is_unfit(system, round_trip_us(fd))) {
        return;
    }
    if (set(fd, for_neighbours)) {
        log_once(for_neighbours, system);
    }
}
