/* device_report.h - gathers what the drivers of the ranks' devices measure: memory, clocks, power,
 * temperature, errors. Where no driver measures, nothing is written. */
#ifndef CDDPI_TRAIN_DEVICE_REPORT_H
#define CDDPI_TRAIN_DEVICE_REPORT_H

#include "train/trainer.h"

/** Begin to measure, so that the first line of metrics finds measurements. */
void cddpi_devices_begin(struct cddpi_trainer *trainer);

/** Read this rank's measurements. Rank 0 says in the interval, which is about to be closed, whether
 *  ranks are to send theirs: a few times a minute, so that this costs nothing. */
void cddpi_devices_note(struct cddpi_trainer *trainer);

/* Of all ranks' devices; NaN: unknown. */
struct cddpi_device_extremes {
    double most_memory_mib, least_clock_mhz, all_power_w, most_temperature_c;
    double throttled; /* ranks */
};

/** Gather the measurements: rank 0 writes a line with all of them, and warns, once for each rank,
 * of devices that are slowed down. Collective.
 *  @param out  On other ranks, nothing is known. */
CDDP_CHECKED cddp_status cddpi_devices_report(struct cddpi_trainer *trainer,
                                              struct cddpi_device_extremes *out);

#endif
