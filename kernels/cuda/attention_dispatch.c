/* attention_dispatch.c - chooses the implementation of attention: cuDNN if it can, otherwise
 * kernels of our own. Both save the same data in forward, so forward and backward can use different
 * ones. */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/cuda/scratch.h"

static bool is_empty(const struct cddpi_cuda_attention *shape)
{
    return shape->batch == 0 || shape->heads == 0 || shape->length == 0 || shape->head == 0;
}

static cddp_status forward(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                           const void *qkv, void *out, float *stats)
{
    bool done = is_empty(shape);
    cddp_status status = done ? CDDP_OK
                              : cddpi_cudnn_attention(device, shape, qkv, out, stats, &done);

    return status != CDDP_OK || done ? status
                                     : cddpi_cuda_own_attention(device, shape, qkv, out, stats);
}

static cddp_status backward(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                            const void *qkv, const void *out, const float *stats, const void *dout,
                            void *dqkv)
{
    bool done = is_empty(shape);
    void *scratch;
    cddp_status status = done ? CDDP_OK
                              : cddpi_cudnn_attention_grad(device, shape, qkv, out, stats, dout,
                                                           dqkv, &done);

    if (status != CDDP_OK || done) {
        return status;
    }
    status = cddpi_cuda_scratch(device, cddpi_cuda_own_attention_scratch(shape), &scratch);
    return status != CDDP_OK
               ? status
               : cddpi_cuda_own_attention_grad(device, shape, qkv, out, stats, dout, dqkv, scratch);
}

void cddpi_cuda_fill_attention(struct cddpi_cuda_kernels *out)
{
    out->attention = forward;
    out->attention_grad = backward;
}
