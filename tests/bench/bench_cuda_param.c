/* bench_cuda_param.c - the speed of products and of kernels for parameters on a CUDA device: one
 * line each with the median time, and bytes or operations per second. "fused" and "apart" are the
 * same work: one product that does everything, and a plain product followed by kernels.
 *
 *     bench_cuda_param [ROWS]     rows of GPT-2 124M's layers, 65536 by default
 *
 * Run it with CDDP_PRODUCTS=first, same and fast to see the gain from choosing algorithms. */
#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, RUNS = 15 };

static struct cddpi_device *cuda;

static void need(cddp_status status)
{
    if (status != CDDP_OK) {
        fprintf(stderr, "bench_cuda_param: %s\n", cddp_last_error());
        exit(1);
    }
}

static void *memory(size_t bytes)
{
    void *out;

    need(cuda->ops->alloc(cuda, bytes, "a benchmark's array", &out));
    need(cuda->ops->clear(cuda, CDDPI_STREAM_COMPUTE, out, bytes));
    return out;
}

/* Small numbers, since cards slow down less for zeros. */
static void *filled(size_t count)
{
    uint16_t *host = malloc(count * sizeof *host);
    void *out = memory(count * sizeof *host);
    uint32_t state = 1;

    for (size_t i = 0; host != NULL && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (uint16_t)(0x3c00 | (state >> 16 & 0x80ff)); /* bf16: +- 2^-7 to 2^-6 */
    }
    need(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, out, host, count * sizeof *host));
    need(cuda->ops->finish(cuda, 600000));
    free(host);
    return out;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

typedef cddp_status (*work_fn)(void *context);

static float median_ms(enum cddpi_stream stream, work_fn work, void *context)
{
    struct cddpi_event *begin;
    struct cddpi_event *end;
    float ms[RUNS];

    need(cuda->ops->event_create(cuda, true, &begin));
    need(cuda->ops->event_create(cuda, true, &end));
    for (int i = -WARM; i < RUNS; i++) {
        need(cuda->ops->record(cuda, begin, stream));
        need(work(context));
        need(cuda->ops->record(cuda, end, stream));
        need(cuda->ops->wait(cuda, end, 600000));
        need(cuda->ops->elapsed(cuda, begin, end, &ms[i < 0 ? 0 : i]));
    }
    cuda->ops->event_destroy(cuda, begin);
    cuda->ops->event_destroy(cuda, end);
    qsort(ms, RUNS, sizeof ms[0], by_size);
    return ms[RUNS / 2];
}

/* --- products --- */

struct layer {
    struct cddpi_cuda_linear shape;
    void *x, *weight, *bias, *y, *aux, *dx, *scratch;
    float *dweight, *dbias;
};

static cddp_status forward(void *context)
{
    struct layer *l = context;

    return cuda->kernels->linear(cuda, &l->shape, l->x, l->weight, l->bias, l->y,
                                 l->shape.epilogue == CDDPI_EPILOGUE_GELU ? l->aux : NULL);
}

static cddp_status forward_apart(void *context)
{
    struct layer *l = context;
    cddp_status status = cuda->kernels->linear(cuda, &l->shape, l->x, l->weight, l->bias, l->aux,
                                               NULL);

    return status != CDDP_OK
               ? status
               : cuda->kernels->pointwise(cuda, l->shape.type, CDDPI_POINTWISE_GELU, 0, l->aux,
                                          l->shape.rows * l->shape.outputs, l->y);
}

static cddp_status input(void *context)
{
    struct layer *l = context;

    return cuda->kernels->linear_input(cuda, &l->shape, l->y, l->weight, NULL, l->dx);
}

static cddp_status input_fused(void *context)
{
    struct layer *l = context;

    return cuda->kernels->linear_input(cuda, &l->shape, l->y, l->weight, l->x, l->dx);
}

static cddp_status input_apart(void *context)
{
    struct layer *l = context;
    cddp_status status = input(l);

    return status != CDDP_OK
               ? status
               : cuda->kernels->pointwise_grad(cuda, l->shape.type, CDDPI_POINTWISE_GELU, 0, l->dx,
                                               l->x, l->shape.rows * l->shape.inputs, l->dx);
}

static cddp_status weight(void *context)
{
    struct layer *l = context;

    return cuda->kernels->linear_weight(cuda, &l->shape, l->y, l->x, false, l->dweight, NULL);
}

static cddp_status weight_fused(void *context)
{
    struct layer *l = context;

    return cuda->kernels->linear_weight(cuda, &l->shape, l->y, l->x, false, l->dweight, l->dbias);
}

static cddp_status weight_apart(void *context)
{
    struct layer *l = context;
    cddp_status status = weight(l);

    return status != CDDP_OK
               ? status
               : cuda->kernels->column_sums(cuda, l->shape.type, l->y, l->shape.rows,
                                            l->shape.outputs, false, l->dbias, l->scratch);
}

static void tell_product(const struct layer *l, const char *what, work_fn work)
{
    float ms = median_ms(CDDPI_STREAM_COMPUTE, work, (void *)(uintptr_t)l);
    double flops = 2.0 * (double)l->shape.rows * (double)l->shape.inputs * (double)l->shape.outputs;

    printf("%-26s %6zu x %5zu -> %5zu  %9.3f ms  %8.1f TFLOP/s\n", what, l->shape.rows,
           l->shape.inputs, l->shape.outputs, (double)ms, flops / (double)ms * 1e-9);
}

