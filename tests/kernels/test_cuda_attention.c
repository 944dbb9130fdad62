/* test_cuda_attention.c - causal attention and its gradient on the device, against float64. The
 * bounds are those of 16-bit probabilities, as tensor cores multiply them, and of float32 sums. */
#include "support/cuda_whole.h"
#include "support/failure.h"

/* Lengths around tiles of 8, 16, 32 and 64 rows, widths around vectors and each kind of tile. */
static const struct cddpi_cuda_attention shapes[] = {
    {.batch = 1, .heads = 1, .length = 1, .head = 1},
    {.batch = 2, .heads = 3, .length = 5, .head = 3},
    {.batch = 1, .heads = 2, .length = 16, .head = 8},
    {.batch = 2, .heads = 2, .length = 33, .head = 16},
    {.batch = 1, .heads = 1, .length = 64, .head = 64},
    {.batch = 2, .heads = 1, .length = 70, .head = 64},
    {.batch = 1, .heads = 1, .length = 130, .head = 20},
    {.batch = 1, .heads = 2, .length = 35, .head = 96},
    {.batch = 1, .heads = 1, .length = 34, .head = 128},
    {.batch = 1, .heads = 1, .length = 19, .head = 250},
};

/* One head in float64. Beside each result, how large the numbers are that it is summed from. */
struct head {
    size_t n, d;
    const float *q, *k, *v, *dout; /* rows of d, `stride` and `out_stride` apart */
    size_t stride, out_stride;
    double *p; /* n x n */
};

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0;

    for (size_t c = 0; c < count; c++) {
        sum += (double)a[c] * (double)b[c];
    }
    return sum;
}

static double size_of_dot(const float *a, const float *b, size_t count)
{
    double sum = 0;

    for (size_t c = 0; c < count; c++) {
        sum += fabs((double)a[c] * (double)b[c]);
    }
    return sum;
}

/* Probabilities; the logarithm of each row's sum. */
static void make_probabilities(struct head *head, double *log_sum)
{
    for (size_t i = 0; i < head->n; i++) {
        double *row = head->p + i * head->n;
        double max = -INFINITY;
        double sum = 0;

        for (size_t j = 0; j <= i; j++) {
            row[j] = dot(head->q + i * head->stride, head->k + j * head->stride, head->d) /
                     sqrt((double)head->d);
            max = fmax(max, row[j]);
        }
        for (size_t j = 0; j < head->n; j++) {
            row[j] = j <= i ? exp(row[j] - max) : 0;
            sum += row[j];
        }
        for (size_t j = 0; j <= i; j++) {
            row[j] /= sum;
        }
        log_sum[i] = max + log(sum);
    }
}

/* An expected array, and the size of the sums it comes from. */
struct expected {
    double *value, *size;
};

static struct expected no_expectation(size_t count)
{
    return (struct expected){calloc(count, sizeof(double)), calloc(count, sizeof(double))};
}

static void expectation_free(struct expected *e)
{
    free(e->value);
    free(e->size);
}

static void add_row(const struct expected *to, size_t at, double weight, double weight_size,
                    const float *row, size_t d)
{
    for (size_t c = 0; c < d; c++) {
        to->value[at + c] += weight * (double)row[c];
        to->size[at + c] += weight_size * fabs((double)row[c]);
    }
}

/* What attention is, for all heads. */
struct attention {
    struct cddpi_cuda_attention shape;
    size_t rows, width;
    struct numbers qkv, out, stats, dout, dqkv;
    struct expected expected_out, expected_grad;
    double *log_sums;
};

static void expect_head(struct attention *a, struct head *head, size_t row, size_t column)
{
    size_t n = head->n, d = head->d;
    double scale = 1 / sqrt((double)d);

    make_probabilities(head, a->log_sums + (row / n * (size_t)a->shape.heads + column / d) * n);
    for (size_t i = 0; i < n; i++) {
        size_t at = (row + i) * a->width + column;
        const float *dout = head->dout + i * head->out_stride;
        size_t grad = (row + i) * 3 * a->width + column;
        double dots = 0;
        double dots_size = 0;

        for (size_t j = 0; j <= i; j++) {
            double p = head->p[i * n + j];

            add_row(&a->expected_out, at, p, p, head->v + j * head->stride, d);
        }
        for (size_t c = 0; c < d; c++) {
            dots += (double)dout[c] * a->expected_out.value[at + c];
            dots_size += fabs((double)dout[c]) * a->expected_out.size[at + c];
        }
        for (size_t j = 0; j <= i; j++) {
            const float *v = head->v + j * head->stride;
            double p = head->p[i * n + j];
            double ds = p * (dot(dout, v, d) - dots) * scale;
            double size = p * (size_of_dot(dout, v, d) + dots_size) * scale;
            size_t key = (row + j) * 3 * a->width + column;

            add_row(&a->expected_grad, grad, ds, size, head->k + j * head->stride, d);
            add_row(&a->expected_grad, key + a->width, ds, size, head->q + i * head->stride, d);
            add_row(&a->expected_grad, key + 2 * a->width, p, p, dout, d);
        }
    }
}

