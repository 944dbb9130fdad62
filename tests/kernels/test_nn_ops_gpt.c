/* test_nn_ops_gpt.c - layer normalisation, gelu, silu and the gates of an LSTM against float64, for
 * every instruction set of this CPU; all of these kernels give the same bits in each. */
#include "support/kernel.h"

/* Layer normalisation, as the formulas have it, in float64. */
struct reference {
    double mean[8], inverse[8], out[8 * 300], dx[8 * 300], dweight[300], dbias[300];
};

static void reference_layer_norm(const float *x, const float *dy, const float *weight,
                                 const float *bias, size_t rows, size_t columns,
                                 struct reference *out)
{
    double n = (double)columns;

    memset(out, 0, sizeof *out);
    for (size_t r = 0; r < rows; r++) {
        double variance = 0;
        double g_mean = 0;
        double product_mean = 0;

        for (size_t c = 0; c < columns; c++) {
            out->mean[r] += (double)x[r * columns + c] / n;
        }
        for (size_t c = 0; c < columns; c++) {
            variance += pow((double)x[r * columns + c] - out->mean[r], 2) / n;
        }
        out->inverse[r] = 1 / sqrt(variance + 1e-5);
        for (size_t c = 0; c < columns; c++) {
            size_t at = r * columns + c;
            double normal = ((double)x[at] - out->mean[r]) * out->inverse[r];
            double g = (double)dy[at] * (double)weight[c];

            out->out[at] = normal * (double)weight[c] + (double)bias[c];
            out->dweight[c] += (double)dy[at] * normal;
            out->dbias[c] += (double)dy[at];
            g_mean += g / n;
            product_mean += g * normal / n;
        }
        for (size_t c = 0; c < columns; c++) {
            size_t at = r * columns + c;
            double normal = ((double)x[at] - out->mean[r]) * out->inverse[r];

            out->dx[at] = out->inverse[r] *
                          ((double)dy[at] * (double)weight[c] - g_mean - normal * product_mean);
        }
    }
}

static void compare_layer_norm(const struct cddpi_layer_norm_kernels *kernels, size_t rows,
                               size_t columns, float offset)
{
    static struct reference expected;
    size_t count = rows * columns;
    /* a row far from zero loses digits in x itself, before any arithmetic */
    double bound = 2e-6 + 2e-7 * fabs((double)offset);
    float *x = numbers(1, count, 2, offset);
    float *dy = numbers(2, count, 1, 0);
    float *weight = numbers(3, columns, 1, 1);
    float *bias = numbers(4, columns, 1, 0);
    float *dweight = numbers(5, columns, 1, 0);
    float *dbias = numbers(6, columns, 1, 0);
    double *scratch = malloc(CDDPI_LAYER_NORM_SCRATCH(columns) * sizeof *scratch);
    float *out = malloc(count * sizeof *out);
    float *in_place = copy_of(x, count);
    float *grad_in_place = copy_of(dy, count);
    float mean[8], inverse[8];

    reference_layer_norm(x, dy, weight, bias, rows, columns, &expected);
    kernels->forward(x, weight, bias, 1e-5f, rows, columns, out, mean, inverse);
    kernels->forward(in_place, weight, bias, 1e-5f, rows, columns, in_place, NULL, NULL);
    assert_memory_equal(in_place, out, count * sizeof *out);
    for (size_t r = 0; r < rows; r++) {
        assert_near(mean[r], expected.mean[r], 1e-7, 1e-7);
        assert_near(inverse[r], expected.inverse[r], 1e-6, 0);
    }
    for (size_t i = 0; i < count; i++) {
        assert_near(out[i], expected.out[i], bound, bound);
    }
    kernels->backward(grad_in_place, x, weight, mean, inverse, rows, columns, grad_in_place,
                      dweight, dbias, scratch);
    for (size_t i = 0; i < count; i++) {
        assert_near(grad_in_place[i], expected.dx[i], bound, bound * expected.inverse[i / columns]);
    }
    for (size_t c = 0; c < columns; c++) {
        assert_near(dweight[c], expected.dweight[c] + (double)test_number(5, c), bound, bound);
        assert_near(dbias[c], expected.dbias[c] + (double)test_number(6, c), bound, bound);
    }
    free(x);
    free(dy);
    free(weight);
    free(bias);
    free(dweight);
    free(dbias);
    free(scratch);
    free(out);
    free(in_place);
    free(grad_in_place);
}

