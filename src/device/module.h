/* module.h - what the CUDA module (libcddp-cuda.so) and the libraries that open it know of each
 * other: one table each way.
 *
 * The module is opened with dlopen when a CUDA device is asked for: from $CDDP_CUDA_MODULE, else
 * beside the library or program that asks, else where the loader finds it. It is C inside and out
 * (kernels are C++ behind plain headers) and uses nothing of libcddp but this table. */
#ifndef CDDPI_DEVICE_MODULE_H
#define CDDPI_DEVICE_MODULE_H

#include "device/device.h"

#include <stdarg.h>

enum { CDDPI_MODULE_ABI = 2 }; /* grows with each change of a table here or below it */
#define CDDPI_MODULE_SYMBOL "cddpi_cuda_module"

/* What the module may call. Any thread. */
struct cddpi_module_host {
    uint32_t abi;
    /* Keep the text as the calling thread's error; returns @p status. */
    cddp_status (*fail)(cddp_status status, const char *format, va_list arguments);
    /* Put "<text>: " before the stored text; returns @p status. */
    cddp_status (*fail_prefix)(cddp_status status, const char *format, va_list arguments);
    const char *(*last_error)(void);
    void (*warn)(const char *text); /* one line into the log */
    void *(*alloc)(size_t bytes);   /* zeroed; NULL: none */
    void (*free)(void *memory);
};

struct cddpi_module {
    uint32_t abi;
    const char *version; /* of cddp, as it was built */
    /* How many devices there are; an error says why there is none. Calls no more than cuInit(). */
    cddp_status (*count)(const struct cddpi_module_host *host, int *out);
    /* Device @p index of those. */
    cddp_status (*open)(const struct cddpi_module_host *host, int index, int rank,
                        struct cddpi_device **out);
    /* Lines for people: driver, runtime, cuBLASLt, cuDNN, NCCL with versions, or why not; then a
     * line a device (name, memory, compute capability, PCI id) and the peers it can reach. */
    cddp_status (*describe)(const struct cddpi_module_host *host, char *out, size_t bytes);
};

/* The module's only symbol. */
typedef const struct cddpi_module *(*cddpi_module_fn)(void);

#endif
