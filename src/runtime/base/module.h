/* module.h - what a module that is opened at run time may call of the library that opened it: one
 * table. A module links none of the library itself, so that each thread has one last failure, and
 * the process one log and one counter of allocations that fail. In the module
 * src/runtime/base/cuda/forward.c forwards the calls of src/runtime/base by this table. */
#ifndef CDDPI_BASE_MODULE_H
#define CDDPI_BASE_MODULE_H

#include "base/error.h"

#include <cddp/types.h>

#include <stdarg.h>

enum { CDDPI_MODULE_ABI = 12 }; /* grows with each change of a table here or of a module's own */

/* Any thread. */
struct cddpi_module_host {
    uint32_t abi;
    /* Keep the text as the calling thread's error; returns @p status. */
    cddp_status (*fail)(cddp_status status, const char *format, va_list arguments);
    /* Put "<text>: " before the stored text; returns @p status. */
    cddp_status (*fail_prefix)(cddp_status status, const char *format, va_list arguments);
    const char *(*last_error)(void);
    /* As the functions of these names in base/error.h. */
    const struct cddpi_failure *(*last_failure)(void);
    cddp_status (*fail_name)(cddp_status status, int rank);
    cddp_status (*fail_again)(cddp_status status, const struct cddpi_failure *failure);
    void (*blame)(int rank);
    void (*warn)(const char *text); /* one line into the log */
    void *(*alloc)(size_t bytes);   /* zeroed; NULL: none */
    void (*free)(void *memory);
    size_t (*type_bytes)(cddp_type type);
    const char *(*type_name)(cddp_type type);
    const char *(*op_name)(cddp_op op);
};

/** In a module: let calls of src/runtime/base go to @p host, which is the same for all callers. */
void cddpi_module_host_use(const struct cddpi_module_host *host);

#endif
