/* loaded.c - owns the list of kernels. */
#include "kernels/cuda/loaded.h"

const struct cddpi_cuda_entry *cddpi_cuda_entries;

cddp_status cddpi_cuda_load(struct cddpi_device *device)
{
    cddp_status status = CDDP_OK;

    for (const struct cddpi_cuda_entry *at = cddpi_cuda_entries; at != NULL && status == CDDP_OK;
         at = at->next) {
        struct cudaFuncAttributes attributes;

        /* a question that only a loaded kernel answers */
        status = cddpi_cuda_status(device, cudaFuncGetAttributes(&attributes, at->kernel),
                                   "loading kernels: cudaFuncGetAttributes", __FILE__, __LINE__);
    }
    return status;
}
