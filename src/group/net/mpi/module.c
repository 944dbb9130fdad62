/* module.c - the module's only symbol: its table. */
#include "group/net/mpi/internal.h"

#include "cddp_config.h"

static void use(const struct cddpi_mpi_host *host)
{
    cddpi_mpi_host = host;
    cddpi_module_host_use(host->base);
}

static const struct cddpi_mpi_module module = {
    .abi = CDDPI_MODULE_ABI,
    .version = CDDP_VERSION,
    .use = use,
    .carrier = &cddpi_mpi_carrier_ops,
    .bootstrap = cddpi_mpi_bootstrap,
};

CDDP_API const struct cddpi_mpi_module *cddpi_mpi_module(void);

const struct cddpi_mpi_module *cddpi_mpi_module(void)
{
    return &module;
}
