/* train_report.h - the lines of metrics and of progress about the steps of a run. */
#ifndef CDDPI_TRAIN_REPORT_REPORT_H
#define CDDPI_TRAIN_REPORT_REPORT_H

#include "train/trainer.h"

/* A line of metrics: numbers with names. */
struct cddpi_report_line {
    const char *names[24];
    double values[24];
    size_t count;
};

void cddpi_report_line_put(struct cddpi_report_line *line, const char *name, double value);

/** A line of metrics and of progress about the interval, which begins anew. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_report(struct cddpi_trainer *trainer, double lr,
                                              double grad_norm);

#endif
