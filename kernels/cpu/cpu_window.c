/* cpu_window.c - owns pools and im2col columns for images, where oneDNN has no kernel.
 *
 * Each loop handles one tap of the window (ky, kx) at a time over a row of outputs. For the outputs
 * from `first` to `end`, the tap is inside the image. */
#include "kernels/cpu/cpu_layout.h"

#include "kernels/cpu/isa.h"

#include <math.h>
#include <string.h>

/* The inputs that one tap of a row of outputs reads, in the image's row @p in_row. */
struct tap {
    size_t in_row;
    size_t first, end; /* range of outputs */
    size_t column;     /* in the image, for output `first` */
};

/* Whether tap (@p ky, @p kx) is inside the image for any output of row @p y, and for which ones. */
CDDPI_BODY int tap_at(const struct cddpi_nn_window *w, size_t y, size_t ky, size_t kx,
                      struct tap *out)
{
    size_t row = y * w->stride + ky; /* in the padded image */
    size_t last = w->width - 1 + w->padding;

    if (row < w->padding || row - w->padding >= w->height || kx > last) {
        return 0;
    }
    out->in_row = row - w->padding;
    out->first = kx >= w->padding ? 0 : (w->padding - kx + w->stride - 1) / w->stride;
    out->end = (last - kx) / w->stride + 1;
    if (out->end > w->out_width) {
        out->end = w->out_width;
    }
    if (out->first >= out->end) {
        return 0;
    }
    out->column = out->first * w->stride + kx - w->padding;
    return 1;
}

CDDPI_BODY void take_larger(const float *x, int32_t position, size_t lanes, float *y, int32_t *from)
{
    for (size_t c = 0; c < lanes; c++) {
        int larger = (x[c] > y[c]) | (x[c] != x[c]) | (from[c] < 0);

        y[c] = larger ? x[c] : y[c];
        from[c] = larger ? position : from[c];
    }
}

CDDPI_BODY void max_row(const float *x, const struct cddpi_nn_window *w, size_t row, float *y,
                        int32_t *from)
{
    struct tap tap;

    for (size_t i = 0; i < w->out_width * w->lanes; i++) {
        y[i] = -INFINITY;
        from[i] = -1;
    }
    for (size_t ky = 0; ky < w->kernel; ky++) {
        for (size_t kx = 0; kx < w->kernel; kx++) {
            if (!tap_at(w, row, ky, kx, &tap)) {
                continue;
            }
            for (size_t i = tap.first; i < tap.end; i++) {
                size_t at = tap.in_row * w->width + tap.column + (i - tap.first) * w->stride;

                take_larger(x + at * w->lanes, (int32_t)at, w->lanes, y + i * w->lanes,
                            from + i * w->lanes);
            }
        }
    }
}

CDDPI_BODY void body_max_pool(const float *x, const struct cddpi_nn_window *w, float *y,
                              int32_t *from)
{
    size_t row = w->out_width * w->lanes;

    for (size_t p = 0; p < w->planes; p++) {
        for (size_t i = 0; i < w->out_height; i++) {
            size_t at = (p * w->out_height + i) * row;

            max_row(x + p * w->height * w->width * w->lanes, w, i, y + at, from + at);
        }
    }
}

CDDPI_BODY void body_max_pool_backward(const float *dy, const int32_t *from,
                                       const struct cddpi_nn_window *w, float *dx)
{
    size_t plane = w->height * w->width * w->lanes;
    size_t outputs = w->out_height * w->out_width;

    memset(dx, 0, w->planes * plane * sizeof *dx);
    for (size_t p = 0; p < w->planes; p++) {
        for (size_t i = 0; i < outputs; i++) {
            const float *grad = dy + (p * outputs + i) * w->lanes;
            const int32_t *position = from + (p * outputs + i) * w->lanes;

            for (size_t c = 0; c < w->lanes; c++) {
                dx[p * plane + (size_t)position[c] * w->lanes + c] += grad[c];
            }
        }
    }
}

CDDPI_BODY void body_avg_pool(const float *x, const struct cddpi_nn_window *w, float *y)
{
    float taps = (float)(w->kernel * w->kernel);
    size_t row = w->out_width * w->lanes;
    struct tap tap;

    for (size_t line = 0; line < w->planes * w->out_height; line++) {
        const float *plane = x + line / w->out_height * w->height * w->width * w->lanes;
        float *sums = y + line * row;

        memset(sums, 0, row * sizeof *sums);
        for (size_t k = 0; k < w->kernel * w->kernel; k++) {
            if (!tap_at(w, line % w->out_height, k / w->kernel, k % w->kernel, &tap)) {
                continue;
            }
            for (size_t i = tap.first; i < tap.end; i++) {
                size_t at = tap.in_row * w->width + tap.column + (i - tap.first) * w->stride;

                for (size_t c = 0; c < w->lanes; c++) {
                    sums[i * w->lanes + c] += plane[at * w->lanes + c];
                }
            }
        }
        for (size_t i = 0; i < row; i++) {
            sums[i] /= taps;
        }
    }
}

