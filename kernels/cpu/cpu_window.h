/* cpu_window.h - windows that slide over images: pools of blocked layouts, and the columns that
 * make a convolution a matrix product.
 *
 * Output (y, x) sees the `kernel` x `kernel` inputs from (y * stride - padding, x * stride -
 * padding) on, of which at least one lies in the image; what lies outside it is zero, or in a
 * maximum not there. */
#ifndef CDDPI_KERNELS_CPU_WINDOW_H
#define CDDPI_KERNELS_CPU_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct cddpi_nn_window {
    size_t planes; /* pools: samples x groups of channels; columns: samples */
    size_t lanes;  /* numbers at each position: of a block of channels, or of all of them */
    size_t height, width, out_height, out_width;
    size_t kernel, stride, padding;
};

/* Pools: x and dx are planes x height x width x lanes, y and dy planes x out_height x out_width x
 * lanes. */

/* @p from: for each of y, which position of the plane it came from: of equals the first, of NaNs
 * the last. */
void cddpi_nn_max_pool(const float *x, const struct cddpi_nn_window *window, float *y,
                       int32_t *from);
void cddpi_nn_max_pool_backward(const float *dy, const int32_t *from,
                                const struct cddpi_nn_window *window, float *dx);
/* The sum over the window / kernel^2. */
void cddpi_nn_avg_pool(const float *x, const struct cddpi_nn_window *window, float *y);
void cddpi_nn_avg_pool_backward(const float *dy, const struct cddpi_nn_window *window, float *dx);

/* Columns: a line is one row of outputs of one sample, and has out_width rows of kernel x kernel x
 * lanes numbers, which are those that the output sees. */

void cddpi_nn_columns(const float *x, const struct cddpi_nn_window *window, size_t first_line,
                      size_t lines, float *columns);
/* Add each number of @p columns to where cddpi_nn_columns() had it from. */
void cddpi_nn_add_columns(const float *columns, const struct cddpi_nn_window *window,
                          size_t first_line, size_t lines, float *dx);

#endif
