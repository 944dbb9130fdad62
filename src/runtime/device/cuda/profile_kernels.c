/* profile_kernels.c - the memory traffic that kernels over rows, elements and parameters are
 * designed for: each array once (doc/gpu.md). Arithmetic limits none of these kernels. */
#include "device/cuda/profile.h"

#include <stdio.h>

static struct cuda_work rows_work(const char *op, size_t rows, size_t columns, double bytes)
{
    struct cuda_work work = {.op = op, .bytes = bytes};

    snprintf(work.shape, sizeof work.shape, "%zu x %zu", rows, columns);
    return work;
}

/* @p passes: number of arrays of @p count elements that are read or written. */
static struct cuda_work elements_work(const char *op, cddp_type type, size_t count, double passes)
{
    struct cuda_work work = {.op = op, .bytes = passes * cuda_type_bytes(type) * (double)count};

    snprintf(work.shape, sizeof work.shape, "%zu", count);
    return work;
}

/* --- rows --- */

static cddp_status layer_norm(struct cddpi_device *device, cddp_type type, const void *x,
                              const void *residual, const float *weight, const float *bias,
                              float epsilon, size_t rows, size_t columns, void *sum, void *out,
                              float *mean, float *inverse)
{
    double passes = 2 + (residual != NULL ? 1 : 0) + (sum != NULL ? 1 : 0);

    return PROFILED(device,
                    rows_work(residual != NULL ? "layer_norm + residual" : "layer_norm", rows,
                              columns,
                              passes * cuda_type_bytes(type) * (double)rows * (double)columns +
                                  (mean != NULL ? 8.0 * (double)rows : 0)),
                    layer_norm(device, type, x, residual, weight, bias, epsilon, rows, columns, sum,
                               out, mean, inverse));
}

static cddp_status layer_norm_grad(struct cddpi_device *device, cddp_type type, const void *dy,
                                   const void *x, const float *weight, const float *mean,
                                   const float *inverse, size_t rows, size_t columns,
                                   const void *other, bool add, void *dx, float *dweight,
                                   float *dbias, void *scratch)
{
    return PROFILED(
        device,
        rows_work(other != NULL ? "layer_norm_grad + other" : "layer_norm_grad", rows, columns,
                  (other != NULL ? 4 : 3) * cuda_type_bytes(type) * (double)rows * (double)columns +
                      8.0 * (double)rows),
        layer_norm_grad(device, type, dy, x, weight, mean, inverse, rows, columns, other, add, dx,
                        dweight, dbias, scratch));
}

static cddp_status embedding(struct cddpi_device *device, cddp_type type, const int32_t *tokens,
                             const void *table, const void *positions, size_t rows, size_t length,
                             size_t columns, void *out)
{
    /* for each row written, one row of the table is read */
    return PROFILED(device,
                    rows_work("embedding", rows, columns,
                              2 * cuda_type_bytes(type) * (double)rows * (double)columns),
                    embedding(device, type, tokens, table, positions, rows, length, columns, out));
}

static cddp_status embedding_grad(struct cddpi_device *device, cddp_type type,
                                  const int32_t *tokens, const void *dy, size_t rows, size_t length,
                                  size_t columns, size_t vocab, bool add, float *dtable,
                                  float *dpositions, void *scratch)
{
    /* each row of the table that occurs is read and written; at most one row per token */
    double touched = (double)(rows < vocab ? rows : vocab) * (double)columns;

    return PROFILED(device,
                    rows_work("embedding_grad", rows, columns,
                              cuda_type_bytes(type) * (double)rows * (double)columns + 8 * touched),
                    embedding_grad(device, type, tokens, dy, rows, length, columns, vocab, add,
                                   dtable, dpositions, scratch));
}

static cddp_status column_sums(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t rows, size_t columns, bool add, float *out, void *scratch)
{
    return PROFILED(device,
                    rows_work("column_sums", rows, columns,
                              cuda_type_bytes(type) * (double)rows * (double)columns),
                    column_sums(device, type, x, rows, columns, add, out, scratch));
}

static struct cuda_work loss_work(cddp_type type, size_t rows, size_t columns, bool grads)
{
    return rows_work(grads ? "cross_entropy + gradient" : "cross_entropy", rows, columns,
                     (grads ? 2 : 1) * cuda_type_bytes(type) * (double)rows * (double)columns);
}

