/* child.c - ends forked processes when their parent ends or a deadline passes. */
#include "base/child.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Runs after a fork of a multi-threaded process, so it calls only async-signal-safe functions. */
static void say_refused(int error_number)
{
    static const char begin[] = "cddp: prctl(PR_SET_PDEATHSIG): ";
    static const char end[] =
        ": a process that may outlive its parent is not started (does a seccomp "
        "filter refuse prctl?)\n";
    const char *why = strerrordesc_np(error_number);

    (void)!write(STDERR_FILENO, begin, sizeof begin - 1);
    if (why != NULL) {
        (void)!write(STDERR_FILENO, why, strlen(why));
    }
    (void)!write(STDERR_FILENO, end, sizeof end - 1);
}

bool cddpi_child_begin(pid_t parent, unsigned seconds)
{
    sigset_t alarms;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        say_refused(errno);
        return false;
    }
    /* If the parent died before prctl(), no signal would ever come. */
    if (getppid() != parent) {
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
