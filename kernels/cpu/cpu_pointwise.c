/* cpu_pointwise.c - owns tanh, sigmoid and leaky relu with their derivatives. */
#include "kernels/cpu/cpu_pointwise.h"

#include <math.h>

void cddpi_nn_tanh(const float *x, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = tanhf(x[i]);
    }
}

void cddpi_nn_tanh_backward(const float *dy, const float *y, float *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dx[i] = dy[i] * (1.0f - y[i]) * (1.0f + y[i]);
    }
}

/* With e^-|x|, which does not overflow and keeps small values exact. */
void cddpi_nn_sigmoid(const float *x, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float power = expf(-fabsf(x[i]));

        y[i] = (x[i] < 0 ? power : 1.0f) / (1.0f + power);
    }
}

void cddpi_nn_sigmoid_backward(const float *dy, const float *y, float *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dx[i] = dy[i] * y[i] * (1.0f - y[i]);
    }
}

void cddpi_nn_leaky_relu(const float *x, float slope, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = x[i] > 0 ? x[i] : slope * x[i];
    }
}

void cddpi_nn_leaky_relu_backward(const float *dy, const float *y, float slope, float *dx,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dx[i] = y[i] > 0 ? dy[i] : slope * dy[i];
    }
}
