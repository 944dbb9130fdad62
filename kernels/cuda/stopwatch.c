/* stopwatch.c - owns the timing of work in the compute stream. */
#include "kernels/cuda/stopwatch.h"

#include <float.h>

enum { RUNS = 3 };

cudaError_t cddpi_stopwatch_open(struct cddpi_device *device, struct cddpi_stopwatch *out)
{
    struct cddpi_stopwatch watch = {cddpi_cuda_compute_stream(device), NULL, NULL};
    cudaError_t error = cudaEventCreate(&watch.begin);

    if (error != cudaSuccess) {
        return error;
    }
    error = cudaEventCreate(&watch.end);
    if (error != cudaSuccess) {
        cudaEventDestroy(watch.begin);
        return error;
    }
    *out = watch;
    return cudaSuccess;
}

void cddpi_stopwatch_close(struct cddpi_stopwatch *watch)
{
    cudaEventDestroy(watch->end);
    cudaEventDestroy(watch->begin);
}

cudaError_t cddpi_stopwatch_best(const struct cddpi_stopwatch *watch, bool (*run)(void *argument),
                                 void *argument, float *out_ms)
{
    float best = FLT_MAX;

    *out_ms = FLT_MAX;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        cudaError_t error = cudaEventRecord(watch->begin, watch->stream);

        if (error == cudaSuccess && !run(argument)) {
            return cudaSuccess;
        }
        if (error == cudaSuccess) {
            error = cudaEventRecord(watch->end, watch->stream);
        }
        if (error == cudaSuccess) {
            error = cudaEventSynchronize(watch->end);
        }
        if (error == cudaSuccess) {
            error = cudaEventElapsedTime(&ms, watch->begin, watch->end);
        }
        if (error != cudaSuccess) {
            return error;
        }
        best = ms < best ? ms : best;
    }
    *out_ms = best;
    return cudaSuccess;
}
