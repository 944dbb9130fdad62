/* batch_norm.h - batch normalisation over rows x channels, by kernels of our own. */
#ifndef CDDPI_CUDA_BATCH_NORM_H
#define CDDPI_CUDA_BATCH_NORM_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of scratch that is enough for any batch normalisation of @p channels. */
size_t cddpi_cuda_batch_norm_scratch(int channels);

/** Implement the entries of cddpi_cuda_kernels. */
cddp_status cddpi_cuda_own_batch_norm(struct cddpi_device *device,
                                      const struct cddpi_cuda_norm *shape, const void *x,
                                      const void *sum, const float *weight, const float *bias,
                                      float *running_mean, float *running_variance, float *mean,
                                      float *inverse, void *y, float *scratch);
cddp_status cddpi_cuda_own_batch_norm_eval(struct cddpi_device *device,
                                           const struct cddpi_cuda_norm *shape, const void *x,
                                           const void *sum, const float *weight, const float *bias,
                                           const float *running_mean, const float *running_variance,
                                           void *y);
cddp_status cddpi_cuda_own_batch_norm_grad(struct cddpi_device *device,
                                           const struct cddpi_cuda_norm *shape, const void *dy,
                                           const void *other, const void *x, const void *y,
                                           const float *weight, const float *bias,
                                           const float *mean, const float *inverse, bool add,
                                           void *dx, void *dsum, float *dweight, float *dbias,
                                           float *scratch);
/* Over ranks. */
cddp_status cddpi_cuda_own_batch_norm_moments(struct cddpi_device *device,
                                              const struct cddpi_cuda_norm *shape, const void *x,
                                              double *rank_moments, float *scratch);
cddp_status cddpi_cuda_own_batch_norm_merge(struct cddpi_device *device,
                                            const struct cddpi_cuda_norm *shape,
                                            const double *all_moments, int ranks,
                                            float *running_mean, float *running_variance,
                                            float *mean, float *inverse, double *rows);
cddp_status cddpi_cuda_own_batch_norm_apply(struct cddpi_device *device,
                                            const struct cddpi_cuda_norm *shape, const void *x,
                                            const void *sum, const float *weight, const float *bias,
                                            const float *mean, const float *inverse, void *y);
cddp_status cddpi_cuda_own_batch_norm_grad_moments(struct cddpi_device *device,
                                                   const struct cddpi_cuda_norm *shape,
                                                   const void *dy, const void *x, const void *y,
                                                   const float *mean, const float *inverse,
                                                   bool add, double scale, float *dweight,
                                                   float *dbias, double *sums, float *scratch);
cddp_status cddpi_cuda_own_batch_norm_grad_apply(
    struct cddpi_device *device, const struct cddpi_cuda_norm *shape, const void *dy, const void *x,
    const void *y, const float *weight, const float *mean, const float *inverse, const double *sums,
    int ranks, const double *rows, double scale, void *dx, void *dsum, float *scratch);

#ifdef __cplusplus
}
#endif
#endif
