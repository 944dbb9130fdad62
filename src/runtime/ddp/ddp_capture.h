/* ddp_capture.h - backward passes on a device that are captured once and then replayed, for a
 * trainer whose steps are all alike.
 *
 *     cddpi_ddp_capture_begin()
 *         forward, cddp_ddp_begin(), gradients that become ready, cddp_ddp_wait(), the update
 *     cddpi_ddp_capture_end()
 *     cddpi_ddp_replay(), cddp_ddp_updated()     for this step and each later one
 *
 * A capture keeps the step's no_sync and weight. Replays do not check what the other ranks did: all
 * must capture and replay alike. Their times are not
 * known: statistics are those of the steps that were not replayed. Belongs to the thread that
 * drives compute. */
#ifndef CDDPI_DDP_CAPTURE_H
#define CDDPI_DDP_CAPTURE_H

#include "group/device/group_device.h"

#include <cddp/ddp.h>

/** Whether a backward can be captured now.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why not: the backend, a hook of the caller's, or that
 *          there was no whole step yet. */
CDDP_CHECKED cddp_status cddpi_ddp_can_capture(const cddp_ddp *ddp);
/** Capture what is put into the compute stream from now on. As cddpi_group_capture_begin(). */
CDDP_CHECKED cddp_status cddpi_ddp_capture_begin(cddp_ddp *ddp);
/** To be called after each successful begin, whatever failed since. The handle is as it was before
 *  the begin: the same step can be done at once.
 *  @param out  Set on success; `work` is to be released with graph_destroy of the device.
 *  @return as cddpi_group_capture_end(). */
CDDP_CHECKED cddp_status cddpi_ddp_capture_end(cddp_ddp *ddp, struct cddpi_group_capture *out);
/** Replay @p captured. @p synchronised: its step was not one of no_sync. */
CDDP_CHECKED cddp_status cddpi_ddp_replay(cddp_ddp *ddp, const struct cddpi_group_capture *captured,
                                          bool synchronised);

#endif
