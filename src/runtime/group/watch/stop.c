/* stop.c - owns the handlers of the signals that request a process to end: the first is a request,
 * a second one has its default effect; and the ranks' common answer to whether one of them got such
 * a request. */
#include "group/watch/stop.h"

#include "base/error.h"
#include "base/launcher_report.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/watch/dump.h"

#include <cddp/exchange.h>
#include <cddp/process.h>

#include <signal.h>
#include <time.h>

/* The signals that a terminal, a service manager, a batch system or a user sends. SIGHUP comes from
 * a terminal that is closed, SIGQUIT from Ctrl-\. Slurm sends SIGUSR1 before the time limit; it
 * also requests dumps of the ranks' most recent operations (group/watch/dump.h). */
static const int asking[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1};

enum {
    SAME_REQUEST_MS = 200
}; /* because timeout(1) and service managers send two signals for one request */

static volatile sig_atomic_t requested; /* only the handler sets it */
static struct timespec requested_at;    /* only the handler uses it */

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
     * both send one. SIGUSR1 only announces the time limit. */
    if (number != SIGHUP && number != SIGUSR1 && !is_same_request()) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* takes effect after the handler has returned */
    }
}

void cddp_stop_on_signals(void)
{
    /* Kernels that oneDNN generates keep data further below the stack pointer than the 128 bytes
     * that signal delivery preserves (the red zone), so a handler on the same stack would overwrite
     * that data. Linux prefers this thread, the first one, for signals that are sent to the
     * process. */
    static char own_stack[64 * 1024];
    stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART | SA_ONSTACK};

    cddpi_dump_expect_requests();
    (void)sigaltstack(&stack, NULL);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
        sigaddset(&action.sa_mask, asking[i]); /* handle one signal at a time */
    }
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
        struct sigaction before;

        /* respect ignored signals: nohup(1) ignores SIGHUP, and a shell ignores SIGQUIT for
         * background processes */
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

static cddp_status ask_all(cddp_group *group, uint8_t *asked)
{
    CDDPI_ENTER_GROUP(group, "should_stop");
    return cddp_all_reduce(group, asked, asked, 1, CDDP_U8, CDDP_OP_MAX, NULL);
}

cddp_status cddp_should_stop(cddp_group *group, bool *out_stop)
{
    uint8_t asked = cddpi_stop_requested();

    if (out_stop == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "should_stop: out is NULL");
    }
    if (group != NULL) {
        CDDPI_TRY(ask_all(group, &asked));
    }
    *out_stop = asked != 0;
    return CDDP_OK;
}
