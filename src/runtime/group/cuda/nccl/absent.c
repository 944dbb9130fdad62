/* absent.c - replaces the transport "nccl" in a module that was built without NCCL's header.
 */
#include "group/cuda/common.h"

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    (void)params;
    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "this CUDA module was built without NCCL");
}

const struct cddpi_transport cddpi_nccl_transport = {
    .name = "nccl", .carries = CDDPI_MEMORY_DEVICE, .device = {.probe = probe}};
