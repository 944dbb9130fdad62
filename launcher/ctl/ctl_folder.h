/* ctl_folder.h - makes and removes the socket in the run folder, in a thread of its own: the
 * folder's file system may not answer (a server is gone), and then calls last for ever. cddp-run
 * waits for a few seconds at most, and goes on without the socket. */
#ifndef CDDPI_LAUNCHER_CTL_FOLDER_H
#define CDDPI_LAUNCHER_CTL_FOLDER_H

#include "launcher/ctl/ctl_socket.h"

/** Listen in the folder @p dir, as cddpi_ctl_socket_listen(), unless @p socket does already; else
 *  close it. After a failure it is closed.
 *  @return CDDP_ERR_TIMEOUT: the file system does not answer. */
CDDP_CHECKED cddp_status cddpi_ctl_folder_listen(const char *dir, bool is_locked,
                                                 struct cddpi_ctl_socket *socket);

/** As cddpi_ctl_socket_close(). If the file system does not answer, the file may stay. */
void cddpi_ctl_folder_close(struct cddpi_ctl_socket *socket);

#endif
