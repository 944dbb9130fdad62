/* json.c - accepts what jansson rejects in JSON files from other programs: a byte order mark, and
 * integers that are written as reals. */
#include "base/json.h"

#include "base/utf8.h"

json_t *cddpi_json_load(const void *data, size_t bytes, size_t flags, json_error_t *error)
{
    size_t mark = cddpi_utf8_mark(data, bytes);

    return json_loadb((const char *)data + mark, bytes - mark, flags, error);
}

bool cddpi_json_whole(const json_t *json, int64_t *out)
{
    double value = json_real_value(json);

    if (json_is_integer(json)) {
        *out = json_integer_value(json);
        return true;
    }
    if (!json_is_real(json) || !(value > -0x1p53 && value < 0x1p53) ||
        value != (double)(int64_t)value) {
        return false;
    }
    *out = (int64_t)value;
    return true;
}
