/* test_nn_lstm.c - lstm as a layer of a model: gradients against finite differences, accumulation,
 * reproducible bits, nn.LSTM's names, and wrong descriptions. */
#include "support/failure.h"
#include "support/kernel.h"

#define LAYER(kind, ...)                                                                           \
    {                                                                                              \
        .type = CDDPI_LAYER_##kind, __VA_ARGS__                                                    \
    }

enum { VOCAB = 11, CONTEXT = 7 };

static const struct cddpi_layer layers[] = {
    LAYER(EMBEDDING, .name = "e", .units = 6),
    LAYER(LSTM, .name = "rnn_l0", .units = 9),
    LAYER(LSTM, .name = "rnn_l1", .units = 5, .no_bias = true),
    LAYER(LSTM, .name = "third", .units = 6),
    LAYER(ADD, .name = "sum", .input2 = "e"),
    LAYER(LINEAR, .name = "head", .units = VOCAB),
};

#define MODEL(length)                                                                              \
    {                                                                                              \
        .layers = layers, .layer_count = COUNT_OF(layers), .context = (length), .vocab = VOCAB,    \
        .classes = VOCAB                                                                           \
    }

static const struct cddpi_model_spec specs[] = {MODEL(CONTEXT), MODEL(1), MODEL(40)};

/* Wider than at the start, so that gates are far from the middle and steps far back show. */
static void setup(struct fixture *f, const struct cddpi_model_spec *spec, int count)
{
    if (!fixture_init(f, spec, 12, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
    for (size_t i = 0; i < f->param_count; i++) {
        float *data = f->params[i].data;

        for (size_t e = 0; e < cddpi_tensor_elements(&f->params[i]); e++) {
            data[e] += 0.8f * test_number(50 + (uint32_t)i, e);
        }
    }
}

static double numeric_gradient(struct fixture *f, float *element, double step)
{
    float kept = *element;
    float high = (float)((double)kept + step);
    float low = (float)((double)kept - step);
    double rise;

    *element = high;
    rise = fixture_loss(f);
    *element = low;
    rise -= fixture_loss(f);
    *element = kept;
    return rise / ((double)high - (double)low);
}

/* Compared as vectors, less what the rounding of the loss explains. */
static void check_param(struct fixture *f, size_t index, double loss)
{
    const double step = 4e-3;
    const cddp_param *param = &f->params[index];
    const float *grad = f->grads[index];
    size_t count = cddpi_tensor_elements(param);
    double noise = 3e-7 * fmax(loss, 1) / step;
    double length = 0;
    double error = 0;

    for (size_t i = 0; i<count; i += count> 60 ? count / 50 : 1) {
        double numeric = numeric_gradient(f, (float *)param->data + i, step);

        length += (double)grad[i] * (double)grad[i];
        error += pow(fmax(fabs(numeric - (double)grad[i]) - noise, 0), 2);
    }
    if (!(sqrt(error) <= 5e-3 * sqrt(length))) {
        fail_msg("%s: backward and differences are %g apart, of a gradient %g long", param->name,
                 sqrt(error), sqrt(length));
    }
    /* a sequence of one step has no step before */
    assert_true(length > 0 || strstr(param->name, "weight_hh") != NULL);
}

static void gradients_are_those_of_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct fixture f;
        double loss;

        setup(&f, &specs[i], 3);
        assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
        assert_true(nn_arena_is_valid(&f.model->last.pending->arena));
        loss = fixture_loss(&f);
        for (size_t k = 0; k < f.param_count; k++) {
            check_param(&f, k, loss);
        }
        fixture_fini(&f);
    }
}

static void gradients_accumulate_and_are_the_same_bits_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        for (int samples = 1; samples <= 2; samples++) {
            struct fixture once, twice;

            setup(&once, &specs[i], samples);
            setup(&twice, &specs[i], samples);
            assert_int_equal(fixture_step(&once, 0.5, false), CDDP_OK);
            assert_int_equal(fixture_step(&twice, 0.5, false), CDDP_OK);
            for (size_t k = 0; k < once.param_count; k++) {
                assert_memory_equal(once.grads[k], twice.grads[k],
                                    cddpi_tensor_elements(&once.params[k]) * sizeof(float));
            }
            assert_int_equal(fixture_step(&twice, 0.5, true), CDDP_OK);
            for (size_t k = 0; k < once.param_count; k++) {
                size_t count = cddpi_tensor_elements(&once.params[k]);
                float *sum = once.grads[k];

                for (size_t e = 0; e < count; e++) {
                    sum[e] *= 2;
                }
                assert_true(difference_over(sum, twice.grads[k], count, 1e-3) < 1e-5);
            }
            fixture_fini(&once);
            fixture_fini(&twice);
        }
    }
}

/* The loss of a sequence alone is its part of the loss of several: state does not go on from one
 * to the next. */
