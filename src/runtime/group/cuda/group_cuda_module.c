/* group_cuda_module.c - owns the module's only symbol: its table, with the list of its
 * transports. */
#include "device/cuda/cuda_internal.h"
#include "group/cuda/common.h"
#include "group/cuda/nccl/nccl_transport.h"

#include "cddp_config.h"

#define ROW(name) &cddpi_##name##_transport,
static const struct cddpi_transport *const transports[] = {
    CDDPI_CUDA_TRANSPORTS(ROW) & cddpi_staged_hosts_transport, NULL};

static cddp_status find_nccl(const struct cddpi_module_host *host)
{
    struct nccl_library library;

    cddpi_module_host_use(host);
    return cddpi_nccl_load(&library);
}

static const struct cddpi_module module = {
    .abi = CDDPI_MODULE_ABI,
    .version = CDDP_VERSION,
    .count = cuda_count,
    .open = cuda_open,
    .describe = cuda_describe,
    .list = cuda_list,
    .find_nccl = find_nccl,
    .transports = transports,
};

CDDP_API const struct cddpi_module *cddpi_cuda_module(void);

const struct cddpi_module *cddpi_cuda_module(void)
{
    return &module;
}
