/* reaper.h - ends every process that descends from us, including those whose parents are gone: as a
 * "child subreaper" we become the parent of such orphans. */
#ifndef CDDPI_LAUNCHER_REAPER_H
#define CDDPI_LAUNCHER_REAPER_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

/** The exit status that a shell shows for @p status of waitpid(): 128 + N after signal N. */
static inline int cddpi_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/** Become the parent of orphaned descendants. */
void cddpi_reaper_become(void);

/** Kill and reap all children, including processes that become our children meanwhile, within @p
 *  timeout_ms. A signal in @p hurry (all of them are blocked) shortens the time left to at most one
 *  second and sets *out_signal, which otherwise keeps its value. Returns whether no child is left.
 *  Nothing else may wait for children at the same time. */
bool cddpi_reaper_kill_all(unsigned timeout_ms, const sigset_t *hurry, int *out_signal);

#endif
