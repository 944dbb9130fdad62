/* run_read.h - reads a run's folder for its page. */
#ifndef CDDPI_TRAIN_REPORT_RUN_READ_H
#define CDDPI_TRAIN_REPORT_RUN_READ_H

#include <cddp/status.h>

#include <jansson.h>

/** Read run @p dir as the object that page.html draws:
 *    dir, name   the path of the folder, and its own name
 *    begin, end  the last line of kind "run", and the "end" that follows it; null: no such line
 *    config      the text of train.conf; null: no such file
 *    metrics     for each column that has a number: last; typical, the mean of the later half; x
 *                (steps) and y, at most a thousand points. If there are more steps, each point is
 *                the mean of several. Column "step" has only last.
 *  Lines that are not metrics are skipped. All text is UTF-8.
 *  @param out  Release with json_decref().
 *  @return CDDP_OK, CDDP_ERR_IO (names the file), CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_run_read(const char *dir, json_t **out);

#endif
