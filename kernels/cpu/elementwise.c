/* elementwise.c - owns the loops of elementwise.h. */
#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/variants.h"

CDDPI_BODY float positive(float x)
{
    return x < 0 ? 0 : x; /* this way round a NaN is not hidden */
}

CDDPI_BODY void body_add_bias(float *y, const float *bias, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        float *row = y + r * columns;

        for (size_t c = 0; c < columns; c++) {
            row[c] += bias[c];
        }
    }
}

CDDPI_BODY void body_add_bias_relu(float *y, const float *bias, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        float *row = y + r * columns;

        for (size_t c = 0; c < columns; c++) {
            row[c] = positive(row[c] + bias[c]);
        }
    }
}

CDDPI_BODY void body_add_column_sums(const float *x, float *sums, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;

        for (size_t c = 0; c < columns; c++) {
            sums[c] += row[c];
        }
    }
}

CDDPI_BODY void body_mask_column_sums(const float *dy, const float *y, float *out, float *sums,
                                      size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * columns;

        for (size_t c = 0; c < columns; c++) {
            float masked = y[at + c] > 0 ? dy[at + c] : 0;

            out[at + c] = masked;
            sums[c] += masked;
        }
    }
}

CDDPI_BODY void body_relu(const float *x, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = positive(x[i]);
    }
}

CDDPI_BODY void body_relu_backward(const float *dy, const float *y, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = y[i] > 0 ? dy[i] : 0;
    }
}

CDDPI_BODY void body_relu_backward_sum(const float *a, const float *b, const float *y, float *out,
                                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = a[i] + b[i];

        out[i] = y[i] > 0 ? sum : 0;
    }
}

CDDPI_BODY void body_add(const float *a, const float *b, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = a[i] + b[i];
    }
}

CDDPI_BODY void body_add_relu(const float *a, const float *b, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = positive(a[i] + b[i]);
    }
}

CDDPI_BODY float keep(float x, const uint8_t *kept, size_t element, float scale)
{
    return kept[element / 8] >> element % 8 & 1 ? x * scale : 0;
}

CDDPI_BODY void body_dropout(const float *x, const uint8_t *kept, float scale, float *out,
                             size_t channels, size_t spatial, size_t block)
{
    if (block == 1) {
        for (size_t e = 0; e < channels * spatial; e++) {
            out[e] = keep(x[e], kept, e, scale);
        }
        return;
    }
    for (size_t first = 0; first < channels; first += block) {
        for (size_t s = 0; s < spatial; s++) {
            size_t at = first * spatial + s * block;

            for (size_t c = 0; c < block; c++) {
                out[at + c] = first + c < channels
                                  ? keep(x[at + c], kept, (first + c) * spatial + s, scale)
                                  : 0; /* padding stays zero */
            }
        }
    }
}

CDDPI_VARIANTS(add_bias, (float *y, const float *bias, size_t rows, size_t columns),
               (y, bias, rows, columns))
CDDPI_VARIANTS(add_bias_relu, (float *y, const float *bias, size_t rows, size_t columns),
               (y, bias, rows, columns))
CDDPI_VARIANTS(add_column_sums, (const float *x, float *sums, size_t rows, size_t columns),
               (x, sums, rows, columns))
CDDPI_VARIANTS(mask_column_sums,
               (const float *dy, const float *y, float *out, float *sums, size_t rows,
                size_t columns),
               (dy, y, out, sums, rows, columns))
CDDPI_VARIANTS(relu, (const float *x, float *out, size_t count), (x, out, count))
CDDPI_VARIANTS(relu_backward, (const float *dy, const float *y, float *out, size_t count),
               (dy, y, out, count))
CDDPI_VARIANTS(relu_backward_sum,
               (const float *a, const float *b, const float *y, float *out, size_t count),
               (a, b, y, out, count))
CDDPI_VARIANTS(add, (const float *a, const float *b, float *out, size_t count), (a, b, out, count))
CDDPI_VARIANTS(add_relu, (const float *a, const float *b, float *out, size_t count),
               (a, b, out, count))
CDDPI_VARIANTS(dropout,
               (const float *x, const uint8_t *kept, float scale, float *out, size_t channels,
                size_t spatial, size_t block),
               (x, kept, scale, out, channels, spatial, block))
