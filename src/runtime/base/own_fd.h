/* own_fd.h - file descriptors that are this process's alone: a child that it forks gets none of
 * them. So a connection ends with the process, though a child of it lives on. Any thread.
 *
 * In a child of fork() each is replaced by a socket that leads nowhere: the number stays taken
 * until the child closes it, so whatever else the child opens is safe from that. (A child of
 * clone() or vfork() keeps what it has until it runs another program: all of them are closed on
 * exec. So does one that another thread forks between the call that opens a descriptor and
 * cddpi_own_fd().) */
#ifndef CDDPI_BASE_OWN_FD_H
#define CDDPI_BASE_OWN_FD_H

/** Keep @p fd, just opened, from children. Returns it; a negative one means nothing. */
int cddpi_own_fd(int fd);

/** Close @p fd, which may also be none (negative), or one that cddpi_own_fd() has not seen. */
void cddpi_own_fd_close(int fd);

#endif
