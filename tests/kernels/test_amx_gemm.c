/* test_amx_gemm.c - float32 matrix products on AMX, against float64 and compared with sgemm.
 * Skipped, with a message, on a CPU without AMX. */
#include "nn/cpu/matmul.h"
#include "support/kernel.h"

#include <float.h>
#include <pthread.h>

/* A product with memory of exactly its size, and its value in float64. */
struct work {
    struct cddpi_nn_matmul p;
    float *a, *b, *c, *before, *bias, *scratch;
    size_t a_count, b_count, c_count;
    double *exact, *magnitude; /* m x n: sums of a b, and of |a b| */
};

static void skip_without_amx(void)
{
    if (!cddpi_amx_gemm_available()) {
        print_message("skipped: this processor has no AMX with bf16, or the system does not let "
                      "this process use it\n");
        skip();
    }
}

static float a_at(const struct cddpi_nn_matmul *p, size_t i, size_t q)
{
    return p->transpose_a ? p->a[q * p->lda + i] : p->a[i * p->lda + q];
}

static float b_at(const struct cddpi_nn_matmul *p, size_t q, size_t j)
{
    return p->transpose_b ? p->b[j * p->ldb + q] : p->b[q * p->ldb + j];
}

static void work_init(struct work *w, size_t m, size_t n, size_t k, unsigned form, size_t gap)
{
    struct cddpi_nn_matmul *p = &w->p;

    *w = (struct work){.p = {.m = m, .n = n, .k = k, .alpha = 1}};
    p->transpose_a = form & 1;
    p->transpose_b = form & 2;
    p->lda = (p->transpose_a ? m : k) + gap;
    p->ldb = (p->transpose_b ? k : n) + gap;
    p->ldc = n + gap;
    w->a_count = p->lda * (p->transpose_a ? k : m) - gap;
    w->b_count = p->ldb * (p->transpose_b ? n : k) - gap;
    w->c_count = p->ldc * m - gap;
    p->a = w->a = numbers(1, w->a_count, 1, 0);
    p->b = w->b = numbers(2, w->b_count, 1, 0);
    p->c = w->c = numbers(3, w->c_count, 1, 0);
    w->before = copy_of(w->c, w->c_count);
    w->bias = numbers(4, n, 1, 0);
    w->scratch = malloc(cddpi_amx_gemm_scratch(n, k));
    w->exact = malloc(m * n * sizeof *w->exact);
    w->magnitude = malloc(m * n * sizeof *w->magnitude);
}

static void work_fini(struct work *w)
{
    free(w->a);
    free(w->b);
    free(w->c);
    free(w->before);
    free(w->bias);
    free(w->scratch);
    free(w->exact);
    free(w->magnitude);
}

static void work_expect(struct work *w)
{
    const struct cddpi_nn_matmul *p = &w->p;

    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            double sum = 0;
            double magnitude = 0;

            for (size_t q = 0; q < p->k; q++) {
                double product = (double)a_at(p, i, q) * (double)b_at(p, q, j);

                sum += product;
                magnitude += fabs(product);
            }
            w->exact[i * p->n + j] = sum;
            w->magnitude[i * p->n + j] = magnitude;
        }
    }
}

static void check_element(const struct work *w, size_t i, size_t j)
{
    const struct cddpi_nn_matmul *p = &w->p;
    double value = (double)p->alpha * w->exact[i * p->n + j];
    double magnitude = fabs((double)p->alpha) * w->magnitude[i * p->n + j] + 2;

    value += p->adds ? (double)w->before[i * p->ldc + j] : 0;
    value += p->bias != NULL ? (double)p->bias[j] : 0;
    if (p->relu && value < 0) {
        value = 0;
    }
    assert_near(w->c[i * p->ldc + j], value, 0, 2e-7 * magnitude);
}

static void check_product(struct work *w)
{
    const struct cddpi_nn_matmul *p = &w->p;

    memcpy(w->c, w->before, w->c_count * sizeof *w->c);
    cddpi_amx_gemm(p, w->scratch);
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            check_element(w, i, j);
        }
        for (size_t j = p->n; j < p->ldc && i + 1 < p->m; j++) { /* between rows */
            assert_memory_equal(&w->c[i * p->ldc + j], &w->before[i * p->ldc + j], sizeof *w->c);
        }
    }
}

