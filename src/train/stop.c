/* stop.c - owns the handlers of SIGTERM and SIGINT: the first asks for a stop after the step, the
 * second has its usual effect. */
#include "train/trainer.h"

#include <signal.h>

static volatile sig_atomic_t requested; /* set by the handler alone */

static void ask(int signal_number)
{
    (void)signal_number;
    requested = 1;
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
}

void cddpi_stop_install(void)
{
    /* Kernels that oneDNN generates keep data further below the stack pointer than the 128 bytes
     * that a signal leaves alone: a handler on the same stack would overwrite them. The kernel
     * prefers this thread, the first one, for signals that are sent to the process. */
    static char own_stack[64 * 1024];
    stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART | SA_ONSTACK};

    (void)sigaltstack(&stack, NULL);
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
}

bool cddpi_stop_requested(void)
{
    return requested != 0;
}
