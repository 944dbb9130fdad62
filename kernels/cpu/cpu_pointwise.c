/* cpu_pointwise.c - owns the functions of pointwise.h on the CPU: short loops, and calls of the
 * kernels that exist for each instruction set. */
#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/transformer.h"

#include <math.h>

static void relu(const float *x, float slope, float *y, size_t count)
{
    (void)slope;
    cddpi_nn_relu(x, y, count);
}

static void relu_backward(const float *dy, const float *y, float slope, float *dx, size_t count)
{
    (void)slope;
    cddpi_nn_relu_backward(dy, y, dx, count);
}

static void leaky_relu(const float *x, float slope, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = x[i] > 0 ? x[i] : slope * x[i];
    }
}

static void leaky_relu_backward(const float *dy, const float *y, float slope, float *dx,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dx[i] = y[i] > 0 ? dy[i] : slope * dy[i];
    }
}

static void tanh_forward(const float *x, float slope, float *y, size_t count)
{
    (void)slope;
    for (size_t i = 0; i < count; i++) {
        y[i] = tanhf(x[i]);
    }
}

static void tanh_backward(const float *dy, const float *y, float slope, float *dx, size_t count)
{
    (void)slope;
    for (size_t i = 0; i < count; i++) {
        dx[i] = dy[i] * (1.0f - y[i]) * (1.0f + y[i]);
    }
}

/* Uses e^-|x|, which does not overflow and keeps small values exact. */
static void sigmoid(const float *x, float slope, float *y, size_t count)
{
    (void)slope;
    for (size_t i = 0; i < count; i++) {
        float power = expf(-fabsf(x[i]));

        y[i] = (x[i] < 0 ? power : 1.0f) / (1.0f + power);
    }
}

static void sigmoid_backward(const float *dy, const float *y, float slope, float *dx, size_t count)
{
    (void)slope;
    for (size_t i = 0; i < count; i++) {
        dx[i] = dy[i] * y[i] * (1.0f - y[i]);
    }
}

static void silu(const float *x, float slope, float *y, size_t count)
{
    (void)slope;
    cddpi_transformer_kernels()->silu->forward(x, y, count);
}

static void silu_backward(const float *dy, const float *x, float slope, float *dx, size_t count)
{
    (void)slope;
    cddpi_transformer_kernels()->silu->backward(dy, x, dx, count);
}

static void gelu(const float *x, float slope, float *y, size_t count)
{
    (void)slope;
    cddpi_transformer_kernels()->gelu->forward(x, false, y, count);
}

static void gelu_backward(const float *dy, const float *x, float slope, float *dx, size_t count)
{
    (void)slope;
    cddpi_transformer_kernels()->gelu->backward(dy, x, false, dx, count);
}

static void gelu_exact(const float *x, float slope, float *y, size_t count)
{
    (void)slope;
    cddpi_transformer_kernels()->gelu->forward(x, true, y, count);
}

static void gelu_exact_backward(const float *dy, const float *x, float slope, float *dx,
                                size_t count)
{
    (void)slope;
    cddpi_transformer_kernels()->gelu->backward(dy, x, true, dx, count);
}

const struct cddpi_pointwise_kernels cddpi_nn_pointwise[CDDPI_POINTWISE_COUNT] = {
    [CDDPI_POINTWISE_RELU] = {relu, relu_backward},
    [CDDPI_POINTWISE_LEAKY_RELU] = {leaky_relu, leaky_relu_backward},
    [CDDPI_POINTWISE_TANH] = {tanh_forward, tanh_backward},
    [CDDPI_POINTWISE_SIGMOID] = {sigmoid, sigmoid_backward},
    [CDDPI_POINTWISE_SILU] = {silu, silu_backward},
    [CDDPI_POINTWISE_GELU] = {gelu, gelu_backward},
    [CDDPI_POINTWISE_GELU_EXACT] = {gelu_exact, gelu_exact_backward},
};
