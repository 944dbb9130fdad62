/* env.c - reads environment variables by the table in env.h. */
#include "base/env.h"

#include "base/log.h"
#include "base/number.h"

#include <stdlib.h>

const struct cddpi_env_row cddpi_env_rows[CDDPI_ENV_COUNT] = {
#define CDDPI_ENV_ROW(id, name, fallback, text) {name, fallback, text},
    CDDPI_ENV_MAP(CDDPI_ENV_ROW)};

const char *cddpi_env(enum cddpi_env variable)
{
    const struct cddpi_env_row *row = &cddpi_env_rows[variable];
    const char *value = getenv(row->name);

    if (value == NULL || value[0] == '\0') {
        value = row->fallback;
    }
    return value[0] != '\0' ? value : NULL;
}

int64_t cddpi_env_integer(enum cddpi_env variable, int64_t low, int64_t high, int64_t otherwise)
{
    const char *text = cddpi_env(variable);
    int64_t number;

    if (text == NULL) {
        return otherwise;
    }
    if (!cddpi_parse_integer(text, low, high, &number)) {
        cddpi_log(CDDPI_LOG_WARN, "%s=%s is not a whole number from %lld to %lld, so it is ignored",
                  cddpi_env_rows[variable].name, text, (long long)low, (long long)high);
        return otherwise;
    }
    return number;
}

uint32_t cddpi_env_timeout_ms(void)
{
    enum { DEFAULT_MS = 300000 }; /* the default in the table; used if the text is not a number */

    return (uint32_t)cddpi_env_integer(CDDPI_ENV_TIMEOUT_MS, 1, INT32_MAX, DEFAULT_MS);
}
