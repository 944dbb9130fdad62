/* cpu_response_norm.h - local response normalisation across channels, as PyTorch's
 * LocalResponseNorm.
 */
#ifndef CDDPI_KERNELS_CPU_RESPONSE_NORM_H
#define CDDPI_KERNELS_CPU_RESPONSE_NORM_H

#include "kernels/cpu/cpu_layout.h"

/* y = x / (offset + alpha / size * sum of squares)^beta, of `size` channels around each: size / 2
 * before it and the rest from it on, as far as there are any. */
struct cddpi_response_norm {
    int size;
    float alpha, beta, offset;
};

/** Floats of memory that the functions below need. */
size_t cddpi_response_norm_floats(const struct cddpi_nn_layout *layout);

/** Channels that fill a block up stay zero. @p out may be @p x.
 *  @param memory  As many floats as above. */
void cddpi_response_norm_forward(const struct cddpi_response_norm *norm, const float *x,
                                 const struct cddpi_nn_layout *layout, float *memory, float *out);
/** The gradient of the input from that of the output, @p grad, which @p out may be. */
void cddpi_response_norm_backward(const struct cddpi_response_norm *norm, const float *grad,
                                  const float *x, const struct cddpi_nn_layout *layout,
                                  float *memory, float *out);

#endif
