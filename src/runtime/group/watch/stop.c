/* stop.c - owns the handlers of the signals that ask a process to end: the first asks, a second one
 * has its usual effect. */
#include "group/watch/stop.h"

#include "base/launcher_report.h"
#include "group/watch/dump.h"

#include <cddp/process.h>

#include <signal.h>
#include <time.h>

/* What a terminal, a service manager, a batch system or a user sends. SIGHUP and SIGQUIT come from
 * a terminal that is closed, or from Ctrl-\; SIGUSR1 from Slurm before the time limit; it
 * also lets all that the ranks did last be written (group/watch/dump.h). */
static const int asking[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1};

enum {
    SAME_REQUEST_MS = 200
}; /* timeout(1) and service managers send two signals for one request */

static volatile sig_atomic_t requested; /* set by the handler alone */
static struct timespec requested_at;    /* the handler's own */

static bool is_same_request(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - requested_at.tv_sec) * 1000 +
               (now.tv_nsec - requested_at.tv_nsec) / 1000000 <
           SAME_REQUEST_MS;
}

static void ask_to_stop(int number)
{
    if (number == SIGUSR1) {
        cddpi_dump_request();
    }
    if (requested == 0) {
        clock_gettime(CLOCK_MONOTONIC, &requested_at);
        requested = 1;
        cddpi_launcher_report_begin();
        return;
    }
    /* SIGHUP never counts as a second request: when a terminal closes, the kernel and the shell
     * send one each. SIGUSR1 only says that time runs out. */
    if (number != SIGHUP && number != SIGUSR1 && !is_same_request()) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* once the handler has returned */
    }
}

void cddp_stop_on_signals(void)
{
    /* Kernels that oneDNN generates keep data further below the stack pointer than the 128 bytes
     * that a signal leaves alone: a handler on the same stack would overwrite them. The kernel
     * prefers this thread, the first one, for signals that are sent to the process. */
    static char own_stack[64 * 1024];
    stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART | SA_ONSTACK};

    cddpi_dump_expect_requests();
    (void)sigaltstack(&stack, NULL);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
        sigaddset(&action.sa_mask, asking[i]); /* one at a time */
    }
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
        struct sigaction before;

        /* nohup(1) ignores SIGHUP, and a shell SIGQUIT of what it starts in the background */
        if ((asking[i] == SIGHUP || asking[i] == SIGQUIT) &&
            sigaction(asking[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) {
            continue;
        }
        (void)sigaction(asking[i], &action, NULL);
    }
}

bool cddpi_stop_requested(void)
{
    return requested != 0;
}