static void layer_norm_and_its_gradients_are_those_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (size_t w = 1; w < COUNT_OF(widths); w++) { /* a row of one has no variance */
            compare_layer_norm(builds[k]->layer_norm, 1, widths[w], 0);
            compare_layer_norm(builds[k]->layer_norm, 8, widths[w], 0.5f);
            compare_layer_norm(builds[k]->layer_norm, 5, widths[w], 1000);
        }
    }
}

static void layer_norm_of_a_constant_row_is_its_bias(void **state)
{
    float x[20], weight[20], bias[20], out[20];
    float mean, inverse;

    (void)state;
    for (int c = 0; c < 20; c++) {
        x[c] = 0.1f;
        weight[c] = 2;
        bias[c] = (float)c;
    }
    cddpi_transformer_kernels()->layer_norm->forward(x, weight, bias, 1e-5f, 1, 20, out, &mean,
                                                     &inverse);
    for (int c = 0; c < 20; c++) {
        assert_near(out[c], c, 0, 1e-5);
    }
    assert_near(inverse, 1 / sqrt(1e-5), 1e-6, 0);
}

static void layer_norm_leaves_out_the_gradient_nobody_wants(void **state)
{
    float x[6] = {1, 2, 4, 3, 1, 0}, weight[3] = {1, 2, 3};
    double scratch[CDDPI_LAYER_NORM_SCRATCH(3)];
    float dweight[2][3] = {{0}}, dbias[2][3] = {{0}};
    float mean[2], inverse[2], out[6], dx[6];
    const struct cddpi_layer_norm_kernels *kernels = cddpi_transformer_kernels()->layer_norm;

    (void)state;
    kernels->forward(x, weight, weight, 1e-5f, 2, 3, out, mean, inverse);
    kernels->backward(x, x, weight, mean, inverse, 2, 3, dx, dweight[0], dbias[0], scratch);
    kernels->backward(x, x, weight, mean, inverse, 2, 3, NULL, dweight[1], dbias[1], scratch);
    assert_memory_equal(dweight[0], dweight[1], sizeof dweight[0]);
    assert_memory_equal(dbias[0], dbias[1], sizeof dbias[0]);
}

/* Many equal rows: each row's part of the sum has the same sign, so rounding shows. */
static void layer_norm_sums_thousands_of_rows_without_drifting(void **state)
{
    enum { ROWS = 5000, COLUMNS = 4 };
    float *x = malloc(ROWS * COLUMNS * sizeof *x);
    float *mean = calloc(ROWS, sizeof *mean);
    float *inverse = calloc(ROWS, sizeof *inverse);
    float weight[COLUMNS] = {1, 1, 1, 1}, dweight[COLUMNS] = {0}, dbias[COLUMNS] = {0};
    double scratch[CDDPI_LAYER_NORM_SCRATCH(COLUMNS)];

    (void)state;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = 0.1f;
    }
    for (int r = 0; r < ROWS; r++) {
        inverse[r] = 1;
    }
    cddpi_transformer_kernels()->layer_norm->backward(x, x, weight, mean, inverse, ROWS, COLUMNS,
                                                      NULL, dweight, dbias, scratch);
    for (int c = 0; c < COLUMNS; c++) {
        assert_near(dbias[c], ROWS * (double)0.1f, 3e-6, 0);
        assert_near(dweight[c], ROWS * (double)0.1f * (double)0.1f, 3e-6, 0);
    }
    free(x);
    free(mean);
    free(inverse);
}

