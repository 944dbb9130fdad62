/* monitor.c - owns the process that the user started, and the fork of the one that supervises. */
#include "launcher/supervise/monitor.h"

#include "launcher/supervise/reaper.h"

#include "base/child.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KILL_TIMEOUT_MS = 30000,
    SAME_REQUEST_NS = 200000000, /* as the supervisor has it */
    ANSWER_NS =
        1000000000,     /* what the supervisor has to wake up, or to end after the third request */
    KILL_AT_REQUEST = 3 /* the first request asks the ranks to end, the second kills them */
};

/* The first four ask the job to end. */
static const int forwarded[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
enum { ENDING = 4 };

/* Block what is forwarded, but for what was ignored before us (as nohup does with SIGHUP). */
static void block_signals(struct cddpi_monitor *monitor)
{
    sigemptyset(&monitor->blocked);
    sigemptyset(&monitor->ending);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        struct sigaction action;

        if (sigaction(forwarded[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&monitor->blocked, forwarded[i]);
            if (i < ENDING) {
                sigaddset(&monitor->ending, forwarded[i]);
            }
        }
    }
    sigaddset(&monitor->blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &monitor->blocked, &monitor->inherited);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would let statuses of children vanish */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow is one that cannot be written */
    signal(SIGTTOU, SIG_IGN); /* `stty tostop` must not stop the supervisor when it writes */
}

/* What follows when we are asked to end the job; times are INT64_MAX while they are not set. */
struct stop_requests {
    int count;
    int64_t last_ns;
    int64_t wake_ns; /* when the supervisor is continued: one that is stopped could not hear it */
    int64_t kill_ns; /* when it is killed */
};

/* A supervisor that hangs must not keep the job alive: it is killed after several requests. */
static void count_request(struct stop_requests *stop_requests, int number)
{
    int64_t now_ns = cddpi_now_ns();

    stop_requests->wake_ns = now_ns + ANSWER_NS;
    /* of SIGHUP there are several when a terminal is closed */
    if (number == SIGHUP || now_ns - stop_requests->last_ns < SAME_REQUEST_NS) {
        return;
    }
    stop_requests->last_ns = now_ns;
    if (++stop_requests->count == KILL_AT_REQUEST) {
        stop_requests->kill_ns = now_ns + ANSWER_NS;
    }
}

/* Do what is due. Returns when the next is, or INT64_MAX. */
static int64_t run_due_actions(struct stop_requests *stop_requests, pid_t supervisor)
{
    int64_t now_ns = cddpi_now_ns();

    if (now_ns >= stop_requests->wake_ns) {
        stop_requests->wake_ns = INT64_MAX;
        kill(supervisor, SIGCONT);
    }
    if (now_ns >= stop_requests->kill_ns) {
        stop_requests->kill_ns = INT64_MAX;
        kill(supervisor, SIGKILL);
    }
    return stop_requests->wake_ns < stop_requests->kill_ns ? stop_requests->wake_ns
                                                           : stop_requests->kill_ns;
}

/* The next of @p signals, or 0 at @p deadline_ns. */
static int next_signal(const sigset_t *signals, int64_t deadline_ns)
{
    int left_ms = deadline_ns < INT64_MAX ? cddpi_left_ms(deadline_ns) : 0;
    struct timespec left = {left_ms / 1000, left_ms % 1000 * 1000000L};
    int number = deadline_ns < INT64_MAX ? sigtimedwait(signals, NULL, &left)
                                         : sigwaitinfo(signals, NULL);

    return number > 0 ? number : 0;
}

/* The supervisor's wait status, passing signals on until it is there. */
static int watch_supervisor(pid_t supervisor, const struct cddpi_monitor *monitor)
{
    struct stop_requests stop_requests = {.wake_ns = INT64_MAX, .kill_ns = INT64_MAX};
    int status;

    for (;;) {
        pid_t pid;
        int number;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid == supervisor) {
                return status;
            }
        }
        number = next_signal(&monitor->blocked, run_due_actions(&stop_requests, supervisor));
        if (number > 0 && number != SIGCHLD) {
            kill(supervisor, number);
        }
        if (sigismember(&monitor->ending, number) == 1) {
            count_request(&stop_requests, number);
        } else if (number == SIGTSTP) {
            raise(SIGSTOP);
        }
    }
}

static void __attribute__((noreturn))
run_monitor(pid_t supervisor, const struct cddpi_monitor *monitor)
{
    int status = watch_supervisor(supervisor, monitor);
    int number = 0;
    bool all_ended = cddpi_reaper_kill_all(KILL_TIMEOUT_MS, &monitor->ending, &number);

    /* only messages are left to write: where nobody reads them, a signal may end us */
    sigprocmask(SIG_SETMASK, &monitor->inherited, NULL);
    if (WIFSIGNALED(status)) {
        fprintf(stderr,
                "cddp-run: the supervisor (pid %d) was killed by signal %d: all processes of the "
                "job were ended\n",
                (int)supervisor, WTERMSIG(status));
    }
    if (!all_ended) {
        fprintf(stderr, "cddp-run: some processes of the job cannot be killed\n");
    }
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

int cddpi_monitor_run(int (*body)(const struct cddpi_monitor *monitor, void *argument),
                      void *argument)
{
    struct cddpi_monitor monitor;
    int lifeline[2];
    pid_t supervisor;

    if (pipe2(lifeline, O_CLOEXEC) != 0) {
        fprintf(stderr, "cddp-run: making a pipe: %s\n", strerror(errno));
        return 1;
    }
    block_signals(&monitor);
    cddpi_reaper_become();
    fflush(NULL);
    supervisor = fork();
    if (supervisor < 0) {
        (void)cddpi_child_fail(errno, "the supervisor");
        fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
        return 1;
    }
    if (supervisor > 0) {
        close(lifeline[0]);
        run_monitor(supervisor, &monitor); /* keeps lifeline[1] until it dies */
    }
    close(lifeline[1]);
    monitor.lifeline = lifeline[0];
    /* A supervisor that is stopped could not see the lifeline end: the kernel continues it. */
    (void)prctl(PR_SET_PDEATHSIG, SIGCONT);
    setsid();
    cddpi_reaper_become();
    prctl(PR_SET_NAME, "cddp-supervise"); /* `killall -9 cddp-run` then spares it */
    return body(&monitor, argument);
}
