/* table.c - fills the table of all kernels: each file of kernels fills its own rows. */
#include "kernels/cuda/kernels_module.h"

#include <string.h>

void cddpi_cuda_kernels_fill(struct cddpi_cuda_kernels *out)
{
    memset(out, 0, sizeof *out);
    cddpi_cuda_fill_layer_norm(out);
    cddpi_cuda_fill_layer_norm_grad(out);
    cddpi_cuda_fill_embedding(out);
    cddpi_cuda_fill_embedding_grad(out);
    cddpi_cuda_fill_elementwise(out);
    cddpi_cuda_fill_pointwise(out);
    cddpi_cuda_fill_columns(out);
    cddpi_cuda_fill_response_norm(out);
    cddpi_cuda_fill_lstm(out);
    cddpi_cuda_fill_dropout(out);
    cddpi_cuda_fill_column_sums(out);
    cddpi_cuda_fill_pool(out);
    cddpi_cuda_fill_global_pool(out);
    cddpi_cuda_fill_cross_entropy(out);
    cddpi_cuda_fill_loss(out);
    cddpi_cuda_fill_layout(out);
    cddpi_cuda_fill_matmul(out);
    cddpi_cuda_fill_attention(out);
    cddpi_cuda_fill_conv(out);
    cddpi_cuda_fill_few_channels(out);
    cddpi_cuda_fill_batch_norm(out);
    cddpi_cuda_fill_update(out);
    cddpi_cuda_fill_squares(out);
    cddpi_cuda_fill_cast(out);
    cddpi_cuda_fill_reduce(out);
}
