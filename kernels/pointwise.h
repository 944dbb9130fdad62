/* pointwise.h - the element-wise functions that a layer can be, one row each. Their implementations
 * are in kernels/cpu/cpu_pointwise.c and kernels/cuda/pointwise.cu, their layers in
 * nn/ops/pointwise_op.c. */
#ifndef CDDPI_KERNELS_POINTWISE_H
#define CDDPI_KERNELS_POINTWISE_H

/* Each row: name of the constant, name that users see, and whether the gradient is computed from dy
 * and the function's INPUT, or from dy and its OUTPUT.
 *
 *     relu        max(x, 0); a NaN stays a NaN
 *     leaky_relu  x > 0 ? x : slope x, with a slope above 0; the others ignore the slope
 *     gelu        x Phi(x), where Phi is the normal distribution: by tanh as in GPT-2, i.e.
 *                 x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), or exactly, by erf */
#define CDDPI_POINTWISE_ROWS(ROW)                                                                  \
    ROW(RELU, "relu", OUTPUT)                                                                      \
    ROW(LEAKY_RELU, "leaky_relu", OUTPUT)                                                          \
    ROW(TANH, "tanh", OUTPUT)                                                                      \
    ROW(SIGMOID, "sigmoid", OUTPUT) /* 1 / (1 + e^-x) */                                           \
    ROW(SILU, "silu", INPUT)        /* x / (1 + e^-x) */                                           \
    ROW(GELU, "gelu", INPUT)                                                                       \
    ROW(GELU_EXACT, "gelu", INPUT)

enum cddpi_pointwise {
#define CDDPI_POINTWISE_ROW(function, name, needs) CDDPI_POINTWISE_##function,
    CDDPI_POINTWISE_ROWS(CDDPI_POINTWISE_ROW)
#undef CDDPI_POINTWISE_ROW
        CDDPI_POINTWISE_COUNT
};

#endif
