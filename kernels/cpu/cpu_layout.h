/* cpu_layout.h - images with blocked channels: copies between such layouts, sums over them, windows
 * that slide over them, and local response normalisation.
 *
 * A layout is samples x ceil(channels / block) x spatial x block. Block 1 is plain N x C x H x W,
 * block = channels is N x H x W x C. Channels that pad the last block are zero. */
#ifndef CDDPI_KERNELS_CPU_LAYOUT_H
#define CDDPI_KERNELS_CPU_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cddpi_nn_layout {
    size_t samples, channels, spatial, block;
};

/* Copies; source and destination must not overlap. */
void cddpi_nn_to_plain(const float *x, const struct cddpi_nn_layout *layout, float *plain);
void cddpi_nn_from_plain(const float *plain, const struct cddpi_nn_layout *layout, float *out);
/* Between any two layouts of the same shape. */
void cddpi_nn_convert(const float *x, const struct cddpi_nn_layout *from, float *out,
                      const struct cddpi_nn_layout *to);
/* The same, implemented by runs of channels that are adjacent in both layouts. */
void cddpi_nn_reblock(const float *x, const struct cddpi_nn_layout *from, float *out,
                      const struct cddpi_nn_layout *to);
/* The same for layouts without padding, where one block size is a multiple of the other. */
void cddpi_nn_regroup(const float *x, const struct cddpi_nn_layout *from, float *out,
                      const struct cddpi_nn_layout *to);

/* mean[n * channels + c] = mean over the positions */
void cddpi_nn_global_mean(const float *x, const struct cddpi_nn_layout *layout, float *mean);
/* out = grad / spatial at all positions of the channel */
void cddpi_nn_global_mean_backward(const float *grad, const struct cddpi_nn_layout *layout,
                                   float *out);

/* --- cpu_window.c: pools over blocked layouts, and im2col columns, which turn a convolution into a
 * matrix product. Output (y, x) covers the `kernel` x `kernel` inputs from (y * stride - padding, x
 * * stride - padding) on. At least one of them is inside the image. Outside, values are zero, and a
 * maximum ignores them. --- */

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

/* --- cpu_response_norm.c: local response normalisation across channels, as in PyTorch's
 * LocalResponseNorm --- */

/* y = x / (offset + alpha / size * sum of squares)^beta. The sum is over `size` channels: size / 2
 * before the channel and the rest from the channel on, as far as they exist. */
struct cddpi_response_norm {
    int size;
    float alpha, beta, offset;
};

/** The size of `memory` below, in floats. */
size_t cddpi_response_norm_floats(const struct cddpi_nn_layout *layout);

/** Padding channels of a block stay zero. @p out may be @p x.
 *  @param memory  cddpi_response_norm_floats() floats. */
void cddpi_response_norm_forward(const struct cddpi_response_norm *norm, const float *x,
                                 const struct cddpi_nn_layout *layout, float *memory, float *out);
/** The gradient of the input from @p grad, that of the output. @p out may be @p grad. */
void cddpi_response_norm_backward(const struct cddpi_response_norm *norm, const float *grad,
                                  const float *x, const struct cddpi_nn_layout *layout,
                                  float *memory, float *out);

#endif
