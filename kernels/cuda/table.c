/* table.c - the module's kernels in one table. Each file of kernels declares its functions in a
 * header of its own (kernels_*.h); what has no row here is NULL, and nobody may ask for it. */
#include "kernels/cuda/cuda_kernels.h"

extern const struct cddpi_cuda_kernels cddpi_cuda_kernels_table;

const struct cddpi_cuda_kernels cddpi_cuda_kernels_table = {
    /* products: kernels_product.h */
    .linear = NULL,

    /* attention, convolution, batch norm: kernels_cudnn.h */

    /* activations and losses: kernels_nn.h */

    /* parameters and collectives: kernels_param.h */
};
