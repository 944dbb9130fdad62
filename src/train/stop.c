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
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
}

bool cddpi_stop_requested(void)
{
    return requested != 0;
}
