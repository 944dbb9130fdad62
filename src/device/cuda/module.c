/* module.c - the module's only symbol. */
#include "device/cuda/internal.h"

#include "cddp_config.h"

static const struct cddpi_module module = {
    .abi = CDDPI_MODULE_ABI,
    .version = CDDP_VERSION,
    .count = cuda_count,
    .open = cuda_open,
    .describe = cuda_describe,
};

CDDP_API const struct cddpi_module *cddpi_cuda_module(void);

const struct cddpi_module *cddpi_cuda_module(void)
{
    return &module;
}
