/* timer.h - the time that work in the compute stream takes, for choices made by time. Waits for
 * it, so that nothing of it can be captured. */
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

/** The shortest of three runs, in milliseconds. @p run puts work into timer->stream; false: it
 *  cannot, which is no error but infinitely slow (FLT_MAX). */
cudaError_t cddpi_cuda_timer_best(const struct cddpi_cuda_timer *timer, bool (*run)(void *argument),
                                  void *argument, float *out_ms);

#endif
