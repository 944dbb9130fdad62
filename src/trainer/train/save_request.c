/* save_request.c - owns the handler of the signal that asks for a checkpoint. */
#include "train/save_request.h"

#include "base/launcher_report.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_bool is_requested;

static void note_request(int number)
{
    (void)number;
    atomic_store(&is_requested, true);
}

void cddpi_save_request_expect(void)
{
    /* on a stack of its own, for the reason that cddp_stop_on_signals() has */
    static char own_stack[64 * 1024];
    stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    struct sigaction action = {.sa_handler = note_request, .sa_flags = SA_RESTART | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    (void)sigaltstack(&stack, NULL);
    (void)sigaction(CDDPI_SAVE_SIGNAL, &action, NULL);
}

bool cddpi_save_request_take(void)
{
    return atomic_exchange(&is_requested, false);
}

bool cddpi_save_request_is_there(void)
{
    return atomic_load(&is_requested);
}
