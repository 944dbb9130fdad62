/* loss.cuh - what the losses share: a result for each row, which is added up in order. */
#ifndef CDDPI_CUDA_LOSS_CUH
#define CDDPI_CUDA_LOSS_CUH

#include "kernels/cuda/vector.cuh"

struct row_result {
    double loss, correct;
};

/** out[0] += the sum of the losses, out[1] += that of the correct ones. */
cudaError_t cddpi_cuda_add_results(cudaStream_t stream, const struct row_result *results,
                                   size_t rows, double *out);

#endif
