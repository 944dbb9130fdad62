/* guard.c - owns the process that the user started, and the fork of the one that supervises. */
#include "guard.h"

#include "descendants.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_TIMEOUT_MS = 30000 };

static const int forwarded[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

/* Block what is forwarded, but for what was ignored before us (as nohup does with SIGHUP). */
static void block_signals(struct cddpi_guard *guard)
{
    sigemptyset(&guard->blocked);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        struct sigaction action;

        if (sigaction(forwarded[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&guard->blocked, forwarded[i]);
        }
    }
    sigaddset(&guard->blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &guard->blocked, &guard->inherited);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would let statuses of children vanish */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* `stty tostop` must not stop the supervisor when it writes */
}

/* The supervisor's wait status, passing signals on until it is there. */
static int watch(pid_t supervisor, const sigset_t *signals)
{
    int status;

    for (;;) {
        pid_t pid;
        int number;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid == supervisor) {
                return status;
            }
        }
        number = sigwaitinfo(signals, NULL);
        if (number > 0 && number != SIGCHLD) {
            kill(supervisor, number);
        }
        if (number == SIGTSTP) {
            raise(SIGSTOP);
        }
    }
}

static void __attribute__((noreturn)) be_guard(pid_t supervisor, const struct cddpi_guard *guard)
{
    int status = watch(supervisor, &guard->blocked);

    if (WIFSIGNALED(status)) {
        fprintf(stderr, "cddp-run: the supervisor (pid %d) was killed by signal %d: ending all\n",
                (int)supervisor, WTERMSIG(status));
    }
    if (!cddpi_descendants_kill(KILL_TIMEOUT_MS)) {
        fprintf(stderr, "cddp-run: some processes of the job cannot be killed\n");
    }
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

int cddpi_guard_run(int (*body)(const struct cddpi_guard *guard, void *argument), void *argument)
{
    struct cddpi_guard guard;
    int lifeline[2];
    pid_t supervisor;

    if (pipe2(lifeline, O_CLOEXEC) != 0) {
        fprintf(stderr, "cddp-run: making a pipe: %s\n", strerror(errno));
        return 1;
    }
    block_signals(&guard);
    cddpi_descendants_adopt();
    fflush(NULL);
    supervisor = fork();
    if (supervisor < 0) {
        fprintf(stderr, "cddp-run: starting the supervisor: %s\n", strerror(errno));
        return 1;
    }
    if (supervisor > 0) {
        close(lifeline[0]);
        be_guard(supervisor, &guard); /* keeps lifeline[1] until it dies */
    }
    close(lifeline[1]);
    guard.lifeline = lifeline[0];
    /* A supervisor that is stopped could not see the lifeline end: the kernel continues it. */
    (void)prctl(PR_SET_PDEATHSIG, SIGCONT);
    setsid();
    cddpi_descendants_adopt();
    prctl(PR_SET_NAME, "cddp-supervise"); /* so that `killall -9 cddp-run` leaves it to clean up */
    return body(&guard, argument);
}