static void check_size(size_t m, size_t n, size_t k, unsigned form, size_t gap)
{
    struct work w;

    work_init(&w, m, n, k, form, gap);
    work_expect(&w);
    for (unsigned end = 0; end < 8; end++) {
        w.p.adds = end & 1;
        w.p.bias = end & 2 ? w.bias : NULL;
        w.p.relu = end & 4;
        w.p.alpha = end & 1 ? 0.125f : 1;
        check_product(&w);
    }
    work_fini(&w);
}

static void small_products_are_those_of_float64_in_every_form(void **state)
{
    (void)state;
    skip_without_amx();
    for (size_t side = 1; side <= 70; side++) {
        size_t other = 1 + side * 37 % 70;
        size_t third = 1 + side * 53 % 70;

        check_size(side, other, third, (unsigned)side, side % 3);
        check_size(third, side, other, (unsigned)side + 1, 0);
        check_size(other, third, side, (unsigned)side + 2, side % 5);
        check_size(side, side, side, (unsigned)side + 3, 1);
    }
}

/* More than one block of depth and of width, whole ones and beginnings. */
static void large_products_are_those_of_float64_in_every_form(void **state)
{
    static const size_t sizes[][3] = {
        {96, 128, 256}, {70, 1100, 130}, {33, 1056, 300}, {200, 64, 513}, {128, 160, 160}};

    (void)state;
    skip_without_amx();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (unsigned form = 0; form < 4; form++) {
            check_size(sizes[i][0], sizes[i][1], sizes[i][2], form, form % 2 * 3);
        }
    }
}

/* Errors as parts of sum |a b|, which a sum's rounding is to be measured by. */
struct errors {
    double largest, squares;
    size_t count;
};

static void add_errors(struct errors *errors, const struct work *w)
{
    const struct cddpi_nn_matmul *p = &w->p;

    for (size_t e = 0; e < p->m * p->n; e++) {
        double value = (double)w->c[e / p->n * p->ldc + e % p->n];
        double error = fabs(value - w->exact[e]) / w->magnitude[e];

        errors->largest = fmax(errors->largest, error);
        errors->squares += error * error;
        errors->count++;
    }
}

enum numbers_of { UNIFORM, WIDE, CANCELLING };

/* Of the wide ones, neighbours differ by up to 2^40; of the others, the second half of the depth
 * takes away nearly all that the first gave. */
static void change_numbers(struct work *w, enum numbers_of kind)
{
    const struct cddpi_nn_matmul *p = &w->p;

    for (size_t e = 0; kind == WIDE && e < w->a_count; e++) {
        w->a[e] = ldexpf(w->a[e], (int)(e * 7 % 41) - 20);
    }
    for (size_t e = 0; kind == WIDE && e < w->b_count; e++) {
        w->b[e] = ldexpf(w->b[e], (int)(e * 11 % 41) - 20);
    }
    for (size_t q = p->k / 2; kind == CANCELLING && q < p->k / 2 * 2; q++) {
        for (size_t i = 0; i < p->m; i++) {
            w->a[i * p->lda + q] = -w->a[i * p->lda + q - p->k / 2] * (1 + 0x1p-20f);
        }
        for (size_t j = 0; j < p->n; j++) {
            w->b[q * p->ldb + j] = w->b[(q - p->k / 2) * p->ldb + j];
        }
    }
}

static void compare_with_sgemm(enum numbers_of kind, size_t k, double margin)
{
    struct errors tiles = {0};
    struct errors sgemm = {0};
    struct work w;

    work_init(&w, 64, 96, k, 0, 0);
    change_numbers(&w, kind);
    work_expect(&w);
    cddpi_amx_gemm(&w.p, w.scratch);
    add_errors(&tiles, &w);
    assert_int_equal(cddpi_matmul(&w.p, NULL), CDDP_OK);
    add_errors(&sgemm, &w);
    if (tiles.squares > pow(margin, 2) * sgemm.squares ||
        tiles.largest > 1.1 * margin * sgemm.largest) {
        fail_msg("kind %d, depth %zu: errors of tiles %.3g rms %.3g largest, of sgemm %.3g, %.3g",
                 (int)kind, k, sqrt(tiles.squares / (double)tiles.count), tiles.largest,
                 sqrt(sgemm.squares / (double)sgemm.count), sgemm.largest);
    }
    work_fini(&w);
}

