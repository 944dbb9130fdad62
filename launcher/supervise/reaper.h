/* reaper.h - the end of every process that came from us, also of those whose parents are gone:
 * the kernel gives them to us, because we asked for it (a "child subreaper"). */
#ifndef CDDPI_LAUNCHER_REAPER_H
#define CDDPI_LAUNCHER_REAPER_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

/** What a shell shows for @p status of waitpid(): 128 + N after signal N. */
static inline int cddpi_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/** Let orphaned descendants become our children. */
void cddpi_reaper_become(void);

/** Kill and reap all children, and those that become ours by that, within @p timeout_ms. After a
 *  signal of @p hurry (these are blocked) it has at most one second left; *out_signal is then its
 *  number, else it stays as it is. Returns whether no child is left. None may be waited for
 *  elsewhere at the same time. */
bool cddpi_reaper_kill_all(unsigned timeout_ms, const sigset_t *hurry, int *out_signal);

#endif
