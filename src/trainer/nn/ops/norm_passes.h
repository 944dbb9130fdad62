/* norm_passes.h - batch normalisation's passes over whole activations, by several threads. The
 * bits depend neither on their number nor on the processor's instructions.
 *
 * Statistics are float64 everywhere; what a pass needs of them in float32 is made here, and what
 * rounding the mean took off is put back into the shift. */
#ifndef CDDPI_NN_OPS_NORM_PASSES_H
#define CDDPI_NN_OPS_NORM_PASSES_H

#include "kernels/cpu/cpu_layout.h"

/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias, by channel, then the relu. */
struct cddpi_norm_affine {
    const double *mean, *variance;
    const float *weight, *bias;
    double epsilon;
    bool relu;
};

/** How many doubles `partial` below has. */
size_t cddpi_norm_partial(const struct cddpi_nn_layout *layout);

/** mean and squares: the mean of each channel, and the sum of squares of deviations from it. */
void cddpi_norm_moments(const float *x, const struct cddpi_nn_layout *layout, double *partial,
                        double *mean, double *squares);
/** The sum of each channel. */
void cddpi_norm_sums(const float *x, const struct cddpi_nn_layout *layout, double *partial,
                     double *sums);
/** By affine's statistics. @p out may be @p x. */
void cddpi_norm_normalize(const float *x, const struct cddpi_nn_layout *layout,
                          const struct cddpi_norm_affine *affine, float *out);
/** Both, the second by what the first has found: @p mean and @p variance, which are affine's. */
void cddpi_norm_forward(const float *x, const struct cddpi_nn_layout *layout,
                        const struct cddpi_norm_affine *affine, double *partial, double *mean,
                        double *variance, float *out);

/* The gradient of the output, and what is made of it. */
struct cddpi_norm_grad {
    const float *dy;
    double *partial;
    /* by channel: of dy after the relu's mask, and of dy * (x - mean) */
    double *sums, *products;
    double count; /* of values of a channel, over which the mean was taken */
};
void cddpi_norm_products(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad);
/** By grad's sums. @p out may be grad->dy or @p x. */
void cddpi_norm_gradient(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad,
                         float *out);
/** Both. */
void cddpi_norm_backward(const float *x, const struct cddpi_nn_layout *layout,
                         const struct cddpi_norm_affine *affine, struct cddpi_norm_grad *grad,
                         float *out);

#endif