static double gelu_of(double x, bool exact, double *slope)
{
    const double c = sqrt(2 / acos(-1));
    double u = c * (x + 0.044715 * x * x * x);
    /* (1 + tanh(u)) / 2 without cancellation */
    double value = exact ? erfc(-x / sqrt(2)) / 2 : 1 / (1 + exp(-2 * u));
    double density = exact ? exp(-x * x / 2) / sqrt(2 * acos(-1))
                           : 2 * c * (1 + 3 * 0.044715 * x * x) / (1 + exp(-2 * u)) /
                                 (1 + exp(2 * u));

    *slope = value + x * density;
    return x * value;
}

/* A grid over all that matters, denser around zero. */
static size_t gelu_points(float **out)
{
    enum { POINTS = 20011 }; /* no multiple of anything */
    float *x = malloc(POINTS * sizeof *x);

    for (int i = 0; i < POINTS; i++) {
        double at = (2.0 * i - POINTS) / POINTS;

        x[i] = (float)(12 * at * fabs(at));
    }
    *out = x;
    return POINTS;
}

static void gelu_and_its_derivative_are_within_a_millionth_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);
    float *x;
    size_t count = gelu_points(&x);
    float *out = malloc(count * sizeof *out);
    float *grad = malloc(count * sizeof *grad);
    float *dy = numbers(8, count, 0, 1);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (int exact = 0; exact < 2; exact++) {
            builds[k]->gelu->forward(x, exact, out, count);
            memcpy(grad, x, count * sizeof *x);
            builds[k]->gelu->backward(dy, grad, exact, grad, count); /* in place */
            for (size_t i = 0; i < count; i++) {
                double slope;
                double value = gelu_of((double)x[i], exact, &slope);

                assert_near(out[i], value, 1e-6, 1e-8);
                assert_near(grad[i], slope, 1e-6, 1e-7);
            }
        }
    }
    free(x);
    free(out);
    free(grad);
    free(dy);
}

static void silu_and_its_derivative_are_within_a_millionth_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);
    float *x;
    size_t count = gelu_points(&x);
    float *out = malloc(count * sizeof *out);
    float *grad = malloc(count * sizeof *grad);
    float *dy = numbers(8, count, 0, 1);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        builds[k]->silu->forward(x, out, count);
        memcpy(grad, x, count * sizeof *x);
        builds[k]->silu->backward(dy, grad, grad, count); /* in place */
        for (size_t i = 0; i < count; i++) {
            double right = 1 / (1 + exp(-(double)x[i]));

            assert_near(out[i], (double)x[i] * right, 1e-6, 1e-8);
            assert_near(grad[i], right + (double)x[i] * right / (1 + exp((double)x[i])), 1e-6,
                        1e-7);
        }
    }
    free(x);
    free(out);
    free(grad);
    free(dy);
}

