/* error.c - owns each thread's last failure, and the text of each status. */
#include "base/error.h"

#include "base/types.h"
#include "base/utf8.h"

#include "cddp_config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { TEXT_BYTES = CDDPI_FAILURE_TEXT_BYTES };

static _Thread_local struct cddpi_failure last = {.rank = -1, .culprit = -1};

const char *cddp_last_error(void)
{
    return last.text;
}

const struct cddpi_failure *cddpi_last_failure(void)
{
    return &last;
}

cddp_status cddp_last_failure(cddp_failure *out)
{
    const cddp_failure failure = {.status = (cddp_status)last.status,
                                  .rank = last.rank,
                                  .culprit = last.culprit,
                                  .error_number = last.error_number,
                                  .operation = last.operation,
                                  .text = last.text,
                                  .is_fatal = last.is_fatal != 0};

    return cddpi_struct_fill("failure", "CDDP_FAILURE_INIT", &failure, sizeof failure, out);
}

cddp_status cddp_fail(cddp_status status, const char *text)
{
    status = cddpi_is_error((int32_t)status) ? status : CDDP_ERR_ARGUMENT;
    return cddpi_fail(status, "%s", text != NULL ? text : cddp_status_text(status));
}

cddp_status cddpi_fail_callback(cddp_status status, const char *what)
{
    if (!cddpi_is_error((int32_t)status)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s%sit returned %d, which is no error of cddp", what,
                          what[0] != '\0' ? ": " : "", (int)status);
    }
    return last.status == (int32_t)status
               ? status
               : cddpi_fail(status, "%s%s%s", what, what[0] != '\0' ? ": " : "",
                            cddp_status_text(status));
}

cddp_status cddpi_fail_returned(cddp_status status, cddp_status otherwise)
{
    if (cddpi_is_error((int32_t)status) && last.status != (int32_t)status) {
        return cddpi_fail(status, "its function returned %s: %s", cddp_status_name(status),
                          cddp_status_text(status));
    }
    return last.status != CDDP_OK
               ? (cddp_status)last.status
               : cddpi_fail(otherwise, "its function returned %d, which is no error of cddp",
                            (int)status);
}

_Static_assert(CDDP_VERSION_NUM == CDDPI_VERSION_NUM, "status.h has the version of meson.build");

const char *cddp_version(void)
{
    return CDDP_VERSION;
}

int cddp_version_number(void)
{
    return CDDP_VERSION_NUM;
}

const char *cddp_status_text(cddp_status status)
{
    switch (status) {
    case CDDP_OK:
        return "success";
    case CDDP_ERR_ARGUMENT:
        return "an argument is outside its range";
    case CDDP_ERR_NO_MEMORY:
        return "memory could not be allocated";
    case CDDP_ERR_PEER:
        return "another rank failed or went away";
    case CDDP_ERR_TIMEOUT:
        return "the deadline passed";
    case CDDP_ERR_MISMATCH:
        return "ranks disagree about what to do";
    case CDDP_ERR_IO:
        return "a file or a connection failed";
    case CDDP_ERR_FORMAT:
        return "data from outside is not what it should be";
    case CDDP_ERR_CONFIG:
        return "the configuration is wrong";
    case CDDP_ERR_AUTH:
        return "the job's token was refused";
    case CDDP_ERR_NOT_FOUND:
        return "what was asked for does not exist";
    case CDDP_ERR_STATE:
        return "calls came in the wrong order, or in a forked child";
    case CDDP_ERR_UNAVAILABLE:
        return "this build or machine cannot do it";
    case CDDP_ERR_CLOSED:
        return "the object was closed or destroyed";
    case CDDP_ERR_DEVICE:
        return "a GPU or its libraries failed";
    case CDDP_ERR_BUSY:
        return "another thread is in a call on the object; nothing was done";
    case CDDP_ERR_INCOMPLETE:
        return "a backward is not finished, or a parameter got no gradient";
    case CDDP_ERR_BROKEN:
        return "an earlier call on the object failed";
    case CDDP_STATUS_MAX_ENUM_:
        break;
    }
    return "not a status of cddp";
}

const char *cddp_status_name(cddp_status status)
{
    switch (status) {
    case CDDP_OK:
        return "CDDP_OK";
    case CDDP_ERR_ARGUMENT:
        return "CDDP_ERR_ARGUMENT";
    case CDDP_ERR_NO_MEMORY:
        return "CDDP_ERR_NO_MEMORY";
    case CDDP_ERR_PEER:
        return "CDDP_ERR_PEER";
    case CDDP_ERR_TIMEOUT:
        return "CDDP_ERR_TIMEOUT";
    case CDDP_ERR_MISMATCH:
        return "CDDP_ERR_MISMATCH";
    case CDDP_ERR_IO:
        return "CDDP_ERR_IO";
    case CDDP_ERR_FORMAT:
        return "CDDP_ERR_FORMAT";
    case CDDP_ERR_CONFIG:
        return "CDDP_ERR_CONFIG";
    case CDDP_ERR_AUTH:
        return "CDDP_ERR_AUTH";
    case CDDP_ERR_NOT_FOUND:
        return "CDDP_ERR_NOT_FOUND";
    case CDDP_ERR_STATE:
        return "CDDP_ERR_STATE";
    case CDDP_ERR_UNAVAILABLE:
        return "CDDP_ERR_UNAVAILABLE";
    case CDDP_ERR_CLOSED:
        return "CDDP_ERR_CLOSED";
    case CDDP_ERR_DEVICE:
        return "CDDP_ERR_DEVICE";
    case CDDP_ERR_BUSY:
        return "CDDP_ERR_BUSY";
    case CDDP_ERR_INCOMPLETE:
        return "CDDP_ERR_INCOMPLETE";
    case CDDP_ERR_BROKEN:
        return "CDDP_ERR_BROKEN";
    case CDDP_STATUS_MAX_ENUM_:
        break;
    }
    return NULL;
}

