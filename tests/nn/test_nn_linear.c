/* test_nn_linear.c - gradients of linear layers that are wide enough for products planned in
 * advance, against sums in float64. */
#include "support/nn.h"

enum { INPUTS = 96, OUTPUTS = 80, FEW_ROWS = 48, MANY_ROWS = 200 };

/* y = W x + b and the mean square error to one-hot targets: the derivative is known in full. */
static void expect(const struct fixture *f, double scale, double *weight, double *bias)
{
    const float *w = f->params[0].data;
    const float *b = f->params[1].data;

    memset(weight, 0, sizeof(double) * OUTPUTS * INPUTS);
    memset(bias, 0, sizeof(double) * OUTPUTS);
    for (int r = 0; r < f->batch.count; r++) {
        const float *x = f->input + r * INPUTS;

        for (int o = 0; o < OUTPUTS; o++) {
            double y = (double)b[o] - (o == f->label[r]);

            for (int i = 0; i < INPUTS; i++) {
                y += (double)w[o * INPUTS + i] * (double)x[i];
            }
            y *= 2 * scale / OUTPUTS;
            bias[o] += y;
            for (int i = 0; i < INPUTS; i++) {
                weight[o * INPUTS + i] += y * (double)x[i];
            }
        }
    }
}

static void assert_gradients(const struct fixture *f, const double *weight, const double *bias,
                             double times)
{
    const float *w = f->grads[0];
    const float *b = f->grads[1];

    for (int e = 0; e < OUTPUTS * INPUTS; e++) {
        assert_float_equal(w[e], times * weight[e], 2e-6);
    }
    for (int o = 0; o < OUTPUTS; o++) {
        assert_float_equal(b[o], times * bias[o], 2e-6);
    }
}

static void check_gradients(enum cddpi_matmul_mode matmul, int rows)
{
    static const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_FLATTEN},
        {.type = CDDPI_LAYER_LINEAR, .units = OUTPUTS},
    };
    struct cddpi_model_spec spec = {.layers = layers,
                                    .layer_count = 2,
                                    .loss = CDDPI_LOSS_MSE,
                                    .channels = 1,
                                    .height = 8,
                                    .width = INPUTS / 8,
                                    .classes = OUTPUTS,
                                    .matmul = matmul};
    double *weight = malloc(sizeof(double) * OUTPUTS * INPUTS);
    double bias[OUTPUTS];
    struct fixture f;

    assert_true(fixture_init(&f, &spec, 1, NULL, 0, rows));
    expect(&f, 0.5, weight, bias);
    assert_int_equal(fixture_step(&f, 0.5, false), CDDP_OK);
    assert_gradients(&f, weight, bias, 1);
    assert_int_equal(fixture_step(&f, 0.5, true), CDDP_OK);
    assert_gradients(&f, weight, bias, 2);
    assert_int_equal(fixture_step(&f, 0.5, true), CDDP_OK);
    assert_gradients(&f, weight, bias, 3);
    assert_int_equal(fixture_step(&f, 0.5, false), CDDP_OK);
    assert_gradients(&f, weight, bias, 1);
    fixture_fini(&f);
    free(weight);
}

/* Many rows are enough for AMX. */
static void wide_gradients_are_those_of_float64_and_add_up(void **state)
{
    (void)state;
    check_gradients(CDDPI_MATMUL_AUTO, FEW_ROWS);
    check_gradients(CDDPI_MATMUL_AUTO, MANY_ROWS);
    check_gradients(CDDPI_MATMUL_FMA, MANY_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_gradients_are_those_of_float64_and_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
