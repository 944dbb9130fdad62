/* prometheus.h - writes the newest metrics of a run in the text format of Prometheus (version
 * 0.0.4), for the textfile collector of its node exporter. */
#ifndef CDDPI_TRAIN_REPORT_PROMETHEUS_H
#define CDDPI_TRAIN_REPORT_PROMETHEUS_H

#include <cddp/status.h>

struct cddpi_prometheus;

/** Prepare to write @p path, which is replaced each time. Every line has the label run="@p run".
 *  Both texts are copied. @p generation is that of the job, which has @p world_size ranks.
 *  @param out  Release with cddpi_prometheus_close(). */
CDDP_CHECKED cddp_status cddpi_prometheus_open(const char *path, const char *run, int world_size,
                                               int generation, struct cddpi_prometheus **out);
/** Write what is not in the file yet, and close. Accepts NULL. */
void cddpi_prometheus_close(struct cddpi_prometheus *prometheus);

/** Take new metrics, by their names in metrics.jsonl. The file is written at once, but at most once
 *  a second. Accepts NULL. */
void cddpi_prometheus_update(struct cddpi_prometheus *prometheus, uint64_t step, uint64_t epoch,
                             const char *const *names, const double *values, size_t count);

#endif
