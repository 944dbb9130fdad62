/* child.h - child processes that do not outlive their parent, nor a deadline. */
#ifndef CDDPI_BASE_CHILD_H
#define CDDPI_BASE_CHILD_H

#include <cddp/status.h>

#include <stdbool.h>
#include <sys/types.h>

/** In the child, before anything else: let it be killed when the thread that forked it ends, and,
 * unless @p seconds is 0, by SIGALRM after so many seconds, even across exec. @p parent is the
 * parent's process id. False if the parent has died already: then nobody waits for the child. Safe
 * after a fork of a process with threads. */
bool cddpi_child_begin(pid_t parent, unsigned seconds);

/** In the parent: fork() failed with @p error_number; @p what names the process. The text says what
 * may be exhausted. */
cddp_status cddpi_child_fail(int error_number, const char *what);

#endif
