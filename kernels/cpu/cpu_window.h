/* cpu_window.h - windows that slide over images: pools over blocked layouts, and im2col columns,
 * which turn a convolution into a matrix product.
 *
 * Output (y, x) covers the `kernel` x `kernel` inputs from (y * stride - padding, x * stride -
 * padding) on. At least one of them is inside the image. Outside, values are zero, and a maximum
 * ignores them. */
#ifndef CDDPI_KERNELS_CPU_WINDOW_H
#define CDDPI_KERNELS_CPU_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct cddpi_nn_window {
    size_t planes; /* pools: samples x groups of channels; columns: samples */
    size_t lanes;  /* elements at each position: one block of channels, or all channels */
    size_t height, width, out_height, out_width;
    size_t kernel, stride, padding;
};

/* Pools: x and dx are planes x height x width x lanes, y and dy planes x out_height x out_width x
 * lanes. */

/* @p from: for each element of y, its position in the plane of x. Of equal values the first is
 * taken, of NaNs the last. */
void cddpi_nn_max_pool(const float *x, const struct cddpi_nn_window *window, float *y,
                       int32_t *from);
void cddpi_nn_max_pool_backward(const float *dy, const int32_t *from,
                                const struct cddpi_nn_window *window, float *dx);
/* The sum over the window / kernel^2. */
void cddpi_nn_avg_pool(const float *x, const struct cddpi_nn_window *window, float *y);
void cddpi_nn_avg_pool_backward(const float *dy, const struct cddpi_nn_window *window, float *dx);

/* Columns: a line is one row of outputs of one sample. It consists of out_width rows of kernel x
 * kernel x lanes elements: for each output, the inputs that it covers. */

void cddpi_nn_columns(const float *x, const struct cddpi_nn_window *window, size_t first_line,
                      size_t lines, float *columns);
/* Add each element of @p columns to the input from which cddpi_nn_columns() had copied it. */
void cddpi_nn_add_columns(const float *columns, const struct cddpi_nn_window *window,
                          size_t first_line, size_t lines, float *dx);

#endif
