/* loss.cuh - what the losses share: one result for each row, and their sum in a fixed order. */
#ifndef CDDPI_CUDA_LOSS_CUH
#define CDDPI_CUDA_LOSS_CUH

#include "kernels/cuda/vector.cuh"

struct row_result {
    double loss, correct;
};

/** out[0] += the sum of all `loss`, out[1] += the sum of all `correct`. */
cudaError_t cddpi_cuda_add_results(cudaStream_t stream, const struct row_result *results,
                                   size_t rows, double *out);

#endif
