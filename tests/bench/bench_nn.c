/* bench_nn.c - times forward and backward of a preset model and, for comparison, only the float32
 * products or convolutions that bound them: `bench_nn MODEL BATCH [STEPS [bf16]]` prints one JSON
 * line. "gpt2" is a small model of 4 blocks, "124M" the smallest published one. Not a test. */
#include "base/clock.h"
#include "bench/bench_matmul.h"
#include "nn/model_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MAX_STEPS = 10000 };

struct bench {
    struct cddpi_model *model;
    struct cddpi_batch batch;
    float *input;
    int32_t *tokens, *label;
    uint64_t *ids;
    void **grads;
    int steps;
};

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void fail(void)
{
    fprintf(stderr, "bench_nn: %s\n", cddp_last_error());
    exit(1);
}

static struct cddpi_model_spec spec_of(const char *name, bool bf16)
{
    struct cddpi_model_spec spec = {.preset = name,
                                    .channels = 1,
                                    .height = 28,
                                    .width = 28,
                                    .classes = 10,
                                    .precision = bf16 ? CDDPI_PRECISION_BF16 : CDDPI_PRECISION_F32};
    bool large = strcmp(name, "124M") == 0;

    if (large || strcmp(name, "gpt2") == 0) {
        spec.preset = "gpt2";
        spec.blocks = large ? 12 : 4;
        spec.heads = large ? 12 : 4;
        spec.embed = large ? 768 : 256;
        spec.context = large ? 1024 : 128;
        spec.vocab = large ? 50257 : 4096;
        spec.classes = spec.vocab;
    }
    return spec;
}

static void make_batch(struct bench *bench, const struct cddpi_model_spec *spec, int batch)
{
    size_t elements = (size_t)batch * 784;
    int predictions = batch * cddpi_model_predictions(bench->model);

    bench->input = malloc(elements * sizeof *bench->input);
    bench->label = malloc((size_t)predictions * sizeof *bench->label);
    bench->tokens = malloc((size_t)predictions * sizeof *bench->tokens);
    bench->ids = calloc((size_t)batch, sizeof *bench->ids);
    for (size_t i = 0; i < elements; i++) {
        bench->input[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    }
    for (int i = 0; i < predictions; i++) {
        bench->label[i] = i % 10;
        bench->tokens[i] = (int32_t)((unsigned)i * 2654435761u % 1000);
    }
    bench->batch = (struct cddpi_batch){.input = spec->vocab > 0 ? NULL : bench->input,
                                        .tokens = spec->vocab > 0 ? bench->tokens : NULL,
                                        .label = bench->label,
                                        .count = batch,
                                        .sample_ids = bench->ids};
}

static void setup(struct bench *bench, const struct cddpi_model_spec *spec, int batch)
{
    const cddp_param *params;
    size_t count;

    if (cddpi_model_create(spec, 1, NULL, &bench->model) != CDDP_OK) {
        fail();
    }
    params = cddpi_model_params(bench->model, &count);
    bench->grads = calloc(count, sizeof *bench->grads);
    for (size_t i = 0; i < count; i++) {
        bench->grads[i] = calloc(cddpi_tensor_elements(&params[i]), sizeof(float));
    }
    cddpi_model_bind_grads(bench->model, bench->grads);
    make_batch(bench, spec, batch);
}

static void time_steps(struct bench *bench, double *forward, double *backward)
{
    double *forwards = calloc((size_t)bench->steps, sizeof *forwards);
    double *backwards = calloc((size_t)bench->steps, sizeof *backwards);

    for (int i = -1; i < bench->steps; i++) {
        struct cddpi_loss_result result;
        int64_t begin = cddpi_now_ns();
        int64_t middle;

        if (cddpi_model_forward(bench->model, &bench->batch, true, &result) != CDDP_OK) {
            fail();
        }
        middle = cddpi_now_ns();
        if (cddpi_model_backward(bench->model, 1.0 / bench->batch.count, false, NULL, NULL) !=
            CDDP_OK) {
            fail();
        }
        if (i >= 0) {
            forwards[i] = (double)(middle - begin) / 1e6;
            backwards[i] = (double)(cddpi_now_ns() - middle) / 1e6;
        }
    }
    *forward = median(forwards, bench->steps);
    *backward = median(backwards, bench->steps);
    free(forwards);
    free(backwards);
}

/* Written to, so that it is memory, and not the page of zeros. */
static float *numbers(size_t count)
{
    float *values = malloc(count * sizeof *values);

    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(i % 7) * 0.1f;
    }
    return values;
}

