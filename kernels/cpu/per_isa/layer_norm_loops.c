/* layer_norm_loops.c - owns the passes of layer normalisation. Compiled once for each instruction
 * set, with CDDPI_ISA as its name.
 *
 * Sums over a row use sixteen lanes of float32, which are added in float64. The mean is corrected
 * by the mean of the remainders after it was subtracted, so a row far from zero loses no precision.
 */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

enum { BLOCK_ROWS = 16 };    /* rows that a sum over rows adds up before it is added to the total */
enum { CHUNK = 64 * GROUP }; /* elements of a row that are summed in float32 */

struct layer_norm_row_moments {
    float mean, inverse;
};

/* The elements of a row after its last complete group, padded. */
struct tail {
    float element[GROUP];
};

CDDPI_LANES_INLINE struct tail tail_of(const float *row, size_t columns, float rest)
{
    size_t whole = columns / GROUP * GROUP;
    struct tail tail;

    for (int i = 0; i < GROUP; i++) {
        tail.element[i] = rest;
    }
    memcpy(tail.element, row + whole, (columns - whole) * sizeof *row);
    return tail;
}

CDDPI_LANES_INLINE void add_group(struct lane_sums *sum, const float *x)
{
    for (size_t i = 0; i < PARTS; i++) {
        sum->part[i] += lanes_load(x + i * LANES);
    }
}

CDDPI_LANES_INLINE void add_centred(struct lane_sums *offsets, struct lane_sums *squares,
                                    const float *x, float mean)
{
    for (size_t i = 0; i < PARTS; i++) {
        lanes centred = lanes_load(x + i * LANES) - mean;

        offsets->part[i] += centred;
        squares->part[i] += centred * centred;
    }
}

CDDPI_LANES_INLINE size_t chunk_from(size_t first, size_t columns)
{
    return columns - first < CHUNK ? columns - first : CHUNK;
}

CDDPI_LANES_INLINE double sum_chunk(const float *x, size_t count)
{
    size_t whole = count / GROUP * GROUP;
    struct lane_sums sum = {{{0}}};

    for (size_t c = 0; c < whole; c += GROUP) {
        add_group(&sum, x + c);
    }
    if (whole < count) {
        struct tail tail = tail_of(x, count, 0);

        add_group(&sum, tail.element);
    }
    return lane_sums_total(&sum);
}

struct deviations {
    double offset, squares;
};

CDDPI_LANES_INLINE struct deviations deviations_of(const float *x, size_t count, float mean)
{
    size_t whole = count / GROUP * GROUP;
    struct lane_sums offsets = {{{0}}};
    struct lane_sums squares = {{{0}}};

    for (size_t c = 0; c < whole; c += GROUP) {
        add_centred(&offsets, &squares, x + c, mean);
    }
    if (whole < count) {
        struct tail tail = tail_of(x, count, mean);

        add_centred(&offsets, &squares, tail.element, mean);
    }
    return (struct deviations){lane_sums_total(&offsets), lane_sums_total(&squares)};
}

CDDPI_LANES_INLINE struct layer_norm_row_moments moments_of(const float *x, size_t columns,
                                                            float epsilon)
{
    double count = (double)columns;
    double sum = 0;
    double offset = 0;
    double variance = 0;
    float mean;

    for (size_t c = 0; c < columns; c += CHUNK) {
        sum += sum_chunk(x + c, chunk_from(c, columns));
    }
    mean = (float)(sum / count);
    for (size_t c = 0; c < columns; c += CHUNK) {
        struct deviations part = deviations_of(x + c, chunk_from(c, columns), mean);

        offset += part.offset;
        variance += part.squares;
    }
    offset /= count;
    variance = variance / count - offset * offset;
    variance = variance < 0 ? 0 : variance;
    return (struct layer_norm_row_moments){(float)((double)mean + offset),
                                           (float)(1 / sqrt(variance + (double)epsilon))};
}

static void forward(const float *x, const float *weight, const float *bias, float epsilon,
                    size_t rows, size_t columns, float *out, float *mean, float *inverse)
{
    for (size_t r = 0; r < rows; r++) {
        const float *from = x + r * columns;
        float *to = out + r * columns;
        struct layer_norm_row_moments row = moments_of(from, columns, epsilon);

        for (size_t c = 0; c < columns; c++) {
            to[c] = (from[c] - row.mean) * row.inverse * weight[c] + bias[c];
        }
        if (mean != NULL) {
            mean[r] = row.mean;
        }
        if (inverse != NULL) {
            inverse[r] = row.inverse;
        }
    }
}