static void errors_are_no_larger_than_those_of_sgemm(void **state)
{
    static const size_t depths[] = {64, 100, 128, 256, 300, 1024};

    (void)state;
    skip_without_amx();
    for (size_t i = 0; i < COUNT_OF(depths); i++) {
        compare_with_sgemm(UNIFORM, depths[i], 0.6);
        compare_with_sgemm(WIDE, depths[i], 1);
        compare_with_sgemm(CANCELLING, depths[i], 0.6);
    }
}

/* Where there is hardly a sum, what is left out and rounded shows. */
static void errors_of_short_sums_are_about_those_of_sgemm(void **state)
{
    (void)state;
    skip_without_amx();
    for (size_t depth = 1; depth < 64; depth++) {
        compare_with_sgemm(UNIFORM, depth, 1.3);
        compare_with_sgemm(WIDE, depth, 1.3);
        compare_with_sgemm(CANCELLING, depth, 1.3);
    }
}

/* 2^64 to the largest numbers there are, times 2^-64 and less. */
static void numbers_up_to_the_largest_keep_their_accuracy(void **state)
{
    struct work w;

    (void)state;
    skip_without_amx();
    work_init(&w, 40, 40, 40, 0, 0);
    for (size_t e = 0; e < w.a_count; e++) {
        w.a[e] = e % 3 == 0   ? copysignf(FLT_MAX, w.a[e])
                 : e % 3 == 1 ? copysignf(0x1.ff8p127f, w.a[e])
                              : ldexpf(w.a[e], 64 + (int)(e % 64));
    }
    for (size_t e = 0; e < w.b_count; e++) {
        w.b[e] = ldexpf(w.b[e], -64 - (int)(e % 20));
    }
    work_expect(&w);
    cddpi_amx_gemm(&w.p, w.scratch);
    for (size_t e = 0; e < w.c_count; e++) {
        assert_near(w.c[e], w.exact[e], 0, 2e-7 * w.magnitude[e]);
    }
    work_fini(&w);
}

/* The bound that the header gives. */
static void tiny_numbers_lose_no_more_than_is_promised(void **state)
{
    struct work w;

    (void)state;
    skip_without_amx();
    for (int power = -149; power <= -60; power++) {
        double lost = 0;

        work_init(&w, 40, 40, 40, 0, 0);
        for (size_t e = 0; e < w.a_count; e++) {
            w.a[e] = ldexpf(w.a[e], power);
        }
        for (size_t e = 0; e < w.b_count; e++) {
            w.b[e] = ldexpf(w.b[e], (int)(e % 100) - 80);
        }
        work_expect(&w);
        cddpi_amx_gemm(&w.p, w.scratch);
        for (size_t e = 0; e < w.c_count; e++) {
            lost = 0;
            for (size_t q = 0; q < w.p.k; q++) {
                lost += 0x1p-126 * (fabs((double)a_at(&w.p, e / w.p.n, q)) +
                                    fabs((double)b_at(&w.p, q, e % w.p.n)) + 8);
            }
            assert_near(w.c[e], w.exact[e], 0, 5e-7 * w.magnitude[e] + lost);
        }
        work_fini(&w);
    }
}