static void silu_far_out_is_the_identity_or_nothing(void **state)
{
    const float x[] = {100, 1e4f, 3e38f, -100, -1e4f, -3e38f, 0, -0.0f};
    const float dy[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[COUNT_OF(x)], grad[COUNT_OF(x)];

    (void)state;
    cddpi_transformer_kernels()->silu->forward(x, out, COUNT_OF(x));
    cddpi_transformer_kernels()->silu->backward(dy, x, grad, COUNT_OF(x));
    for (size_t i = 0; i < COUNT_OF(x); i++) {
        assert_near(out[i], x[i] > 0 ? (double)x[i] : 0, 0, 0);
        assert_near(grad[i], x[i] > 0 ? 1 : x[i] < 0 ? 0 : 0.5, 0, 0);
    }
}

/* One unit of one step, by the formulas in float64. */
struct memory {
    double gates[4], cell, out;
};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static struct memory memory_of(const float *gates, size_t units, double before)
{
    struct memory m = {{sigmoid((double)gates[0]), sigmoid((double)gates[units]),
                        tanh((double)gates[2 * units]), sigmoid((double)gates[3 * units])},
                       0,
                       0};

    m.cell = m.gates[1] * before + m.gates[0] * m.gates[2];
    m.out = m.gates[3] * tanh(m.cell);
    return m;
}

static void check_gradients(const struct memory *m, double before, double dh, double dc,
                            const float *gates, size_t units, double carried_cell)
{
    double t = tanh(m->cell);
    const double *g = m->gates;

    dc += dh * g[3] * (1 - t * t);
    assert_near(gates[0], dc * g[2] * g[0] * (1 - g[0]), 1e-5, 1e-6);
    assert_near(gates[units], dc * before * g[1] * (1 - g[1]), 1e-5, 1e-6);
    assert_near(gates[2 * units], dc * g[0] * (1 - g[2] * g[2]), 1e-5, 1e-6);
    assert_near(gates[3 * units], dh * t * g[3] * (1 - g[3]), 1e-5, 1e-6);
    assert_near((float)carried_cell, dc * g[1], 1e-5, 1e-6);
}

/* The second of three steps of ROWS sequences, or the first. */
static void check_step(const struct cddpi_lstm_kernels *kernels, size_t units, bool first)
{
    enum { ROWS = 3, STEPS = 3 };
    size_t count = ROWS * STEPS * units;
    size_t at = first ? 0 : units;
    float *gates = numbers(1, 4 * count, 6, 0);
    float *cells = numbers(2, count, 2, 0);
    float *dy = numbers(3, count, 1, 0);
    float *carried_out = numbers(4, ROWS * units, 1, 0);
    float *carried_cell = numbers(5, ROWS * units, 1, 0);
    float *out = numbers(6, count, 1, 0);
    float *kept = copy_of(gates, 4 * count);
    float *kept_cells = copy_of(cells, count);
    float *kept_carried = copy_of(carried_cell, ROWS * units);
    const float *before = first ? NULL : cells;

    kernels->forward(gates + 4 * at, before, cells + at, out + at, ROWS, STEPS, units);
    kernels->backward(dy + at, carried_out, carried_cell, before, cells + at, gates + 4 * at, ROWS,
                      STEPS, units);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < units; c++) {
            size_t row = r * STEPS * units;
            double old = first ? 0 : (double)kept_cells[row + c];
            struct memory m = memory_of(kept + 4 * (row + at) + c, units, old);

            assert_near(out[row + at + c], m.out, 1e-6, 5e-7);
            assert_near(cells[row + at + c], m.cell, 1e-6, 5e-7);
            check_gradients(&m, old, (double)dy[row + at + c] + (double)carried_out[r * units + c],
                            (double)kept_carried[r * units + c], gates + 4 * (row + at) + c, units,
                            (double)carried_cell[r * units + c]);
            if (!first) { /* other steps are as they were */
                assert_true(cells[row + c] == kept_cells[row + c]);
                assert_true(gates[4 * row + c] == kept[4 * row + c]);
            }
        }
    }
    free(gates);
    free(cells);
    free(dy);
    free(carried_out);
    free(carried_cell);
    free(out);
    free(kept);
    free(kept_cells);
    free(kept_carried);
}

static void a_step_of_an_lstm_is_that_of_float64(void **state)
{
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (size_t i = 0; i < COUNT_OF(widths); i++) {
            check_step(builds[k]->lstm, widths[i], false);
            check_step(builds[k]->lstm, widths[i], true);
        }
    }
}

static void an_lstm_shows_what_is_not_a_number(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        float gates[4] = {0.5f, 0.5f, 0.5f, 0.5f};
        float before = 1;
        float cell, out;

        gates[i] = NAN;
        cddpi_transformer_kernels()->lstm->forward(gates, &before, &cell, &out, 1, 1, 1);
        assert_true(isnan(out));
    }
}

static void gelu_far_out_is_the_identity_or_nothing(void **state)
{
    const float x[] = {50, 1e4f, 3e38f, -50, -1e4f, -3e38f, 0, -0.0f};
    const float dy[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[COUNT_OF(x)], grad[COUNT_OF(x)];

    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        cddpi_transformer_kernels()->gelu->forward(x, exact, out, COUNT_OF(x));
        cddpi_transformer_kernels()->gelu->backward(dy, x, exact, grad, COUNT_OF(x));
        for (size_t i = 0; i < COUNT_OF(x); i++) {
            assert_near(out[i], x[i] > 0 ? (double)x[i] : 0, 0, 0);
            assert_near(grad[i], x[i] > 0 ? 1 : x[i] < 0 ? 0 : 0.5, 1e-6, 0);
        }
    }
}

