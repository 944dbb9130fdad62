/* ctl_socket.h - the socket in a run folder by which cddp-ctl reaches the job's cddp-run. Only its
 * owner can use it (mode 0600). */
#ifndef CDDPI_LAUNCHER_CTL_SOCKET_H
#define CDDPI_LAUNCHER_CTL_SOCKET_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define CDDPI_CTL_SOCKET "ctl.sock"

/* A socket that listens. */
struct cddpi_ctl_socket {
    int fd;     /* -1: none; non-blocking */
    int folder; /* -1: none */
    /* Of the socket's file. A file system gives the number of a file that is removed to the next
     * one, so the time belongs to its name. */
    dev_t device;
    ino_t inode;
    struct timespec made;
};

/** Listen in the folder @p dir. What a killed cddp-run has left there is replaced.
 *  @param is_locked  No other job can be in this folder, so any socket there is replaced.
 *  @param out        Set only on success; close with cddpi_ctl_socket_close().
 *  @return CDDP_ERR_STATE: another cddp-run listens there, or the name is used by another kind of
 *          file; CDDP_ERR_IO. */
CDDP_CHECKED cddp_status cddpi_ctl_socket_listen(const char *dir, bool is_locked,
                                                 struct cddpi_ctl_socket *out);

/** Close, and remove the socket's file unless another cddp-run has replaced it. */
void cddpi_ctl_socket_close(struct cddpi_ctl_socket *socket);

/** Whether the socket's file is still in the folder that is called @p dir. */
bool cddpi_ctl_socket_is_in(const struct cddpi_ctl_socket *socket, const char *dir);

/** Connect to the cddp-run of the job in the folder @p dir. The socket blocks, and each call fails
 *  after @p timeout_ms.
 *  @return CDDP_ERR_NOT_FOUND: no job runs there; CDDP_ERR_IO. */
CDDP_CHECKED cddp_status cddpi_ctl_socket_connect(const char *dir, uint32_t timeout_ms,
                                                  int *out_fd);

/** Whether the process at the other end of @p fd belongs to this user or to root. */
bool cddpi_ctl_socket_is_own(int fd);

#endif
