/* bench_cuda.c - the speed of each operation on a CUDA device at the shapes of GPT-2 124M and
 * ResNet-50, and as a fraction of what the GPU can do: one JSON line each.
 *
 *     bench_cuda [--ceilings] [--small]     ceilings: only these; small: for the emulated module
 *
 * The ceilings are measured first: a large copy in device memory, and a product of 8192^3. Bytes
 * are the fewest that an operation must move: each array once, or twice if a sum over all of it
 * comes first. Times are medians, by events, of consecutive calls on different memory each time, so
 * that neither launches nor caches are measured. */
#include "bench/bench_cuda_images.h"

/* --- products --- */

static cddp_status linear(const struct job *job)
{
    const struct cddpi_cuda_linear *s = &job->as.linear;
    bool gelu = s->epilogue == CDDPI_EPILOGUE_GELU;

    return k->linear(cuda, s, in(s->rows * s->inputs), in(s->inputs * s->outputs), in(s->outputs),
                     out(s->rows * s->outputs), gelu ? out(s->rows * s->outputs) : NULL);
}

static cddp_status linear_input(const struct job *job)
{
    const struct cddpi_cuda_linear *s = &job->as.linear;

    return k->linear_input(cuda, s, in(s->rows * s->outputs), in(s->inputs * s->outputs), NULL,
                           out(s->rows * s->inputs));
}

static cddp_status linear_weight(const struct job *job)
{
    const struct cddpi_cuda_linear *s = &job->as.linear;

    return k->linear_weight(cuda, s, in(s->rows * s->outputs), in(s->rows * s->inputs), false,
                            out(2 * s->inputs * s->outputs), out(2 * s->outputs));
}

static double products(size_t rows, int inputs, int outputs, enum cddpi_cuda_epilogue epilogue,
                       bool all)
{
    static const char *const names[] = {"linear", "linear_input", "linear_weight"};
    cddp_status (*const works[])(const struct job *) = {linear, linear_input, linear_weight};
    double rate = 0;

    for (int i = 0; i < (all ? 3 : 1); i++) {
        struct job job = {.op = names[i], .work = works[i]};

        job.flops = 2.0 * (double)rows * inputs * outputs;
        job.as.linear = (struct cddpi_cuda_linear){CDDP_BF16,       rows,     (size_t)inputs,
                                                   (size_t)outputs, epilogue, true};
        snprintf(job.shape, sizeof job.shape, "%zu x %d to %d%s", rows, inputs, outputs,
                 epilogue == CDDPI_EPILOGUE_GELU && i == 0 ? ", gelu" : "");
        rate = run(&job);
    }
    return rate;
}

static cddp_status copy(const struct job *job)
{
    return cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, out(job->rows / 2), in(job->rows / 2),
                           job->rows);
}

static void ceilings(void)
{
    struct job job = {.op = "copy", .work = copy, .rows = size.ceiling_bytes};
    double rate;

    job.bytes = 2.0 * (double)size.ceiling_bytes;
    snprintf(job.shape, sizeof job.shape, "%zu bytes", size.ceiling_bytes);
    rate = run(&job);
    product_rate = products(size.ceiling_rows, (int)size.ceiling_rows, (int)size.ceiling_rows,
                            CDDPI_EPILOGUE_NONE, false);
    copy_rate = rate;
}

/* --- GPT-2 --- */

static cddp_status attention(const struct job *job)
{
    return k->attention(cuda, &job->as.attention, in(3 * job->rows * job->columns),
                        out(job->rows * job->columns), floats);
}

static cddp_status attention_grad(const struct job *job)
{
    size_t count = job->rows * job->columns;

    return k->attention_grad(cuda, &job->as.attention, in(3 * count), in(count), floats, in(count),
                             out(3 * count));
}

static cddp_status layer_norm(const struct job *job)
{
    size_t count = job->rows * job->columns;

    return k->layer_norm(cuda, CDDP_BF16, in(count), in(count), floats, floats, 1e-5f, job->rows,
                         job->columns, out(count), out(count), out(2 * job->rows),
                         out(2 * job->rows));
}

static cddp_status layer_norm_grad(const struct job *job)
{
    size_t count = job->rows * job->columns;

    return k->layer_norm_grad(cuda, CDDP_BF16, in(count), in(count), floats, in(2 * job->rows),
                              in(2 * job->rows), job->rows, job->columns, in(count), false,
                              out(count), out(2 * job->columns), out(2 * job->columns), scratch);
}

static cddp_status embedding(const struct job *job)
{
    return k->embedding(cuda, CDDP_BF16, numbers, in((size_t)size.vocab * job->columns),
                        in((size_t)size.length * job->columns), job->rows, (size_t)size.length,
                        job->columns, out(job->rows * job->columns));
}

