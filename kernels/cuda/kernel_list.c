/* kernel_list.c - owns the list of all kernels. */
#include "kernels/cuda/kernel_list.h"

#include "base/error.h"

const struct cddpi_cuda_kernel_entry *cddpi_cuda_kernel_list;

cddp_status cddpi_cuda_load_kernels(struct cddpi_device *device)
{
    for (const struct cddpi_cuda_kernel_entry *at = cddpi_cuda_kernel_list; at != NULL;
         at = at->next) {
        struct cudaFuncAttributes attributes;

        /* only a loaded kernel can answer this, so the call loads it */
        CDDPI_TRY(cddpi_cuda_status(device, cudaFuncGetAttributes(&attributes, at->kernel),
                                    "loading kernels: cudaFuncGetAttributes", __FILE__, __LINE__));
    }
    return CDDP_OK;
}
