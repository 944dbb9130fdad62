/* stopwatch.h - the time that work in the compute stream takes, for choices made by time. Waits for
 * it, so that nothing of it can be recorded. */
#ifndef CDDPI_KERNELS_STOPWATCH_H
#define CDDPI_KERNELS_STOPWATCH_H

#include "kernels/cuda/kernels_module.h"

#include <stdbool.h>

struct cddpi_stopwatch {
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

/** @p out needs cddpi_stopwatch_close() after success. */
cudaError_t cddpi_stopwatch_open(struct cddpi_device *device, struct cddpi_stopwatch *out);
void cddpi_stopwatch_close(struct cddpi_stopwatch *watch);

/** The shortest of three runs, in milliseconds. @p run puts work into watch->stream; false: it
 *  cannot, which is no error but infinitely slow (FLT_MAX). */
cudaError_t cddpi_stopwatch_best(const struct cddpi_stopwatch *watch, bool (*run)(void *argument),
                                 void *argument, float *out_ms);

#endif
