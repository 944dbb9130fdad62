/* monitor.c - owns the process that the user started, the fork of the supervisor, and the end of
 * every process that descends from us. */
#include "launcher/supervise/monitor.h"

#include "launcher/supervise/held_ranks.h"
#include "launcher/supervise/job_state.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HURRY_MS = 1000 };

/* The parent of process @p name (digits), or 0 if it is gone. */
static pid_t parent_of(const char *name)
{
    char path[300];
    char text[512];
    const char *after_name;
    int parent = 0;
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "/proc/%s/stat", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    after_name = strrchr(text, ')'); /* the process's name may contain anything, even ")" */
    if (after_name == NULL || sscanf(after_name, ") %*c %d", &parent) != 1) {
        return 0;
    }
    return parent;
}

/* Send SIGKILL to each of our children but @p held. It cannot hit an unrelated process: a child's
 * pid is not reused before we reap the child. Returns whether there was one. An orphan becomes our
 * child before we reap its parent: so each scan sees the orphan, or its parent.
 */
static bool kill_children(const struct cddpi_held_ranks *held)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    pid_t self = getpid();
    bool is_any = processes == NULL;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        pid_t pid = (pid_t)atol(entry->d_name);

        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == self &&
            !cddpi_held_has(held, pid)) {
            kill(pid, SIGKILL);
            is_any = true;
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
    return is_any;
}

bool cddpi_reaper_kill_all(unsigned timeout_ms, const struct cddpi_held_ranks *held,
                           const sigset_t *hurry, int *out_signal)
{
    int64_t deadline = cddpi_deadline_ns(timeout_ms);
    struct timespec pause = {0, 1000000};

    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        int number;

        if (pid < 0 && errno == ECHILD) {
            return true;
        }
        if (pid > 0 || (pid < 0 && errno == EINTR)) {
            continue;
        }
        if (!kill_children(held) && held != NULL) {
            return true;
        }
        if (cddpi_left_ms(deadline) == 0) {
            return false;
        }
        number = sigtimedwait(hurry, NULL, &pause);
        if (number > 0) {
            int64_t soon = cddpi_deadline_ns(HURRY_MS);

            *out_signal = number;
            deadline = soon < deadline ? soon : deadline;
        }
    }
}

enum {
    KILL_TIMEOUT_MS = 30000,
    ANSWER_NS =
        1000000000,     /* time for the supervisor to react, or to end after the third request */
    KILL_AT_REQUEST = 3 /* the first request asks the ranks to end, the second kills them */
};

/* The first four ask the job to end. */
static const int forwarded[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
enum { ENDING = 4 };

/* Block the forwarded signals, except those that were already ignored (nohup ignores SIGHUP). */
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
    signal(SIGCHLD, SIG_DFL); /* if it were ignored, exit statuses of children would be lost */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* writing to a log that may not grow then fails with an error */
    signal(SIGTTOU, SIG_IGN); /* `stty tostop` must not stop the supervisor when it writes */
}

/* Requests to end the job, and what follows from them. Times are INT64_MAX while unset. */
struct stop_requests {
    int count;
    int64_t last_ns;
    int64_t wake_ns; /* when to send SIGCONT to the supervisor, which may be stopped */
    int64_t kill_ns; /* when to kill the supervisor */
};

/* Count a request to end. A supervisor that hangs must not keep the job alive, so it is killed
 * after several requests. */
static void count_request(struct stop_requests *stop_requests, int number)
{
    int64_t now_ns = cddpi_now_ns();

    stop_requests->wake_ns = now_ns + ANSWER_NS;
    /* closing a terminal sends several SIGHUPs */
    if (number == SIGHUP ||
        now_ns - stop_requests->last_ns < CDDPI_SAME_REQUEST_MS * INT64_C(1000000)) {
        return;
    }
    stop_requests->last_ns = now_ns;
    if (++stop_requests->count == KILL_AT_REQUEST) {
        stop_requests->kill_ns = now_ns + ANSWER_NS;
    }
}

/* Do what is due. Returns when the next action is due, or INT64_MAX. */
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

