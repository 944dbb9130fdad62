/* test_nn_vocabulary.c - softmax cross-entropy over rows as long as a vocabulary, in every build of
 * the kernels: against float64, in place, with the same bits in all builds. */
#include "kernels/cpu/transformer.h"
#include "support/nn.h"

enum { ROWS = 3 };
static const size_t widths[] = {1, 2, 15, 16, 17, 257, 2047, 2049, 50257};

struct rows {
    size_t columns;
    float *x, *out;
    int32_t label[ROWS];
    float inverse[ROWS];
    int correct;
    double loss;
};

static void make(struct rows *rows, size_t columns, float spread)
{
    rows->columns = columns;
    rows->x = malloc(ROWS * columns * sizeof *rows->x);
    rows->out = malloc(ROWS * columns * sizeof *rows->out);
    rows->correct = 0;
    for (size_t i = 0; i < ROWS * columns; i++) {
        rows->x[i] = spread * test_number(40, i) + 50;
    }
    for (int r = 0; r < ROWS; r++) {
        rows->label[r] = (int32_t)((size_t)r * 7919 % columns);
    }
}

static void release(struct rows *rows)
{
    free(rows->x);
    free(rows->out);
}

static void forward(struct rows *rows, const struct cddpi_softmax_kernels *kernels, float *out)
{
    rows->correct = 0;
    rows->loss = kernels->forward(rows->x, rows->label, ROWS, rows->columns, out, rows->inverse,
                                  &rows->correct);
}

static double sum_of_row(const struct rows *rows, int r)
{
    double sum = 0;

    for (size_t c = 0; c < rows->columns; c++) {
        sum += exp((double)rows->x[(size_t)r * rows->columns + c] - 50);
    }
    return sum;
}

static void compare(const struct cddpi_softmax_kernels *kernels, size_t columns, float spread)
{
    struct rows rows;
    double loss = 0;

    make(&rows, columns, spread);
    forward(&rows, kernels, rows.out);
    kernels->backward(rows.out, rows.label, rows.inverse, 0.5f, ROWS, columns, rows.out);
    for (int r = 0; r < ROWS; r++) {
        double sum = sum_of_row(&rows, r);

        for (size_t c = 0; c < columns; c++) {
            size_t at = (size_t)r * columns + c;
            double p = exp((double)rows.x[at] - 50) / sum;
            double should = 0.5 * (p - (c == (size_t)rows.label[r] ? 1 : 0));

            if (!(fabs((double)rows.out[at] - should) <= 1e-6 * p + 1e-7 * fabs(should))) {
                fail_msg("element %zu of %zu is %g, not %g", c, columns, (double)rows.out[at],
                         should);
            }
        }
        loss += log(sum) - ((double)rows.x[(size_t)r * columns + (size_t)rows.label[r]] - 50);
    }
    if (!(fabs(rows.loss - loss) <= 1e-6 * (1 + loss))) {
        fail_msg("the loss over %zu is %.9g, not %.9g", columns, rows.loss, loss);
    }
    release(&rows);
}

static void loss_and_gradient_are_those_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            compare(builds[k]->softmax, widths[w], 0.1f);
            compare(builds[k]->softmax, widths[w], 3);
            compare(builds[k]->softmax, widths[w], 30);
        }
    }
}

static void all_builds_give_the_same_bits(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        size_t bytes = ROWS * widths[w] * sizeof(float);
        struct rows first, other;

        make(&first, widths[w], 5);
        forward(&first, builds[0]->softmax, first.out);
        builds[0]->softmax->backward(first.out, first.label, first.inverse, 3, ROWS, widths[w],
                                     first.out);
        for (size_t k = 1; k < build_count; k++) {
            make(&other, widths[w], 5);
            forward(&other, builds[k]->softmax, other.x); /* in place */
            builds[k]->softmax->backward(other.x, other.label, other.inverse, 3, ROWS, widths[w],
                                         other.x);
            assert_memory_equal(first.out, other.x, bytes);
            assert_memory_equal(first.inverse, other.inverse, sizeof first.inverse);
            assert_true(first.loss == other.loss);
            release(&other);
        }
        release(&first);
    }
}

static void the_first_of_equals_is_the_prediction(void **state)
{
    const struct cddpi_softmax_kernels *kernels = cddpi_transformer_kernels()->softmax;
    struct rows rows;

    (void)state;
    make(&rows, 40, 1);
    rows.x[17] = rows.x[30] = 60; /* row 0 */
    rows.x[40 + 39] = 60;         /* row 1 */
    rows.x[2 * 40 + 5] = NAN;     /* row 2 */
    rows.label[0] = 30;
    rows.label[1] = 39;
    rows.label[2] = 6;
    rows.x[2 * 40 + 6] = 60;
    forward(&rows, kernels, NULL);
    assert_int_equal(rows.correct, 1);
    assert_true(isnan(rows.loss));
    rows.label[0] = 17;
    forward(&rows, kernels, NULL);
    assert_int_equal(rows.correct, 2);
    release(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_are_those_of_float64),
        cmocka_unit_test(all_builds_give_the_same_bits),
        cmocka_unit_test(the_first_of_equals_is_the_prediction),
    };

    return cmocka_run_group_tests_name("nn_softmax", tests, NULL, NULL);
}
