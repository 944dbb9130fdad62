/* monitor.h - two processes that watch each other. The process that the user started (the monitor)
 * passes signals on and waits; its child (the supervisor) supervises the ranks. If either is
 * killed, the other ends all remaining processes, including those whose parents are gone: as a
 * "child subreaper" it becomes the parent of such orphans. */
#ifndef CDDPI_LAUNCHER_MONITOR_H
#define CDDPI_LAUNCHER_MONITOR_H

#include <cddp/status.h>

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

struct cddpi_held_ranks;

/** The exit status that a shell shows for @p status of waitpid(): 128 + N after signal N. */
static inline int cddpi_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/** Kill and reap all children but those that are held, including processes that become our children
 *  meanwhile, within @p timeout_ms. @p held may be NULL. A signal in @p hurry (all of them are
 * blocked) shortens the time left to at most one second and sets *out_signal, which otherwise keeps
 * its value. Returns whether no other child is left. Nothing else may wait for children at the same
 * time. */
bool cddpi_reaper_kill_all(unsigned timeout_ms, const struct cddpi_held_ranks *held,
                           const sigset_t *hurry, int *out_signal);

/* What the supervisor needs from its start. */
struct cddpi_monitor {
    int lifeline;       /* at end of file once the monitor has died */
    sigset_t blocked;   /* signals that the supervisor must receive through a signalfd */
    sigset_t ending;    /* the subset of `blocked` that asks the job to end */
    sigset_t inherited; /* the signal mask for ranks */
};

/** Fork. The monitor does not return; it exits with the supervisor's status. The supervisor runs @p
 *  body and exits with its result. It has its own session, so that a terminal's signals reach it
 *  once, through the monitor. */
int cddpi_monitor_run(int (*body)(const struct cddpi_monitor *monitor, void *argument),
                      void *argument);

struct cddpi_output;

struct cddpi_wait {
    const struct cddpi_monitor *monitor;
    int signal_fd;
    int head_fd;      /* end of file when the cddp-run that started this one is gone; -1: none */
    int64_t began_ns; /* start of the whole wait, for messages */
    int number;       /* the signal that asked the job to end; 0: none */
    int announced;    /* SIGUSR1, by which schedulers announce an end; 0: it has not come */
    bool is_over;     /* the job has to end */
    struct cddpi_output *output; /* for messages meanwhile */
};

/** Wait until @p fd (-1: none) is readable, @p milliseconds have passed or the job has to end.
 *  Returns false if the job has to end. */
bool cddpi_wait_for(struct cddpi_wait *wait, int fd, int milliseconds);
/** The same for two descriptors. */
bool cddpi_wait_for_two(struct cddpi_wait *wait, int fd, int other, int milliseconds);

/** Fail with a message that says why the job has to end. */
cddp_status cddpi_wait_fail(const struct cddpi_wait *wait);

/** Discard what has arrived on @p head_fd. Returns true at end of file. */
bool cddpi_head_is_gone(int head_fd);

#endif