/* What the gradient uses for a whole row: dx = inverse (g - g_mean - normal product_mean), where g
 * = dy weight and product = g normal. */
struct shared {
    float g_mean, product_mean;
};

struct row_sums {
    struct lane_sums g, products;
};

/* One group of a row; also adds to the sums for the parameters' gradients. */
CDDPI_LANES_INLINE void add_products(struct row_sums *sums, const float *dy, const float *x,
                                     const float *weight, struct layer_norm_row_moments row,
                                     float *dweight, float *dbias)
{
    for (size_t i = 0; i < PARTS; i++) {
        size_t at = i * LANES;
        lanes dyc = lanes_load(dy + at);
        lanes normal = (lanes_load(x + at) - row.mean) * row.inverse;
        lanes g = dyc * lanes_load(weight + at);

        sums->g.part[i] += g;
        sums->products.part[i] += g * normal;
        lanes_store(dweight + at, lanes_load(dweight + at) + dyc * normal);
        lanes_store(dbias + at, lanes_load(dbias + at) + dyc);
    }
}

CDDPI_LANES_INLINE struct shared sum_row(const float *dy, const float *x, const float *weight,
                                         struct layer_norm_row_moments row, size_t columns,
                                         float *dweight, float *dbias)
{
    size_t whole = columns / GROUP * GROUP;
    size_t rest = columns - whole;
    struct row_sums sums = {{{{0}}}, {{{0}}}};

    for (size_t c = 0; c < whole; c += GROUP) {
        add_products(&sums, dy + c, x + c, weight + c, row, dweight + c, dbias + c);
    }
    if (rest > 0) {
        struct tail dy_tail = tail_of(dy, columns, 0);
        struct tail x_tail = tail_of(x, columns, 0);
        struct tail weight_tail = tail_of(weight, columns, 0);
        struct tail dweight_tail = tail_of(dweight, columns, 0);
        struct tail dbias_tail = tail_of(dbias, columns, 0);

        add_products(&sums, dy_tail.element, x_tail.element, weight_tail.element, row,
                     dweight_tail.element, dbias_tail.element);
        memcpy(dweight + whole, dweight_tail.element, rest * sizeof *dweight);
        memcpy(dbias + whole, dbias_tail.element, rest * sizeof *dbias);
    }
    return (struct shared){(float)(lane_sums_total(&sums.g) / (double)columns),
                           (float)(lane_sums_total(&sums.products) / (double)columns)};
}

static void row_gradient(const float *dy, const float *x, const float *weight,
                         struct layer_norm_row_moments row, struct shared shared, size_t columns,
                         float *dx)
{
    for (size_t c = 0; c < columns; c++) {
        float normal = (x[c] - row.mean) * row.inverse;

        dx[c] = (dy[c] * weight[c] - shared.g_mean - normal * shared.product_mean) * row.inverse;
    }
}

static void add_to(double *sums, const float *part, size_t columns)
{
    for (size_t c = 0; c < columns; c++) {
        sums[c] += (double)part[c];
    }
}

static void put(const double *sums, size_t columns, float *out)
{
    for (size_t c = 0; c < columns; c++) {
        out[c] = (float)((double)out[c] + sums[c]);
    }
}

static void backward(const float *dy, const float *x, const float *weight, const float *mean,
                     const float *inverse, size_t rows, size_t columns, float *dx, float *dweight,
                     float *dbias, double *scratch)
{
    float *part = (float *)(void *)(scratch + 2 * columns);

    memset(scratch, 0, 2 * columns * sizeof *scratch);
    for (size_t first = 0; first < rows; first += BLOCK_ROWS) {
        size_t end = rows - first < BLOCK_ROWS ? rows : first + BLOCK_ROWS;

        memset(part, 0, 2 * columns * sizeof *part);
        for (size_t r = first; r < end; r++) {
            struct layer_norm_row_moments row = {mean[r], inverse[r]};
            size_t at = r * columns;
            struct shared shared = sum_row(dy + at, x + at, weight, row, columns, part,
                                           part + columns);

            if (dx != NULL) {
                row_gradient(dy + at, x + at, weight, row, shared, columns, dx + at);
            }
        }
        add_to(scratch, part, 2 * columns);
    }
    put(scratch, columns, dweight);
    put(scratch + columns, columns, dbias);
}

extern const struct cddpi_layer_norm_kernels CDDPI_LANES_JOIN(cddpi_layer_norm_kernels_, CDDPI_ISA);
const struct cddpi_layer_norm_kernels CDDPI_LANES_JOIN(cddpi_layer_norm_kernels_,
                                                       CDDPI_ISA) = {forward, backward};
