/* record.h - backward passes on a device that are recorded once and done again, by a trainer whose
 * steps are all alike.
 *
 *     cddpi_ddp_record_begin()
 *         forward, cddp_ddp_begin(), gradients that become ready, cddp_ddp_wait(), the update
 *     cddpi_ddp_record_end()
 *     cddpi_ddp_replay(), cddp_ddp_updated()     for this step, and so on
 *
 * What a recording keeps is what the step was told: no_sync and the weight. It takes part in no
 * check of what the ranks did; all must record and replay alike. Its times are not known:
 * statistics are those of the steps that were not replayed. Belongs to the thread that drives
 * compute. */
#ifndef CDDPI_DDP_RECORD_H
#define CDDPI_DDP_RECORD_H

#include "group/device.h"

#include <cddp/ddp.h>

/** Whether a backward can be recorded now.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why not: the backend, a hook of the caller's, or that
 *          there was no whole step yet. */
CDDP_CHECKED cddp_status cddpi_ddp_records(const cddp_ddp *ddp);
/** Record what is put into the compute stream from now on. As cddpi_group_record_begin(). */
CDDP_CHECKED cddp_status cddpi_ddp_record_begin(cddp_ddp *ddp);
/** To be called after each successful begin, whatever failed since. The handle is as it was before:
 *  the same step can be done at once.
 *  @param out  Set on success; `work` is to be released with recording_destroy of the device.
 *  @return as cddpi_group_record_end(). */
CDDP_CHECKED cddp_status cddpi_ddp_record_end(cddp_ddp *ddp, struct cddpi_group_recording *out);
/** Do what was recorded. @p synchronised: its step was not one of no_sync. */
CDDP_CHECKED cddp_status cddpi_ddp_replay(cddp_ddp *ddp,
                                          const struct cddpi_group_recording *recording,
                                          bool synchronised);

#endif
