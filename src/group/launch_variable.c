/* launch_variable.c - reads one variable of a launcher. */
#include "group/launch_variable.h"

#include "base/error.h"
#include "base/number.h"

#include <stdlib.h>

const char *cddpi_launch_variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

cddp_status cddpi_launch_number(const char *origin, const char *name, int64_t low, int64_t high,
                                int *out)
{
    const char *text = cddpi_launch_variable(name);
    int64_t value;

    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s is not set (the rest of %s's variables are)",
                          name, origin);
    }
    if (!cddpi_parse_integer(text, low, high, &value)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s=%s is not a whole number from %lld to %lld",
                          name, text, (long long)low, (long long)high);
    }
    *out = (int)value;
    return CDDP_OK;
}