static void bench_layer(size_t rows, size_t inputs, size_t outputs)
{
    struct layer l = {
        .shape = {.type = CDDP_BF16, .rows = rows, .inputs = inputs, .outputs = outputs}};

    l.x = filled(rows * inputs);
    l.weight = filled(outputs * inputs);
    l.bias = filled(outputs);
    l.y = filled(rows * outputs);
    l.aux = memory(rows * outputs * 2);
    l.dx = memory(rows * inputs * 2);
    l.dweight = memory(outputs * inputs * sizeof(float));
    l.dbias = memory(outputs * sizeof(float));
    l.scratch = memory(cuda->kernels->sums_scratch(cuda, rows, outputs) + 1);
    tell_product(&l, "input", input);
    tell_product(&l, "input, gelu fused", input_fused);
    tell_product(&l, "input, gelu apart", input_apart);
    tell_product(&l, "weight", weight);
    tell_product(&l, "weight, bias fused", weight_fused);
    tell_product(&l, "weight, bias apart", weight_apart);
    tell_product(&l, "forward", forward); /* last: it overwrites y */
    tell_product(&l, "forward, gelu apart", forward_apart);
    l.shape.epilogue = CDDPI_EPILOGUE_GELU;
    tell_product(&l, "forward, gelu fused", forward);
    cuda->ops->release(cuda, l.x);
    cuda->ops->release(cuda, l.weight);
    cuda->ops->release(cuda, l.bias);
    cuda->ops->release(cuda, l.y);
    cuda->ops->release(cuda, l.aux);
    cuda->ops->release(cuda, l.dx);
    cuda->ops->release(cuda, l.dweight);
    cuda->ops->release(cuda, l.dbias);
    cuda->ops->release(cuda, l.scratch);
}

/* --- parameters --- */

static void tell_bytes(const char *what, float ms, double bytes)
{
    printf("%-26s %24s %9.3f ms  %8.1f GB/s\n", what, "", (double)ms, bytes / (double)ms * 1e-6);
}

struct params {
    size_t count;
    float *p, *g, *m, *v;
    void *copy;
    void *inputs[4];
    double *number; /* the rate; from the tenth on, the sum of squares */
    struct cddpi_cuda_tensors tensors;
};

static cddp_status adamw(void *context)
{
    struct params *s = context;
    const struct cddpi_cuda_update update = {.adamw = true,
                                             .copy_type = CDDP_BF16,
                                             .lr = s->number,
                                             .weight_decay = 0.1,
                                             .beta1 = 0.9,
                                             .beta2 = 0.95,
                                             .epsilon = 1e-8,
                                             .grad_scale = 1};

    return cuda->kernels->update(cuda, &update, &s->tensors);
}

static cddp_status squares(void *context)
{
    struct params *s = context;

    return cuda->kernels->squares(cuda, &s->tensors,
                                  (struct cddpi_exact_sum *)(void *)(s->number + 10));
}

static cddp_status cast(void *context)
{
    struct params *s = context;

    return cuda->kernels->cast(cuda, CDDP_F32, s->p, CDDP_BF16, s->copy, s->count);
}

static cddp_status reduce(void *context)
{
    struct params *s = context;

    return cuda->kernels->reduce(cuda, CDDP_F32, CDDP_OP_MEAN, (const void *const *)s->inputs, NULL,
                                 4, s->count, s->g);
}

static void bench_params(size_t count)
{
    struct params s = {.count = count};
    struct cddpi_cuda_slot slot;
    void *table;

    s.p = memory(count * sizeof(float));
    s.g = memory(count * sizeof(float));
    s.m = memory(count * sizeof(float));
    s.v = memory(count * sizeof(float));
    s.copy = memory(count * 2);
    s.number = memory(1024);
    s.inputs[0] = s.p;
    s.inputs[1] = s.g;
    s.inputs[2] = s.m;
    s.inputs[3] = s.v;
    slot = (struct cddpi_cuda_slot){s.p,    s.g,   s.m,  s.v,
                                    s.copy, count, true, (int64_t *)(void *)(s.number + 2)};
    table = memory(cuda->kernels->tensors_bytes(&slot, 1));
    need(cuda->kernels->tensors(cuda, &slot, 1, table, &s.tensors));
    tell_bytes("adamw", median_ms(CDDPI_STREAM_COMPUTE, adamw, &s), 30.0 * (double)count);
    tell_bytes("squares", median_ms(CDDPI_STREAM_COMPUTE, squares, &s), 4.0 * (double)count);
    tell_bytes("cast f32 to bf16", median_ms(CDDPI_STREAM_COMPUTE, cast, &s), 6.0 * (double)count);
    need(cuda->ops->finish(cuda, 600000));
    tell_bytes("reduce of 4", median_ms(CDDPI_STREAM_COMM, reduce, &s), 20.0 * (double)count);
    cuda->ops->release(cuda, s.p);
    cuda->ops->release(cuda, s.g);
    cuda->ops->release(cuda, s.m);
    cuda->ops->release(cuda, s.v);
    cuda->ops->release(cuda, s.copy);
    cuda->ops->release(cuda, s.number);
    cuda->ops->release(cuda, table);
}

int main(int argc, char **argv)
{
    size_t rows = argc > 1 ? strtoul(argv[1], NULL, 10) : 65536;
    static const size_t layers[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};

    if (rows == 0) {
        fprintf(stderr, "usage: bench_cuda_param [ROWS]\n");
        return 2;
    }
    need(cddpi_device_open("cuda", -1, 1, 0, 1, true, &cuda));
    printf("%s\n", cuda->title);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        bench_layer(rows, layers[i][0], layers[i][1]);
    }
    bench_params(rows < 1024 ? 100000 : 124439808);
    cddpi_device_close(cuda);
    return 0;
}
