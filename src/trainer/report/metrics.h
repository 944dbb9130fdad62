/* metrics.h - writes a run's metrics to metrics.jsonl and for TensorBoard. Rank 0 only. When the
 * disk is full, metrics are lost, with a warning, and the run goes on. */
#ifndef CDDPI_TRAIN_REPORT_METRICS_H
#define CDDPI_TRAIN_REPORT_METRICS_H

#include "report/prometheus.h"

#include <cddp/status.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { CDDPI_JOB_NAMES = 4, CDDPI_JOB_NAME_BYTES = 512 };

struct cddpi_job_name {
    char text[CDDPI_JOB_NAME_BYTES];
    bool is_restart; /* the launcher says that this start is a restart, or may be one */
};

/** Get the names of this process's job from the environment. Several launchers may have named it,
 *  such as cddp-run inside of Slurm. Returns the number of names. */
int cddpi_job_names(struct cddpi_job_name out[CDDPI_JOB_NAMES]);

/* The memory of all devices of the largest job takes less: 65,536 ranks with two rows each. */
enum { CDDPI_METRICS_LINE_BYTES = 32 << 20 };

struct cddpi_metrics;

/** Open @p dir/metrics.jsonl for appending. Lines of steps after @p step, and an incomplete last
 *  line, are removed first, so that no step appears twice in a resumed run.
 *  @param tensorboard  Whether to write an event file, too. */
CDDP_CHECKED cddp_status cddpi_metrics_open(const char *dir, uint64_t step, bool tensorboard,
                                            struct cddpi_metrics **out);
/** Whether the file has an evaluation of the last step that was kept. */
bool cddpi_metrics_has_evaluation(const struct cddpi_metrics *metrics);
/** How many seconds the kept lines say that earlier processes of this run took. Of one that was
 *  killed only the time between its first and its last kept line is known. */
double cddpi_metrics_earlier_seconds(const struct cddpi_metrics *metrics);
/** The number of ranks of all processes of this run that have kept lines. 0: there is none, or the
 *  number has changed before. */
int cddpi_metrics_earlier_ranks(const struct cddpi_metrics *metrics);
/** Find the first of @p names that is a restart and that began a run in the metrics of @p dir. @p
 *  out is NULL if there is no such name or no file. A file that cannot be read is an error. */
CDDP_CHECKED cddp_status cddpi_metrics_find_job(const char *dir, const struct cddpi_job_name *names,
                                                int count, const struct cddpi_job_name **out);
/** Read the next line of @p file, which anyone may have written, with its newline if it has one. A
 *  line that is too long for cddp's metrics becomes "". Returns false at the end, or if reading
 *  fails. */
bool cddpi_metrics_next_line(FILE *file, char line[CDDPI_METRICS_LINE_BYTES]);
/** Whether the file still exists under its name. */
bool cddpi_metrics_is_there(const struct cddpi_metrics *metrics);
/** Write the same numbers to @p prometheus. cddpi_metrics_close() will close it. */
void cddpi_metrics_export(struct cddpi_metrics *metrics, struct cddpi_prometheus *prometheus);
/** @p to, which exports nothing, goes on with what @p from exports. */
void cddpi_metrics_move_export(struct cddpi_metrics *from, struct cddpi_metrics *to);
void cddpi_metrics_close(struct cddpi_metrics *metrics); /* accepts NULL */

/** Add a line {"step", "epoch", name: value ...}. NaN and Inf become null. In TensorBoard the names
 *  are below @p prefix. */
void cddpi_metrics_add(struct cddpi_metrics *metrics, const char *prefix, uint64_t step,
                       uint64_t epoch, const char *const *names, const double *values,
                       size_t count);

/** Add what changes when a generation of the job begins to TensorBoard's file. */
void cddpi_metrics_add_generation(struct cddpi_metrics *metrics, uint64_t step, int generation,
                                  int ranks);

/** Add a line of any kind and release @p object, which has a "step". NULL means that there was no
 *  memory for it. */
void cddpi_metrics_add_object(struct cddpi_metrics *metrics, json_t *object);

#endif
