/* timer.c - measures the time of work in the compute stream. */
#include "kernels/cuda/kernels_module.h"

#include <float.h>

enum { RUNS = 3 };

cudaError_t cddpi_cuda_timer_open(struct cddpi_device *device, struct cddpi_cuda_timer *out)
{
    struct cddpi_cuda_timer timer = {cddpi_cuda_compute_stream(device), NULL, NULL};
    cudaError_t error;

    CDDPI_TRY_CUDA(cudaEventCreate(&timer.begin));
    error = cudaEventCreate(&timer.end);
    if (error != cudaSuccess) {
        cudaEventDestroy(timer.begin);
        return error;
    }
    *out = timer;
    return cudaSuccess;
}

void cddpi_cuda_timer_close(struct cddpi_cuda_timer *timer)
{
    cudaEventDestroy(timer->end);
    cudaEventDestroy(timer->begin);
}

cudaError_t cddpi_cuda_timer_best(const struct cddpi_cuda_timer *timer, bool (*run)(void *argument),
                                  void *argument, float *out_ms)
{
    float best = FLT_MAX;

    *out_ms = FLT_MAX;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;

        CDDPI_TRY_CUDA(cudaEventRecord(timer->begin, timer->stream));
        if (!run(argument)) {
            return cudaSuccess;
        }
        CDDPI_TRY_CUDA(cudaEventRecord(timer->end, timer->stream));
        CDDPI_TRY_CUDA(cudaEventSynchronize(timer->end));
        CDDPI_TRY_CUDA(cudaEventElapsedTime(&ms, timer->begin, timer->end));
        best = ms < best ? ms : best;
    }
    *out_ms = best;
    return cudaSuccess;
}
