/* ctl_remote.h - controls a job of several machines from any of them, with its token: reads the
 * status that the cddp-run which serves the job's store writes there, and appends to the job's log
 * of events what a node would append. */
#ifndef CDDPI_LAUNCHER_CTL_REMOTE_H
#define CDDPI_LAUNCHER_CTL_REMOTE_H

#include "launcher/ctl/ctl_message.h"

struct cddpi_ctl_remote;

/** Connect to the store at @p url ("tcp://HOST:PORT", as in --rdzv).
 *  @param token_file  NULL: the token is in $CDDP_TOKEN.
 *  @param out         Release with cddpi_ctl_remote_close(), which accepts NULL.
 *  @return CDDP_ERR_NOT_FOUND: no job is there; CDDP_ERR_ARGUMENT, CDDP_ERR_CONFIG: the token;
 *          CDDP_ERR_AUTH, CDDP_ERR_TIMEOUT and others: the store. */
CDDP_CHECKED cddp_status cddpi_ctl_remote_open(const char *url, const char *token_file,
                                               uint32_t timeout_ms, struct cddpi_ctl_remote **out);
void cddpi_ctl_remote_close(struct cddpi_ctl_remote *remote);

/** As cddpi_ctl_ask(). */
CDDP_CHECKED cddp_status cddpi_ctl_remote_ask(struct cddpi_ctl_remote *remote,
                                              const struct cddpi_ctl_request *request,
                                              uint32_t timeout_ms, struct cddpi_ctl_answer *out);

#endif
