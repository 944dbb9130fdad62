/* silence.h - how long a peer on another machine may be silent: one patience for a group's ranks
 * and for cddp-run. Only time in which somebody looks counts: who stood still himself does not take
 * all others for lost.
 *
 * Ranks ask the kernel. A connection on which nothing is under way is asked for an answer once a
 * second by the kernel itself, and, as soon as one is late, at each look by us: such a question is
 * not repeated by TCP, which would wait longer and longer between two, so that a link that is back
 * is found at the next look. The peer's kernel answers for a process that is stopped or slow. */
#ifndef CDDPI_BASE_SILENCE_H
#define CDDPI_BASE_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CDDPI_SILENCE_MOST_MS = 86400000, /* of CDDP_HEARTBEAT_MS */
    /* on top of the limit: the peer may have been asked a second before the link broke, and one
     * that is back may carry packets only a second later, once the neighbour's address is found */
    CDDPI_SILENCE_SPARE_MS = 2000
};

/** CDDP_HEARTBEAT_MS, but not less than @p least_ms. */
uint32_t cddpi_silence_limit_ms(uint32_t least_ms);

/** How often to look, with that limit. */
uint32_t cddpi_silence_look_ms(uint32_t limit_ms);

/* One peer's. Zeroed: it was never looked for. */
struct cddpi_silence {
    int64_t looked_ns;
    int64_t silent_ns; /* as far as it counts */
};

/** Look at @p now_ns: @p is_heard says whether there was a sign since the last look, which should
 *  have been @p step_ms ago; twice that counts at most. True: the peer has been silent for longer
 *  than it may. */
bool cddpi_silence_look(struct cddpi_silence *silence, bool is_heard, uint32_t step_ms,
                        uint32_t limit_ms, int64_t now_ns);

/** Let the kernel ask over the connected socket @p fd, on which nothing else is sent as long as all
 *  is well. It gives the connection up by itself only long after the limit. */
void cddpi_silence_watch(int fd, uint32_t limit_ms);

/** Let TCP repeat what is lost at least once a second, where the kernel can do that (Linux 6.15):
 * it would wait ever longer, and again as long once a link is back. Without an answer the kernel
 * ends the connection after @p end_ms then. */
void cddpi_silence_repeat(int fd, uint32_t end_ms);

/** Look at such a socket, every cddpi_silence_look_ms(); as cddpi_silence_look(). */
bool cddpi_silence_look_at(struct cddpi_silence *silence, int fd, uint32_t limit_ms,
                           int64_t now_ns);

/** For how many seconds nothing has come over such a socket. */
double cddpi_silence_seconds(int fd);

#endif
