/* mpi_module.c - owns the module's only symbol: its table. */
#include "group/net/mpi/mpi_internal.h"

#include "cddp_config.h"

#include <stdio.h>
#include <string.h>

static void use(const struct cddpi_mpi_host *host)
{
    cddpi_mpi_host = host;
    cddpi_module_host_use(host->base);
}

static void library(char *out, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    (void)MPI_Get_library_version(version, &length);
    snprintf(out, bytes, "%.*s", (int)strcspn(version, ",\n"), version);
}

static const struct cddpi_mpi_module module = {
    .start = {.start = {.abi = CDDPI_MODULE_ABI, .version = CDDP_VERSION}, .library = library},
    .use = use,
    .carrier = &cddpi_mpi_carrier_ops,
    .bootstrap = cddpi_mpi_bootstrap,
};

CDDP_API const struct cddpi_mpi_module *cddpi_mpi_module(void);

const struct cddpi_mpi_module *cddpi_mpi_module(void)
{
    return &module;
}
