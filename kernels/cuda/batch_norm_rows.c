/* batch_norm_rows.c - gives batch normalisation its scratch. */
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/scratch.h"

#include "device/device.h"

static cddp_status forward(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                           const void *x, const void *sum, const float *weight, const float *bias,
                           float *running_mean, float *running_variance, float *mean,
                           float *inverse, void *y)
{
    void *scratch;
    cddp_status status;

    if (shape->rows == 0 || shape->channels == 0) {
        return CDDP_OK; /* and no statistics of nothing */
    }
    status = cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch);
    return status != CDDP_OK
               ? status
               : cddpi_cuda_own_batch_norm(device, shape, x, sum, weight, bias, running_mean,
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

/* Gradients of nothing are 0. */
static cddp_status clear(struct cddpi_device *device, size_t channels, float *dweight, float *dbias)
{
    cddp_status status = device->ops->clear(device, CDDPI_STREAM_COMPUTE, dweight,
                                            channels * sizeof *dweight);

    return status != CDDP_OK
               ? status
               : device->ops->clear(device, CDDPI_STREAM_COMPUTE, dbias, channels * sizeof *dbias);
}

static cddp_status backward(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                            const void *dy, const void *other, const void *x, const void *y,
                            const float *weight, const float *bias, const float *mean,
                            const float *inverse, bool add, void *dx, void *dsum, float *dweight,
                            float *dbias)
{
    void *scratch;
    cddp_status status;

    if (shape->rows == 0 || shape->channels == 0) {
        return add ? CDDP_OK : clear(device, (size_t)shape->channels, dweight, dbias);
    }
    status = cddpi_cuda_scratch(device, cddpi_cuda_batch_norm_scratch(shape->channels), &scratch);
    return status != CDDP_OK
               ? status
               : cddpi_cuda_own_batch_norm_grad(device, shape, dy, other, x, y, weight, bias, mean,
                                                inverse, add, dx, dsum, dweight, dbias, scratch);
}

void cddpi_cuda_fill_batch_norm(struct cddpi_cuda_kernels *out)
{
    out->batch_norm = forward;
    out->batch_norm_eval = evaluate;
    out->batch_norm_grad = backward;
}
