/* module_loader.h - finds and opens a module, a library opened at run time: the CUDA module or the
 * MPI module. A module's only symbol is a function that returns its table. */
#ifndef CDDPI_BASE_MODULE_LOADER_H
#define CDDPI_BASE_MODULE_LOADER_H

#include "base/env.h"
#include "base/module.h"

#include <pthread.h>

/* The beginning of every module's table. */
struct cddpi_module_start {
    uint32_t abi;        /* CDDPI_MODULE_ABI */
    const char *version; /* the version of cddp that the module was built from */
};

/* One module, and its table once it is open. */
struct cddpi_module_file {
    const char *title;  /* in messages: "CUDA" */
    const char *file;   /* "libcddp-cuda.so" */
    enum cddpi_env at;  /* the environment variable that names the file, wherever it is */
    const char *symbol; /* the function that returns the table */
    const char
        *built_in; /* the module's folder below the build folder's src/: "runtime/device/cuda/" */
    const char *build_with; /* the option that builds it */

    pthread_mutex_t lock; /* protects the members below */
    const void *table;    /* NULL: not open */
};

/* The beginning of the MPI module's table. */
struct cddpi_mpi_module_start {
    struct cddpi_module_start start;
    /* Write the name and version of the MPI library that was found. Any time, any thread. */
    void (*library)(char *out, size_t bytes);
};

/* The MPI module. src/runtime/group/net opens it to use it; cddp-run opens it to report what is
 * there. */
extern struct cddpi_module_file cddpi_mpi_module_file;

/** Open the module once per process and return its table; it is never closed. If the environment
 *  variable is set, it names the file. Otherwise the file is searched beside the program or library
 *  that contains this code, then in the installation, then by the dynamic loader.
 *  CDDP_ERR_UNAVAILABLE: the text says where it was searched and why that failed. Any thread. */
cddp_status cddpi_module_file_open(struct cddpi_module_file *module, const void **out);

/** The table that modules receive. */
const struct cddpi_module_host *cddpi_module_host(void);

#endif