static cddp_status cross_entropy(struct cddpi_device *device, cddp_type type, void *logits,
                                 const int32_t *labels, size_t rows, size_t columns, bool grads,
                                 float scale, const float *device_scale,
                                 struct cddpi_loss_totals *out, void *scratch)
{
    return PROFILED(device, loss_work(type, rows, columns, grads),
                    cross_entropy(device, type, logits, labels, rows, columns, grads, scale,
                                  device_scale, out, scratch));
}

static cddp_status cross_entropy_strided(struct cddpi_device *device, cddp_type type, void *logits,
                                         const int32_t *labels, size_t rows, size_t columns,
                                         size_t stride, bool grads, float scale,
                                         const float *device_scale, struct cddpi_loss_totals *out,
                                         void *scratch)
{
    return PROFILED(device, loss_work(type, rows, columns, grads),
                    cross_entropy_strided(device, type, logits, labels, rows, columns, stride,
                                          grads, scale, device_scale, out, scratch));
}

/* --- elements --- */

static const struct {
    const char *forward, *backward;
} functions[CDDPI_POINTWISE_COUNT] = {
#define ROW(function, name, needs) [CDDPI_POINTWISE_##function] = {name, name "_grad"},
    CDDPI_POINTWISE_ROWS(ROW)
#undef ROW
};

static cddp_status pointwise(struct cddpi_device *device, cddp_type type,
                             enum cddpi_pointwise function, float slope, const void *x,
                             size_t count, void *y)
{
    return PROFILED(device, elements_work(functions[function].forward, type, count, 2),
                    pointwise(device, type, function, slope, x, count, y));
}

static cddp_status pointwise_grad(struct cddpi_device *device, cddp_type type,
                                  enum cddpi_pointwise function, float slope, const void *dy,
                                  const void *saved, size_t count, void *dx)
{
    return PROFILED(device, elements_work(functions[function].backward, type, count, 3),
                    pointwise_grad(device, type, function, slope, dy, saved, count, dx));
}

static cddp_status add(struct cddpi_device *device, cddp_type type, const void *a, const void *b,
                       bool relu_too, size_t count, void *out)
{
    return PROFILED(device, elements_work("add", type, count, 3),
                    add(device, type, a, b, relu_too, count, out));
}

static cddp_status add_bias(struct cddpi_device *device, cddp_type type, const void *x,
                            const float *bias, bool relu_too, size_t rows, size_t columns, void *y)
{
    return PROFILED(device, elements_work("add_bias", type, rows * columns, 2),
                    add_bias(device, type, x, bias, relu_too, rows, columns, y));
}

static cddp_status transpose(struct cddpi_device *device, cddp_type type, const void *x,
                             size_t count, size_t rows, size_t columns, void *out)
{
    return PROFILED(device, elements_work("transpose", type, count * rows * columns, 2),
                    transpose(device, type, x, count, rows, columns, out));
}

static cddp_status dropout(struct cddpi_device *device, cddp_type type, const uint32_t *streams,
                           uint32_t threshold, float scale, const void *x, size_t samples,
                           size_t elements, void *out)
{
    return PROFILED(device, elements_work("dropout", type, samples * elements, 2),
                    dropout(device, type, streams, threshold, scale, x, samples, elements, out));
}

static cddp_status take_columns(struct cddpi_device *device, cddp_type type, const void *x,
                                size_t rows, size_t all, size_t first, size_t columns, void *out)
{
    return PROFILED(device, elements_work("take_columns", type, rows * columns, 2),
                    take_columns(device, type, x, rows, all, first, columns, out));
}

static cddp_status put_columns(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t rows, size_t all, size_t first, size_t columns, void *out)
{
    return PROFILED(device, elements_work("put_columns", type, rows * columns, 2),
                    put_columns(device, type, x, rows, all, first, columns, out));
}

/* --- channels of a pixel, gates of a step --- */

static cddp_status response_norm(struct cddpi_device *device,
                                 const struct cddpi_cuda_response *shape, const void *x, void *y)
{
    size_t channels = (size_t)shape->channels;

    return PROFILED(device,
                    rows_work("response_norm", shape->rows, channels,
                              2 * cuda_type_bytes(shape->type) * (double)(shape->rows * channels)),
                    response_norm(device, shape, x, y));
}

