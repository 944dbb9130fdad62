/* sheets.h - reads the sheets of images that a generative model wrote during a run. */
#ifndef CDDPI_TRAIN_REPORT_SHEETS_H
#define CDDPI_TRAIN_REPORT_SHEETS_H

#include <cddp/status.h>

#include <jansson.h>

/** Set "sheets" of @p run: at most six of @p dir/images/step-N.pgm and .ppm, in the order of their
 *  steps; the first, the last, and others at even distances. Each is an object:
 *     step, width, height, channels  (1: grey, 3: red, green, blue)
 *     pixels                         a byte for each channel, in base64
 *  A file that is no such sheet, or too large for a page, is left out.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_sheets_read(const char *dir, json_t *run);

#endif
