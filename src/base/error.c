/* error.c - owns the per-thread text of the last failure, and the sentences of the statuses. */
#include "base/error.h"

#include "cddp_config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 4096 };

static _Thread_local char last_text[TEXT_BYTES];

const char *cddp_last_error(void)
{
    return last_text;
}

const char *cddp_version(void)
{
    return CDDP_VERSION;
}

const char *cddp_status_text(cddp_status status)
{
    switch (status) {
#define CDDPI_STATUS_CASE(name, value, text)                                                       \
    case CDDP_##name:                                                                              \
        return text;
        CDDP_STATUS_MAP(CDDPI_STATUS_CASE)
    }
    return "not a status of cddp";
}

cddp_status cddpi_fail(cddp_status status, const char *format, ...)
{
    char text[TEXT_BYTES]; /* the arguments may point into last_text */
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_text, text, strlen(text) + 1);
    return status;
}

cddp_status cddpi_fail_errno(cddp_status status, int error_number, const char *format, ...)
{
    char text[TEXT_BYTES];
    char buffer[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* the GNU form: the text may or may not lie in the buffer */
    return cddpi_fail(status, "%s: %s", text, strerror_r(error_number, buffer, sizeof buffer));
}

cddp_status cddpi_fail_prefix(cddp_status status, const char *format, ...)
{
    char prefix[TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return cddpi_fail(status, "%s: %s", prefix, last_text);
}
