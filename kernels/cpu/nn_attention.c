/* nn_attention.c - owns what happens to the scores of causal attention between matrix products.
 * Compiled once for each set of instructions, whose name the build gives as CDDPI_ISA.
 *
 * Rows are worked on up to a multiple of sixteen keys; those behind the last one that a query may
 * look at count as minus infinity. */
#include "kernels/cpu/nn_gpt.h"
#include "kernels/cpu/nn_lanes.h"

CDDPI_LANES_INLINE size_t rounded_up(size_t count)
{
    return (count + LANES - 1) / LANES * LANES;
}

/* How many keys query @p r may look at. */
CDDPI_LANES_INLINE size_t keys_of(size_t first, size_t r, size_t columns)
{
    size_t keys = first + r + 1;

    return keys < columns ? keys : columns;
}

static void fill(float *row, size_t from, size_t to, float value)
{
    for (size_t j = from; j < to; j++) {
        row[j] = value;
    }
}

/* A NaN is nobody's maximum; the row's sum will show it. */
CDDPI_LANES_INLINE float largest(const float *row, size_t end)
{
    lanes best = lanes_load(row);
    float max;

    for (size_t j = LANES; j < end; j += LANES) {
        lanes v = lanes_load(row + j);

        best = lanes_select(v > best, v, best);
    }
    max = best[0];
    for (int i = 1; i < LANES; i++) {
        max = best[i] > max ? best[i] : max;
    }
    return max;
}

static void softmax(float *s, size_t stride, size_t rows, size_t columns, size_t first,
                    float *total, float *log_sum)
{
    for (size_t r = 0; r < rows; r++) {
        float *row = s + r * stride;
        size_t keys = keys_of(first, r, columns);
        size_t end = rounded_up(keys);
        lanes sum = {0};
        float max;

        fill(row, keys, end, -INFINITY);
        max = largest(row, end);
        for (size_t j = 0; j < end; j += LANES) {
            lanes p = lanes_exp(lanes_load(row + j) - max);

            lanes_store(row + j, p);
            sum += p;
        }
        fill(row, end, columns, 0);
        total[r] = (float)lanes_sum(sum);
        if (log_sum != NULL) {
            log_sum[r] = max + logf(total[r]);
        }
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
    size_t whole = columns / LANES * LANES;
    size_t rest = columns - whole;

    for (size_t r = 0; r < rows; r++, a += stride, b += stride) {
        lanes sum = {0};

        for (size_t c = 0; c < whole; c += LANES) {
            sum += lanes_load(a + c) * lanes_load(b + c);
        }
        sum += lanes_load_part(a + whole, rest, 0) * lanes_load_part(b + whole, rest, 0);
        out[r] = (float)lanes_sum(sum);
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

        fill(p_row, keys, end, -INFINITY);
        fill(d_row, keys, end, 0);
        for (size_t j = 0; j < end; j += LANES) {
            lanes p = lanes_exp(lanes_load(p_row + j) - log_sum[r]);

            lanes_store(p_row + j, p);
            lanes_store(d_row + j, p * (lanes_load(d_row + j) - delta[r]));
        }
        fill(p_row, end, columns, 0);
        fill(d_row, end, columns, 0);
    }
}

extern const struct cddpi_attention_kernels CDDPI_LANES_JOIN(cddpi_attention_kernels_, CDDPI_ISA);
const struct cddpi_attention_kernels CDDPI_LANES_JOIN(cddpi_attention_kernels_, CDDPI_ISA) = {
    softmax, divide, row_products, backward};
