/* table.c - fills the table of all kernels (each file of kernels fills its own rows), and loads the
 * kernels. */
#include "base/error.h"
#include "kernels/cuda/kernels_module.h"

#include <string.h>

const struct cddpi_cuda_kernel_entry *cddpi_cuda_kernel_list;

void cddpi_cuda_kernels_fill(struct cddpi_cuda_kernels *out)
{
    memset(out, 0, sizeof *out);
#define FILL(name) cddpi_cuda_fill_##name(out);
    CDDPI_CUDA_FILLS(FILL)
}

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
