/* norm.h - batch normalisation in pieces, for statistics that come from several ranks. Arrays
 * over channels are float64; rows of activations are summed in float32 first. */
#ifndef CDDPI_KERNELS_CPU_NORM_H
#define CDDPI_KERNELS_CPU_NORM_H

#include "kernels/cpu/layout.h"

/* sum[c] = sum of x in the channel */
void cddpi_nn_channel_sums(const float *x, const struct cddpi_nn_layout *layout, double *sum);
/* sum[c] = sum of (x - mean[c])^2 in the channel */
void cddpi_nn_channel_squares(const float *x, const struct cddpi_nn_layout *layout,
                              const float *mean, double *sum);
/* sum[c] = sum of dy * (x - mean[c]) in the channel */
void cddpi_nn_channel_products(const float *dy, const float *x,
                               const struct cddpi_nn_layout *layout, const float *mean,
                               double *sum);
/* out = (x - mean) * factor + shift, by channel; then max(out, 0) if @p relu. May be in place. */
void cddpi_nn_normalize(const float *x, const struct cddpi_nn_layout *layout, const float *mean,
                        const float *factor, const float *shift, bool relu, float *out);
/* out = factor * (dy - offset - (x - mean) * slope), by channel. May be in place. */
void cddpi_nn_normalize_backward(const float *dy, const float *x,
                                 const struct cddpi_nn_layout *layout, const float *mean,
                                 const float *factor, const float *offset, const float *slope,
                                 float *out);

#endif
