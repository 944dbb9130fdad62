/* elementwise.h - passes over activations and gradients: bias, relu, sums, dropout, and the
 * functions of pointwise.h.
 *
 * Counts are in elements; pointers need no alignment. Unless a comment says otherwise, an output
 * may be one of the inputs. */
#ifndef CDDPI_KERNELS_CPU_ELEMENTWISE_H
#define CDDPI_KERNELS_CPU_ELEMENTWISE_H

#include "kernels/pointwise.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y[r][c] += bias[c] */
void cddpi_nn_add_bias(float *y, const float *bias, size_t rows, size_t columns);
/* y[r][c] = max(y[r][c] + bias[c], 0); a NaN stays a NaN */
void cddpi_nn_add_bias_relu(float *y, const float *bias, size_t rows, size_t columns);
/* sums[c] += sum over r of x[r][c]; many rows are summed with float64 precision */
void cddpi_nn_add_column_sums(const float *x, float *sums, size_t rows, size_t columns);
/* out[r][c] = y[r][c] > 0 ? dy[r][c] : 0, and sums[c] += sum over r of out[r][c] */
void cddpi_nn_mask_column_sums(const float *dy, const float *y, float *out, float *sums,
                               size_t rows, size_t columns);

/* sums[c] += sum over i < @p rows of x[list[i]][c], in that order and with the same precision */
void cddpi_nn_add_listed_rows(const float *x, const uint32_t *list, size_t rows, size_t columns,
                              float *sums);

/* out = max(x, 0); a NaN stays a NaN */
void cddpi_nn_relu(const float *x, float *out, size_t count);
/* out = y > 0 ? dy : 0 */
void cddpi_nn_relu_backward(const float *dy, const float *y, float *out, size_t count);
/* out = y > 0 ? a + b : 0 */
void cddpi_nn_relu_backward_sum(const float *a, const float *b, const float *y, float *out,
                                size_t count);
/* out = a + b */
void cddpi_nn_add(const float *a, const float *b, float *out, size_t count);
/* out = max(a + b, 0); a NaN stays a NaN */
void cddpi_nn_add_relu(const float *a, const float *b, float *out, size_t count);

/* out = kept ? x * scale : 0, for one sample. Bit e of @p kept belongs to element e = channel *
 * spatial + position, wherever the layout (channels in blocks of @p block) stores it. */
void cddpi_nn_dropout(const float *x, const uint8_t *kept, float scale, float *out, size_t channels,
                      size_t spatial, size_t block);

/* cpu_pointwise.c: a function of pointwise.h and its gradient. An output may be one of the inputs.
 */
struct cddpi_pointwise_kernels {
    void (*forward)(const float *x, float slope, float *y, size_t count);
    /* @p saved: x or y, as the function's row in pointwise.h says. */
    void (*backward)(const float *dy, const float *saved, float slope, float *dx, size_t count);
};

extern const struct cddpi_pointwise_kernels cddpi_nn_pointwise[CDDPI_POINTWISE_COUNT];

#endif
