/* child.h - child processes that outlive neither their parent nor a deadline, and file descriptors
 * that forked children do not inherit. A connection on such a descriptor ends with the process,
 * even if a child of it is still running. */
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

/** Keep @p fd, just opened, from children. Returns @p fd. A negative @p fd is ignored. Any thread.
 *
 *  In a child of fork() the descriptor is replaced by a socket that is connected to nothing. The
 *  number stays in use until the child closes it, so that this close cannot hit a file that the
 *  child opened later. Exceptions: a child of clone() or vfork() keeps the descriptor until exec,
 *  since it is close-on-exec. So does a child that another thread forks between the call that opens
 *  the descriptor and this one. */
int cddpi_own_fd(int fd);

/** Close @p fd. Accepts a negative one, and one that cddpi_own_fd() has not seen. Any thread. */
void cddpi_own_fd_close(int fd);

#endif
