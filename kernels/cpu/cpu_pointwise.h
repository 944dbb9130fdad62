/* cpu_pointwise.h - the functions of pointwise.h and their gradients on the CPU. */
#ifndef CDDPI_KERNELS_CPU_POINTWISE_H
#define CDDPI_KERNELS_CPU_POINTWISE_H

#include "kernels/pointwise.h"

#include <stddef.h>

/* An output may be one of the inputs; counts are in elements. */
struct cddpi_pointwise_kernels {
    void (*forward)(const float *x, float slope, float *y, size_t count);
    /* @p saved: x or y, as the function's row in pointwise.h says. */
    void (*backward)(const float *dy, const float *saved, float slope, float *dx, size_t count);
};

extern const struct cddpi_pointwise_kernels cddpi_nn_pointwise[CDDPI_POINTWISE_COUNT];

#endif