/* Wait for the next of @p signals. Returns 0 at @p deadline_ns. */
static int next_signal(const sigset_t *signals, int64_t deadline_ns)
{
    int left_ms = deadline_ns < INT64_MAX ? cddpi_left_ms(deadline_ns) : 0;
    struct timespec left = {left_ms / 1000, left_ms % 1000 * 1000000L};
    int number = deadline_ns < INT64_MAX ? sigtimedwait(signals, NULL, &left)
                                         : sigwaitinfo(signals, NULL);

    return number > 0 ? number : 0;
}

/* Pass signals on until the supervisor has ended. Returns its wait status. */
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
    const struct timespec none = {0, 0};
    int status = watch_supervisor(supervisor, monitor);
    int number = 0;
    bool all_ended = cddpi_reaper_kill_all(KILL_TIMEOUT_MS, NULL, &monitor->ending, &number);

    /* only messages are left to write; if nobody reads them, a signal may end us, but not one that
     * has come before */
    while (sigtimedwait(&monitor->blocked, NULL, &none) > 0) {
    }
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
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    supervisor = fork();
    if (supervisor < 0) {
        (void)cddpi_child_fail(errno, "the supervisor");
        fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
        return 1;
    }
    if (supervisor > 0) {
        close(lifeline[0]);
        run_monitor(supervisor, &monitor); /* does not return; keeps lifeline[1] open until the
                                              monitor dies */
    }
    close(lifeline[1]);
    monitor.lifeline = lifeline[0];
    /* A stopped supervisor could not see the lifeline's end, so the kernel sends it SIGCONT. */
    (void)prctl(PR_SET_PDEATHSIG, SIGCONT);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "cddp-supervise"); /* so that `killall -9 cddp-run` spares the supervisor */
    return body(&monitor, argument);
}

bool cddpi_head_is_gone(int head_fd)
{
    char bytes[512];
    ssize_t got = read(head_fd, bytes, sizeof bytes);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void take_signal(struct cddpi_wait *wait)
{
    struct signalfd_siginfo got;

    if (read(wait->signal_fd, &got, sizeof got) != (ssize_t)sizeof got) {
        return;
    }
    if (sigismember(&wait->monitor->ending, (int)got.ssi_signo) == 1) {
        wait->number = (int)got.ssi_signo;
        wait->is_over = true;
    } else if (got.ssi_signo == SIGUSR1) {
        wait->announced = SIGUSR1;
    }
}

bool cddpi_wait_for(struct cddpi_wait *wait, int fd, int milliseconds)
{
    return cddpi_wait_for_two(wait, fd, -1, milliseconds);
}

bool cddpi_wait_for_two(struct cddpi_wait *wait, int fd, int other, int milliseconds)
{
    int64_t deadline_ns = cddpi_deadline_ns((uint32_t)milliseconds);

    while (!wait->is_over) {
        struct pollfd events[] = {{wait->signal_fd, POLLIN, 0},
                                  {wait->monitor->lifeline, POLLIN, 0},
                                  {wait->head_fd, POLLIN, 0},
                                  {fd, POLLIN, 0},
                                  {other, POLLIN, 0}};
        int ready = poll(events, 5, cddpi_left_ms(deadline_ns));

        if (ready > 0 && events[0].revents != 0) {
            take_signal(wait);
        }
        if (ready > 0 && (events[1].revents != 0 ||
                          (events[2].revents != 0 && cddpi_head_is_gone(wait->head_fd)))) {
            wait->is_over = true;
        }
        if ((ready > 0 && (events[3].revents != 0 || events[4].revents != 0)) ||
            cddpi_left_ms(deadline_ns) == 0) {
            break;
        }
    }
    return !wait->is_over;
}

cddp_status cddpi_wait_fail(const struct cddpi_wait *wait)
{
    const char *name = wait->number != 0 ? sigabbrev_np(wait->number) : NULL;
    double seconds = (double)(cddpi_now_ns() - wait->began_ns) / 1e9;

    return name != NULL
               ? cddpi_fail(CDDP_ERR_STATE, "SIG%s ended the waiting after %.0f s", name, seconds)
               : cddpi_fail(CDDP_ERR_STATE, "the cddp-run that this one belongs to is gone");
}
