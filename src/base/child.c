/* child.c - ties the processes that we fork to our life, and to a deadline. */
#include "base/child.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

bool cddpi_child_begin(pid_t parent, unsigned seconds)
{
    sigset_t alarms;

    /* The parent may have died before this request was made: then no signal would ever come. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        return false;
    }
    if (seconds > 0) {
        sigemptyset(&alarms);
        sigaddset(&alarms, SIGALRM);
        signal(SIGALRM, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &alarms, NULL);
        alarm(seconds);
    }
    return true;
}

cddp_status cddpi_child_fail(int error_number, const char *what)
{
    cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, error_number, "starting %s", what);

    return error_number == EAGAIN
               ? cddpi_fail(status,
                            "%s (too many processes and threads of this user for ulimit -u, "
                            "or of this control group)",
                            cddp_last_error())
               : status;
}
