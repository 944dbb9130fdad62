/* test_nn_attention.c - causal attention and its gradients against the formulas in float64. */
#include "kernels/cpu/amx/amx_gemm.h"
#include "nn/cpu/cpu_attention.h"
#include "support/nn.h"

/* Contexts around the block of 64 queries and the 16 keys of a vector; widths of every kind. */
static const struct cddpi_attention shapes[] = {
    {1, 1, 1, 1, false},   {2, 1, 3, 8, false},    {1, 5, 1, 3, false},    {3, 5, 2, 8, false},
    {2, 16, 2, 16, false}, {1, 37, 3, 3, false},   {2, 37, 2, 64, false},  {1, 63, 1, 8, false},
    {1, 64, 2, 8, false},  {1, 65, 2, 5, false},   {1, 128, 1, 64, false}, {1, 130, 2, 24, false},
    {1, 200, 1, 3, false}, {1, 257, 1, 17, false}, {2, 330, 2, 8, false}};

/* Contexts around the block of 128 queries that there is on AMX, and one whose keys are copied.
 */
static const struct cddpi_attention amx_shapes[] = {{2, 128, 2, 64, true}, {1, 130, 1, 64, true},
                                                    {1, 200, 2, 64, true}, {1, 256, 1, 128, true},
                                                    {1, 300, 1, 72, true}, {1, 600, 1, 64, true}};

struct arrays {
    size_t rows, features; /* features: of all heads */
    float *qkv, *out, *grad_out, *grad_qkv, *kept, *scratch;
};

static float *array(size_t count, uint32_t stream, float scale)
{
    float *x = malloc(count * sizeof *x); /* exactly: a sanitizer sees what lies beyond */

    for (size_t i = 0; i < count; i++) {
        x[i] = stream > 0 ? scale * test_number(stream, i) : NAN;
    }
    return x;
}

static struct arrays make_arrays(const struct cddpi_attention *shape, float scale)
{
    struct arrays a = {shape->samples * shape->context,
                       shape->heads * shape->width,
                       NULL,
                       NULL,
                       NULL,
                       NULL,
                       NULL,
                       NULL};
    size_t count = a.rows * a.features;

    a.qkv = array(3 * count, 1, scale);
    a.out = array(count, 0, 0);
    a.grad_out = array(count, 2, 1);
    a.grad_qkv = array(3 * count, 0, 0);
    a.kept = array(cddpi_attention_kept(shape), 0, 0);
    a.scratch = array(cddpi_attention_scratch(shape), 0, 0);
    return a;
}

static void free_arrays(struct arrays *a)
{
    free(a->qkv);
    free(a->out);
    free(a->grad_out);
    free(a->grad_qkv);
    free(a->kept);
    free(a->scratch);
}

/* One head in float64, straight from the formulas. */
struct reference {
    size_t n, d;
    double *q, *k, *v, *o, *grad_o, *p, *grad_q, *grad_k, *grad_v;
};

static double *column_block(const float *from, size_t stride, size_t n, size_t d)
{
    double *to = calloc(n * d, sizeof *to);

    for (size_t i = 0; i < n * d && from != NULL; i++) {
        to[i] = (double)from[i / d * stride + i % d];
    }
    return to;
}

