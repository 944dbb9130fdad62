/* cpu_pointwise.h - functions of one number whose derivative is known from their value. Outputs may
 * be one of the inputs; counts are in elements. */
#ifndef CDDPI_KERNELS_CPU_POINTWISE_H
#define CDDPI_KERNELS_CPU_POINTWISE_H

#include <stddef.h>

/* y = tanh(x); dx = dy (1 - y^2) */
void cddpi_nn_tanh(const float *x, float *y, size_t count);
void cddpi_nn_tanh_backward(const float *dy, const float *y, float *dx, size_t count);
/* y = 1 / (1 + e^-x); dx = dy y (1 - y) */
void cddpi_nn_sigmoid(const float *x, float *y, size_t count);
void cddpi_nn_sigmoid_backward(const float *dy, const float *y, float *dx, size_t count);
/* y = x > 0 ? x : slope x, with a slope above 0; dx = y > 0 ? dy : slope dy */
void cddpi_nn_leaky_relu(const float *x, float slope, float *y, size_t count);
void cddpi_nn_leaky_relu_backward(const float *dy, const float *y, float slope, float *dx,
                                  size_t count);

#endif
