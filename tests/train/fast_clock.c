/* fast_clock.c - loaded before the C library (LD_PRELOAD): the monotonic clock runs thirty times as
 * fast, so that a wait of minutes takes seconds. Sleeps take as long as ever. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, clock, out);

    if (result == 0 && clock == CLOCK_MONOTONIC) {
        long long ns = 30LL * out->tv_nsec;

        out->tv_sec = 30 * out->tv_sec + ns / 1000000000;
        out->tv_nsec = ns % 1000000000;
    }
    return result;
}
