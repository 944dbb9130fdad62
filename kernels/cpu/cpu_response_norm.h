/* cpu_response_norm.h - local response normalisation across channels, as in PyTorch's
 * LocalResponseNorm. */
#ifndef CDDPI_KERNELS_CPU_RESPONSE_NORM_H
#define CDDPI_KERNELS_CPU_RESPONSE_NORM_H

#include "kernels/cpu/cpu_layout.h"

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
