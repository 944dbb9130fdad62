/* cpu_loss.h - losses over rows of outputs; each computes its gradient in the same pass. */
#ifndef CDDPI_KERNELS_CPU_LOSS_H
#define CDDPI_KERNELS_CPU_LOSS_H

#include <stddef.h>
#include <stdint.h>

/* Sum over rows of -log softmax(x[r])[label[r]], in float64. @p grad receives its derivative,
 * softmax - onehot; NULL: not needed. Labels are in [0, columns). */
double cddpi_nn_cross_entropy(const float *x, const int32_t *label, size_t rows, size_t columns,
                              float *grad);
/* Sum over rows of the mean over columns of (x - onehot)^2; @p grad as above. */
double cddpi_nn_mse(const float *x, const int32_t *label, size_t rows, size_t columns, float *grad);
/* Sum over rows of the mean over columns of (x - target)^2, or |x - target|, whose derivative is 0
 * where they are equal; @p grad as above. */
double cddpi_nn_squared_error(const float *x, const float *targets, size_t rows, size_t columns,
                              float *grad);
double cddpi_nn_absolute_error(const float *x, const float *targets, size_t rows, size_t columns,
                               float *grad);
/* Sum over rows of the mean over columns of the cross-entropy of (p, 1 - p), p = 1 / (1 + e^-x),
 * against (onehot, 1 - onehot). With one column, the target is the label itself, 0 or 1. @p grad as
 * above. */
double cddpi_nn_binary_cross_entropy(const float *x, const int32_t *label, size_t rows,
                                     size_t columns, float *grad);
/* Count rows of one number which is above 0 if and only if the label is 1. A NaN is never correct.
 */
int cddpi_nn_count_correct_signs(const float *x, const int32_t *label, size_t rows);
/* Count rows whose largest element (the first of equal ones) is the label's. A row with a NaN is
 * never correct. */
int cddpi_nn_count_correct(const float *x, const int32_t *label, size_t rows, size_t columns);
/* out = scale * x */
void cddpi_nn_scale(const float *x, float scale, float *out, size_t count);

#endif
