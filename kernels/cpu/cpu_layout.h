/* cpu_layout.h - images with blocked channels: copies between such layouts, and sums over them.
 *
 * A layout is samples x ceil(channels / block) x spatial x block. Block 1 is plain N x C x H x W,
 * block = channels is N x H x W x C. Channels that pad the last block are zero. */
#ifndef CDDPI_KERNELS_CPU_LAYOUT_H
#define CDDPI_KERNELS_CPU_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
