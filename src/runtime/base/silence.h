/* silence.h - how long a peer on another machine may be silent: one time limit for a group's ranks
 * and for cddp-run. Only time during which this process checked counts. A process that was itself
 * stopped therefore does not declare all its peers lost.
 *
 * Ranks rely on TCP keepalive. On an idle connection the kernel probes the peer once a second. As
 * soon as an answer is late, each check of ours makes the kernel probe again at once. TCP does not
 * retransmit such a probe with growing delays, so a repaired link is noticed at the next check. The
 * peer's kernel answers even if the peer's process is stopped or slow. */
#ifndef CDDPI_BASE_SILENCE_H
#define CDDPI_BASE_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CDDPI_SILENCE_MOST_MS = 86400000, /* upper limit of CDDP_HEARTBEAT_MS */
    /* added to the limit: the last probe before the link broke may be a second old, and a repaired
     * link may carry packets only a second later, once the neighbour's address is resolved */
    CDDPI_SILENCE_SPARE_MS = 2000
};

/** CDDP_HEARTBEAT_MS, but at least @p least_ms. */
uint32_t cddpi_silence_limit_ms(uint32_t least_ms);

/** The interval of checks for that limit, in ms. */
uint32_t cddpi_silence_look_ms(uint32_t limit_ms);

/* State for one peer. All zeros: never checked. */
struct cddpi_silence {
    int64_t looked_ns;
    int64_t silent_ns; /* the silence that counts */
};

/** Check the peer at time @p now_ns. @p is_heard: there was a sign of life since the last check.
 *  @p step_ms is the intended interval of checks: one check adds at most twice that time to the
 *  silence. True: the peer has been silent for longer than the limit. */
bool cddpi_silence_look(struct cddpi_silence *silence, bool is_heard, uint32_t step_ms,
                        uint32_t limit_ms, int64_t now_ns);

/** Enable TCP keepalive on the connected socket @p fd, on which nothing else is sent while all is
 *  well. The kernel itself ends the connection only long after the limit. */
void cddpi_silence_watch(int fd, uint32_t limit_ms);

/** Make TCP retransmit lost data at least once a second, where the kernel can do that (Linux 6.15).
 *  Otherwise the delays grow, and a repaired link may stay unused for as long as the outage lasted.
 *  If there is no answer, the kernel then ends the connection after @p end_ms. */
void cddpi_silence_repeat(int fd, uint32_t end_ms);

/** Check the peer of such a socket; call it every cddpi_silence_look_ms(). Result: as of
 *  cddpi_silence_look(). */
bool cddpi_silence_look_at(struct cddpi_silence *silence, int fd, uint32_t limit_ms,
                           int64_t now_ns);

/** The number of seconds since anything came over such a socket. */
double cddpi_silence_seconds(int fd);

#endif