CDDPI_BODY void body_avg_pool_backward(const float *dy, const struct cddpi_nn_window *w, float *dx)
{
    float taps = (float)(w->kernel * w->kernel);
    size_t plane = w->height * w->width * w->lanes;
    size_t row = w->out_width * w->lanes;
    struct tap tap;

    memset(dx, 0, w->planes * plane * sizeof *dx);
    for (size_t line = 0; line < w->planes * w->out_height; line++) {
        float *to = dx + line / w->out_height * plane;
        const float *grad = dy + line * row;

        for (size_t k = 0; k < w->kernel * w->kernel; k++) {
            if (!tap_at(w, line % w->out_height, k / w->kernel, k % w->kernel, &tap)) {
                continue;
            }
            for (size_t i = tap.first; i < tap.end; i++) {
                size_t at = tap.in_row * w->width + tap.column + (i - tap.first) * w->stride;

                for (size_t c = 0; c < w->lanes; c++) {
                    to[at * w->lanes + c] += grad[i * w->lanes + c] / taps;
                }
            }
        }
    }
}

CDDPI_VARIANTS(max_pool,
               (const float *x, const struct cddpi_nn_window *window, float *y, int32_t *from),
               (x, window, y, from))
CDDPI_VARIANTS(max_pool_backward,
               (const float *dy, const int32_t *from, const struct cddpi_nn_window *window,
                float *dx),
               (dy, from, window, dx))
CDDPI_VARIANTS(avg_pool, (const float *x, const struct cddpi_nn_window *window, float *y),
               (x, window, y))
CDDPI_VARIANTS(avg_pool_backward,
               (const float *dy, const struct cddpi_nn_window *window, float *dx), (dy, window, dx))

/* Loop over the taps of a line, with their places in the image and in the columns. */
#define FOR_EACH_TAP(w, line, tap, k)                                                              \
    for (size_t k = 0; k < (w)->kernel * (w)->kernel; k++)                                         \
        if (tap_at(w, (line) % (w)->out_height, k / (w)->kernel, k % (w)->kernel, &(tap)))

CDDPI_BODY void body_columns(const float *x, const struct cddpi_nn_window *w, size_t first_line,
                             size_t lines, float *columns)
{
    size_t length = w->kernel * w->kernel * w->lanes;
    struct tap tap;

    if (w->padding > 0) {
        memset(columns, 0, lines * w->out_width * length * sizeof *columns);
    }
    for (size_t line = first_line; line < first_line + lines; line++) {
        const float *plane = x + line / w->out_height * w->height * w->width * w->lanes;
        float *rows = columns + (line - first_line) * w->out_width * length;

        FOR_EACH_TAP(w, line, tap, k)
        {
            for (size_t i = tap.first; i < tap.end; i++) {
                size_t at = tap.in_row * w->width + tap.column + (i - tap.first) * w->stride;

                for (size_t c = 0; c < w->lanes; c++) {
                    rows[i * length + k * w->lanes + c] = plane[at * w->lanes + c];
                }
            }
        }
    }
}

CDDPI_BODY void body_add_columns(const float *columns, const struct cddpi_nn_window *w,
                                 size_t first_line, size_t lines, float *dx)
{
    size_t length = w->kernel * w->kernel * w->lanes;
    struct tap tap;

    for (size_t line = first_line; line < first_line + lines; line++) {
        float *plane = dx + line / w->out_height * w->height * w->width * w->lanes;
        const float *rows = columns + (line - first_line) * w->out_width * length;

        FOR_EACH_TAP(w, line, tap, k)
        {
            for (size_t i = tap.first; i < tap.end; i++) {
                size_t at = tap.in_row * w->width + tap.column + (i - tap.first) * w->stride;

                for (size_t c = 0; c < w->lanes; c++) {
                    plane[at * w->lanes + c] += rows[i * length + k * w->lanes + c];
                }
            }
        }
    }
}

CDDPI_VARIANTS(columns,
               (const float *x, const struct cddpi_nn_window *window, size_t first_line,
                size_t lines, float *columns),
               (x, window, first_line, lines, columns))
CDDPI_VARIANTS(add_columns,
               (const float *columns, const struct cddpi_nn_window *window, size_t first_line,
                size_t lines, float *dx),
               (columns, window, first_line, lines, dx))
