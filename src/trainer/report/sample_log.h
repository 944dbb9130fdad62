/* sample_log.h - train.sample_log: a line a step with the samples that this rank took. */
#ifndef CDDPI_TRAIN_REPORT_SAMPLE_LOG_H
#define CDDPI_TRAIN_REPORT_SAMPLE_LOG_H

#include <cddp/status.h>

struct cddpi_sample_log;

/** Append to file @p base.RANK.
 *  @param most  Samples that a rank takes in a step. */
CDDP_CHECKED cddp_status cddpi_sample_log_open(const char *base, int rank, size_t most,
                                               struct cddpi_sample_log **out);
void cddpi_sample_log_close(struct cddpi_sample_log *log); /* accepts NULL, as all below */

/** Samples of the step at hand. */
void cddpi_sample_log_take(struct cddpi_sample_log *log, const uint64_t *samples, size_t count);
/** Write the line of step @p step, and begin the next. */
void cddpi_sample_log_end_step(struct cddpi_sample_log *log, uint64_t step, uint64_t epoch);

#endif
