/* module.h - the table of library functions that a module, a library opened at run time, may call.
 * A module does not link the library itself, so that each thread has only one last failure, and the
 * process only one log and one counter of allocations that fail. Inside the modules,
 * src/runtime/base/cuda/forward.c forwards the calls of src/runtime/base through this table. */
#ifndef CDDPI_BASE_MODULE_H
#define CDDPI_BASE_MODULE_H

#include "base/error.h"
#include "base/tuning.h"

#include <cddp/types.h>

#include <stdarg.h>

/* Incremented with each change of a table here or of a module's own table. */
enum { CDDPI_MODULE_ABI = 14 };

/* Any thread. */
struct cddpi_module_host {
    uint32_t abi;
    /* Store the text as the calling thread's error. Returns @p status. */
    cddp_status (*fail)(cddp_status status, const char *format, va_list arguments);
    /* Put "<text>: " before the stored text. Returns @p status. */
    cddp_status (*fail_prefix)(cddp_status status, const char *format, va_list arguments);
    const char *(*last_error)(void);
    /* Like the functions of the same names in base/error.h. */
    const struct cddpi_failure *(*last_failure)(void);
    cddp_status (*fail_name)(cddp_status status, int rank);
    cddp_status (*fail_again)(cddp_status status, const struct cddpi_failure *failure);
    void (*blame)(int rank);
    void (*warn)(const char *text); /* logs one line */
    /* Like the function of this name in base/launcher_report.h. */
    void (*report_card)(int rank, int index, const char *unique, const char *fault);
    void *(*alloc)(size_t bytes); /* zeroed; NULL: no memory */
    void (*free)(void *memory);
    size_t (*type_bytes)(cddp_type type);
    const char *(*type_name)(cddp_type type);
    const char *(*op_name)(cddp_op op);
    /* Like the functions of base/tuning.h. */
    struct cddpi_tuning *(*tuning_open)(const char *subject, const char *identity);
    void (*tuning_close)(struct cddpi_tuning *tuning);
    size_t (*tuning_find)(const struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                          void *out, size_t room);
    void (*tuning_keep)(struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                        const void *value, size_t value_bytes);
    void (*tuning_reject)(struct cddpi_tuning *tuning, const void *key, size_t key_bytes);
};

/** In a module: forward calls of src/runtime/base to @p host, which is the same for all callers. */
void cddpi_module_host_use(const struct cddpi_module_host *host);

#endif
