/* test_nn_spec.c - descriptions that do not fit, wrong calls, lack of memory. */
#include "support/failure.h"
#include "support/nn.h"

#define IMAGE .channels = 1, .height = 28, .width = 28, .classes = 10

struct wrong {
    struct cddpi_layer layers[4];
    const char *text; /* part of the error's */
};

#define LAYER(kind, ...)                                                                           \
    {                                                                                              \
        .type = CDDPI_LAYER_##kind, __VA_ARGS__                                                    \
    }

static const struct wrong wrongs[] = {
    {{LAYER(LINEAR, .units = 3)}, "layer \"linear1\": linear takes flat inputs"},
    {{LAYER(FLATTEN, .name = "f"), LAYER(LINEAR, .name = "out", .units = 4)},
     "layer \"out\": the last layer's output is 4 x 1 x 1, but there are 3 classes"},
    {{LAYER(CONV2D, .units = 3, .kernel = 9)},
     "layer \"conv2d1\": its kernel of 9 x 9 is larger than its input of 6 x 6"},
    {{LAYER(MAX_POOL, .kernel = 7)}, "layer \"max_pool1\": its kernel of 7 x 7 is larger"},
    {{LAYER(MAX_POOL, .kernel = 2, .padding = 2)}, "padding is 2; 0 to 1 are possible"},
    {{LAYER(CONV2D, .kernel = 3)}, "layer \"conv2d1\": units is 0"},
    {{LAYER(CONV2D, .units = 3)}, "layer \"conv2d1\": kernel is 0"},
    {{LAYER(CONV2D, .units = 3, .kernel = 3, .stride = -1)}, "stride is -1"},
    {{LAYER(RELU, .units = 3)}, "layer \"relu1\": relu takes no units"},
    {{LAYER(RELU, .input = "nowhere")}, "layer \"relu1\": no layer is called \"nowhere\""},
    {{LAYER(RELU, .input = "later"), LAYER(RELU, .name = "later")},
     "layer \"relu1\": its input \"later\" comes only after it"},
    {{LAYER(RELU, .name = "a"), LAYER(RELU, .name = "a")},
     "layer \"a\": layers 1 and 2 both have this name"},
    {{LAYER(RELU, .name = "input")},
     "layer \"input\": no layer may have this name, which stands for the data"},
    {{LAYER(CONV2D, .name = "c", .units = 2, .kernel = 1), LAYER(ADD, .input2 = "input")},
     "layer \"add2\": add takes equal shapes, but its inputs are 2 x 6 x 6 and 1 x 6 x 6"},
    {{LAYER(ADD, .name = "a")}, "layer \"a\": it needs a second summand"},
    {{LAYER(DROPOUT, .probability = 1)}, "layer \"dropout1\": probability is 1"},
    {{LAYER(DROPOUT, .probability = -0.5)}, "layer \"dropout1\": probability is -0.5"},
    {{LAYER(BATCH_NORM, .momentum = 2)}, "layer \"batch_norm1\": momentum is 2"},
    {{LAYER(BATCH_NORM, .epsilon = -1)}, "layer \"batch_norm1\": epsilon is -1"},
    {{LAYER(FLATTEN, .name = "f"), LAYER(LINEAR, .name = "lost", .units = 3),
      LAYER(LINEAR, .input = "f", .units = 3)},
     "layer \"lost\": no other layer reads its output"},
    {{LAYER(MAX_POOL, .kernel = 6), LAYER(CONV2D, .units = 3, .kernel = 1),
      LAYER(GLOBAL_AVG_POOL, .padding = 1)},
     "global_avg_pool takes no padding"},
    {{LAYER(COUNT, .name = "x")}, "layer 1 has the unknown type"},
    {{LAYER(RELU, .name = "")}, "the name of layer 1 has 0 bytes"},
};

static void descriptions_that_do_not_fit_name_the_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        struct cddpi_model_spec spec = {
            .layers = wrongs[i].layers, .channels = 1, .height = 6, .width = 6, .classes = 3};
        struct cddpi_model *model = NULL;

        while (spec.layer_count < 4 && (wrongs[i].layers[spec.layer_count].type != 0 ||
                                        wrongs[i].layers[spec.layer_count].units != 0)) {
            spec.layer_count++;
        }
        assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
        assert_null(model);
        if (!last_error_has(wrongs[i].text)) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), wrongs[i].text);
        }
    }
}

static void expect_refused(struct cddpi_model_spec spec, const char *text)
{
    struct cddpi_model *model = NULL;

    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
    if (!last_error_has(text)) {
        fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), text);
    }
}

