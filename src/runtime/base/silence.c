/* silence.c - decides whether a peer on another machine has been silent for too long. */
#include "base/silence.h"

#include "base/env.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum {
    LEAST_MS = 100, /* lower limit of CDDP_HEARTBEAT_MS */
    DEFAULT_MS = 10000,
    LOOKS = 16, /* checks within the limit */
    SHORTEST_LOOK_MS = 20,
    LONGEST_LOOK_MS = 250,
    ASK_S = 1, /* idle time before a keepalive probe; the kernel's minimum */
    BACKSTOP_MS = 10000,
    REPEAT_MS = 1000 /* longest time between retransmissions; the kernel's minimum */
};

uint32_t cddpi_silence_limit_ms(uint32_t least_ms)
{
    int64_t limit_ms = cddpi_env_integer(CDDPI_ENV_HEARTBEAT_MS, LEAST_MS, CDDPI_SILENCE_MOST_MS,
                                         DEFAULT_MS);

    return limit_ms > least_ms ? (uint32_t)limit_ms : least_ms;
}

uint32_t cddpi_silence_look_ms(uint32_t limit_ms)
{
    uint32_t look_ms = limit_ms / LOOKS;

    look_ms = look_ms > SHORTEST_LOOK_MS ? look_ms : SHORTEST_LOOK_MS;
    return look_ms < LONGEST_LOOK_MS ? look_ms : LONGEST_LOOK_MS;
}

bool cddpi_silence_look(struct cddpi_silence *silence, bool is_heard, uint32_t step_ms,
                        uint32_t limit_ms, int64_t now_ns)
{
    int64_t most_ns = 2 * (int64_t)step_ms * 1000000;
    int64_t passed_ns = now_ns - silence->looked_ns;

    if (is_heard || silence->looked_ns == 0) {
        silence->silent_ns = 0;
    } else {
        silence->silent_ns += passed_ns < most_ns ? passed_ns : most_ns;
    }
    silence->looked_ns = now_ns;
    return silence->silent_ns >= ((int64_t)limit_ms + CDDPI_SILENCE_SPARE_MS) * 1000000;
}

void cddpi_silence_watch(int fd, uint32_t limit_ms)
{
    int on = 1;
    int ask_s = ASK_S;
    unsigned backstop_ms = 2 * limit_ms + BACKSTOP_MS;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &ask_s, sizeof ask_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &ask_s, sizeof ask_s);
    /* Also replaces the kernel's limit on the number of unanswered probes, since we cause many. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &backstop_ms, sizeof backstop_ms);
}

void cddpi_silence_repeat(int fd, uint32_t end_ms)
{
    int most_ms = REPEAT_MS;
    unsigned limit_ms = end_ms;

    if (setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &most_ms, sizeof most_ms) == 0) {
        /* Without this, the connection ends after as many attempts as before, which now take only
         * 15 s. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
    }
}

/* Milliseconds since anything was received; -1: the kernel does not say. */
static int64_t heard_ms(int fd)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
        return -1;
    }
    /* Data that acknowledges nothing new updates only the second one. */
    return info.tcpi_last_ack_recv < info.tcpi_last_data_recv ? info.tcpi_last_ack_recv
                                                              : info.tcpi_last_data_recv;
}

bool cddpi_silence_look_at(struct cddpi_silence *silence, int fd, uint32_t limit_ms, int64_t now_ns)
{
    int64_t passed_ms = (now_ns - silence->looked_ns) / 1000000;
    int64_t ms = heard_ms(fd);
    int ask_s = ASK_S;

    if (ms >= ASK_S * 1000) {
        /* The idle time has already passed, so setting it makes the kernel send a probe now. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &ask_s, sizeof ask_s);
    }
    return cddpi_silence_look(silence, ms <= passed_ms, cddpi_silence_look_ms(limit_ms), limit_ms,
                              now_ns);
}

double cddpi_silence_seconds(int fd)
{
    int64_t ms = heard_ms(fd);

    return ms > 0 ? (double)ms * 1e-3 : 0;
}
