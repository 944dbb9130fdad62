/* image_resize.c - owns the resizing of images on the CPU: rows first, then columns, with weights
 * of 22 fractional bits and a rounding to 8 bits after each, as in Pillow. */
#include "kernels/cpu/image.h"

#include <math.h>

enum { WEIGHT_BITS = 22, CHANNELS = CDDPI_IMAGE_RGB };

/* One axis: each element of the window is a weighted sum of elements of the image. */
struct axis {
    int count;   /* elements of the window */
    int taps;    /* maximum number of weights of an element */
    int *first;  /* for each of the window's elements, the first of the image's elements */
    int *length; /* for each, how many elements */
    int32_t *weights;
};

static double reduction(int in, int whole)
{
    double scale = (double)in / whole;

    return scale < 1 ? 1 : scale;
}

/* The most elements that a triangle of that half width can cover, wherever it starts. */
static int taps_of(int in, int whole)
{
    return (int)ceil(reduction(in, whole)) * 2 + 1;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* The range of the @p in elements that element @p at of @p whole elements is computed from. */
static void bounds(int in, int whole, int at, int *out_first, int *out_length)
{
    double center = (at + 0.5) * ((double)in / whole);
    double support = reduction(in, whole);
    int first = (int)(center - support + 0.5);
    int end = (int)(center + support + 0.5);

    first = first < 0 ? 0 : first;
    end = end > in ? in : end;
    *out_first = first;
    *out_length = end - first;
}

static void weigh(const struct axis *axis, int in, int whole, int window)
{
    double scale = (double)in / whole;
    double narrow = 1 / reduction(in, whole);

    for (int i = 0; i < axis->count; i++) {
        double center = (window + i + 0.5) * scale;
        int32_t *weights = axis->weights + (size_t)i * (size_t)axis->taps;
        double sum = 0;

        bounds(in, whole, window + i, &axis->first[i], &axis->length[i]);
        for (int k = 0; k < axis->length[i]; k++) {
            sum += triangle((k + axis->first[i] - center + 0.5) * narrow);
        }
        for (int k = 0; k < axis->length[i]; k++) {
            double weight = triangle((k + axis->first[i] - center + 0.5) * narrow) / sum;

            weights[k] = (int32_t)(0.5 + weight * (1 << WEIGHT_BITS));
        }
    }
}

static size_t axis_words(int count, int taps)
{
    return (size_t)count * (2 + (size_t)taps);
}

/* The rows of the box that the window depends on. */
static void needed_rows(const struct cddpi_image_view *view, int *out_first, int *out_count)
{
    int last, length;

    bounds(view->height, view->whole_height, view->window_top, out_first, &length);
    bounds(view->height, view->whole_height, view->window_top + view->window_height - 1, &last,
           &length);
    *out_count = last + length - *out_first;
}

size_t cddpi_image_resize_bytes(const struct cddpi_image_view *view)
{
    int first, rows;

    needed_rows(view, &first, &rows);
    return (axis_words(view->window_width, taps_of(view->width, view->whole_width)) +
            axis_words(view->window_height, taps_of(view->height, view->whole_height))) *
               sizeof(int32_t) +
           (size_t)rows * (size_t)view->window_width * CHANNELS;
}

static int32_t *lay_out(struct axis *axis, int count, int taps, int32_t *memory)
{
    axis->count = count;
    axis->taps = taps;
    axis->first = memory;
    axis->length = memory + count;
    axis->weights = memory + 2 * (size_t)count;
    return memory + axis_words(count, taps);
}

static uint8_t round_sum(int32_t sum)
{
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void resize_row(const struct axis *axis, const uint8_t *in, uint8_t *out)
{
    for (int x = 0; x < axis->count; x++) {
        const int32_t *weights = axis->weights + (size_t)x * (size_t)axis->taps;
        const uint8_t *pixel = in + (size_t)axis->first[x] * CHANNELS;
        int32_t sums[CHANNELS] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1),
                                  1 << (WEIGHT_BITS - 1)};

        for (int k = 0; k < axis->length[x]; k++, pixel += CHANNELS) {
            sums[0] += pixel[0] * weights[k];
            sums[1] += pixel[1] * weights[k];
            sums[2] += pixel[2] * weights[k];
        }
        for (int c = 0; c < CHANNELS; c++) {
            out[x * CHANNELS + c] = round_sum(sums[c]);
        }
    }
}

/* @p rows: the box's rows from @p first_row on, @p bytes each. */
static void resize_columns(const struct axis *axis, const uint8_t *rows, int first_row,
                           size_t bytes, uint8_t *out)
{
    enum { PIECE = 256 };
    int32_t sums[PIECE];

    for (int y = 0; y < axis->count; y++) {
        const int32_t *weights = axis->weights + (size_t)y * (size_t)axis->taps;
        const uint8_t *from = rows + (size_t)(axis->first[y] - first_row) * bytes;

        for (size_t begin = 0; begin < bytes; begin += PIECE) {
            size_t count = bytes - begin < PIECE ? bytes - begin : PIECE;

            for (size_t i = 0; i < count; i++) {
                sums[i] = 1 << (WEIGHT_BITS - 1);
            }
            for (int k = 0; k < axis->length[y]; k++) {
                const uint8_t *row = from + (size_t)k * bytes + begin;

                for (size_t i = 0; i < count; i++) {
                    sums[i] += row[i] * weights[k];
                }
            }
            for (size_t i = 0; i < count; i++) {
                out[(size_t)y * bytes + begin + i] = round_sum(sums[i]);
            }
        }
    }
}

void cddpi_image_resize(const uint8_t *pixels, int width, const struct cddpi_image_view *view,
                        void *memory, uint8_t *out)
{
    struct axis across, down;
    int32_t *next = lay_out(&across, view->window_width, taps_of(view->width, view->whole_width),
                            memory);
    uint8_t *rows = (uint8_t *)lay_out(&down, view->window_height,
                                       taps_of(view->height, view->whole_height), next);
    size_t row_bytes = (size_t)view->window_width * CHANNELS;
    int first, count;

    needed_rows(view, &first, &count);
    weigh(&across, view->width, view->whole_width, view->window_left);
    weigh(&down, view->height, view->whole_height, view->window_top);
    for (int y = 0; y < count; y++) {
        size_t row = (size_t)(view->top + first + y);

        resize_row(&across, pixels + (row * (size_t)width + (size_t)view->left) * CHANNELS,
                   rows + (size_t)y * row_bytes);
    }
    resize_columns(&down, rows, first, row_bytes, out);
}

void cddpi_image_to_planes(const uint8_t *pixels, int width, int height, bool flip,
                           const float tables[][256], float *out)
{
    for (int c = 0; c < CHANNELS; c++) {
        for (int y = 0; y < height; y++) {
            const uint8_t *row = pixels + (size_t)y * (size_t)width * CHANNELS + c;

            for (int x = 0; x < width; x++) {
                int from = flip ? width - 1 - x : x;

                *out++ = tables[c][row[(size_t)from * CHANNELS]];
            }
        }
    }
}
