/* test_nn_softmax.c - the softmax of causal attention and the softmax over a vocabulary against
 * float64, for every instruction set of this CPU. */
#include "support/kernel.h"

/* 16 more than columns rounded up, with rubbish where rows end. */
static float *scores(uint32_t stream, size_t rows, size_t columns, float scale, size_t *out_stride)
{
    size_t stride = (columns + 15) / 16 * 16 + 16;
    float *s = malloc(rows * stride * sizeof *s);

    for (size_t i = 0; i < rows * stride; i++) {
        s[i] = i % stride < columns ? scale * test_number(stream, i) : NAN;
    }
    *out_stride = stride;
    return s;
}

static void compare_softmax(const struct cddpi_attention_kernels *kernels, size_t rows,
                            size_t columns, size_t first, float scale)
{
    size_t stride;
    float *s = scores(1, rows, columns, scale, &stride);
    float *dp = scores(2, rows, columns, 1, &stride);
    float *p = copy_of(s, rows * stride);
    float *total = malloc(rows * sizeof *total);
    float *log_sum = malloc(rows * sizeof *log_sum);
    float *delta = numbers(3, rows, 1, 0);
    float *ds = copy_of(dp, rows * stride);
    /* a score of 50 is known to 4e-6, and so is the power's relative error */
    double bound = 1e-6 + 4e-7 * (double)scale;

    kernels->softmax(p, stride, rows, columns, first, total, log_sum);
    for (size_t r = 0; r < rows; r++) {
        double max = -INFINITY;
        double sum = 0;

        for (size_t j = 0; j < columns && j <= first + r; j++) {
            max = fmax(max, (double)s[r * stride + j]);
        }
        for (size_t j = 0; j < columns; j++) {
            double power = j <= first + r ? exp((double)s[r * stride + j] - max) : 0;

            assert_near(p[r * stride + j], power, bound, 0);
            sum += power;
        }
        assert_near(total[r], sum, bound, 0);
        assert_near(log_sum[r], log(sum) + max, 3e-7, 3e-7);
    }
    kernels->divide(p, stride, rows, columns, total);
    kernels->backward(s, ds, stride, rows, columns, first, log_sum, delta);
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            size_t at = r * stride + j;
            double d = (double)dp[at] - (double)delta[r];

            assert_near(s[at], (double)p[at], bound, 0);
            assert_near(ds[at], j <= first + r ? (double)p[at] * d : 0, bound, 1e-7);
        }
    }
    free(s);
    free(dp);
    free(p);
    free(total);
    free(log_sum);
    free(delta);
    free(ds);
}

static void softmax_is_causal_and_that_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        const struct cddpi_attention_kernels *kernels = builds[k]->attention;

        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            compare_softmax(kernels, widths[w], widths[w], 0, 3);
            compare_softmax(kernels, 1, widths[w], widths[w] - 1, 30);
            compare_softmax(kernels, (widths[w] + 1) / 2, widths[w], widths[w] / 2, 0.1f);
        }
    }
}

static void row_products_are_those_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            size_t columns = widths[w];
            size_t stride = columns + 3;
            float *a = numbers(1, 4 * stride, 1, 0);
            float *b = numbers(2, 4 * stride, 1, 0);
            float out[4];

            builds[k]->attention->row_products(a, b, stride, 4, columns, out);
            for (size_t r = 0; r < 4; r++) {
                double sum = 0;

                for (size_t c = 0; c < columns; c++) {
                    sum += (double)a[r * stride + c] * (double)b[r * stride + c];
                }
                assert_near(out[r], sum, 1e-6, 1e-6);
            }
            free(a);
            free(b);
        }
    }
}

static void compare_cross_entropy(const struct cddpi_softmax_kernels *kernels, size_t rows,
                                  size_t columns)
{
    float *x = numbers(1, rows * columns, 5, 0);
    float *grad = malloc(rows * columns * sizeof *grad);
    int32_t label[8];
    float inverse[8];
    double loss = 0;
    int expected_correct = 0;
    int correct[2] = {0, 0};
    double found[2];

    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        double sum = 0;
        size_t best = 0;

        for (size_t c = 0; c < columns; c++) {
            best = row[c] > row[best] ? c : best;
            sum += exp((double)row[c]);
        }
        label[r] = (int32_t)(r % 2 == 0 ? best : columns - 1);
        expected_correct += (size_t)label[r] == best;
        loss += log(sum) - (double)row[label[r]];
    }
    found[0] = kernels->forward(x, label, rows, columns, NULL, NULL, &correct[0]);
    found[1] = kernels->forward(x, label, rows, columns, grad, inverse, &correct[1]);
    assert_true(found[0] == found[1] && fabs(found[0] - loss) <= 1e-6 * (1 + loss));
    assert_int_equal(correct[0], expected_correct);
    assert_int_equal(correct[1], expected_correct);
    kernels->backward(grad, label, inverse, 0.5f, rows, columns, grad);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;

        for (size_t c = 0; c < columns; c++) {
            sum += exp((double)x[r * columns + c]);
        }
        for (size_t c = 0; c < columns; c++) {
            double p = exp((double)x[r * columns + c]) / sum;

            assert_near(grad[r * columns + c], (p - (c == (size_t)label[r])) / 2, 2e-6, 1e-7);
        }
    }
    free(x);
    free(grad);
}

static void cross_entropy_over_a_vocabulary_is_that_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            compare_cross_entropy(builds[k]->softmax, 5, widths[w]);
        }
        compare_cross_entropy(builds[k]->softmax, 2, 5003);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_is_causal_and_that_of_float64),
        cmocka_unit_test(row_products_are_those_of_float64),
        cmocka_unit_test(cross_entropy_over_a_vocabulary_is_that_of_float64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
