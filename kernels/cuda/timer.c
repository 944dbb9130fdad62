/* timer.c - measures the time of work in the compute stream. */
#include "kernels/cuda/timer.h"

#include <float.h>

enum { RUNS = 3 };

cudaError_t cddpi_cuda_timer_open(struct cddpi_device *device, struct cddpi_cuda_timer *out)
{
    struct cddpi_cuda_timer timer = {cddpi_cuda_compute_stream(device), NULL, NULL};
    cudaError_t error = cudaEventCreate(&timer.begin);

    if (error != cudaSuccess) {
        return error;
    }
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
        cudaError_t error = cudaEventRecord(timer->begin, timer->stream);

        if (error == cudaSuccess && !run(argument)) {
            return cudaSuccess;
        }
        if (error == cudaSuccess) {
            error = cudaEventRecord(timer->end, timer->stream);
        }
        if (error == cudaSuccess) {
            error = cudaEventSynchronize(timer->end);
        }
        if (error == cudaSuccess) {
            error = cudaEventElapsedTime(&ms, timer->begin, timer->end);
        }
        if (error != cudaSuccess) {
            return error;
        }
        best = ms < best ? ms : best;
    }
    *out_ms = best;
    return cudaSuccess;
}