bool cddpi_is_error(int32_t value)
{
    return value < 0 && cddp_status_name((cddp_status)value) != NULL;
}

/* Reset all members of the failure except its text. */
static void set_facts(cddp_status status)
{
    last.status = status;
    last.rank = -1;
    last.culprit = -1;
    last.error_number = 0;
    last.is_stopped = 0;
    last.has_left = 0;
    last.is_fatal = 0;
    last.unnamed = 0;
    last.operation[0] = '\0';
}

/* Every text goes through here on its way to terminals and logs, which must not act on control
 * characters from file names, peers or data. */
static void clean(void)
{
    cddpi_text_clean(last.text, sizeof last.text, false);
}

/* The arguments may point into the stored text, so format into a copy first. */
static void set_text(const char *format, va_list arguments)
{
    char text[TEXT_BYTES];

    vsnprintf(text, sizeof text, format, arguments);
    memcpy(last.text, text, strlen(text) + 1);
    clean();
}

/* Put @p prefix before the text. The end is cut off if the result is too long. */
static void put_before(const char *prefix)
{
    size_t added = strnlen(prefix, TEXT_BYTES - 3) + 2;
    size_t length = strnlen(last.text, TEXT_BYTES - 1 - added);

    memmove(last.text + added, last.text, length);
    memcpy(last.text, prefix, added - 2);
    memcpy(last.text + added - 2, ": ", 2);
    last.text[added + length] = '\0';
    clean();
}

static void name(int rank)
{
    char text[32];

    snprintf(text, sizeof text, "rank %d", rank);
    put_before(text);
    last.rank = rank;
    last.unnamed = (uint32_t)strlen(text) + 2;
}

cddp_status cddpi_fail(cddp_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    set_facts(status);
    return status;
}

cddp_status cddpi_fail_rank(cddp_status status, int rank, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    set_facts(status);
    if (rank >= 0) {
        name(rank);
    }
    return status;
}

const char *cddpi_limit_text(int error_number)
{
    static const struct {
        int error_number;
        int resource;
        const char *text;
    } rows[] = {{EFBIG, RLIMIT_FSIZE, " (ulimit -f)"},
                {ENOMEM, RLIMIT_AS, " (ulimit -v)"},
                {EMFILE, RLIMIT_NOFILE, " (ulimit -n)"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rlimit limit;

        if (rows[i].error_number == error_number && getrlimit(rows[i].resource, &limit) == 0 &&
            limit.rlim_cur != RLIM_INFINITY) {
            return rows[i].text;
        }
    }
    return "";
}

cddp_status cddpi_fail_errno(cddp_status status, int error_number, const char *format, ...)
{
    char text[TEXT_BYTES];
    char buffer[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* The GNU strerror_r(): the text it returns may or may not be in the buffer. */
    (void)cddpi_fail(status, "%s: %s%s", text, strerror_r(error_number, buffer, sizeof buffer),
                     cddpi_limit_text(error_number));
    last.error_number = error_number;
    return status;
}

int cddpi_last_errno(void)
{
    return last.error_number;
}

cddp_status cddpi_fail_prefix(cddp_status status, const char *format, ...)
{
    char prefix[TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    put_before(prefix);
    last.status = status;
    last.rank = -1;
    last.unnamed = 0;
    return status;
}

cddp_status cddpi_fail_suffix(cddp_status status, const char *format, ...)
{
    char suffix[TEXT_BYTES];
    size_t length = strlen(last.text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(suffix, sizeof suffix, format, arguments);
    va_end(arguments);
    snprintf(last.text + length, sizeof last.text - length, "%s", suffix);
    clean();
    last.status = status;
    return status;
}

cddp_status cddpi_fail_name(cddp_status status, int rank)
{
    last.status = status;
    if (last.rank < 0 && rank >= 0) {
        name(rank);
    }
    return status;
}

cddp_status cddpi_fail_again(cddp_status status, const struct cddpi_failure *failure)
{
    if (failure != &last) {
        last = *failure;
    }
    /* The failure may come from another process, so nothing in it is trusted. */
    last.text[sizeof last.text - 1] = '\0';
    last.operation[sizeof last.operation - 1] = '\0';
    cddpi_text_clean(last.operation, sizeof last.operation, true);
    clean();
    if (last.unnamed > strlen(last.text)) {
        last.unnamed = 0;
    }
    last.status = status;
    return status;
}

void cddpi_error_clear(void)
{
    last.text[0] = '\0';
    set_facts(CDDP_OK);
}

void cddpi_error_blame(int rank)
{
    last.culprit = rank;
}

int cddpi_error_culprit(void)
{
    return last.culprit;
}

void cddpi_error_number(int error_number)
{
    last.error_number = error_number;
}

void cddpi_error_stopped(void)
{
    last.is_stopped = 1;
}

void cddpi_error_left(void)
{
    last.has_left = 1;
}

void cddpi_error_fatal(void)
{
    last.is_fatal = 1;
}

void cddpi_error_during(const char *operation)
{
    snprintf(last.operation, sizeof last.operation, "%s", operation);
}
