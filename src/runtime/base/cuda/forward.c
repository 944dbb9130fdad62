/* forward.c - src/runtime/base inside a module: forwards its calls to the library that opened the
 * module, through the table in base/module.h. */
#include "base/module.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* The same for all callers, so it does not matter which thread writes it last. */
static const struct cddpi_module_host *host;

void cddpi_module_host_use(const struct cddpi_module_host *user)
{
    host = user;
}

const char *cddp_last_error(void)
{
    return host->last_error();
}

const struct cddpi_failure *cddpi_last_failure(void)
{
    return host->last_failure();
}

cddp_status cddpi_fail(cddp_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    host->fail(status, format, arguments);
    va_end(arguments);
    return status;
}

cddp_status cddpi_fail_errno(cddp_status status, int error_number, const char *format, ...)
{
    char text[3072];
    char buffer[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(status, "%s: %s", text, strerror_r(error_number, buffer, sizeof buffer));
}

cddp_status cddpi_fail_prefix(cddp_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    host->fail_prefix(status, format, arguments);
    va_end(arguments);
    return status;
}

cddp_status cddpi_fail_rank(cddp_status status, int rank, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    host->fail(status, format, arguments);
    va_end(arguments);
    return host->fail_name(status, rank);
}

cddp_status cddpi_fail_again(cddp_status status, const struct cddpi_failure *failure)
{
    return host->fail_again(status, failure);
}

void cddpi_error_blame(int rank)
{
    host->blame(rank);
}

void *cddpi_zalloc(size_t bytes)
{
    return host->alloc(bytes);
}

char *cddpi_strdup(const char *text)
{
    size_t bytes = text != NULL ? strlen(text) + 1 : 0;
    char *copy = text != NULL ? host->alloc(bytes) : NULL;

    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void cddpi_free(void *memory)
{
    host->free(memory);
}

void cddpi_log(enum cddpi_log_level level, const char *format, ...)
{
    char text[3072];
    va_list arguments;

    if (level != CDDPI_LOG_WARN && level != CDDPI_LOG_ERROR) {
        return; /* the table cannot log at other levels, which users need not see */
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    host->warn(text);
}

void cddpi_launcher_report_card(int rank, int index, const char *unique, const char *fault)
{
    host->report_card(rank, index, unique, fault);
}

size_t cddp_type_bytes(cddp_type type)
{
    return host->type_bytes(type);
}

const char *cddp_type_name(cddp_type type)
{
    return host->type_name(type);
}

const char *cddp_op_name(cddp_op op)
{
    return host->op_name(op);
}

struct cddpi_tuning *cddpi_tuning_open(const char *subject, const char *identity)
{
    return host->tuning_open(subject, identity);
}

void cddpi_tuning_close(struct cddpi_tuning *tuning)
{
    host->tuning_close(tuning);
}

size_t cddpi_tuning_find(const struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                         void *out, size_t room)
{
    return host->tuning_find(tuning, key, key_bytes, out, room);
}

void cddpi_tuning_keep(struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                       const void *value, size_t value_bytes)
{
    host->tuning_keep(tuning, key, key_bytes, value, value_bytes);
}

void cddpi_tuning_reject(struct cddpi_tuning *tuning, const void *key, size_t key_bytes)
{
    host->tuning_reject(tuning, key, key_bytes);
}
