/* batch_norm_dispatch.c - gives batch normalisation its scratch. */
#include "base/error.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/scratch.h"

static cddp_status forward(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                           const void *x, const void *sum, const float *weight, const float *bias,
                           float *running_mean, float *running_variance, float *mean,
                           float *inverse, void *y)
{
    void *scratch;

    if (shape->rows == 0 || shape->channels == 0) {
        return CDDP_OK; /* without rows there are no statistics */
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch));
    return cddpi_cuda_own_batch_norm(device, shape, x, sum, weight, bias, running_mean,
                                     running_variance, mean, inverse, y, scratch);
}

static cddp_status evaluate(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                            const void *x, const void *sum, const float *weight, const float *bias,
                            const float *running_mean, const float *running_variance, void *y)
{
    return shape->rows == 0 || shape->channels == 0
               ? CDDP_OK
               : cddpi_cuda_own_batch_norm_eval(device, shape, x, sum, weight, bias, running_mean,
                                                running_variance, y);
}

/* Gradients over an empty batch are 0. */
static cddp_status clear(struct cddpi_device *device, size_t channels, float *dweight, float *dbias)
{
    CDDPI_TRY(cddpi_cuda_clear(device, dweight, channels * sizeof *dweight));
    return cddpi_cuda_clear(device, dbias, channels * sizeof *dbias);
}

static cddp_status backward(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                            const void *dy, const void *other, const void *x, const void *y,
                            const float *weight, const float *bias, const float *mean,
                            const float *inverse, bool add, void *dx, void *dsum, float *dweight,
                            float *dbias)
{
    void *scratch;

    if (shape->rows == 0 || shape->channels == 0) {
        return add ? CDDP_OK : clear(device, (size_t)shape->channels, dweight, dbias);
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch));
    return cddpi_cuda_own_batch_norm_grad(device, shape, dy, other, x, y, weight, bias, mean,
                                          inverse, add, dx, dsum, dweight, dbias, scratch);
}

/* --- over ranks --- */

static cddp_status rank_moments(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                const void *x, double *rank_moments)
{
    void *scratch;

    if (shape->rows == 0) {
        return cddpi_cuda_clear(device, rank_moments,
                                (1 + 2 * (size_t)shape->channels) * sizeof *rank_moments);
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch));
    return cddpi_cuda_own_batch_norm_moments(device, shape, x, rank_moments, scratch);
}

static cddp_status merge(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                         const double *all_moments, int ranks, float *running_mean,
                         float *running_variance, float *mean, float *inverse, double *rows)
{
    return cddpi_cuda_own_batch_norm_merge(device, shape, all_moments, ranks, running_mean,
                                           running_variance, mean, inverse, rows);
}

static cddp_status apply(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                         const void *x, const void *sum, const float *weight, const float *bias,
                         const float *mean, const float *inverse, void *y)
{
    return shape->rows == 0 ? CDDP_OK
                            : cddpi_cuda_own_batch_norm_apply(device, shape, x, sum, weight, bias,
                                                              mean, inverse, y);
}

static cddp_status grad_moments(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                const void *dy, const void *x, const void *y, const float *mean,
                                const float *inverse, bool add, double scale, float *dweight,
                                float *dbias, double *sums)
{
    size_t channels = (size_t)shape->channels;
    void *scratch;

    if (shape->rows == 0) {
        CDDPI_TRY(add ? CDDP_OK : clear(device, channels, dweight, dbias));
        return cddpi_cuda_clear(device, sums, 2 * channels * sizeof *sums);
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch));
    return cddpi_cuda_own_batch_norm_grad_moments(device, shape, dy, x, y, mean, inverse, add,
                                                  scale, dweight, dbias, sums, scratch);
}

static cddp_status grad_apply(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                              const void *dy, const void *x, const void *y, const float *weight,
                              const float *mean, const float *inverse, const double *sums,
                              int ranks, const double *rows, double scale, void *dx, void *dsum)
{
    void *scratch;

    if (shape->rows == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch));
    return cddpi_cuda_own_batch_norm_grad_apply(device, shape, dy, x, y, weight, mean, inverse,
                                                sums, ranks, rows, scale, dx, dsum, scratch);
}

void cddpi_cuda_fill_batch_norm(struct cddpi_cuda_kernels *out)
{
    out->batch_norm = forward;
    out->batch_norm_eval = evaluate;
    out->batch_norm_grad = backward;
    out->batch_norm_moments = rank_moments;
    out->batch_norm_merge = merge;
    out->batch_norm_apply = apply;
    out->batch_norm_grad_moments = grad_moments;
    out->batch_norm_grad_apply = grad_apply;
}