static void sequences_of_a_batch_do_not_know_of_each_other(void **state)
{
    struct fixture both, first, second;
    double sum;

    (void)state;
    setup(&both, &specs[0], 2);
    setup(&first, &specs[0], 1);
    setup(&second, &specs[0], 1);
    fixture_sequences(&first, 0, 1);
    fixture_sequences(&second, 1, 1);
    fixture_sequences(&both, 0, 2);
    sum = fixture_loss(&first) + fixture_loss(&second);
    assert_true(fabs(fixture_loss(&both) - sum) <= 1e-6 * sum);
    fixture_fini(&both);
    fixture_fini(&first);
    fixture_fini(&second);
}

static void an_evaluation_gives_the_loss_of_training(void **state)
{
    struct cddpi_loss_result result;
    struct fixture f;
    double loss;

    (void)state;
    setup(&f, &specs[0], 2);
    loss = fixture_loss(&f);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    assert_true(fabs(result.loss_sum - loss) <= 1e-6 * loss);
    fixture_fini(&f);
}

static void parameters_have_the_names_shapes_and_bounds_of_pytorch(void **state)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } expected[] = {
        {"e.weight", VOCAB, 6},      {"rnn.weight_ih_l0", 36, 6},   {"rnn.weight_hh_l0", 36, 9},
        {"rnn.bias_ih_l0", 36, 0},   {"rnn.bias_hh_l0", 36, 0},     {"rnn.weight_ih_l1", 20, 9},
        {"rnn.weight_hh_l1", 20, 5}, {"third.weight_ih_l0", 24, 5}, {"third.weight_hh_l0", 24, 6},
        {"third.bias_ih_l0", 24, 0}, {"third.bias_hh_l0", 24, 0},   {"head.weight", VOCAB, 6},
        {"head.bias", VOCAB, 0},
    };
    struct fixture f;

    (void)state;
    assert_true(fixture_init(&f, &specs[0], 1, NULL, 0, 1));
    assert_int_equal(f.param_count, COUNT_OF(expected));
    for (size_t i = 0; i < f.param_count; i++) {
        const float *data = f.params[i].data;
        double largest = 0;
        size_t count = cddpi_tensor_elements(&f.params[i]);

        assert_string_equal(f.params[i].name, expected[i].name);
        assert_int_equal(f.params[i].dims, expected[i].columns > 0 ? 2 : 1);
        assert_int_equal(f.params[i].shape[0], expected[i].rows);
        assert_int_equal(count,
                         expected[i].rows * (expected[i].columns > 0 ? expected[i].columns : 1));
        assert_true(cddpi_model_param_decays(f.model, i) == (expected[i].columns > 0));
        for (size_t e = 0; e < count; e++) {
            double size = fabs((double)data[e]); /* (fmax() here is too much for gcc 12 on arm64) */

            largest = size > largest ? size : largest;
        }
        if (strncmp(f.params[i].name, "rnn", 3) == 0) {
            double bound = 1 / sqrt((double)expected[i].rows / 4);

            assert_true(largest <= bound && largest > 0.8 * bound);
        }
    }
    fixture_fini(&f);
}

static void descriptions_that_do_not_fit_name_the_layer(void **state)
{
    static const struct {
        struct cddpi_layer layers[4];
        size_t count;
        const char *text;
    } cases[] = {
        {{LAYER(LSTM, .name = "memory", .units = 4)},
         1,
         "layer \"memory\": lstm takes sequences, but its input is 2 x 3 x 4"},
        {{LAYER(LSTM, .name = "memory")}, 1, "layer \"memory\": units is 0"},
        {{LAYER(LSTM, .name = "memory", .units = 4, .heads = 2)},
         1,
         "layer \"memory\": lstm takes no heads"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct cddpi_model_spec spec = {.layers = cases[i].layers,
                                        .layer_count = cases[i].count,
                                        .channels = 2,
                                        .height = 3,
                                        .width = 4,
                                        .classes = 4};
        struct cddpi_model *model = NULL;

        assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
        if (!last_error_has(cases[i].text)) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i].text);
        }
    }
}

static void a_model_survives_want_of_memory(void **state)
{
    (void)state;
    assert_survives_want_of_memory(&specs[0], 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_differences),
        cmocka_unit_test(gradients_accumulate_and_are_the_same_bits_again),
        cmocka_unit_test(sequences_of_a_batch_do_not_know_of_each_other),
        cmocka_unit_test(an_evaluation_gives_the_loss_of_training),
        cmocka_unit_test(parameters_have_the_names_shapes_and_bounds_of_pytorch),
        cmocka_unit_test(descriptions_that_do_not_fit_name_the_layer),
        cmocka_unit_test(a_model_survives_want_of_memory),
    };

    cddpi_compute_threads();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
