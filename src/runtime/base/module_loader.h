/* module_loader.h - finding and opening a module, a library that is opened at run time: that of
 * CUDA, and that of MPI. Its only symbol is a function that gives its table. */
#ifndef CDDPI_BASE_MODULE_LOADER_H
#define CDDPI_BASE_MODULE_LOADER_H

#include "base/env.h"
#include "base/module.h"

#include <pthread.h>

/* What the table of every module begins with. */
struct cddpi_module_start {
    uint32_t abi;        /* CDDPI_MODULE_ABI */
    const char *version; /* of cddp, as it was built */
};

/* One module, and its table once it is open. */
struct cddpi_module_file {
    const char *title;  /* in messages: "CUDA" */
    const char *file;   /* "libcddp-cuda.so" */
    enum cddpi_env at;  /* the variable that names the file, wherever it is */
    const char *symbol; /* of the function that gives the table */
    const char
        *built_in; /* the module's folder below the build folder's src/: "runtime/device/cuda/" */
    const char *build_with; /* the option that builds it */

    pthread_mutex_t lock; /* of what follows */
    const void *table;    /* NULL: not open */
};

/* What the table of the MPI module begins with. */
struct cddpi_mpi_module_start {
    struct cddpi_module_start start;
    /* Write the name and version of the MPI that it has found. Any time, any thread. */
    void (*library)(char *out, size_t bytes);
};

/* The MPI module: src/runtime/group/net opens it for use, cddp-run to say what is there. */
extern struct cddpi_module_file cddpi_mpi_module_file;

/** The module's table; the file is opened once a process, and never closed. It is looked for in the
 *  variable's place, beside the program or library that this code is in, where cddp is installed,
 *  and where the loader finds it. CDDP_ERR_UNAVAILABLE: where it was looked for and why that
 * failed. Any thread. */
cddp_status cddpi_module_file_open(struct cddpi_module_file *module, const void **out);

/** The table that is handed to modules. */
const struct cddpi_module_host *cddpi_module_host(void);

#endif