static void expect_all(struct attention *a)
{
    size_t n = (size_t)a->shape.length;
    size_t d = (size_t)a->shape.head;
    struct head head = {.n = n, .d = d, .stride = 3 * a->width, .out_stride = a->width};

    head.p = malloc(n * n * sizeof *head.p);
    for (size_t sequence = 0; sequence < (size_t)a->shape.batch; sequence++) {
        for (size_t h = 0; h < (size_t)a->shape.heads; h++) {
            head.q = a->qkv.host + sequence * n * 3 * a->width + h * d;
            head.k = head.q + a->width;
            head.v = head.k + a->width;
            head.dout = a->dout.host + sequence * n * a->width + h * d;
            expect_head(a, &head, sequence * n, h * d);
        }
    }
    free(head.p);
}

static void attention_make(struct attention *a, cddp_type type,
                           const struct cddpi_cuda_attention *shape, float scale)
{
    *a = (struct attention){.shape = *shape};
    a->shape.type = type;
    a->rows = (size_t)shape->batch * (size_t)shape->length;
    a->width = (size_t)shape->heads * (size_t)shape->head;
    a->qkv = random_numbers(type, 1, a->rows * 3 * a->width, scale, 0);
    a->dout = random_numbers(type, 2, a->rows * a->width, 1, 0);
    a->out = no_numbers(type, a->rows * a->width);
    a->dqkv = no_numbers(type, a->rows * 3 * a->width);
    a->stats = no_numbers(CDDP_F32, a->rows * (size_t)shape->heads);
    a->expected_out = no_expectation(a->out.count);
    a->expected_grad = no_expectation(a->dqkv.count);
    a->log_sums = malloc(a->stats.count * sizeof *a->log_sums);
    expect_all(a);
}

static void attention_free(struct attention *a)
{
    numbers_free(&a->qkv);
    numbers_free(&a->dout);
    numbers_free(&a->out);
    numbers_free(&a->dqkv);
    numbers_free(&a->stats);
    expectation_free(&a->expected_out);
    expectation_free(&a->expected_grad);
    free(a->log_sums);
}

static void run(struct attention *a)
{
    cuda_ok(
        cuda->kernels->attention(cuda, &a->shape, a->qkv.device, a->out.device, a->stats.device));
    cuda_ok(cuda->kernels->attention_grad(cuda, &a->shape, a->qkv.device, a->out.device,
                                          a->stats.device, a->dout.device, a->dqkv.device));
}

/* Each factor is rounded once, and sums have a few hundred terms in float32. */
static void check(struct numbers *x, const struct expected *e, const char *what)
{
    double rounding = x->type == CDDP_F32 ? 4e-6 : x->type == CDDP_BF16 ? 2.0 / 256 : 2.0 / 2048;

    numbers_fetch(x);
    for (size_t i = 0; i < x->count; i++) {
        double bound = rounding * e->size[i] + rounding_of(x->type, e->value[i]) + 1e-6;

        if (!(fabs((double)x->host[i] - e->value[i]) <= bound)) {
            fail_msg("%s of %s: element %zu of %zu is %.9g and should be %.9g +- %.3g", what,
                     cddp_type_name(x->type), i, x->count, (double)x->host[i], e->value[i], bound);
        }
    }
}

static void check_all(struct attention *a)
{
    check(&a->out, &a->expected_out, "attention");
    numbers_near(&a->stats, a->log_sums, 1e-5, 1e-5, "the logarithm of sums");
    check(&a->dqkv, &a->expected_grad, "attention_grad");
}