static void gelu_shows_what_is_not_a_number(void **state)
{
    const float x[] = {1, NAN, 2};
    const float dy[] = {1, 1, NAN};
    float out[3], grad[3];

    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        cddpi_transformer_kernels()->gelu->forward(x, exact, out, 3);
        cddpi_transformer_kernels()->gelu->backward(dy, x, exact, grad, 3);
        assert_true(!isnan(out[0]) && isnan(out[1]) && !isnan(out[2]));
        assert_true(!isnan(grad[0]) && isnan(grad[1]) && isnan(grad[2]));
    }
}

static void every_set_of_instructions_gives_the_same_bits(void **state)
{
    enum { ROWS = 7, COLUMNS = 93, STRIDE = 96, COUNT = ROWS * STRIDE };
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);
    float first[14][COUNT], now[14][COUNT];
    double scratch[CDDPI_LAYER_NORM_SCRATCH(COLUMNS)];
    double losses[3];

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        float *x = numbers(1, COUNT, 4, 0.3f);
        float *dy = numbers(2, COUNT, 1, 0);
        float *weight = numbers(3, STRIDE, 1, 1);
        const int32_t label[ROWS] = {0};
        float inverse[ROWS];
        int correct = 0;

        memset(now, 0, sizeof now);
        builds[k]->layer_norm->forward(x, weight, dy, 1e-5f, ROWS, COLUMNS, now[0], now[1], now[2]);
        builds[k]->layer_norm->backward(dy, x, weight, now[1], now[2], ROWS, COLUMNS, now[3],
                                        now[4], now[5], scratch);
        for (int exact = 0; exact < 2; exact++) {
            builds[k]->gelu->forward(x, exact, now[7 + exact], COUNT);
            builds[k]->gelu->backward(dy, x, exact, now[9 + exact], COUNT);
        }
        losses[k] = builds[k]->softmax->forward(x, label, ROWS, COLUMNS, now[12], inverse,
                                                &correct);
        assert_true(losses[k] == losses[0]);
        builds[k]->attention->softmax(x, STRIDE, ROWS, COLUMNS, 80, now[11], now[11] + ROWS);
        builds[k]->attention->row_products(x, dy, STRIDE, ROWS, COLUMNS, now[11] + 2 * ROWS);
        builds[k]->attention->backward(x, dy, STRIDE, ROWS, COLUMNS, 80, now[11] + ROWS, now[11]);
        memcpy(now[6], dy, sizeof now[6]);
        memcpy(now[13], now[0], sizeof now[13]);
        builds[k]->lstm->forward(now[13], NULL, now[13] + 4 * 93, now[13] + 5 * 93, 1, 1, 93);
        builds[k]->lstm->backward(dy, x, now[13] + 5 * 93, NULL, now[13] + 4 * 93, now[13], 1, 1,
                                  93);
        if (k == 0) {
            memcpy(first, now, sizeof now);
        }
        for (int i = 0; i < 14; i++) {
            assert_memory_equal(now[i], first[i], sizeof now[i]);
        }
        free(x);
        free(dy);
        free(weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norm_and_its_gradients_are_those_of_float64),
        cmocka_unit_test(layer_norm_of_a_constant_row_is_its_bias),
        cmocka_unit_test(layer_norm_leaves_out_the_gradient_nobody_wants),
        cmocka_unit_test(layer_norm_sums_thousands_of_rows_without_drifting),
        cmocka_unit_test(gelu_and_its_derivative_are_within_a_millionth_of_float64),
        cmocka_unit_test(gelu_far_out_is_the_identity_or_nothing),
        cmocka_unit_test(silu_and_its_derivative_are_within_a_millionth_of_float64),
        cmocka_unit_test(silu_far_out_is_the_identity_or_nothing),
        cmocka_unit_test(gelu_shows_what_is_not_a_number),
        cmocka_unit_test(a_step_of_an_lstm_is_that_of_float64),
        cmocka_unit_test(an_lstm_shows_what_is_not_a_number),
        cmocka_unit_test(every_set_of_instructions_gives_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
