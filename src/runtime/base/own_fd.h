/* own_fd.h - file descriptors that forked children do not inherit. A connection then ends with the
 * process, even if a child of it is still running. Any thread.
 *
 * In a child of fork() each such descriptor is replaced by a socket that is connected to nothing.
 * The number stays in use until the child closes it, so that this close cannot hit a file that the
 * child opened later. Exceptions: a child of clone() or vfork() keeps the descriptors until it
 * calls exec, since all of them are close-on-exec. The same is true for a child that another thread
 * forks between the call that opens a descriptor and cddpi_own_fd(). */
#ifndef CDDPI_BASE_OWN_FD_H
#define CDDPI_BASE_OWN_FD_H

/** Keep @p fd, just opened, from children. Returns @p fd. A negative @p fd is ignored. */
int cddpi_own_fd(int fd);

/** Close @p fd. Accepts a negative one, and one that cddpi_own_fd() has not seen. */
void cddpi_own_fd_close(int fd);

#endif
