/* profile_matmul.c - what matmul, attention, convolutions and batch norm are designed to need: each
 * array once, or twice if a sum over the whole array must come first (doc/gpu.md). */
#include "device/cuda/profile.h"

#include <stdio.h>

/* --- matmul --- */

static struct cuda_work linear_work(const char *op, const struct cddpi_cuda_linear *s)
{
    struct cuda_work work = {.op = op};

    work.flops = 2.0 * (double)s->rows * (double)s->inputs * (double)s->outputs;
    work.bytes = cuda_type_bytes(s->type) *
                 ((double)s->rows * (double)s->inputs + (double)s->rows * (double)s->outputs);
    snprintf(work.shape, sizeof work.shape, "%zu x %zu to %zu%s", s->rows, s->inputs, s->outputs,
             s->epilogue == CDDPI_EPILOGUE_GELU   ? ", gelu"
             : s->epilogue == CDDPI_EPILOGUE_RELU ? ", relu"
                                                  : "");
    return work;
}

static cddp_status linear(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                          const void *x, const void *weight, const void *bias, void *y, void *aux)
{
    struct cuda_work work = linear_work("linear", shape);

    work.bytes += cuda_type_bytes(shape->type) *
                  ((double)shape->inputs * (double)shape->outputs +
                   (aux != NULL ? (double)shape->rows * (double)shape->outputs : 0));
    return PROFILED(device, work, linear(device, shape, x, weight, bias, y, aux));
}

static cddp_status linear_input(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                const void *dy, const void *weight, const void *aux, void *dx)
{
    struct cuda_work work = linear_work("linear_input", shape);

    work.bytes += cuda_type_bytes(shape->type) *
                  ((double)shape->inputs * (double)shape->outputs +
                   (aux != NULL ? (double)shape->rows * (double)shape->inputs : 0));
    return PROFILED(device, work, linear_input(device, shape, dy, weight, aux, dx));
}

static cddp_status linear_weight(struct cddpi_device *device, const struct cddpi_cuda_linear *shape,
                                 const void *dy, const void *x, bool add, float *dweight,
                                 float *dbias)
{
    struct cuda_work work = linear_work(dbias != NULL ? "linear_weight + bias" : "linear_weight",
                                        shape);

    work.bytes += (add ? 8.0 : 4.0) * (double)shape->inputs * (double)shape->outputs;
    work.pass_bytes = dbias != NULL ? cuda_type_bytes(shape->type) * (double)shape->rows *
                                          (double)shape->outputs
                                    : 0;
    return PROFILED(device, work, linear_weight(device, shape, dy, x, add, dweight, dbias));
}

/* --- attention: causal, so half of each matrix product --- */

static struct cuda_work attention_work(const char *op, const struct cddpi_cuda_attention *s,
                                       double passes, double products)
{
    struct cuda_work work = {.op = op};
    double rows = (double)s->batch * s->heads * s->length;

    work.flops = products * rows * s->length * s->head;
    work.bytes = passes * cuda_type_bytes(s->type) * rows * s->head + 4 * rows;
    snprintf(work.shape, sizeof work.shape, "%d x %d heads x %d x %d", s->batch, s->heads,
             s->length, s->head);
    return work;
}

static cddp_status attention(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                             const void *qkv, void *out, float *stats)
{
    return PROFILED(device, attention_work("attention", shape, 4, 2),
                    attention(device, shape, qkv, out, stats));
}

static cddp_status attention_grad(struct cddpi_device *device,
                                  const struct cddpi_cuda_attention *shape, const void *qkv,
                                  const void *out, const float *stats, const void *dout, void *dqkv)
{
    return PROFILED(device, attention_work("attention_grad", shape, 8, 5),
                    attention_grad(device, shape, qkv, out, stats, dout, dqkv));
}

/* --- convolutions --- */

static int after(int side, const struct cddpi_cuda_conv *s)
{
    return (side + 2 * s->padding - s->kernel) / s->stride + 1;
}

