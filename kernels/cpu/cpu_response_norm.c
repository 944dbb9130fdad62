/* cpu_response_norm.c - owns local response normalisation on the CPU. It handles a run of pixels at
 * a time, converted to one row for each channel, so the inner loops run over pixels whatever the
 * layout. */
#include "kernels/cpu/cpu_layout.h"

#include <math.h>
#include <string.h>

/* pixels of a run; number of sets of rows (one for each channel) that are needed */
enum { PIXELS = 64, PLANES = 4 };

size_t cddpi_response_norm_floats(const struct cddpi_nn_layout *layout)
{
    return (size_t)PLANES * PIXELS * layout->channels;
}

/* Offset of the channel's first value in an image; consecutive pixels are layout->block apart. */
static size_t place_of(const struct cddpi_nn_layout *layout, size_t sample, size_t channel)
{
    size_t blocks = (layout->channels + layout->block - 1) / layout->block;

    return (sample * blocks + channel / layout->block) * layout->spatial * layout->block +
           channel % layout->block;
}

static void load(const float *x, const struct cddpi_nn_layout *layout, size_t sample, size_t first,
                 size_t count, float *rows)
{
    for (size_t c = 0; c < layout->channels; c++) {
        const float *from = x + place_of(layout, sample, c) + first * layout->block;

        for (size_t i = 0; i < count; i++) {
            rows[c * PIXELS + i] = from[i * layout->block];
        }
    }
}

/* Padding channels of the last block are set to zero. */
static void store(const float *rows, const struct cddpi_nn_layout *layout, size_t sample,
                  size_t first, size_t count, float *out)
{
    size_t filled = (layout->channels + layout->block - 1) / layout->block * layout->block;

    for (size_t c = 0; c < filled; c++) {
        float *to = out + place_of(layout, sample, c) + first * layout->block;

        for (size_t i = 0; i < count; i++) {
            to[i * layout->block] = c < layout->channels ? rows[c * PIXELS + i] : 0;
        }
    }
}

/* sums[c] = the sum of rows[c - before] to rows[c + behind], in that order. */
static void add_window(const float *rows, size_t channels, size_t before, size_t behind,
                       float *sums)
{
    for (size_t c = 0; c < channels; c++) {
        size_t from = c < before ? 0 : c - before;
        size_t last = c + behind < channels ? c + behind : channels - 1;
        float *sum = sums + c * PIXELS;

        memset(sum, 0, PIXELS * sizeof *sum);
        for (size_t k = from; k <= last; k++) {
            for (size_t i = 0; i < PIXELS; i++) {
                sum[i] += rows[k * PIXELS + i];
            }
        }
    }
}

static float power(float x, float beta)
{
    if (beta == 0.75f) { /* the usual exponent */
        float root = sqrtf(x);

        return 1 / (root * sqrtf(root));
    }
    return powf(x, -beta);
}

static void square(const float *x, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = x[i] * x[i];
    }
}

void cddpi_response_norm_forward(const struct cddpi_response_norm *norm, const float *x,
                                 const struct cddpi_nn_layout *layout, float *memory, float *out)
{
    size_t plane = layout->channels * PIXELS;
    size_t before = (size_t)norm->size / 2;
    float *rows = memory, *squares = rows + plane, *sums = squares + plane;
    float scale = norm->alpha / (float)norm->size;

    memset(rows, 0, plane * sizeof *rows);
    for (size_t run = 0; run < layout->samples * ((layout->spatial + PIXELS - 1) / PIXELS); run++) {
        size_t sample = run / ((layout->spatial + PIXELS - 1) / PIXELS);
        size_t first = run % ((layout->spatial + PIXELS - 1) / PIXELS) * PIXELS;
        size_t count = layout->spatial - first < PIXELS ? layout->spatial - first : PIXELS;

        load(x, layout, sample, first, count, rows);
        square(rows, plane, squares);
        add_window(squares, layout->channels, before, (size_t)norm->size - 1 - before, sums);
        for (size_t i = 0; i < plane; i++) {
            sums[i] = rows[i] * power(norm->offset + scale * sums[i], norm->beta);
        }
        store(sums, layout, sample, first, count, out);
    }
}

/* dx_c = g_c d_c^-beta - 2 alpha beta / size x_c times the sum of g_k x_k d_k^(-beta - 1) over the
 * channels k whose window contains c. */
void cddpi_response_norm_backward(const struct cddpi_response_norm *norm, const float *grad,
                                  const float *x, const struct cddpi_nn_layout *layout,
                                  float *memory, float *out)
{
    size_t plane = layout->channels * PIXELS;
    size_t before = (size_t)norm->size / 2;
    size_t behind = (size_t)norm->size - 1 - before;
    float *rows = memory, *grads = rows + plane, *squares = grads + plane, *sums = squares + plane;
    float scale = norm->alpha / (float)norm->size;

    memset(memory, 0, 2 * plane * sizeof *memory);
    for (size_t run = 0; run < layout->samples * ((layout->spatial + PIXELS - 1) / PIXELS); run++) {
        size_t sample = run / ((layout->spatial + PIXELS - 1) / PIXELS);
        size_t first = run % ((layout->spatial + PIXELS - 1) / PIXELS) * PIXELS;
        size_t count = layout->spatial - first < PIXELS ? layout->spatial - first : PIXELS;

        load(x, layout, sample, first, count, rows);
        load(grad, layout, sample, first, count, grads);
        square(rows, plane, squares);
        add_window(squares, layout->channels, before, behind, sums);
        for (size_t i = 0; i < plane; i++) {
            float below = norm->offset + scale * sums[i];

            grads[i] *= power(below, norm->beta);
            squares[i] = grads[i] * rows[i] / below;
        }
        add_window(squares, layout->channels, behind, before, sums);
        for (size_t i = 0; i < plane; i++) {
            grads[i] -= 2 * scale * norm->beta * rows[i] * sums[i];
        }
        store(grads, layout, sample, first, count, out);
    }
}
