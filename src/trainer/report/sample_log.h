/* sample_log.h - writes train.sample_log: for each step a line with this rank's samples. */
#ifndef CDDPI_TRAIN_REPORT_SAMPLE_LOG_H
#define CDDPI_TRAIN_REPORT_SAMPLE_LOG_H

#include <cddp/status.h>

struct cddpi_sample_log;

/** Open the file @p base.RANK to append to it.
 *  @param most  The most samples that a rank takes in a step. */
CDDP_CHECKED cddp_status cddpi_sample_log_open(const char *base, int rank, size_t most,
                                               struct cddpi_sample_log **out);
void cddpi_sample_log_close(struct cddpi_sample_log *log); /* all accept NULL from here on */

/** Add samples to this step. */
void cddpi_sample_log_take(struct cddpi_sample_log *log, const uint64_t *samples, size_t count);
/** Write the line of step @p step and begin the next step. */
void cddpi_sample_log_end_step(struct cddpi_sample_log *log, uint64_t step, uint64_t epoch);

#endif