/* Bytes of input and output. @p out_weight gets the number of weight elements. */
static struct cuda_work conv_work(const char *op, const struct cddpi_cuda_conv *s,
                                  double *out_weight)
{
    struct cuda_work work = {.op = op};
    double x = (double)s->count * s->channels * s->height * s->width;
    double y = (double)s->count * s->outputs * after(s->height, s) * after(s->width, s);

    *out_weight = (double)s->outputs * s->channels * s->kernel * s->kernel;
    work.flops = 2 * y * s->channels * s->kernel * s->kernel;
    work.bytes = cuda_type_bytes(s->type) * (x + y);
    snprintf(work.shape, sizeof work.shape, "%d x %d to %d, %d x %d, kernel %d / %d", s->count,
             s->channels, s->outputs, s->height, s->width, s->kernel, s->stride);
    return work;
}

static cddp_status conv(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                        const void *x, const void *weight, void *y)
{
    double weights;
    struct cuda_work work = conv_work("conv", shape, &weights);

    work.bytes += cuda_type_bytes(shape->type) * weights;
    return PROFILED(device, work, conv(device, shape, x, weight, y));
}

static cddp_status conv_input(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                              const void *dy, const void *weight, void *dx)
{
    double weights;
    struct cuda_work work = conv_work("conv_input", shape, &weights);

    work.bytes += cuda_type_bytes(shape->type) * weights;
    return PROFILED(device, work, conv_input(device, shape, dy, weight, dx));
}

static cddp_status conv_weight(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                               const void *dy, const void *x, bool add, float *dweight)
{
    double weights;
    struct cuda_work work = conv_work("conv_weight", shape, &weights);

    work.bytes += (add ? 8 : 4) * weights;
    return PROFILED(device, work, conv_weight(device, shape, dy, x, add, dweight));
}

/* --- batch norm --- */

static struct cuda_work norm_work(const char *op, const struct cddpi_cuda_norm *s, double passes)
{
    struct cuda_work work = {.op = op};

    work.bytes = passes * cuda_type_bytes(s->type) * (double)s->rows * s->channels;
    snprintf(work.shape, sizeof work.shape, "%zu x %d, %g passes", s->rows, s->channels, passes);
    return work;
}

static cddp_status batch_norm(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                              const void *x, const void *sum, const float *weight,
                              const float *bias, float *running_mean, float *running_variance,
                              float *mean, float *inverse, void *y)
{
    /* reads x twice, writes y; also reads the other summand */
    return PROFILED(device, norm_work("batch_norm", shape, sum != NULL ? 4 : 3),
                    batch_norm(device, shape, x, sum, weight, bias, running_mean, running_variance,
                               mean, inverse, y));
}

static cddp_status batch_norm_grad(struct cddpi_device *device, const struct cddpi_cuda_norm *shape,
                                   const void *dy, const void *other, const void *x, const void *y,
                                   const float *weight, const float *bias, const float *mean,
                                   const float *inverse, bool add, void *dx, void *dsum,
                                   float *dweight, float *dbias)
{
    /* reads dy and x twice, writes dx; after a sum, reads dy, x and y and writes the sum's
     * gradient, then reads that gradient and x and writes dx */
    double passes = dsum != NULL ? (other != NULL ? 8 : 7)
                                 : 5 + (other != NULL ? 2 : 0) + (y != NULL ? 2 : 0);

    return PROFILED(device, norm_work("batch_norm_grad", shape, passes),
                    batch_norm_grad(device, shape, dy, other, x, y, weight, bias, mean, inverse,
                                    add, dx, dsum, dweight, dbias));
}

void cuda_profile_matmul(struct cddpi_cuda_kernels *table)
{
    table->linear = linear;
    table->linear_input = linear_input;
    table->linear_weight = linear_weight;
    table->attention = attention;
    table->attention_grad = attention_grad;
    table->conv = conv;
    table->conv_input = conv_input;
    table->conv_weight = conv_weight;
    table->batch_norm = batch_norm;
    table->batch_norm_grad = batch_norm_grad;
}
