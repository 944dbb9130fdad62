/* run_read.h - a run's folder as it is read again: metrics.jsonl in columns, and train.conf. */
#ifndef CDDPI_TRAIN_REPORT_RUN_READ_H
#define CDDPI_TRAIN_REPORT_RUN_READ_H

#include <cddp/status.h>

#include <jansson.h>

enum cddpi_column {
    CDDPI_COLUMN_STEP,
    CDDPI_COLUMN_LOSS,
    CDDPI_COLUMN_ACCURACY,
    CDDPI_COLUMN_EVAL_LOSS,
    CDDPI_COLUMN_EVAL_ACCURACY,
    CDDPI_COLUMN_SAMPLES_PER_S,
    CDDPI_COLUMN_STEP_MS,
    CDDPI_COLUMN_DATA_MS,
    CDDPI_COLUMN_FORWARD_MS,
    CDDPI_COLUMN_BACKWARD_MS,
    CDDPI_COLUMN_EXPOSED_MS,
    CDDPI_COLUMN_OPTIMIZER_MS,
    CDDPI_COLUMN_LR,
    CDDPI_COLUMN_GRAD_NORM,
    CDDPI_COLUMN_PEAK_RSS_MIB,
    CDDPI_COLUMNS
};

struct cddpi_run_read {
    char *dir;
    char *name; /* the folder's own */
    size_t count;
    double *columns[CDDPI_COLUMNS]; /* `count` rows; NaN: a line without it */
    json_t *begin;                  /* the last line of kind run; NULL: there is none */
    json_t *end;                    /* the line of its end; NULL: it goes on, or was killed */
    char *config;                   /* train.conf; NULL: it is not there */
};

/** Read run @p dir. Lines that are no metrics are left out.
 *  @param out  Release with cddpi_run_read_fini().
 *  @return CDDP_OK, CDDP_ERR_IO (names the file), CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_run_read(const char *dir, struct cddpi_run_read *out);
void cddpi_run_read_fini(struct cddpi_run_read *run); /* accepts a zeroed one */

/** The last number of a column; NaN: there is none. */
double cddpi_run_last(const struct cddpi_run_read *run, enum cddpi_column column);
/** The mean over the later half of a column's numbers. */
double cddpi_run_typical(const struct cddpi_run_read *run, enum cddpi_column column);

#endif