static cddp_status embedding_grad(const struct job *job)
{
    return k->embedding_grad(cuda, CDDP_BF16, numbers, in(job->rows * job->columns), job->rows,
                             (size_t)size.length, job->columns, (size_t)size.vocab, false, floats,
                             out(2 * (size_t)size.length * job->columns), scratch);
}

static cddp_status gelu(const struct job *job)
{
    return k->pointwise(cuda, CDDP_BF16, CDDPI_POINTWISE_GELU, 0, in(job->rows * job->columns),
                        job->rows * job->columns, out(job->rows * job->columns));
}

static cddp_status gelu_grad(const struct job *job)
{
    size_t count = job->rows * job->columns;

    return k->pointwise_grad(cuda, CDDP_BF16, CDDPI_POINTWISE_GELU, 0, in(count), in(count), count,
                             out(count));
}

static cddp_status add(const struct job *job)
{
    size_t count = job->rows * job->columns;

    return k->add(cuda, CDDP_BF16, in(count), in(count), false, count, out(count));
}

static cddp_status column_sums(const struct job *job)
{
    return k->column_sums(cuda, CDDP_BF16, in(job->rows * job->columns), job->rows, job->columns,
                          false, out(2 * job->columns), scratch);
}

static cddp_status cross_entropy(const struct job *job)
{
    return k->cross_entropy(cuda, CDDP_BF16, out(job->rows * job->columns), numbers, job->rows,
                            job->columns, true, 1.0f / (float)job->rows, NULL, totals, scratch);
}

/* @p passes: arrays of rows x columns that are read and written. */
static void rowwise(const char *op, cddp_status (*work)(const struct job *), size_t rows,
                    int columns, double passes, double more_bytes)
{
    struct job job = {.op = op, .work = work, .rows = rows, .columns = (size_t)columns};

    job.bytes = 2.0 * passes * (double)rows * columns + more_bytes;
    snprintf(job.shape, sizeof job.shape, "%zu x %d", rows, columns);
    run(&job);
}

static void attentions(size_t rows)
{
    struct job job = {.op = "attention", .work = attention, .rows = rows};
    int head = size.embed / size.heads;

    job.columns = (size_t)size.embed;
    job.as.attention = (struct cddpi_cuda_attention){.type = CDDP_BF16,
                                                     .batch = size.sequences,
                                                     .heads = size.heads,
                                                     .length = size.length,
                                                     .head = head};
    /* causal: half of both products */
    job.flops = 2.0 * size.sequences * size.heads * (double)size.length * size.length * head;
    snprintf(job.shape, sizeof job.shape, "%d x %d heads x %d x %d", size.sequences, size.heads,
             size.length, head);
    run(&job);
    job.op = "attention_grad";
    job.work = attention_grad;
    job.flops *= 2.5;
    run(&job);
    job.op = "attention_grad, any order";
    job.as.attention.any_order = true;
    run(&job);
}

static void gpt2(void)
{
    size_t rows = (size_t)size.sequences * (size_t)size.length;
    int e = size.embed;
    double table = 4.0 * size.vocab * e;

    products(rows, e, 3 * e, CDDPI_EPILOGUE_NONE, true);
    products(rows, e, e, CDDPI_EPILOGUE_NONE, true);
    products(rows, e, 4 * e, CDDPI_EPILOGUE_GELU, true);
    products(rows, 4 * e, e, CDDPI_EPILOGUE_NONE, true);
    products(rows, e, size.vocab, CDDPI_EPILOGUE_NONE, true);
    /* whether rows that are no whole vectors are worth padding to those of the next line */
    products(rows, e + 1, e + 3, CDDPI_EPILOGUE_NONE, true);
    products(rows, e + 8, e + 8, CDDPI_EPILOGUE_NONE, true);
    attentions(rows);
    rowwise("layer_norm + residual", layer_norm, rows, e, 4, 8.0 * (double)rows);
    rowwise("layer_norm_grad + other", layer_norm_grad, rows, e, 4, 8.0 * (double)rows);
    rowwise("embedding", embedding, rows, e, 2, 0);
    rowwise("embedding_grad", embedding_grad, rows, e, 1, 2 * table);
    rowwise("gelu", gelu, rows, 4 * e, 2, 0);
    rowwise("gelu_grad", gelu_grad, rows, 4 * e, 3, 0);
    rowwise("add", add, rows, e, 3, 0);
    rowwise("column_sums", column_sums, rows, 4 * e, 1, 0);
    rowwise("cross_entropy", cross_entropy, rows, size.vocab, 2, 0);
}

