/* bench_gpt.c - times only the matrix products of one step of the mini GPT-2 that scripts/bench
 * trains: the time that no implementation on this core can avoid. `bench_gpt SAMPLES STEPS
 * f32|bf16` prints one JSON line. f32 uses the products of linear layers; bf16 uses oneDNN's, with
 * its own layouts and without conversions. Attention, too small to be timed separately, is counted
 * at the rate of the other products, without its masked half. Each product's time is that of the
 * fastest step. Not a test. */
#include "base/clock.h"
#include "bench/bench_matmul.h"
#include "nn/cpu/dnnl.h"
#include "nn/model_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 4, EMBED = 256, CONTEXT = 128, VOCAB = 4096, MOST_STEPS = 1000 };

/* C (m x n) = A (m x k) B (k x n) */
struct matmul {
    size_t m, n, k;
    bool transpose_a, transpose_b; /* how the layer's matrices lie, of f32 */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_gpt: %s\n", what);
    exit(1);
}

static void check(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success) {
        fail(what);
    }
}

/* Of many values: a processor that multiplies the same number over and over needs less power, and
 * runs faster. */
static float *numbers(size_t count)
{
    float *x = malloc(count * sizeof *x);
    uint32_t seed = 1;

    if (x == NULL) {
        fail("no memory");
    }
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

static double time_f32(const struct matmul *p, int steps)
{
    float *a = numbers(p->m * p->k);
    float *b = numbers(p->k * p->n);
    float *c = numbers(p->m * p->n);
    struct bench_matmul matmul;
    double least = INFINITY;

    bench_matmul_init(&matmul, p->transpose_a, p->transpose_b, p->m, p->n, p->k, a, b, c);
    for (int i = 0; i < steps; i++) {
        int64_t begin = cddpi_now_ns();

        if (bench_matmul_run(&matmul) != CDDP_OK) {
            fail(cddp_last_error());
        }
        least = fmin(least, (double)(cddpi_now_ns() - begin) / 1e6);
    }
    bench_matmul_fini(&matmul);
    free(a);
    free(b);
    free(c);
    return least;
}

static dnnl_memory_t make_memory(dnnl_engine_t engine, const_dnnl_primitive_desc_t desc,
                                 dnnl_query_t what)
{
    cddpi_md layout = cddpi_dnnl_query(desc, what);
    dnnl_memory_t memory;
    void *data;

    check(dnnl_memory_create(&memory, layout, engine, DNNL_MEMORY_ALLOCATE), "memory");
    check(dnnl_memory_get_data_handle(memory, &data), "memory's data");
    memset(data, 0x3c, dnnl_memory_desc_get_size(layout));
    return memory;
}

static cddpi_md any_matrix(struct cddpi_mds *holder, size_t rows, size_t columns,
                           dnnl_data_type_t type)
{
    const dnnl_dim_t sizes[] = {(dnnl_dim_t)rows, (dnnl_dim_t)columns};

    return cddpi_md_tagged(holder, 2, sizes, type, dnnl_format_tag_any);
}

static double time_bf16(const struct matmul *p, int steps)
{
    struct cddpi_mds layouts = {.last = NULL};
    const struct cddpi_dnnl_request request = {
        .kind = CDDPI_DNNL_MATMUL,
        .src = any_matrix(&layouts, p->m, p->k, dnnl_bf16),
        .weight = any_matrix(&layouts, p->k, p->n, dnnl_bf16),
        .dst = any_matrix(&layouts, p->m, p->n, dnnl_f32)};
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_exec_arg_t arguments[3];
    double least = INFINITY;

    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "the engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "the stream");
    check(cddpi_dnnl_make(engine, &request, NULL, &desc), "a product of bf16");
    check(dnnl_primitive_create(&primitive, desc), "a primitive");
    arguments[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, make_memory(engine, desc, dnnl_query_src_md)};
    arguments[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS,
                                     make_memory(engine, desc, dnnl_query_weights_md)};
    arguments[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, make_memory(engine, desc, dnnl_query_dst_md)};
    for (int i = 0; i < steps; i++) {
        int64_t begin = cddpi_now_ns();

        check(dnnl_primitive_execute(primitive, stream, 3, arguments), "a product");
        check(dnnl_stream_wait(stream), "a product");
        least = fmin(least, (double)(cddpi_now_ns() - begin) / 1e6);
    }
    for (int i = 0; i < 3; i++) {
        dnnl_memory_destroy(arguments[i].memory);
    }
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(desc);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    cddpi_mds_drop(&layouts);
    return least;
}

/* Forward, input's and weight's gradient of a linear layer. */
static double time_layer(size_t rows, size_t inputs, size_t outputs, int steps, bool bf16)
{
    const struct matmul products[] = {{rows, outputs, inputs, false, true},
                                      {rows, inputs, outputs, false, false},
                                      {outputs, inputs, rows, true, false}};
    double sum = 0;

    for (int i = 0; i < 3; i++) {
        sum += bf16 ? time_bf16(&products[i], steps) : time_f32(&products[i], steps);
    }
    return sum;
}

int main(int argc, char **argv)
{
    static const size_t layers[][2] = {
        {EMBED, 3 * EMBED}, {EMBED, EMBED}, {EMBED, 4 * EMBED}, {4 * EMBED, EMBED}};
    size_t samples = argc == 4 ? (size_t)atoi(argv[1]) : 0;
    int steps = argc == 4 ? atoi(argv[2]) : 0;
    bool bf16 = argc == 4 && strcmp(argv[3], "bf16") == 0;
    size_t rows = samples * CONTEXT;
    double flops = 6.0 * (double)rows * EMBED * VOCAB;
    /* two products forward and four backward, half of each */
    double attention = 6.0 * (double)rows * CONTEXT * EMBED * BLOCKS;
    double linear;

    if (samples < 1 || samples > 4096 || steps < 1 || steps > MOST_STEPS) {
        fprintf(stderr, "usage: bench_gpt SAMPLES STEPS f32|bf16\n");
        return 2;
    }
    linear = time_layer(rows, EMBED, VOCAB, steps, bf16);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        linear += BLOCKS * time_layer(rows, layers[i][0], layers[i][1], steps, bf16);
        flops += BLOCKS * 6.0 * (double)rows * (double)layers[i][0] * (double)layers[i][1];
    }
    printf("{\"bench\": \"gpt\", \"precision\": \"%s\", \"samples\": %zu, \"linear_ms\": %.3f, "
           "\"attention_ms\": %.3f, \"gflop_per_s\": %.1f}\n",
           bf16 ? "bf16" : "f32", samples, linear, attention / flops * linear,
           flops / linear / 1e6);
    return 0;
}
