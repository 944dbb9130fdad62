/* process.h - this process's id, and what the system knows about other processes on this machine.
 * Any thread. */
#ifndef CDDPI_BASE_PROCESS_H
#define CDDPI_BASE_PROCESS_H

#include <cddp/status.h>

#include <stdbool.h>

/** Like getpid(), without a system call. Correct in a fork, too. */
int cddpi_process_id(void);

/** When this process started, in clock ticks. The process id and the start time together identify a
 *  process, since ids are reused. 0: /proc is not mounted. */
uint64_t cddpi_process_start_time(void);

/** Whether the process @p pid that started at @p start_time is still running. A zombie is not
 *  running. */
bool cddpi_process_is_alive(int pid, uint64_t start_time);

/** Whether @p pid is stopped by a signal or a debugger. False also if there is no such process. */
bool cddpi_process_is_stopped(int pid);

/** Check that /proc is mounted; without it, processes cannot look at each other.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE: the text says so. */
CDDP_CHECKED cddp_status cddpi_process_check_proc(void);

/** Create an unnamed file in memory (memfd) of @p bytes bytes that other processes of this user can
 *  map. Its size is sealed, so that no mapping can become longer than the file. @p name is what
 *  /proc shows. */
cddp_status cddpi_process_share(const char *name, size_t bytes, int *out_fd);

/** Open memory that process @p pid, which started at @p start_time, created with
 *  cddpi_process_share() as its descriptor @p fd. Any other file with that number is refused,
 *  because the numbers came from another process.
 *  @param bytes   The least size that the memory must have.
 *  @param out_fd  Owned by the caller, close-on-exec.
 *  @return CDDP_OK, CDDP_ERR_PEER (the process is gone), CDDP_ERR_UNAVAILABLE. */
cddp_status cddpi_process_open_fd(int pid, uint64_t start_time, int fd, size_t bytes, int *out_fd);

#endif
