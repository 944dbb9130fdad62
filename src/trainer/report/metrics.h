/* metrics.h - writes a run's metrics: metrics.jsonl, and the same for TensorBoard. Rank 0 only.
 * When the disk is full, metrics are lost, with a warning, and the run goes on. */
#ifndef CDDPI_TRAIN_REPORT_METRICS_H
#define CDDPI_TRAIN_REPORT_METRICS_H

#include "report/job_names.h"
#include "report/prometheus.h"

#include <cddp/status.h>

#include <jansson.h>
#include <stdbool.h>

struct cddpi_metrics;

/** Open @p dir/metrics.jsonl for appending. Lines of steps after @p step are cut off first (and a
 * last line that is not whole), so that no step appears twice after a run is resumed.
 *  @param tensorboard  Whether to write an event file, too. */
CDDP_CHECKED cddp_status cddpi_metrics_open(const char *dir, uint64_t step, bool tensorboard,
                                            struct cddpi_metrics **out);
/** Whether there was an evaluation of the very step that the file was cut after. */
bool cddpi_metrics_has_evaluation(const struct cddpi_metrics *metrics);
/** The first of @p names that began a run of which the metrics in @p dir have the line, among those
 *  that are restarts; NULL: none. That they cannot be read is an error, not "none". */
CDDP_CHECKED cddp_status cddpi_metrics_find_job(const char *dir, const struct cddpi_job_name *names,
                                                int count, const struct cddpi_job_name **out);
/** Whether the file is still there under its name. */
bool cddpi_metrics_is_there(const struct cddpi_metrics *metrics);
/** Let the same numbers go to @p prometheus, which is the metrics' from now on. */
void cddpi_metrics_export(struct cddpi_metrics *metrics, struct cddpi_prometheus *prometheus);
void cddpi_metrics_close(struct cddpi_metrics *metrics); /* accepts NULL */

/** One line {"step", "epoch", name: value ...}; for TensorBoard the names stand below @p prefix.
 * Values that are no finite numbers become null. */
void cddpi_metrics_add(struct cddpi_metrics *metrics, const char *prefix, uint64_t step,
                       uint64_t epoch, const char *const *names, const double *values,
                       size_t count);

/** A line of any kind; @p object (which has a "step") is released. NULL: no memory. */
void cddpi_metrics_add_object(struct cddpi_metrics *metrics, json_t *object);

#endif