static double dot(const double *a, const double *b, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void reference_forward(struct reference *h)
{
    for (size_t i = 0; i < h->n; i++) {
        double *p = h->p + i * h->n;
        double max = -INFINITY;
        double sum = 0;

        for (size_t j = 0; j <= i; j++) {
            p[j] = dot(h->q + i * h->d, h->k + j * h->d, h->d) / sqrt((double)h->d);
            max = fmax(max, p[j]);
        }
        for (size_t j = 0; j <= i; j++) {
            p[j] = exp(p[j] - max);
            sum += p[j];
        }
        for (size_t j = 0; j <= i; j++) {
            p[j] /= sum;
            for (size_t c = 0; c < h->d; c++) {
                h->o[i * h->d + c] += p[j] * h->v[j * h->d + c];
            }
        }
    }
}

static void reference_backward(struct reference *h)
{
    for (size_t i = 0; i < h->n; i++) {
        const double *grad = h->grad_o + i * h->d;
        double delta = dot(grad, h->o + i * h->d, h->d);

        for (size_t j = 0; j <= i; j++) {
            double p = h->p[i * h->n + j];
            double ds = p * (dot(grad, h->v + j * h->d, h->d) - delta) / sqrt((double)h->d);

            for (size_t c = 0; c < h->d; c++) {
                h->grad_v[j * h->d + c] += p * grad[c];
                h->grad_k[j * h->d + c] += ds * h->q[i * h->d + c];
                h->grad_q[i * h->d + c] += ds * h->k[j * h->d + c];
            }
        }
    }
}

static void assert_block_near(const float *values, size_t stride, const double *expected, size_t n,
                              size_t d, double bound, const char *what)
{
    for (size_t i = 0; i < n * d; i++) {
        double value = (double)values[i / d * stride + i % d];

        if (!(fabs(value - expected[i]) <= bound * (1 + fabs(expected[i])))) {
            fail_msg("%s[%zu][%zu] is %.9g instead of %.9g", what, i / d, i % d, value,
                     expected[i]);
        }
    }
}

static void compare_head(const struct arrays *a, const struct cddpi_attention *shape, size_t sample,
                         size_t head, double bound)
{
    size_t n = shape->context;
    size_t d = shape->width;
    size_t packed = 3 * a->features;
    size_t at = sample * n * a->features + head * d;
    size_t q = sample * n * packed + head * d;
    struct reference h = {n,
                          d,
                          column_block(a->qkv + q, packed, n, d),
                          column_block(a->qkv + q + a->features, packed, n, d),
                          column_block(a->qkv + q + 2 * a->features, packed, n, d),
                          column_block(NULL, 0, n, d),
                          column_block(a->grad_out + at, a->features, n, d),
                          column_block(NULL, 0, n, n),
                          column_block(NULL, 0, n, d),
                          column_block(NULL, 0, n, d),
                          column_block(NULL, 0, n, d)};

    reference_forward(&h);
    reference_backward(&h);
    assert_block_near(a->out + at, a->features, h.o, n, d, bound, "out");
    assert_block_near(a->grad_qkv + q, packed, h.grad_q, n, d, bound, "grad_q");
    assert_block_near(a->grad_qkv + q + a->features, packed, h.grad_k, n, d, bound, "grad_k");
    assert_block_near(a->grad_qkv + q + 2 * a->features, packed, h.grad_v, n, d, bound, "grad_v");
    free(h.q);
    free(h.k);
    free(h.v);
    free(h.o);
    free(h.grad_o);
    free(h.p);
    free(h.grad_q);
    free(h.grad_k);
    free(h.grad_v);
}

static void run(const struct cddpi_attention *shape, struct arrays *a)
{
    assert_int_equal(cddpi_attention_forward(shape, a->qkv, a->out, a->kept, a->scratch), CDDP_OK);
    for (size_t i = 0; i < cddpi_attention_scratch(shape); i++) {
        a->scratch[i] = NAN; /* nothing is handed over here */
    }
    assert_int_equal(cddpi_attention_backward(shape, a->qkv, a->out, a->grad_out, a->kept,
                                              a->grad_qkv, a->scratch),
                     CDDP_OK);
}

static void compare(const struct cddpi_attention *shape, float scale, double bound)
{
    struct arrays a = make_arrays(shape, scale);

    run(shape, &a);
    for (size_t i = 0; i < shape->samples * shape->heads; i++) {
        compare_head(&a, shape, i / shape->heads, i % shape->heads, bound);
    }
    free_arrays(&a);
}

static void skip_without_amx(void)
{
    if (!cddpi_amx_gemm_available()) {
        print_message("skipped: no AMX here\n");
        skip();
    }
}

static void attention_and_its_gradients_are_those_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        compare(&shapes[i], 1, 3e-6);
    }
}