static cddp_status response_norm_grad(struct cddpi_device *device,
                                      const struct cddpi_cuda_response *shape, const void *dy,
                                      const void *x, float *scratch, void *dx)
{
    /* both passes read dy and x; between the passes, a float32 for each value is written and
     * read */
    size_t channels = (size_t)shape->channels;
    double bytes = (5 * cuda_type_bytes(shape->type) + 8) * (double)(shape->rows * channels);

    return PROFILED(device, rows_work("response_norm_grad", shape->rows, channels, bytes),
                    response_norm_grad(device, shape, dy, x, scratch, dx));
}

static cddp_status lstm(struct cddpi_device *device, const struct cddpi_cuda_lstm *shape,
                        size_t step, const float *bias_ih, const float *bias_hh,
                        const void *recurrent, void *gates, float *cells, void *out, void *last)
{
    /* gates are read and written, the recurrent gates read, outputs written twice, cells read and
     * written in float32 */
    double bytes = (recurrent != NULL ? 14 : 10) * cuda_type_bytes(shape->type) + 8;

    return PROFILED(
        device,
        rows_work("lstm", shape->rows, shape->units, bytes * (double)(shape->rows * shape->units)),
        lstm(device, shape, step, bias_ih, bias_hh, recurrent, gates, cells, out, last));
}

static cddp_status lstm_grad(struct cddpi_device *device, const struct cddpi_cuda_lstm *shape,
                             size_t step, const void *dy, const void *carried_out,
                             float *carried_cell, const float *cells, const void *out, void *gates,
                             void *step_grads, void *before)
{
    /* gates are read once and written twice; dy, the carried gradient and outputs are read, outputs
     * are written; in float32 two cells and the carried cell gradient are read, the latter is
     * written */
    double bytes = 16 * cuda_type_bytes(shape->type) + 16;

    return PROFILED(device,
                    rows_work("lstm_grad", shape->rows, shape->units,
                              bytes * (double)(shape->rows * shape->units)),
                    lstm_grad(device, shape, step, dy, carried_out, carried_cell, cells, out, gates,
                              step_grads, before));
}

/* --- pools --- */

/* @p places: bytes of the places (indices), if they are read or written. */
static struct cuda_work pool_work(const char *op, const struct cddpi_cuda_pool *s, size_t places)
{
    double x = (double)s->count * s->channels * s->height * s->width;
    int height = (s->height + 2 * s->padding - s->kernel) / s->stride + 1;
    int width = (s->width + 2 * s->padding - s->kernel) / s->stride + 1;
    double y = (double)s->count * s->channels * height * width;
    struct cuda_work work = {.op = op};

    work.bytes = cuda_type_bytes(s->type) * (x + y) + (double)places;
    snprintf(work.shape, sizeof work.shape, "%d x %d, %d x %d, %d / %d", s->count, s->channels,
             s->height, s->width, s->kernel, s->stride);
    return work;
}

static size_t places_bytes(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                           const void *places)
{
    return places != NULL ? cuda_profile_plain(device)->pool_places_bytes(shape) : 0;
}

static cddp_status pool(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                        const void *x, void *y, void *places)
{
    return PROFILED(device, pool_work("pool", shape, places_bytes(device, shape, places)),
                    pool(device, shape, x, y, places));
}

static cddp_status pool_grad(struct cddpi_device *device, const struct cddpi_cuda_pool *shape,
                             const void *dy, const void *places, void *dx)
{
    return PROFILED(device, pool_work("pool_grad", shape, places_bytes(device, shape, places)),
                    pool_grad(device, shape, dy, places, dx));
}

static cddp_status global_pool(struct cddpi_device *device, cddp_type type, const void *x,
                               size_t count, size_t area, size_t channels, void *out)
{
    return PROFILED(device, elements_work("global_pool", type, count * area * channels, 1),
                    global_pool(device, type, x, count, area, channels, out));
}

static cddp_status global_pool_grad(struct cddpi_device *device, cddp_type type, const void *dy,
                                    size_t count, size_t area, size_t channels, void *dx)
{
    return PROFILED(device, elements_work("global_pool_grad", type, count * area * channels, 1),
                    global_pool_grad(device, type, dy, count, area, channels, dx));
}

/* --- parameters --- */

