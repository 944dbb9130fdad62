/* clock.h - monotonic time and deadlines. */
#ifndef CDDPI_CLOCK_H
#define CDDPI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/** Nanoseconds of the monotonic clock, which all processes of a machine share. */
static inline int64_t cddpi_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/** The time @p timeout_ms from now, on the clock of cddpi_now_ns(). */
static inline int64_t cddpi_deadline_ns(uint32_t timeout_ms)
{
    return cddpi_now_ns() + (int64_t)timeout_ms * 1000000;
}

/** Milliseconds left until @p deadline_ns, for poll(): rounded up, never negative. */
static inline int cddpi_left_ms(int64_t deadline_ns)
{
    int64_t left = deadline_ns - cddpi_now_ns();

    if (left <= 0) {
        return 0;
    }
    left = (left + 999999) / 1000000;
    return left > 2000000000 ? 2000000000 : (int)left;
}

#endif