static void attention_to_a_few_keys_is_that_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        compare(&shapes[i], 6, 1e-4); /* scores of some 40, known to 4e-6, and gradients of 6 */
    }
}

static void attention_on_amx_is_that_of_float64(void **state)
{
    (void)state;
    skip_without_amx();
    for (size_t i = 0; i < COUNT_OF(amx_shapes); i++) {
        assert_true(cddpi_attention_gains_by_amx(&amx_shapes[i]));
        compare(&amx_shapes[i], 1, 3e-6);
        compare(&amx_shapes[i], 3, 1e-4); /* scores of some 75 */
    }
}

static void small_attention_gains_nothing_by_amx(void **state)
{
    const struct cddpi_attention few = {1, 127, 1, 64, false};
    const struct cddpi_attention narrow = {1, 1024, 1, 32, false};

    (void)state;
    assert_false(cddpi_attention_gains_by_amx(&few));
    assert_false(cddpi_attention_gains_by_amx(&narrow));
}

static void scores_beyond_the_range_of_exp_do_no_harm(void **state)
{
    const struct cddpi_attention shape = {1, 70, 1, 8, false};
    struct arrays a = make_arrays(&shape, 100);

    (void)state;
    run(&shape, &a);
    for (size_t i = 0; i < a.rows * a.features; i++) {
        assert_true(fabs((double)a.out[i]) <= 100.001); /* a mean of values */
    }
    for (size_t i = 0; i < 3 * a.rows * a.features; i++) {
        assert_true(isfinite(a.grad_qkv[i]));
    }
    free_arrays(&a);
}

static void check_queries(const struct cddpi_attention *shape, size_t changed)
{
    struct arrays a = make_arrays(shape, 1);
    struct arrays b = make_arrays(shape, 1);

    for (size_t i = changed * 3 * a.features; i < a.rows * 3 * a.features; i++) {
        b.qkv[i] = 5 - b.qkv[i];
    }
    run(shape, &a);
    run(shape, &b);
    assert_memory_equal(a.out, b.out, changed * a.features * sizeof *a.out);
    assert_memory_not_equal(a.out, b.out, (changed + 1) * a.features * sizeof *a.out);
    free_arrays(&a);
    free_arrays(&b);
}

static void no_query_sees_what_comes_after_it(void **state)
{
    const struct cddpi_attention shape = {1, 100, 2, 8, false};
    const struct cddpi_attention on_amx = {1, 200, 2, 64, true};

    (void)state;
    check_queries(&shape, 71);
    if (cddpi_amx_gemm_available()) {
        check_queries(&on_amx, 71);
        check_queries(&on_amx, 150);
    }
}

static void check_batch(struct cddpi_attention batch)
{
    const struct cddpi_attention alone = {1, batch.context, batch.heads, batch.width, batch.amx};
    struct arrays a = make_arrays(&batch, 1);
    struct arrays b = make_arrays(&batch, 1);
    size_t elements = alone.context * a.features;

    run(&batch, &a);
    for (size_t i = 0; i < batch.samples; i++) {
        struct arrays one = b;

        one.qkv += i * 3 * elements;
        one.out += i * elements;
        one.grad_out += i * elements;
        one.grad_qkv += i * 3 * elements;
        run(&alone, &one);
    }
    assert_memory_equal(a.out, b.out, batch.samples * elements * sizeof *a.out);
    assert_memory_equal(a.grad_qkv, b.grad_qkv, batch.samples * 3 * elements * sizeof *a.out);
    free_arrays(&a);
    free_arrays(&b);
}

static void an_evaluation_keeps_nothing_and_gives_the_same(void **state)
{
    const struct cddpi_attention shape = {2, 70, 2, 8, false};
    struct arrays a = make_arrays(&shape, 1);
    float *out = malloc(a.rows * a.features * sizeof *out);

    (void)state;
    run(&shape, &a);
    assert_int_equal(cddpi_attention_forward(&shape, a.qkv, out, NULL, a.scratch), CDDP_OK);
    assert_memory_equal(out, a.out, a.rows * a.features * sizeof *out);
    free(out);
    free_arrays(&a);
}