static void models_that_cannot_be_are_refused(void **state)
{
    static const int no_width[] = {10, 0};
    static const struct cddpi_layer relu[] = {{.type = CDDPI_LAYER_RELU}};

    (void)state;
    expect_refused((struct cddpi_model_spec){.preset = "gpt9", IMAGE}, "there is no preset");
    expect_refused((struct cddpi_model_spec){.preset = "mlp", .channels = 1, .classes = 3},
                   "data of 1 x 0 x 0");
    expect_refused(
        (struct cddpi_model_spec){.preset = "mlp", .channels = 1, .height = 1, .width = 1},
        "0 classes");
    expect_refused((struct cddpi_model_spec){.preset = "mlp", .dropout = 1, IMAGE}, "dropout is 1");
    expect_refused(
        (struct cddpi_model_spec){.preset = "mlp", .hidden = no_width, .hidden_count = 2, IMAGE},
        "layer \"fc2\": units is 0");
    expect_refused((struct cddpi_model_spec){.layers = relu, IMAGE}, "0 layers");
    expect_refused(
        (struct cddpi_model_spec){.preset = "mlp", .precision = CDDPI_PRECISION_FP16, IMAGE},
        "fp16 is for CUDA devices");
    expect_refused((struct cddpi_model_spec){.preset = "resnet50", .stage_units = -1, IMAGE},
                   "resnet50: -1 channels");
    expect_refused(
        (struct cddpi_model_spec){
            .layers = relu, .layer_count = 1, .channels = 3, .height = 1, .width = 1, .classes = 3},
        "no layer has parameters");
}

static void wrong_calls_are_refused(void **state)
{
    static const struct cddpi_model_spec mlp = {.preset = "mlp", IMAGE};
    struct fixture f;
    struct cddpi_loss_result result = {.loss_sum = -1, .correct = -1, .count = -1};
    void *none[6] = {NULL};

    (void)state;
    assert_true(fixture_init(&f, &mlp, 5, NULL, 0, 2));
    assert_int_equal(cddpi_model_backward(f.model, 1, false, NULL, NULL), CDDP_ERR_STATE);
    f.label[1] = 10;
    assert_true(failure_is(cddpi_model_forward(f.model, &f.batch, true, &result), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_true(last_error_has("the label of sample 1 is 10"));
    assert_int_equal(result.count, -1);
    f.label[1] = -1;
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, true, &result), CDDP_ERR_ARGUMENT);
    f.label[1] = 9;
    assert_int_equal(cddpi_model_prepare(f.model, 0, true), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    assert_int_equal(cddpi_model_backward(f.model, 1, false, NULL, NULL), CDDP_ERR_STATE);
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    assert_int_equal(cddpi_model_backward(f.model, 1, false, NULL, NULL), CDDP_ERR_STATE);
    cddpi_model_bind_grads(f.model, none);
    assert_true(failure_is(fixture_step(&f, 1, false), CDDP_ERR_STATE, -1, -1, ""));
    assert_true(last_error_has("fc1.weight"));
    fixture_fini(&f);
}

static void every_failing_allocation_is_an_error(void **state)
{
    static const struct cddpi_model_spec spec = {.preset = "cnn", .dropout = 0.5, IMAGE};

    (void)state;
    assert_survives_want_of_memory(&spec, 50);
}

static void every_layer_type_has_an_op(void **state)
{
    (void)state;
    for (int type = 0; type < CDDPI_LAYER_COUNT; type++) {
        if (cddpi_layer_rows[type].text == NULL || cddpi_layer_rows[type].ops == NULL) {
            fail_msg("%s has no row in cddpi_layer_rows", cddpi_layer_words[type]);
        }
    }
}

/* The numbers are those of torchvision 0.15: sum(p.numel() for p in resnet18().parameters()). */
static void resnet18_and_resnet34_have_the_parameters_of_torchvision(void **state)
{
    static const struct {
        const char *preset;
        size_t tensors, elements;
    } rows[] = {{"resnet18", 62, 11689512}, {"resnet34", 110, 21797672}};

    (void)state;
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        const struct cddpi_model_spec spec = {.preset = rows[r].preset,
                                              .channels = 3,
                                              .height = 224,
                                              .width = 224,
                                              .classes = 1000,
                                              .no_values = true};
        struct cddpi_model *model = NULL;
        const cddp_param *params;
        size_t count;
        size_t elements = 0;

        assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_OK);
        params = cddpi_model_params(model, &count);
        assert_int_equal(count, rows[r].tensors);
        for (size_t i = 0; i < count; i++) {
            elements += cddpi_tensor_elements(&params[i]);
        }
        assert_int_equal(elements, rows[r].elements);
        assert_string_equal(params[3].name, "layer1.0.conv1.weight");
        assert_string_equal(params[8].name, "layer1.0.bn2.bias");
        assert_string_equal(params[9].name, "layer1.1.conv1.weight"); /* it keeps its shape */
        assert_string_equal(params[count - 2].name, "fc.weight");
        cddpi_model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_type_has_an_op),
        cmocka_unit_test(descriptions_that_do_not_fit_name_the_layer),
        cmocka_unit_test(models_that_cannot_be_are_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(every_failing_allocation_is_an_error),
        cmocka_unit_test(resnet18_and_resnet34_have_the_parameters_of_torchvision),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