static cddp_status tensors(struct cddpi_device *device, const struct cddpi_cuda_slot *slots,
                           size_t count, void *table, struct cddpi_cuda_tensors *out)
{
    double elements = 0;

    for (size_t i = 0; i < count; i++) {
        elements += (double)slots[i].count;
    }
    cuda_profile_remember(device, table, elements);
    return cuda_profile_plain(device)->tensors(device, slots, count, table, out);
}

static struct cuda_work tensors_work(struct cddpi_device *device, const char *op,
                                     const struct cddpi_cuda_tensors *all, double bytes)
{
    double count = cuda_profile_remembered(device, all->table);
    struct cuda_work work = {.op = op, .bytes = bytes * count};

    snprintf(work.shape, sizeof work.shape, "%zu tensors, %.0f", all->slots, count);
    return work;
}

static cddp_status update(struct cddpi_device *device, const struct cddpi_cuda_update *how,
                          const struct cddpi_cuda_tensors *all)
{
    /* parameters and moments are read and written, gradients read, copies written */
    double bytes = 12.0 +
                   (how->adamw          ? 16
                    : how->momentum > 0 ? 8
                                        : 0) +
                   (how->copy_type == CDDP_F32 ? 0 : 2);
    struct cuda_work work = tensors_work(device, "update", all, bytes);

    CDDPI_TRY(PROFILED(device, work, update(device, how, all)));
    return cuda_profile_step(device);
}

static cddp_status squares(struct cddpi_device *device, const struct cddpi_cuda_tensors *all,
                           struct cddpi_exact_sum *out)
{
    return PROFILED(device, tensors_work(device, "squares", all, 4), squares(device, all, out));
}

static cddp_status clip(struct cddpi_device *device, const struct cddpi_exact_sum *sum,
                        const float *loss_scale, double limit, float *scale, int32_t *skip,
                        double *norm)
{
    return PROFILED(device, elements_work("clip", CDDP_F32, 1, 4),
                    clip(device, sum, loss_scale, limit, scale, skip, norm));
}

static cddp_status cast(struct cddpi_device *device, cddp_type from, const void *in, cddp_type to,
                        void *out, size_t count)
{
    struct cuda_work work = elements_work("cast", from, count, 1);

    work.bytes += cuda_type_bytes(to) * (double)count;
    return PROFILED(device, work, cast(device, from, in, to, out, count));
}

static cddp_status to_channels_last(struct cddpi_device *device, cddp_type type, const float *in,
                                    size_t count, size_t channels, size_t area, void *out)
{
    struct cuda_work work = elements_work("to_channels_last", type, count * channels * area, 1);

    work.bytes += 4 * (double)(count * channels * area);
    return PROFILED(device, work, to_channels_last(device, type, in, count, channels, area, out));
}

static cddp_status from_channels_last(struct cddpi_device *device, cddp_type type, const void *in,
                                      size_t count, size_t channels, size_t area, bool adds,
                                      float *out)
{
    struct cuda_work work = elements_work("from_channels_last", type, count * channels * area, 1);

    work.bytes += (adds ? 8 : 4) * (double)(count * channels * area);
    return PROFILED(device, work,
                    from_channels_last(device, type, in, count, channels, area, adds, out));
}

void cuda_profile_rows(struct cddpi_cuda_kernels *table)
{
    table->layer_norm = layer_norm;
    table->layer_norm_grad = layer_norm_grad;
    table->embedding = embedding;
    table->embedding_grad = embedding_grad;
    table->column_sums = column_sums;
    table->cross_entropy = cross_entropy;
    table->cross_entropy_strided = cross_entropy_strided;
    table->pointwise = pointwise;
    table->pointwise_grad = pointwise_grad;
    table->response_norm = response_norm;
    table->response_norm_grad = response_norm_grad;
    table->take_columns = take_columns;
    table->put_columns = put_columns;
    table->lstm = lstm;
    table->lstm_grad = lstm_grad;
    table->add = add;
    table->add_bias = add_bias;
    table->transpose = transpose;
    table->dropout = dropout;
    table->pool = pool;
    table->pool_grad = pool_grad;
    table->global_pool = global_pool;
    table->global_pool_grad = global_pool_grad;
    table->tensors = tensors;
    table->update = update;
    table->squares = squares;
    table->clip = clip;
    table->cast = cast;
    table->to_channels_last = to_channels_last;
    table->from_channels_last = from_channels_last;
}
