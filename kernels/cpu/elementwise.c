/* elementwise.c - owns the loops of elementwise.h. */
#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/isa.h"

CDDPI_BODY float positive(float x)
{
    return x < 0 ? 0 : x; /* with this order of comparison, a NaN stays a NaN */
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

/* Sums over rows, for some columns at a time: a few rows are summed in float32, and these sums are
 * added in float64. If there are only a few rows, they are added one by one. */
enum { STRIP = 1024, FEW_ROWS = 16 };

struct strip {
    double sum[STRIP];
    float part[STRIP];
};

CDDPI_BODY void add_parts(struct strip *strip, size_t width)
{
    for (size_t c = 0; c < width; c++) {
        strip->sum[c] += (double)strip->part[c];
        strip->part[c] = 0;
    }
}

CDDPI_BODY void put_sums(const struct strip *strip, size_t width, float *sums)
{
    for (size_t c = 0; c < width; c++) {
        sums[c] = (float)((double)sums[c] + strip->sum[c]);
    }
}

CDDPI_BODY void clear_strip(struct strip *strip, size_t width)
{
    for (size_t c = 0; c < width; c++) {
        strip->sum[c] = 0;
        strip->part[c] = 0;
    }
}

CDDPI_BODY void add_rows(const float *x, float *sums, size_t rows, size_t columns, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;

        for (size_t c = 0; c < width; c++) {
            sums[c] += row[c];
        }
    }
}

CDDPI_BODY size_t rows_from(size_t first, size_t rows)
{
    return rows - first < FEW_ROWS ? rows - first : FEW_ROWS;
}

CDDPI_BODY void body_add_column_sums(const float *x, float *sums, size_t rows, size_t columns)
{
    struct strip strip;

    if (rows <= FEW_ROWS) {
        add_rows(x, sums, rows, columns, columns);
        return;
    }
    for (size_t first = 0; first < columns; first += STRIP) {
        size_t width = columns - first < STRIP ? columns - first : STRIP;

        clear_strip(&strip, width);
        for (size_t r = 0; r < rows; r += FEW_ROWS) {
            add_rows(x + r * columns + first, strip.part, rows_from(r, rows), columns, width);
            add_parts(&strip, width);
        }
        put_sums(&strip, width, sums + first);
    }
}

CDDPI_BODY void mask_rows(const float *dy, const float *y, float *out, float *sums, size_t rows,
                          size_t columns, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * columns;

        for (size_t c = 0; c < width; c++) {
            float masked = y[at + c] > 0 ? dy[at + c] : 0;

            out[at + c] = masked;
            sums[c] += masked;
        }
    }
}

CDDPI_BODY void body_mask_column_sums(const float *dy, const float *y, float *out, float *sums,
                                      size_t rows, size_t columns)
{
    struct strip strip;

    if (rows <= FEW_ROWS) {
        mask_rows(dy, y, out, sums, rows, columns, columns);
        return;
    }
    for (size_t first = 0; first < columns; first += STRIP) {
        size_t width = columns - first < STRIP ? columns - first : STRIP;

        clear_strip(&strip, width);
        for (size_t r = 0; r < rows; r += FEW_ROWS) {
            size_t at = r * columns + first;

            mask_rows(dy + at, y + at, out + at, strip.part, rows_from(r, rows), columns, width);
            add_parts(&strip, width);
        }
        put_sums(&strip, width, sums + first);
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
CDDPI_BODY void body_add_listed_rows(const float *x, const uint32_t *list, size_t rows,
                                     size_t columns, float *sums)
{
    struct strip strip;

    if (rows <= FEW_ROWS) {
        for (size_t i = 0; i < rows; i++) {
            add_rows(x + list[i] * columns, sums, 1, columns, columns);
        }
        return;
    }
    for (size_t first = 0; first < columns; first += STRIP) {
        size_t width = columns - first < STRIP ? columns - first : STRIP;

        clear_strip(&strip, width);
        for (size_t i = 0; i < rows; i++) {
            add_rows(x + list[i] * columns + first, strip.part, 1, columns, width);
            if (i % FEW_ROWS == FEW_ROWS - 1 || i + 1 == rows) {
                add_parts(&strip, width);
            }
        }
        put_sums(&strip, width, sums + first);
    }
}

CDDPI_VARIANTS(add_listed_rows,
               (const float *x, const uint32_t *list, size_t rows, size_t columns, float *sums),
               (x, list, rows, columns, sums))
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