static void attention_and_its_gradient_are_those_of_the_formulas(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof cuda_types / sizeof cuda_types[0]; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            struct attention a;

            attention_make(&a, cuda_types[t], &shapes[s], 2);
            run(&a);
            check_all(&a);
            attention_free(&a);
        }
    }
}

/* Scores of hundreds: without the largest taken off first, their powers would be infinite. */
static void large_scores_do_not_overflow(void **state)
{
    struct attention a;

    (void)state;
    NEEDS_CUDA();
    attention_make(&a, CDDP_F32, &shapes[4], 20);
    run(&a);
    numbers_fetch(&a.out);
    numbers_near(&a.stats, a.log_sums, 1e-5, 1e-5, "the logarithm of sums");
    for (size_t i = 0; i < a.out.count;
         i++) { /* probabilities are off by 1e-4: scores' last bits */
        assert_true(fabs((double)a.out.host[i] - a.expected_out.value[i]) <= 0.02);
    }
    attention_free(&a);
}

static void attention_has_the_same_bits_in_every_run(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof cuda_types / sizeof cuda_types[0]; t++) {
        struct attention a, b;

        attention_make(&a, cuda_types[t], &shapes[5], 2);
        attention_make(&b, cuda_types[t], &shapes[5], 2);
        run(&a);
        run(&b);
        numbers_same(&a.out, &b.out);
        numbers_same(&a.stats, &b.stats);
        numbers_same(&a.dqkv, &b.dqkv);
        attention_free(&a);
        attention_free(&b);
    }
}

/* As the examples have it: whole blocks of 64 keys and not, rows of 16 bytes and not, both widths
 * of heads, in any order. The second is for the emulation. */
static const struct {
    cddp_type type;
    struct cddpi_cuda_attention card, emulated;
} wholes[] = {
    {CDDP_BF16,
     {.batch = 4, .heads = 12, .length = 1024, .head = 64, .any_order = true},
     {.batch = 1, .heads = 2, .length = 192, .head = 64, .any_order = true}},
    {CDDP_F16,
     {.batch = 1, .heads = 4, .length = 1024, .head = 64, .any_order = true},
     {.batch = 1, .heads = 1, .length = 128, .head = 64, .any_order = true}},
    {CDDP_BF16,
     {.batch = 2, .heads = 4, .length = 1000, .head = 64, .any_order = true},
     {.batch = 2, .heads = 2, .length = 72, .head = 64, .any_order = true}},
    {CDDP_BF16,
     {.batch = 2, .heads = 4, .length = 1001, .head = 64, .any_order = true},
     {.batch = 2, .heads = 1, .length = 77, .head = 64, .any_order = true}},
    {CDDP_BF16,
     {.batch = 2, .heads = 4, .length = 1024, .head = 128, .any_order = true},
     {.batch = 1, .heads = 1, .length = 128, .head = 128, .any_order = true}},
    {CDDP_F16,
     {.batch = 1, .heads = 4, .length = 1001, .head = 128, .any_order = true},
     {.batch = 1, .heads = 2, .length = 71, .head = 128, .any_order = true}},
};

/* Attention without expectations, whose numbers are those of @p like if that is not NULL. */
static void whole_make(struct attention *a, cddp_type type,
                       const struct cddpi_cuda_attention *shape, const struct attention *like)
{
    *a = (struct attention){.shape = *shape};
    a->shape.type = type;
    a->rows = (size_t)shape->batch * (size_t)shape->length;
    a->width = (size_t)shape->heads * (size_t)shape->head;
    a->qkv = like != NULL ? numbers_from(type, like->qkv.host, like->qkv.count)
                          : random_numbers(type, 1, a->rows * 3 * a->width, 2, 0);
    a->dout = like != NULL ? numbers_from(type, like->dout.host, like->dout.count)
                           : random_numbers(type, 2, a->rows * a->width, 1, 0);
    a->out = no_numbers(type, a->rows * a->width);
    a->dqkv = no_numbers(type, a->rows * 3 * a->width);
    a->stats = no_numbers(CDDP_F32, a->rows * (size_t)shape->heads);
}

