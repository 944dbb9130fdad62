/* nn_layer_norm.c - owns the passes of layer normalisation. Compiled once for each set of
 * instructions, whose name the build gives as CDDPI_ISA.
 *
 * Sums over a row run in sixteen lanes of float32, which meet in float64. The mean is corrected by
 * the mean of what is left after it was taken off, so a row far from zero loses nothing. */
#include "kernels/cpu/nn_gpt.h"
#include "kernels/cpu/nn_lanes.h"

enum { BLOCK_ROWS = 32 }; /* that a sum over rows adds up before it meets the others */

struct moments {
    float mean, inverse;
};

CDDPI_LANES_INLINE struct moments moments_of(const float *x, size_t columns, float epsilon)
{
    size_t whole = columns / LANES * LANES;
    lanes sum = {0};
    lanes offsets = {0};
    lanes squares = {0};
    double count = (double)columns;
    double offset, variance;
    float mean;

    for (size_t c = 0; c < whole; c += LANES) {
        sum += lanes_load(x + c);
    }
    sum += lanes_load_part(x + whole, columns - whole, 0);
    mean = (float)(lanes_sum(sum) / count);
    for (size_t c = 0; c < whole; c += LANES) {
        lanes centred = lanes_load(x + c) - mean;

        offsets += centred;
        squares += centred * centred;
    }
    if (whole < columns) {
        lanes centred = lanes_load_part(x + whole, columns - whole, mean) - mean;

        offsets += centred;
        squares += centred * centred;
    }
    offset = lanes_sum(offsets) / count;
    variance = lanes_sum(squares) / count - offset * offset;
    variance = variance < 0 ? 0 : variance;
    return (struct moments){(float)((double)mean + offset),
                            (float)(1 / sqrt(variance + (double)epsilon))};
}

static void forward(const float *x, const float *weight, const float *bias, float epsilon,
                    size_t rows, size_t columns, float *out, float *mean, float *inverse)
{
    size_t whole = columns / LANES * LANES;
    size_t rest = columns - whole;

    for (size_t r = 0; r < rows; r++) {
        const float *from = x + r * columns;
        float *to = out + r * columns;
        struct moments row = moments_of(from, columns, epsilon);

        for (size_t c = 0; c < whole; c += LANES) {
            lanes normal = (lanes_load(from + c) - row.mean) * row.inverse;

            lanes_store(to + c, normal * lanes_load(weight + c) + lanes_load(bias + c));
        }
        if (rest > 0) {
            lanes normal = (lanes_load_part(from + whole, rest, 0) - row.mean) * row.inverse;

            lanes_store_part(to + whole,
                             normal * lanes_load_part(weight + whole, rest, 0) +
                                 lanes_load_part(bias + whole, rest, 0),
                             rest);
        }
        if (mean != NULL) {
            mean[r] = row.mean;
        }
        if (inverse != NULL) {
            inverse[r] = row.inverse;
        }
    }
}

/* What a row's gradient has in common: dx = inverse (g - g_mean - normal product_mean), where g =
 * dy weight and product = g normal. The parameters' sums are added to on the way. */
struct shared {
    float g_mean, product_mean;
};

CDDPI_LANES_INLINE struct shared row_sums(const float *dy, const float *x, const float *weight,
                                          struct moments row, size_t columns, float *dweight,
                                          float *dbias)
{
    size_t whole = columns / LANES * LANES;
    size_t rest = columns - whole;
    lanes sum = {0};
    lanes products = {0};

    for (size_t c = 0; c < whole; c += LANES) {
        lanes dyc = lanes_load(dy + c);
        lanes normal = (lanes_load(x + c) - row.mean) * row.inverse;
        lanes g = dyc * lanes_load(weight + c);

        sum += g;
        products += g * normal;
        lanes_store(dweight + c, lanes_load(dweight + c) + dyc * normal);
        lanes_store(dbias + c, lanes_load(dbias + c) + dyc);
    }
    if (rest > 0) {
        lanes dyc = lanes_load_part(dy + whole, rest, 0);
        lanes normal = (lanes_load_part(x + whole, rest, 0) - row.mean) * row.inverse;
        lanes g = dyc * lanes_load_part(weight + whole, rest, 0);

        sum += g;
        products += g * normal;
        lanes_store_part(dweight + whole, lanes_load_part(dweight + whole, rest, 0) + dyc * normal,
                         rest);
        lanes_store_part(dbias + whole, lanes_load_part(dbias + whole, rest, 0) + dyc, rest);
    }
    return (struct shared){(float)(lanes_sum(sum) / (double)columns),
                           (float)(lanes_sum(products) / (double)columns)};
}

CDDPI_LANES_INLINE void row_gradient(const float *dy, const float *x, const float *weight,
                                     struct moments row, struct shared shared, size_t columns,
                                     float *dx)
{
    size_t whole = columns / LANES * LANES;
    size_t rest = columns - whole;

    for (size_t c = 0; c < whole; c += LANES) {
        lanes normal = (lanes_load(x + c) - row.mean) * row.inverse;
        lanes g = lanes_load(dy + c) * lanes_load(weight + c);

        lanes_store(dx + c, (g - shared.g_mean - normal * shared.product_mean) * row.inverse);
    }
    if (rest > 0) {
        lanes normal = (lanes_load_part(x + whole, rest, 0) - row.mean) * row.inverse;
        lanes g = lanes_load_part(dy + whole, rest, 0) * lanes_load_part(weight + whole, rest, 0);

        lanes_store_part(dx + whole,
                         (g - shared.g_mean - normal * shared.product_mean) * row.inverse, rest);
    }
}

static void add_to(float *sums, const float *part, size_t columns)
{
    for (size_t c = 0; c < columns; c++) {
        sums[c] += part[c];
    }
}

static void backward(const float *dy, const float *x, const float *weight, const float *mean,
                     const float *inverse, size_t rows, size_t columns, float *dx, float *dweight,
                     float *dbias, float *scratch)
{
    for (size_t first = 0; first < rows; first += BLOCK_ROWS) {
        size_t end = rows - first < BLOCK_ROWS ? rows : first + BLOCK_ROWS;

        memset(scratch, 0, 2 * columns * sizeof *scratch);
        for (size_t r = first; r < end; r++) {
            struct moments row = {mean[r], inverse[r]};
            size_t at = r * columns;
            struct shared shared = row_sums(dy + at, x + at, weight, row, columns, scratch,
                                            scratch + columns);

            if (dx != NULL) {
                row_gradient(dy + at, x + at, weight, row, shared, columns, dx + at);
            }
        }
        add_to(dweight, scratch, columns);
        add_to(dbias, scratch + columns, columns);
    }
}

extern const struct cddpi_layer_norm_kernels CDDPI_LANES_JOIN(cddpi_layer_norm_kernels_, CDDPI_ISA);
const struct cddpi_layer_norm_kernels CDDPI_LANES_JOIN(cddpi_layer_norm_kernels_,
                                                       CDDPI_ISA) = {forward, backward};
