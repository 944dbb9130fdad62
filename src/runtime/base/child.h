/* child.h - child processes that outlive neither their parent nor a deadline. */
#ifndef CDDPI_BASE_CHILD_H
#define CDDPI_BASE_CHILD_H

#include <cddp/status.h>

#include <stdbool.h>
#include <sys/types.h>

/** Call this first in the child. The kernel then kills the child when the thread that forked it
 *  ends. Unless @p seconds is 0, SIGALRM also ends the child after that many seconds, even across
 *  exec. @p parent is the parent's process id. False: the parent has already died, so nobody waits
 *  for the child, or prctl() was refused. Safe after a fork of a multi-threaded process. */
bool cddpi_child_begin(pid_t parent, unsigned seconds);

/** In the parent: report that fork() failed with @p error_number. @p what names the process. The
 *  text says which resource may be exhausted. */
cddp_status cddpi_child_fail(int error_number, const char *what);

#endif
