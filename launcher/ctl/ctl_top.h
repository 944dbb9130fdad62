/* ctl_top.h - a live view of a job: on a terminal one screen that is drawn each second, else a line
 * each second. */
#ifndef CDDPI_LAUNCHER_CTL_TOP_H
#define CDDPI_LAUNCHER_CTL_TOP_H

#include "launcher/ctl/ctl_ask.h"

/** Show @p job until it ends, the user presses q, or a signal asks for the
 *  end. The terminal is as before afterwards.
 *  @return As cddpi_ctl_ask(), except that a job that ends is no failure. */
CDDP_CHECKED cddp_status cddpi_ctl_top(const struct cddpi_ctl_job *job, uint32_t timeout_ms);

#endif
