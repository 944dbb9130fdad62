/* ddp_capture.h - captures a step on a device once and then replays it, for a trainer whose steps
 * are all alike.
 *
 *     cddpi_ddp_capture_begin()
 *         forward, cddp_ddp_begin(), gradients that become ready, cddp_ddp_wait(), the update
 *     cddpi_ddp_capture_end()
 *     cddpi_ddp_replay(), cddp_ddp_updated()     for this step and each later one
 *
 * A capture keeps the step's no_sync and weight. Replays do not check what the other ranks do: all
 * ranks must capture and replay the same steps. Replayed steps are not timed, so statistics do not
 * contain them. Everything here belongs to the thread that drives compute. */
#ifndef CDDPI_DDP_CAPTURE_H
#define CDDPI_DDP_CAPTURE_H

#include "group/device/group_device.h"

#include <cddp/ddp.h>

/** Whether a step can be captured now.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: the backend cannot, the hook is the caller's, or no step
 * is complete yet. */
CDDP_CHECKED cddp_status cddpi_ddp_can_capture(const cddp_ddp *ddp);
/** Capture the work that enters the compute stream from now on, like cddpi_group_capture_begin().
 */
CDDP_CHECKED cddp_status cddpi_ddp_capture_begin(cddp_ddp *ddp);
/** End the capture. Call it after each successful begin, whatever failed since. The handle is then
 * as before the begin, and can do the same step at once.
 *  @param out  Set on success; release its `work` with the device's graph_destroy.
 *  @return as cddpi_group_capture_end(). */
CDDP_CHECKED cddp_status cddpi_ddp_capture_end(cddp_ddp *ddp, struct cddpi_group_capture *out);
/** Replay @p captured. @p synchronised: its step was not a no_sync step. */
CDDP_CHECKED cddp_status cddpi_ddp_replay(cddp_ddp *ddp, const struct cddpi_group_capture *captured,
                                          bool synchronised);

#endif
