/* softmax.c - owns softmax cross-entropy over long rows: a vocabulary. */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

#include <stdbool.h>

enum { CHUNK = 2048 }; /* elements summed in float32 before the sum is added in float64 */

static float largest(const float *x, size_t columns)
{
    lanes best = lanes_of(-INFINITY);
    size_t c = 0;

    for (; c + LANES <= columns; c += LANES) {
        best = lanes_max(lanes_load(x + c), best);
    }
    if (c < columns) {
        best = lanes_max(lanes_load_part(x + c, columns - c, -INFINITY), best);
    }
    return lanes_largest(best);
}

/* Replace one group of x by exp(x - most), and add it up. */
CDDPI_LANES_INLINE void add_powers(struct lane_sums *sums, const float *x, float most, float *out)
{
    for (size_t i = 0; i < PARTS; i++) {
        lanes v = lanes_exp(lanes_load(x + i * LANES) - most);

        sums->part[i] += v;
        lanes_store(out + i * LANES, v);
    }
}

/* out = exp(x - most), and their sum */
static double powers(const float *x, float most, size_t columns, float *out)
{
    float group[GROUP];
    double sum = 0;

    for (size_t begin = 0; begin < columns; begin += CHUNK) {
        size_t end = columns - begin < CHUNK ? columns : begin + CHUNK;
        struct lane_sums sums = {{{0}}};
        size_t c = begin;

        for (; c + GROUP <= end; c += GROUP) {
            add_powers(&sums, x + c, most, out != NULL ? out + c : group);
        }
        if (c < end) {
            for (size_t i = 0; i < GROUP; i++) {
                group[i] = c + i < end ? x[c + i] : -INFINITY;
            }
            add_powers(&sums, group, most, group);
            if (out != NULL) {
                memcpy(out + c, group, (end - c) * sizeof *out);
            }
        }
        sum += lane_sums_total(&sums);
    }
    return sum;
}

static bool is_first(const float *x, float most, size_t label)
{
    bool earlier = false;

    for (size_t c = 0; c < label; c++) {
        earlier |= x[c] == most;
    }
    return x[label] == most && !earlier;
}

static double forward(const float *x, const int32_t *label, size_t rows, size_t columns, float *out,
                      float *inverse, int *correct)
{
    double loss = 0;

    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        size_t at = (size_t)label[r];
        float most = largest(row, columns);
        double distance = (double)row[at] - (double)most;
        bool first = row[at] == most && is_first(row, most, at);
        double sum = powers(row, most, columns, out != NULL ? out + r * columns : NULL);

        loss += log(sum) - distance;
        *correct += first && sum >= 1; /* a row with a NaN is not correct */
        if (inverse != NULL) {
            inverse[r] = (float)(1 / sum);
        }
    }
    return loss;
}

static void backward(const float *powers_in, const int32_t *label, const float *inverse,
                     float scale, size_t rows, size_t columns, float *out)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = powers_in + r * columns;
        float *to = out + r * columns;
        size_t at = (size_t)label[r];
        double probability = (double)row[at] * (double)inverse[r];
        float factor = inverse[r] * scale;
        size_t c = 0;

        for (; c + LANES <= columns; c += LANES) {
            lanes_store(to + c, lanes_load(row + c) * factor);
        }
        for (; c < columns; c++) {
            to[c] = row[c] * factor;
        }
        to[at] = (float)((probability - 1) * (double)scale);
    }
}

const struct cddpi_softmax_kernels CDDPI_LANES_JOIN(cddpi_softmax_kernels_, CDDPI_ISA) = {forward,
                                                                                          backward};
