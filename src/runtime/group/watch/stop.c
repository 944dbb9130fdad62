/* stop.c - owns the handlers of the signals that request a process to end: the first is a request,
 * a second one has its default effect; and the ranks' common answer to whether one of them got such
 * a request. */
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/watch/dump.h"

#include <cddp/exchange.h>
#include <cddp/process.h>

#include <signal.h>
#include <string.h>

/* because timeout(1) and service managers send two signals for one request */
#define SAME_REQUEST_NS (INT64_C(200) * 1000000)

static _Atomic bool is_requested;
/* When each sender first sent a signal that asks for the end; 0: not yet. Signals of two senders
 * are no second request: a user may ask a rank to leave while cddp-run asks all ranks to save,
 * since members change. */
static _Atomic int64_t signalled_ns[CDDPI_SENDERS];

/* Between two generations, and whether others than the launcher sent such a signal meanwhile. */
static _Atomic bool is_held;
static _Atomic bool is_asked_by_others;

static void ask_to_stop(int number, siginfo_t *info, void *context)
{
    enum cddpi_sender sender = cddpi_launcher_sender(info);
    int64_t first_ns = 0;

    (void)context;
    if (atomic_load(&is_held)) {
        if (sender == CDDPI_SENT_BY_OTHERS) {
            atomic_store(&is_asked_by_others, true);
        }
        return;
    }
    cddp_stop_request();
    if (sender != CDDPI_SENT_BY_LAUNCHER && (number == SIGTERM || number == SIGUSR1)) {
        cddpi_launcher_report_leaves(sender);
    }
    if (number == SIGUSR1) {
        cddpi_dump_request();
    }
    /* SIGUSR1 and SIGUSR2 only announce a time limit. SIGHUP never counts as a second request: when
     * a terminal closes, the kernel and the shell both send one. Nor does what the parent of a rank
     * passes on, by whomever it was sent: cddp-run kills ranks itself. */
    if (number != SIGUSR1 && number != SIGUSR2 &&
        !atomic_compare_exchange_strong(&signalled_ns[sender], &first_ns, cddpi_now_ns()) &&
        sender != CDDPI_SENT_BY_PARENT && number != SIGHUP &&
        cddpi_now_ns() - first_ns >= SAME_REQUEST_NS) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* takes effect after the handler has returned */
    }
}

/* Whether a handler that returns can be set for the signal. */
static bool can_be_handled(int number)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction before;

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (number == faults[i]) {
            return false;
        }
    }
    return number != SIGKILL && number != SIGSTOP && sigaction(number, NULL, &before) == 0;
}

cddp_status cddp_stop_on_signals(const int *signals, size_t count)
{
    /* What a terminal, a service manager or a batch system sends. SIGHUP comes from a terminal that
     * is closed, SIGQUIT from Ctrl-\. */
    static const int usual[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    /* Kernels that oneDNN generates keep data further below the stack pointer than the 128 bytes
     * that signal delivery preserves (the red zone), so a handler on the same stack would overwrite
     * that data. Linux prefers this thread, the first one, for signals that are sent to the
     * process. */
    static char own_stack[64 * 1024];
    stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    struct sigaction action = {.sa_sigaction = ask_to_stop,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};

    if (signals == NULL && count == 0) {
        signals = usual;
        count = sizeof usual / sizeof usual[0];
    }
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < count; i++) {
        if (signals == NULL || !can_be_handled(signals[i])) {
            return signals == NULL
                       ? cddpi_fail(CDDP_ERR_ARGUMENT, "stop_on_signals: signals is NULL")
                       : cddpi_fail(CDDP_ERR_ARGUMENT,
                                    "stop_on_signals: signal %d cannot be a request to stop",
                                    signals[i]);
        }
        sigaddset(&action.sa_mask, signals[i]); /* handle one signal at a time */
    }
    if (sigismember(&action.sa_mask, SIGUSR1)) {
        cddpi_dump_expect_requests();
    }
    cddpi_launcher_report_open();
    (void)sigaltstack(&stack, NULL);
    for (size_t i = 0; i < count; i++) {
        struct sigaction before;

        /* respect ignored signals: nohup(1) ignores SIGHUP, and a shell ignores SIGQUIT for
         * background processes */
        if ((signals[i] == SIGHUP || signals[i] == SIGQUIT) &&
            sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) {
            continue;
        }
        (void)sigaction(signals[i], &action, NULL);
    }
    return CDDP_OK;
}

void cddp_stop_request(void)
{
    if (!atomic_exchange(&is_requested, true)) {
        cddpi_launcher_report_begin();
    }
}

void cddpi_stop_hold(void)
{
    atomic_store(&is_asked_by_others, false);
    atomic_store(&is_held, true);
}

void cddpi_stop_release(bool is_next)
{
    /* before signals count again, so that one of the next generation is no second one */
    for (int i = 0; i < CDDPI_SENDERS; i++) {
        atomic_store(&signalled_ns[i], 0);
    }
    atomic_store(&is_requested, false);
    atomic_store(&is_held, false);
    if (atomic_load(&is_asked_by_others)) {
        cddp_stop_request();
        if (is_next) {
            cddpi_launcher_report_leaves(CDDPI_SENT_BY_OTHERS);
        }
    }
}

bool cddp_stop_requested(void)
{
    return atomic_load(&is_requested);
}

cddp_status cddp_group_should_stop(cddp_group *group, bool *out_stop)
{
    uint8_t asked = cddp_stop_requested();

    CDDPI_ENTER_GROUP(group, "group_should_stop");
    if (out_stop == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group_should_stop: out is NULL");
    }
    CDDPI_TRY(cddp_all_reduce(group, &asked, &asked, 1, CDDP_U8, CDDP_OP_MAX, NULL));
    *out_stop = asked != 0;
    return CDDP_OK;
}
