/* attention_loops.c - owns the operations on the scores of causal attention between matrix
 * products. Compiled once for each instruction set, with CDDPI_ISA as its name.
 *
 * Rows are processed up to a multiple of sixteen keys; keys after the last one that a query may
 * attend to count as minus infinity. */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

CDDPI_LANES_INLINE size_t rounded_up(size_t count)
{
    return (count + GROUP - 1) / GROUP * GROUP;
}

/* How many keys query @p r may attend to. */
CDDPI_LANES_INLINE size_t keys_of(size_t first, size_t r, size_t columns)
{
    size_t keys = first + r + 1;

    return keys < columns ? keys : columns;
}

static void fill_row(float *row, size_t from, size_t to, float value)
{
    for (size_t j = from; j < to; j++) {
        row[j] = value;
    }
}

/* The maximum ignores a NaN unless it comes last, but the row's sum will contain it. */
CDDPI_LANES_INLINE float largest(const float *row, size_t end)
{
    lanes best = lanes_load(row);

    for (size_t j = LANES; j < end; j += LANES) {
        best = lanes_max(best, lanes_load(row + j));
    }
    return lanes_largest(best);
}

CDDPI_LANES_INLINE float make_powers(float *row, size_t end, float max)
{
    struct lane_sums sums = {{{0}}};

    for (size_t j = 0; j < end; j += GROUP) {
        for (size_t i = 0; i < PARTS; i++) {
            lanes p = lanes_exp(lanes_load(row + j + i * LANES) - max);

            lanes_store(row + j + i * LANES, p);
            sums.part[i] += p;
        }
    }
    return (float)lane_sums_total(&sums);
}

/* Rows are short, so the remainder at a row's end takes as long as the rest. Therefore each step
 * runs over all rows, so that the CPU overlaps one row with the next. */
static void softmax(float *s, size_t stride, size_t rows, size_t columns, size_t first,
                    float *total, float *log_sum)
{
    for (size_t r = 0; r < rows; r++) {
        size_t keys = keys_of(first, r, columns);

        fill_row(s + r * stride, keys, rounded_up(keys), -INFINITY);
        total[r] = largest(s + r * stride, rounded_up(keys));
    }
    for (size_t r = 0; r < rows; r++) {
        float *row = s + r * stride;
        size_t end = rounded_up(keys_of(first, r, columns));
        float max = total[r];

        total[r] = make_powers(row, end, max);
        fill_row(row, end, columns, 0);
        if (log_sum != NULL) {
            log_sum[r] = max;
        }
    }
    for (size_t r = 0; r < rows && log_sum != NULL; r++) {
        log_sum[r] += logf(total[r]);
    }
}

static void divide(float *out, size_t stride, size_t rows, size_t columns, const float *total)
{
    for (size_t r = 0; r < rows; r++) {
        float *row = out + r * stride;
        float factor = 1 / total[r];

        for (size_t c = 0; c < columns; c++) {
            row[c] *= factor;
        }
    }
}

static void row_products(const float *a, const float *b, size_t stride, size_t rows, size_t columns,
                         float *out)
{
    size_t whole = columns / GROUP * GROUP;
    size_t rest = columns - whole;

    for (size_t r = 0; r < rows; r++, a += stride, b += stride) {
        struct lane_sums sums = {{{0}}};
        float last[2][GROUP] = {{0}};

        for (size_t c = 0; c < whole; c += GROUP) {
            for (size_t i = 0; i < PARTS; i++) {
                sums.part[i] += lanes_load(a + c + i * LANES) * lanes_load(b + c + i * LANES);
            }
        }
        if (rest > 0) {
            memcpy(last[0], a + whole, rest * sizeof *a);
            memcpy(last[1], b + whole, rest * sizeof *b);
            for (size_t i = 0; i < PARTS; i++) {
                sums.part[i] += lanes_load(last[0] + i * LANES) * lanes_load(last[1] + i * LANES);
            }
        }
        out[r] = (float)lane_sums_total(&sums);
    }
}

static void backward(float *s, float *dp, size_t stride, size_t rows, size_t columns, size_t first,
                     const float *log_sum, const float *delta)
{
    for (size_t r = 0; r < rows; r++) {
        float *p_row = s + r * stride;
        float *d_row = dp + r * stride;
        size_t keys = keys_of(first, r, columns);
        size_t end = rounded_up(keys);

        fill_row(p_row, keys, end, -INFINITY);
        fill_row(d_row, keys, end, 0);
        for (size_t j = 0; j < end; j += LANES) {
            lanes p = lanes_exp(lanes_load(p_row + j) - log_sum[r]);

            lanes_store(p_row + j, p);
            lanes_store(d_row + j, p * (lanes_load(d_row + j) - delta[r]));
        }
        fill_row(p_row, end, columns, 0);
        fill_row(d_row, end, columns, 0);
    }
}

extern const struct cddpi_attention_kernels CDDPI_LANES_JOIN(cddpi_attention_kernels_, CDDPI_ISA);
const struct cddpi_attention_kernels CDDPI_LANES_JOIN(cddpi_attention_kernels_, CDDPI_ISA) = {
    softmax, divide, row_products, backward};
