/* ctl_ask.h - cddp-ctl's side of a request. */
#ifndef CDDPI_LAUNCHER_CTL_ASK_H
#define CDDPI_LAUNCHER_CTL_ASK_H

#include "launcher/ctl/ctl_message.h"

struct cddpi_ctl_remote;

/* The job that is asked. */
struct cddpi_ctl_job {
    const char *name;                /* as the user named it: its folder, or where its store is */
    struct cddpi_ctl_remote *remote; /* NULL: it is reached through its folder */
};

/** Ask the cddp-run of @p job, and wait for its answer for at most @p timeout_ms.
 *  @return CDDP_ERR_NOT_FOUND: no job runs there; CDDP_ERR_TIMEOUT; CDDP_ERR_CLOSED: cddp-run ended
 *          without an answer; CDDP_ERR_IO, CDDP_ERR_FORMAT, CDDP_ERR_MISMATCH. */
CDDP_CHECKED cddp_status cddpi_ctl_ask(const struct cddpi_ctl_job *job,
                                       const struct cddpi_ctl_request *request, uint32_t timeout_ms,
                                       struct cddpi_ctl_answer *out);

#endif