/* --- the end of a step: all parameters at once --- */

enum { SLOTS = 148 };

static cddp_status update(const struct job *job)
{
    static const struct cddpi_cuda_update adamw = {.adamw = true,
                                                   .copy_type = CDDP_BF16,
                                                   .weight_decay = 0.1,
                                                   .beta1 = 0.9,
                                                   .beta2 = 0.95,
                                                   .epsilon = 1e-8,
                                                   .grad_scale = 1};
    struct cddpi_cuda_update now = adamw;

    now.lr = sums;
    return k->update(cuda, &now, job->tensors);
}

static cddp_status squares(const struct job *job)
{
    return k->squares(cuda, job->tensors, (struct cddpi_exact_sum *)(void *)(sums + 1));
}

static cddp_status cast(const struct job *job)
{
    return k->cast(cuda, CDDP_F32, in(2 * job->rows), CDDP_BF16, out(job->rows), job->rows);
}

static cddp_status reduce(const struct job *job)
{
    const void *inputs[2] = {in(2 * job->rows), in(2 * job->rows)};

    return k->reduce(cuda, CDDP_F32, CDDP_OP_MEAN, inputs, NULL, 2, job->rows, out(2 * job->rows));
}

static void parameters(void)
{
    size_t each = size.parameters / SLOTS;
    double lr = 1e-4;
    struct cddpi_cuda_slot slots[SLOTS];
    struct cddpi_cuda_tensors tensors;
    struct job job = {.rows = each * SLOTS, .tensors = &tensors};
    double count = (double)each * SLOTS;
    int64_t *steps = device_memory(SLOTS * sizeof *steps);
    void *table;

    each = each / 4 * 4; /* 16 bytes */
    need(cuda->ops->clear(cuda, CDDPI_STREAM_COMPUTE, steps, SLOTS * sizeof *steps));
    for (size_t i = 0; i < SLOTS; i++) {
        /* second moments are no less than 0 */
        slots[i] = (struct cddpi_cuda_slot){out(2 * each), in(2 * each), out(2 * each),
                                            out(2 * each), out(each),    each,
                                            true,          steps + i};
        need(cuda->ops->clear(cuda, CDDPI_STREAM_COMPUTE, slots[i].second, 4 * each));
    }
    table = device_memory(k->tensors_bytes(slots, SLOTS));
    need(k->tensors(cuda, slots, SLOTS, table, &tensors));
    need(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, sums, &lr, sizeof lr));
    snprintf(job.shape, sizeof job.shape, "%d tensors, %zu", SLOTS, job.rows);
    job = (struct job){.op = "update, adamw",
                       .work = update,
                       .bytes = 30 * count,
                       .rows = job.rows,
                       .tensors = &tensors};
    snprintf(job.shape, sizeof job.shape, "%d tensors, %zu", SLOTS, job.rows);
    run(&job);
    job.op = "squares";
    job.work = squares;
    job.bytes = 4 * count;
    run(&job);
    job.op = "cast, f32 to bf16";
    job.work = cast;
    job.bytes = 6 * count;
    snprintf(job.shape, sizeof job.shape, "%zu", job.rows);
    run(&job);
    job.op = "reduce, 2 of f32";
    job.work = reduce;
    job.stream = CDDPI_STREAM_COMM;
    job.bytes = 12 * count;
    run(&job);
    cuda->ops->release(cuda, table);
    cuda->ops->release(cuda, steps);
}

static void prepare_scratch(void)
{
    size_t rows = (size_t)(size.sequences * size.length);
    size_t e = (size_t)size.embed;
    size_t bytes[] = {k->layer_norm_scratch(cuda, rows, e),
                      k->embedding_scratch(rows, (size_t)size.vocab),
                      k->sums_scratch(cuda, rows, 4 * e), k->loss_scratch(rows)};
    size_t most = 0;

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        most = bytes[i] > most ? bytes[i] : most;
    }
    scratch = device_memory(most);
}

int main(int argc, char **argv)
{
    bool all = true;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--small") == 0) {
            size = small;
        } else if (strcmp(argv[i], "--ceilings") == 0) {
            all = false;
        } else {
            fprintf(stderr, "usage: bench_cuda [--ceilings] [--small]\n");
            return 2;
        }
    }
    need(cddpi_device_open("cuda", -1, 1, 0, 1, true, &cuda));
    k = cuda->kernels;
    prepare_memory();
    prepare_scratch();
    ceilings();
    if (all) {
        gpt2();
        parameters();
        resnet50();
    }
    need(cuda->ops->finish(cuda, WAIT_MS));
    cddpi_device_close(cuda);
    return 0;
}