/* One op's heavy part alone, over memory of its own. */
static double time_linear(const struct cddpi_op *op, size_t rows, int steps, bool input_grad)
{
    size_t in = (size_t)op->in.channels;
    size_t out = (size_t)op->out.channels;
    float *x = numbers(rows * in);
    float *w = numbers(out * in);
    float *dw = numbers(out * in);
    float *dx = numbers(rows * in);
    float *y = numbers(rows * out);
    double *times = calloc((size_t)steps, sizeof *times);
    struct bench_matmul products[3];
    double result;

    bench_matmul_init(&products[0], false, true, rows, out, in, x, w, y);
    bench_matmul_init(&products[1], true, false, out, in, rows, y, x, dw);
    bench_matmul_init(&products[2], false, false, rows, in, out, y, w, dx);
    for (int i = 0; i < steps; i++) {
        int64_t begin = cddpi_now_ns();

        if (bench_matmul_run(&products[0]) != CDDP_OK ||
            bench_matmul_run(&products[1]) != CDDP_OK ||
            (input_grad && bench_matmul_run(&products[2]) != CDDP_OK)) {
            fprintf(stderr, "%s\n", cddp_last_error());
            exit(1);
        }
        times[i] = (double)(cddpi_now_ns() - begin) / 1e6;
    }
    result = median(times, steps);
    for (int i = 0; i < 3; i++) {
        bench_matmul_fini(&products[i]);
    }
    free(x);
    free(dx);
    free(w);
    free(dw);
    free(y);
    free(times);
    return result;
}

static double sum_linear(const struct bench *bench)
{
    const struct cddpi_graph *graph = &bench->model->graph;
    double sum = 0;

    for (int i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].ops == &cddpi_op_linear) {
            sum += time_linear(&graph->ops[i],
                               (size_t)bench->batch.count * cddpi_shape_rows(&graph->ops[i].in),
                               bench->steps, graph->values[graph->ops[i].inputs[0]].needs_grad);
        }
    }
    return sum;
}

/* A model that is this one convolution (and the least around it) would time more than it: so the
 * convolutions are run within a plan of the whole, op by op. */
static double sum_ops(const struct bench *bench, const struct cddpi_op_ops *kind)
{
    struct cddpi_model *model = bench->model;
    struct cddpi_exec run = {.model = model, .batch = &model->last.batch, .scale = 1};
    double *times = calloc((size_t)bench->steps, sizeof *times);
    double sum = 0;

    if (cddpi_model_plan(model, bench->batch.count, true, &run.plan) != CDDP_OK) {
        fail();
    }
    model->last.batch = bench->batch;
    for (int i = 0; i < model->graph.op_count; i++) {
        run.index = i;
        run.op = &model->graph.ops[i];
        run.state = run.plan->ops[i].state;
        for (int j = 0; run.op->ops == kind && j < bench->steps; j++) {
            int64_t begin = cddpi_now_ns();

            if (run.op->kernels->forward(&run) != CDDP_OK ||
                run.op->kernels->backward(&run) != CDDP_OK) {
                fail();
            }
            times[j] = (double)(cddpi_now_ns() - begin) / 1e6;
        }
        sum += run.op->ops == kind ? median(times, bench->steps) : 0;
    }
    free(times);
    return sum;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    int batch = argc > 2 ? atoi(argv[2]) : 0;
    double forward, backward, linear, conv, norm;
    int64_t begin = cddpi_now_ns();
    double create, prepare;
    struct rusage usage;
    struct cddpi_model_spec spec;
    bool bf16 = argc > 4 && strcmp(argv[4], "bf16") == 0;

    bench.steps = argc > 3 ? atoi(argv[3]) : 20;
    if (batch < 1 || bench.steps < 1 || bench.steps > MAX_STEPS) {
        fprintf(stderr, "usage: bench_nn mlp|cnn|resnet20|gpt2|124M BATCH [STEPS [bf16]]\n");
        return 2;
    }
    spec = spec_of(argv[1], bf16);
    setup(&bench, &spec, batch);
    create = (double)(cddpi_now_ns() - begin) / 1e6;
    begin = cddpi_now_ns();
    if (cddpi_model_prepare(bench.model, batch, true) != CDDP_OK) {
        fail();
    }
    prepare = (double)(cddpi_now_ns() - begin) / 1e6;
    time_steps(&bench, &forward, &backward);
    getrusage(RUSAGE_SELF, &usage);
    linear = sum_linear(&bench);
    conv = sum_ops(&bench, &cddpi_op_conv2d);
    norm = sum_ops(&bench, &cddpi_op_batch_norm);
    printf("{\"bench\": \"nn\", \"model\": \"%s\", \"precision\": \"%s\", \"batch\": %d, "
           "\"steps\": %d, "
           "\"forward_ms\": %.3f, \"backward_ms\": %.3f, \"step_ms\": %.3f, \"linear_ms\": %.3f, "
           "\"conv_ms\": %.3f, \"batch_norm_ms\": %.3f, \"over_bound\": %.3f, \"create_ms\": %.2f, "
           "\"prepare_ms\": %.2f, \"arena_mib\": %.1f, \"peak_rss_mib\": %.1f}\n",
           argv[1], bf16 ? "bf16" : "f32", batch, bench.steps, forward, backward,
           forward + backward, linear, conv, norm, (forward + backward) / (linear + conv), create,
           prepare, (double)cddpi_model_arena_bytes(bench.model) / (1 << 20),
           (double)usage.ru_maxrss / 1024);
    cddpi_model_destroy(bench.model);
    return 0;
}
