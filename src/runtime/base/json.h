/* json.h - JSON files as other programs write them. */
#ifndef CDDPI_JSON_H
#define CDDPI_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** json_loadb() of a whole file, whose byte order mark, if it has one, is passed over. */
json_t *cddpi_json_load(const void *data, size_t bytes, size_t flags, json_error_t *error);

/** Whether @p json, which may be NULL, is a whole number; 8.0 is one, too, if a double can hold
 * each number of its size. @p out is written only then. */
bool cddpi_json_whole(const json_t *json, int64_t *out);

#endif
