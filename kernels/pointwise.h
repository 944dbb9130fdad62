/* pointwise.h - the functions of one number that a layer can be: a row each. What a device does
 * for a row is in kernels/cpu/cpu_pointwise.c and kernels/cuda/pointwise.cu, what a layer does in
 * nn/ops/pointwise_op.c. */
#ifndef CDDPI_KERNELS_POINTWISE_H
#define CDDPI_KERNELS_POINTWISE_H

/* Name of the constant, name that users see, and what the gradient is made of besides dy: the
 * function's INPUT or its OUTPUT.
 *     relu        max(x, 0); a NaN stays one
 *     leaky_relu  x > 0 ? x : slope x, with a slope above 0; the others have no slope
 *     gelu        x Phi(x), Phi being the normal distribution: by tanh as in GPT-2, which is
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
