/* timer.h - measures work in the compute stream, for choices by time. It waits for the work, so
 * none of this can be captured. */
#ifndef CDDPI_KERNELS_CUDA_TIMER_H
#define CDDPI_KERNELS_CUDA_TIMER_H

#include "kernels/cuda/kernels_module.h"

#include <stdbool.h>

struct cddpi_cuda_timer {
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

/** @p out needs cddpi_cuda_timer_close() after success. */
cudaError_t cddpi_cuda_timer_open(struct cddpi_device *device, struct cddpi_cuda_timer *out);
void cddpi_cuda_timer_close(struct cddpi_cuda_timer *timer);

/** The shortest of three runs, in milliseconds. @p run enqueues work in timer->stream. If it
 *  returns false, it cannot; that is not an error, and the time is infinite (FLT_MAX). */
cudaError_t cddpi_cuda_timer_best(const struct cddpi_cuda_timer *timer, bool (*run)(void *argument),
                                  void *argument, float *out_ms);

#endif
