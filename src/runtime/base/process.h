/* process.h - this process's number, and what the system knows about other processes of this
 * machine. Any thread. */
#ifndef CDDPI_BASE_PROCESS_H
#define CDDPI_BASE_PROCESS_H

#include <cddp/status.h>

#include <stdbool.h>

/** As getpid(), without a call of the system; right in a fork, too. */
int cddpi_process_id(void);

/** When this process started, in the system's ticks: with its number that names it, since a later
 *  process may get the same number. 0: /proc is not there. */
uint64_t cddpi_process_start_time(void);

/** Whether the process @p pid that started at @p start_time is there and has not ended (a dead one
 *  that nobody has reaped has). */
bool cddpi_process_is_alive(int pid, uint64_t start_time);

/** Whether @p pid is stopped, by a signal or a debugger. False: also if there is none. */
bool cddpi_process_is_stopped(int pid);

/** Whether /proc is there: without it no process knows of others.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE: the text says so. */
CDDP_CHECKED cddp_status cddpi_process_check_proc(void);

/** Memory without a name for other processes of this user, of @p bytes bytes for good: who maps it
 *  meets no end of it. @p name is what /proc shows.
 *  @param out_fd  The caller's, closed on exec.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_process_share(const char *name, size_t bytes, int *out_fd);

/** Open what process @p pid, which started at @p start_time, has shared so as its file @p fd. What
 *  else that may be is not opened: the numbers came from others.
 *  @param bytes   It has at least so many.
 *  @param out_fd  The caller's, closed on exec.
 *  @return CDDP_OK, CDDP_ERR_PEER (it is gone), CDDP_ERR_UNAVAILABLE. */
cddp_status cddpi_process_open_fd(int pid, uint64_t start_time, int fd, size_t bytes, int *out_fd);

#endif