/* Head by head, so that one that is wrong is not lost among the others. */
static void parts_are_near(const struct attention *a, const struct numbers *got,
                           const struct numbers *want, size_t parts, const char *what)
{
    size_t length = (size_t)a->shape.length, head = (size_t)a->shape.head;
    size_t heads = parts * (size_t)a->shape.heads;

    for (size_t block = 0; block < (size_t)a->shape.batch * heads; block++) {
        size_t first = block / heads * length;
        struct distance d = {0, 0};
        char name[160];

        for (size_t i = 0; i < length * head; i++) {
            size_t at = ((first + i / head) * heads + block % heads) * head + i % head;

            distance_add(&d, got->host[at], want->host[at]);
        }
        snprintf(name, sizeof name, "%s of %s, %d x %d x %d x %d: sequence %zu, head %zu", what,
                 cddp_type_name(a->shape.type), a->shape.batch, a->shape.heads, a->shape.length,
                 a->shape.head, block / heads, block % heads);
        distance_is_small(&d, name);
    }
}

static void attention_as_the_examples_use_it_is_near_that_of_float32(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < whole_cases(sizeof wholes / sizeof wholes[0]); i++) {
        const struct cddpi_cuda_attention *shape = on_a_card() ? &wholes[i].card
                                                               : &wholes[i].emulated;
        struct attention a, single;
        struct listening log;

        whole_make(&a, wholes[i].type, shape, NULL);
        whole_make(&single, CDDP_F32, shape, &a);
        log = listen_to_the_log();
        run(&a);
        nothing_slower_was_taken(&log, "attention");
        run(&single); /* cuDNN has none for float32: our own kernels */
        numbers_fetch(&a.out);
        numbers_fetch(&a.dqkv);
        numbers_fetch(&single.out);
        numbers_fetch(&single.dqkv);
        parts_are_near(&a, &a.out, &single.out, 1, "attention");
        parts_are_near(&a, &a.dqkv, &single.dqkv, 3, "attention_grad");
        attention_free(&a);
        attention_free(&single);
    }
}

static void a_tokens_future_changes_nothing(void **state)
{
    const struct cddpi_cuda_attention shape = {.batch = 1, .heads = 1, .length = 40, .head = 8};
    const size_t seen = 37;
    struct attention a, b;
    float *other;

    (void)state;
    NEEDS_CUDA();
    attention_make(&a, CDDP_F32, &shape, 2);
    run(&a);
    numbers_fetch(&a.out);
    other = malloc(a.qkv.count * sizeof *other);
    memcpy(other, a.qkv.host, a.qkv.count * sizeof *other);
    for (size_t i = seen * 3 * a.width; i < a.qkv.count; i++) {
        other[i] = 100;
    }
    b = a;
    b.qkv = numbers_from(CDDP_F32, other, a.qkv.count);
    b.out = no_numbers(CDDP_F32, a.out.count);
    cuda_ok(cuda->kernels->attention(cuda, &b.shape, b.qkv.device, b.out.device, b.stats.device));
    numbers_fetch(&b.out);
    for (size_t i = 0; i < seen * a.width; i++) {
        assert_true(a.out.host[i] == b.out.host[i]);
    }
    numbers_free(&b.qkv);
    numbers_free(&b.out);
    free(other);
    attention_free(&a);
}

static void attention_of_nothing_is_nothing(void **state)
{
    const struct cddpi_cuda_attention shape = {
        .type = CDDP_F32, .heads = 2, .length = 3, .head = 4};

    (void)state;
    NEEDS_CUDA();
    cuda_ok(cuda->kernels->attention(cuda, &shape, NULL, NULL, NULL));
    cuda_ok(cuda->kernels->attention_grad(cuda, &shape, NULL, NULL, NULL, NULL, NULL));
}

static void heads_that_are_too_wide_are_refused_with_the_width(void **state)
{
    const struct cddpi_cuda_attention shape = {
        .type = CDDP_F32, .batch = 1, .heads = 1, .length = 1, .head = 264};

    (void)state;
    NEEDS_CUDA();
    assert_int_equal(cuda->kernels->attention(cuda, &shape, NULL, NULL, NULL),
                     CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("heads of 264 (at most 256)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_and_its_gradient_are_those_of_the_formulas),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(attention_has_the_same_bits_in_every_run),
        cmocka_unit_test(attention_as_the_examples_use_it_is_near_that_of_float32),
        cmocka_unit_test(a_tokens_future_changes_nothing),
        cmocka_unit_test(attention_of_nothing_is_nothing),
        cmocka_unit_test(heads_that_are_too_wide_are_refused_with_the_width),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
