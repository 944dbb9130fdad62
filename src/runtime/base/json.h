/* json.h - reads JSON files that other programs wrote. */
#ifndef CDDPI_JSON_H
#define CDDPI_JSON_H

#include "base/shared.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** json_loadb() of a whole file; skips a byte order mark. */
CDDPI_SHARED json_t *cddpi_json_load(const void *data, size_t bytes, size_t flags,
                                     json_error_t *error);

/** Whether @p json (may be NULL) is a whole number. A real such as 8.0 counts, too, if it is small
 *  enough for a double to represent all integers of its size. @p out is written only if so. */
CDDPI_SHARED bool cddpi_json_whole(const json_t *json, int64_t *out);

#endif