/* Where A's row or B's column holds it, and nowhere else. */
static void check_spread(float value, unsigned form, bool in_b)
{
    float *clean;
    struct work w;

    work_init(&w, 45, 50, 170, form, 0);
    w.p.bias = w.bias;
    w.p.relu = true;
    cddpi_amx_gemm(&w.p, w.scratch);
    clean = copy_of(w.c, w.c_count);
    if (in_b) {
        w.b[w.p.transpose_b ? 33 * w.p.ldb + 140 : 140 * w.p.ldb + 33] = value;
    } else {
        w.a[w.p.transpose_a ? 140 * w.p.lda + 33 : 33 * w.p.lda + 140] = value;
    }
    cddpi_amx_gemm(&w.p, w.scratch);
    for (size_t e = 0; e < w.c_count; e++) {
        if ((in_b ? e % w.p.n : e / w.p.n) == 33) {
            assert_false(isfinite(w.c[e]));
        } else {
            assert_memory_equal(&w.c[e], &clean[e], sizeof *clean);
        }
    }
    free(clean);
    work_fini(&w);
}

static void what_is_not_finite_reaches_its_row_or_column_and_no_other(void **state)
{
    const uint32_t all_ones = 0x7fffffff; /* a NaN that rounding would carry into the sign */
    float values[] = {INFINITY, -INFINITY, NAN, -NAN, 0};

    (void)state;
    skip_without_amx();
    memcpy(&values[4], &all_ones, sizeof all_ones);
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        for (unsigned form = 0; form < 4; form++) {
            check_spread(values[i], form, false);
            check_spread(values[i], form, true);
        }
    }
}

static void a_row_has_the_same_bits_whatever_rows_are_with_it(void **state)
{
    struct work w;
    float *all;

    (void)state;
    skip_without_amx();
    work_init(&w, 71, 90, 333, 0, 2);
    cddpi_amx_gemm(&w.p, w.scratch);
    all = copy_of(w.c, w.c_count);
    for (size_t i = 0; i < 71; i++) {
        w.p.a = w.a + i * w.p.lda;
        w.p.c = w.c + i * w.p.ldc;
        w.p.m = i % 2 == 0 ? 1 : 71 - i;
        memset(w.p.c, 0, w.p.n * sizeof *w.c);
        cddpi_amx_gemm(&w.p, w.scratch);
        assert_memory_equal(w.p.c, all + i * w.p.ldc, w.p.n * sizeof *all);
    }
    free(all);
    work_fini(&w);
}

static void *multiply_again(void *argument)
{
    struct work *w = argument;

    cddpi_amx_gemm(&w->p, w->scratch);
    return NULL;
}

static void another_thread_makes_the_same_bits(void **state)
{
    pthread_t thread;
    struct work w;
    float *first;

    (void)state;
    skip_without_amx();
    work_init(&w, 100, 100, 100, 1, 0);
    cddpi_amx_gemm(&w.p, w.scratch);
    first = copy_of(w.c, w.c_count);
    memset(w.c, 0, w.c_count * sizeof *w.c);
    assert_int_equal(pthread_create(&thread, NULL, multiply_again, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_memory_equal(w.c, first, w.c_count * sizeof *first);
    free(first);
    work_fini(&w);
}

static void memory_does_not_grow_with_the_product(void **state)
{
    (void)state;
    skip_without_amx();
    assert_int_equal(cddpi_amx_gemm_scratch(1024, 128), cddpi_amx_gemm_scratch(50257, 4096));
    assert_true(cddpi_amx_gemm_scratch(50257, 4096) < 1 << 20);
    assert_true(cddpi_amx_gemm_scratch(64, 64) < cddpi_amx_gemm_scratch(1024, 128) / 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_products_are_those_of_float64_in_every_form),
        cmocka_unit_test(large_products_are_those_of_float64_in_every_form),
        cmocka_unit_test(errors_are_no_larger_than_those_of_sgemm),
        cmocka_unit_test(errors_of_short_sums_are_about_those_of_sgemm),
        cmocka_unit_test(numbers_up_to_the_largest_keep_their_accuracy),
        cmocka_unit_test(tiny_numbers_lose_no_more_than_is_promised),
        cmocka_unit_test(what_is_not_finite_reaches_its_row_or_column_and_no_other),
        cmocka_unit_test(a_row_has_the_same_bits_whatever_rows_are_with_it),
        cmocka_unit_test(another_thread_makes_the_same_bits),
        cmocka_unit_test(memory_does_not_grow_with_the_product),
    };

    cddpi_compute_threads();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
