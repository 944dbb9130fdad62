/* train_report.h - writes the metrics and progress lines about a run's steps. */
#ifndef CDDPI_TRAIN_REPORT_REPORT_H
#define CDDPI_TRAIN_REPORT_REPORT_H

#include "parallel/parallel_memory.h"
#include "train/trainer.h"

/* A line of metrics: named numbers. */
struct cddpi_report_line {
    const char *names[48];
    double values[48];
    size_t count;
};

void cddpi_report_line_put(struct cddpi_report_line *line, const char *name, double value);

/** Write a metrics line and a progress line about the interval, and begin the next interval.
 *  Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_report(struct cddpi_trainer *trainer, double lr,
                                              double grad_norm);

/** Find the peak FLOP/s of all devices together, for the MFU in metrics. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_find_peak_flops(struct cddpi_trainer *trainer);
/** Write which devices and settings the run uses. Rank 0. */
void cddpi_trainer_report_begin(struct cddpi_trainer *trainer);
/** Write how the run ended. Rank 0. */
void cddpi_trainer_report_end(struct cddpi_trainer *trainer, bool has_failed);

/** Add the memory held for updating parameter @p index. */
void cddpi_trainer_add_param_memory(const struct cddpi_trainer *trainer, size_t index,
                                    struct cddpi_held_memory *out);

#endif