static void a_nan_reaches_the_queries_that_see_it(void **state)
{
    const struct cddpi_attention shape = {1, 40, 1, 8, false};
    struct arrays a = make_arrays(&shape, 1);

    (void)state;
    a.qkv[20 * 24 + 8] = NAN; /* in a key */
    assert_int_equal(cddpi_attention_forward(&shape, a.qkv, a.out, a.kept, a.scratch), CDDP_OK);
    for (size_t i = 0; i < a.rows * a.features; i++) {
        assert_int_equal(isnan(a.out[i]) != 0, i / 8 >= 20);
    }
    free_arrays(&a);
}

static void a_strided_product_leaves_what_is_between_its_rows(void **state)
{
    const float a[] = {1, 2, 9, 3, 4, 9};         /* 2 x 2, rows 3 apart */
    const float b[] = {5, 6, 9, 9, 7, 8, 9, 9};   /* 2 x 2, rows 4 apart */
    float c[] = {1, 1, -1, 1, 1, -1};             /* 2 x 2, rows 3 apart */
    const float sum[] = {20, 23, -1, 44, 51, -1}; /* C + A B */

    (void)state;
    assert_int_equal(cddpi_gemm_strided(false, false, 2, 2, 2, 1, a, 3, b, 4, 1, c, 3), CDDP_OK);
    for (int i = 0; i < 6; i++) {
        assert_true(c[i] == sum[i]);
    }
    assert_int_equal(cddpi_gemm_strided(true, false, 2, 2, 2, 2, a, 3, b, 4, 0, c, 3), CDDP_OK);
    assert_true(c[0] == 52 && c[1] == 60 && c[2] == -1 && c[3] == 76 && c[4] == 88 && c[5] == -1);
    assert_int_equal(cddpi_gemm_strided(false, true, 2, 2, 0, 2, a, 3, b, 4, 1, c, 3), CDDP_OK);
    assert_true(c[0] == 52);
    assert_int_equal(cddpi_gemm_strided(false, true, 2, 2, 0, 2, a, 3, b, 4, 0, c, 3), CDDP_OK);
    assert_true(c[0] == 0 && c[1] == 0 && c[2] == -1 && c[3] == 0 && c[4] == 0 && c[5] == -1);
}

static void memory_grows_with_the_context_and_not_with_its_square(void **state)
{
    const struct cddpi_attention one = {4, 1024, 12, 64, false};
    const struct cddpi_attention two = {4, 2048, 12, 64, false};

    (void)state;
    assert_true(cddpi_attention_scratch(&two) <= 2 * cddpi_attention_scratch(&one));
    assert_true(cddpi_attention_kept(&two) == 2 * cddpi_attention_kept(&one));
    assert_true(cddpi_attention_scratch(&one) < 1024 * 1024);
}

static void attention_gives_the_same_bits_again_and_in_any_batch(void **state)
{
    (void)state;
    check_batch((struct cddpi_attention){3, 90, 2, 16, false});
    if (cddpi_amx_gemm_available()) {
        check_batch((struct cddpi_attention){3, 200, 2, 64, true});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_and_its_gradients_are_those_of_float64),
        cmocka_unit_test(attention_to_a_few_keys_is_that_of_float64),
        cmocka_unit_test(attention_on_amx_is_that_of_float64),
        cmocka_unit_test(small_attention_gains_nothing_by_amx),
        cmocka_unit_test(scores_beyond_the_range_of_exp_do_no_harm),
        cmocka_unit_test(no_query_sees_what_comes_after_it),
        cmocka_unit_test(attention_gives_the_same_bits_again_and_in_any_batch),
        cmocka_unit_test(an_evaluation_keeps_nothing_and_gives_the_same),
        cmocka_unit_test(a_nan_reaches_the_queries_that_see_it),
        cmocka_unit_test(a_strided_product_leaves_what_is_between_its_rows),
        cmocka_unit_test(memory_grows_with_the_context_and_not_with_its_square),
    };

    cddpi_compute_threads();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
