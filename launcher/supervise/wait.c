/* wait.c - owns waits that end early on a signal, or when the process that started us is gone. */
#include "launcher/supervise/wait.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

bool cddpi_head_is_gone(int head_fd)
{
    char bytes[512];
    ssize_t got = read(head_fd, bytes, sizeof bytes);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void take_signal(struct cddpi_wait *wait)
{
    struct signalfd_siginfo got;

    if (read(wait->signal_fd, &got, sizeof got) == (ssize_t)sizeof got &&
        sigismember(&wait->monitor->ending, (int)got.ssi_signo) == 1) {
        wait->number = (int)got.ssi_signo;
        wait->is_over = true;
    }
}

bool cddpi_wait_for(struct cddpi_wait *wait, int fd, int milliseconds)
{
    int64_t deadline_ns = cddpi_deadline_ns((uint32_t)milliseconds);

    while (!wait->is_over) {
        struct pollfd events[] = {{wait->signal_fd, POLLIN, 0},
                                  {wait->monitor->lifeline, POLLIN, 0},
                                  {wait->head_fd, POLLIN, 0},
                                  {fd, POLLIN, 0}};
        int ready = poll(events, 4, cddpi_left_ms(deadline_ns));

        if (ready > 0 && events[0].revents != 0) {
            take_signal(wait);
        }
        if (ready > 0 && (events[1].revents != 0 ||
                          (events[2].revents != 0 && cddpi_head_is_gone(wait->head_fd)))) {
            wait->is_over = true;
        }
        if ((ready > 0 && events[3].revents != 0) || cddpi_left_ms(deadline_ns) == 0) {
            break;
        }
    }
    return !wait->is_over;
}

cddp_status cddpi_wait_fail(const struct cddpi_wait *wait)
{
    const char *name = wait->number != 0 ? sigabbrev_np(wait->number) : NULL;
    double seconds = (double)(cddpi_now_ns() - wait->began_ns) / 1e9;

    return name != NULL
               ? cddpi_fail(CDDP_ERR_STATE, "SIG%s ended the waiting after %.0f s", name, seconds)
               : cddpi_fail(CDDP_ERR_STATE, "the cddp-run that this one belongs to is gone");
}
