/* norm_passes.h - batch normalisation's passes over whole activations, by several threads. The bits
 * depend neither on the number of threads nor on the CPU's instruction set.
 *
 * Statistics are float64 everywhere. These passes convert them to float32, and compensate the
 * rounding error of the mean in the shift. */
#ifndef CDDPI_NN_OPS_NORM_PASSES_H
#define CDDPI_NN_OPS_NORM_PASSES_H

#include "kernels/cpu/cpu_layout.h"

/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias, by channel, then optionally the relu.
 */
struct cddpi_norm_affine {
    const double *mean, *variance;
    const float *weight, *bias;
    double epsilon;
    bool relu;
};

/** The number of doubles that `partial` needs below. */
size_t cddpi_norm_partial(const struct cddpi_nn_layout *layout);

/** The mean of each channel, and in @p squares the sum of squared deviations from it. */
void cddpi_norm_moments(const float *x, const struct cddpi_nn_layout *layout, double *partial,
                        double *mean, double *squares);
/** The sum of each channel. */
void cddpi_norm_sums(const float *x, const struct cddpi_nn_layout *layout, double *partial,
                     double *sums);
/** Normalise with affine's statistics. @p out may be @p x. */
void cddpi_norm_normalize(const float *x, const struct cddpi_nn_layout *layout,
                          const struct cddpi_norm_affine *affine, float *out);
/** Compute the statistics, then normalise with them: @p mean and @p variance are those that affine
 *  points to. */
void cddpi_norm_forward(const float *x, const struct cddpi_nn_layout *layout,
                        const struct cddpi_norm_affine *affine, double *partial, double *mean,
                        double *variance, float *out);

/* The gradient of the output, and the sums that are computed from it. */
struct cddpi_norm_grad {
    const float *dy;
    double *partial;
    /* by channel: sums of dy after the relu's mask, and of dy * (x - mean) */
    double *sums, *products;
    double count; /* number of values of a channel, over which the mean was taken */
};
/** Compute the input's gradient from grad's sums. @p out may be grad->dy or @p x. */
void cddpi_norm_gradient(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad,
                         float *out);
/** The same after computing the sums; @p out NULL: only the sums. */
void cddpi_norm_backward(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad,
                         float *out);

#endif
