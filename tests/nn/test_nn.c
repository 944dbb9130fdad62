/* test_nn.c - gradients of every op against central differences of the loss. */
#include "support/nn.h"

struct gradient_case {
    struct cddpi_layer layers[16];
    int channels, height, width, classes, count;
    enum cddpi_loss loss;
    double step;      /* of the difference quotient */
    double tolerance; /* relative */
    uint64_t seed;    /* one that puts no element onto the kink of a relu */
};

static double loss_at(struct fixture *f, float *element, float value)
{
    float kept = *element;
    double loss;

    *element = value;
    loss = fixture_loss(f);
    *element = kept;
    return loss;
}

static double numeric_gradient(struct fixture *f, float *element, double step)
{
    float high = (float)((double)*element + step);
    float low = (float)((double)*element - step);

    return (loss_at(f, element, high) - loss_at(f, element, low)) / ((double)high - (double)low);
}

/* Compared as vectors, by length: a step of the difference that crosses the kink of a relu spoils
 * an element or two, a wrong element out of a hundred shows as 10 %. Losses are sums of float32
 * outputs, so a difference cannot be more exact than their rounding. */
static void check_param(struct fixture *f, size_t index, const struct gradient_case *c, double loss)
{
    const cddp_param *param = &f->params[index];
    const float *grad = f->grads[index];
    size_t count = cddpi_tensor_elements(param);
    double noise = 3e-7 * fmax(loss, 1) / c->step;
    double length = 0;
    double error = 0;

    for (size_t i = 0; i<count; i += count> 200 ? count / 100 : 1) {
        double numeric = numeric_gradient(f, (float *)param->data + i, c->step);

        length += (double)grad[i] * (double)grad[i];
        error += pow(fmax(fabs(numeric - (double)grad[i]) - noise, 0), 2);
    }
    if (!(sqrt(error) <= c->tolerance * sqrt(length))) {
        fail_msg("%s: backward and differences are %g apart, of a gradient %g long", param->name,
                 sqrt(error), sqrt(length));
    }
}

static void check_gradients_of(const struct gradient_case *c, bool real_targets)
{
    struct cddpi_model_spec spec = {.layers = c->layers,
                                    .loss = c->loss,
                                    .channels = c->channels,
                                    .height = c->height,
                                    .width = c->width,
                                    .classes = c->classes,
                                    .real_targets = real_targets};
    struct fixture f;
    double loss;

    while (spec.layer_count < COUNT_OF(c->layers) &&
           (c->layers[spec.layer_count].type != 0 || c->layers[spec.layer_count].units != 0)) {
        spec.layer_count++;
    }
    if (!fixture_init(&f, &spec, c->seed, NULL, 0, c->count)) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    assert_true(nn_arena_is_valid(&f.model->last.pending->arena));
    loss = fixture_loss(&f);
    for (size_t i = 0; i < f.param_count; i++) {
        check_param(&f, i, c, loss);
    }
    fixture_fini(&f);
}

static void check_gradients(const struct gradient_case *c)
{
    check_gradients_of(c, false);
}

#define LINEAR(n)                                                                                  \
    {                                                                                              \
        .type = CDDPI_LAYER_LINEAR, .units = (n)                                                   \
    }
#define CONV(...)                                                                                  \
    {                                                                                              \
        .type = CDDPI_LAYER_CONV2D, __VA_ARGS__                                                    \
    }
#define OP(kind)                                                                                   \
    {                                                                                              \
        .type = CDDPI_LAYER_##kind                                                                 \
    }
#define WITH(kind, ...)                                                                            \
    {                                                                                              \
        .type = CDDPI_LAYER_##kind, __VA_ARGS__                                                    \
    }

/* The mean squared error is quadratic in each parameter of a model that is linear in its data:
 * there the central difference is exact however long the step, and rounding hardly matters. */

static void linear_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {LINEAR(9), LINEAR(5)}, 7, 1, 1, 5, 6, CDDPI_LOSS_MSE, 0.5, 1e-4, 12});
}

static void losses_of_real_targets_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients_of(
        &(struct gradient_case){
            {LINEAR(9), LINEAR(5)}, 7, 1, 1, 5, 6, CDDPI_LOSS_MSE, 0.5, 1e-4, 12},
        true);
    /* the absolute error is linear in each parameter, as long as no difference changes its sign */
    check_gradients_of(
        &(struct gradient_case){{LINEAR(5)}, 7, 1, 1, 5, 6, CDDPI_LOSS_L1, 1e-3, 1e-3, 12}, true);
}

static void real_targets_and_losses_must_fit(void **state)
{
    struct cddpi_layer layers[] = {LINEAR(5)};
    struct cddpi_model_spec spec = {.layers = layers,
                                    .layer_count = 1,
                                    .channels = 7,
                                    .height = 1,
                                    .width = 1,
                                    .classes = 5,
                                    .loss = CDDPI_LOSS_L1};
    struct cddpi_model *model = NULL;

    (void)state;
    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
    assert_string_equal(cddp_last_error(),
                        "model.loss = \"l1\" is for data with real targets, but these data have "
                        "classes: use \"cross_entropy\"");
    spec.loss = CDDPI_LOSS_CROSS_ENTROPY;
    spec.real_targets = true;
    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG);
    assert_string_equal(cddp_last_error(), "the data have real targets, not classes: set "
                                           "model.loss to \"mse\" or \"l1\"");
}

static void linear_without_bias_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){{WITH(LINEAR, .units = 9, .no_bias = true), LINEAR(5)},
                                            7,
                                            1,
                                            1,
                                            5,
                                            6,
                                            CDDPI_LOSS_MSE,
                                            0.5,
                                            1e-4,
                                            12});
}

static void linear_and_relu_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){{LINEAR(9), OP(RELU), LINEAR(8), OP(RELU), LINEAR(5)},
                                            7,
                                            1,
                                            1,
                                            5,
                                            6,
                                            CDDPI_LOSS_CROSS_ENTROPY,
                                            1e-3,
                                            5e-3,
                                            12});
}

static void cross_entropy_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {LINEAR(5)}, 7, 1, 1, 5, 6, CDDPI_LOSS_CROSS_ENTROPY, 1e-2, 1e-3, 12});
}

static void convolutions_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {CONV(.units = 16, .kernel = 3, .padding = 1), CONV(.units = 16, .kernel = 3),
         CONV(.units = 32, .kernel = 1, .stride = 2, .no_bias = true), OP(FLATTEN), LINEAR(3)},
        1,
        7,
        6,
        3,
        2,
        CDDPI_LOSS_MSE,
        0.25,
        1e-3,
        12});
}

static void odd_convolutions_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {CONV(.units = 5, .kernel = 2, .padding = 1), CONV(.units = 7, .kernel = 3, .stride = 2),
         CONV(.units = 20, .kernel = 2, .stride = 2, .padding = 1), OP(FLATTEN), LINEAR(3)},
        3,
        8,
        9,
        3,
        2,
        CDDPI_LOSS_MSE,
        0.25,
        1e-3,
        12});
}

static void convolution_and_relu_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){{CONV(.units = 16, .kernel = 3, .padding = 1), OP(RELU),
                                             CONV(.units = 4, .kernel = 3), OP(RELU),
                                             OP(GLOBAL_AVG_POOL), LINEAR(3)},
                                            2,
                                            6,
                                            6,
                                            3,
                                            3,
                                            CDDPI_LOSS_CROSS_ENTROPY,
                                            1e-3,
                                            1e-2,
                                            12});
}

static void batch_norm_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){{CONV(.units = 16, .kernel = 3), OP(BATCH_NORM),
                                             CONV(.units = 6, .kernel = 2), OP(BATCH_NORM),
                                             OP(FLATTEN), LINEAR(3)},
                                            2,
                                            6,
                                            5,
                                            3,
                                            4,
                                            CDDPI_LOSS_MSE,
                                            4e-3,
                                            1e-2,
                                            12});
}

static void batch_norm_and_relu_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {CONV(.units = 16, .kernel = 3), OP(BATCH_NORM), OP(RELU), CONV(.units = 20, .kernel = 2),
         OP(BATCH_NORM), OP(RELU), OP(GLOBAL_AVG_POOL), LINEAR(3)},
        2,
        6,
        5,
        3,
        4,
        CDDPI_LOSS_CROSS_ENTROPY,
        2e-4,
        2e-2,
        12});
}

static void batch_norm_of_the_data_and_of_features_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {OP(BATCH_NORM), OP(FLATTEN), LINEAR(11), OP(BATCH_NORM), LINEAR(3)},
        2,
        3,
        3,
        3,
        6,
        CDDPI_LOSS_MSE,
        4e-3,
        1e-2,
        12});
}

static void max_pool_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){{CONV(.units = 16, .kernel = 3), OP(MAX_POOL),
                                             WITH(MAX_POOL, .kernel = 3, .stride = 1, .padding = 1),
                                             OP(FLATTEN), LINEAR(3)},
                                            1,
                                            8,
                                            9,
                                            3,
                                            2,
                                            CDDPI_LOSS_MSE,
                                            2e-4,
                                            1e-2,
                                            12});
}

static void avg_pool_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){{CONV(.units = 5, .kernel = 3), OP(AVG_POOL),
                                             WITH(AVG_POOL, .kernel = 3, .stride = 2, .padding = 1),
                                             OP(FLATTEN), LINEAR(3)},
                                            1,
                                            8,
                                            9,
                                            3,
                                            2,
                                            CDDPI_LOSS_MSE,
                                            0.25,
                                            1e-3,
                                            12});
}

static void dropout_with_a_fixed_mask_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(
        &(struct gradient_case){{CONV(.units = 20, .kernel = 3), WITH(DROPOUT, .probability = 0.3),
                                 OP(FLATTEN), LINEAR(9), OP(DROPOUT), LINEAR(3)},
                                1,
                                6,
                                5,
                                3,
                                2,
                                CDDPI_LOSS_MSE,
                                0.25,
                                1e-3,
                                12});
}

/* The middle value goes into three ops: its gradient has three parts. */
static void a_value_used_thrice_has_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {CONV(.name = "a", .units = 16, .kernel = 3, .padding = 1),
         CONV(.name = "b", .units = 16, .kernel = 3, .padding = 1),
         WITH(ADD, .name = "c", .input2 = "a"), WITH(ADD, .name = "d", .input = "c", .input2 = "a"),
         WITH(ADD, .name = "e", .input = "d", .input2 = "d"), OP(GLOBAL_AVG_POOL), LINEAR(3)},
        2,
        5,
        4,
        3,
        2,
        CDDPI_LOSS_MSE,
        0.25,
        1e-3,
        12});
}

static void residual_blocks_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {CONV(.name = "a", .units = 16, .kernel = 3, .padding = 1), WITH(RELU, .name = "r"),
         CONV(.units = 16, .kernel = 3, .padding = 1), WITH(ADD, .input2 = "r"),
         WITH(RELU, .name = "s"), CONV(.name = "t", .units = 16, .kernel = 3, .padding = 1),
         CONV(.name = "u", .input = "s", .units = 16, .kernel = 1),
         WITH(ADD, .input = "t", .input2 = "u"), OP(RELU), OP(GLOBAL_AVG_POOL), LINEAR(3)},
        2,
        5,
        4,
        3,
        2,
        CDDPI_LOSS_CROSS_ENTROPY,
        2e-4,
        1e-2,
        13});
}

/* The data are plain, the convolution's output is blocked: the sum has to convert one. */
static void summands_in_different_layouts_have_the_gradient_of_differences(void **state)
{
    (void)state;
    check_gradients(&(struct gradient_case){
        {WITH(BATCH_NORM, .name = "n"), CONV(.name = "c", .units = 16, .kernel = 1),
         WITH(ADD, .name = "d", .input = "n", .input2 = "c"),
         WITH(ADD, .input = "c", .input2 = "d"), OP(RELU), OP(FLATTEN), LINEAR(3)},
        16,
        2,
        3,
        3,
        3,
        CDDPI_LOSS_MSE,
        2e-4,
        1e-2,
        12});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_has_the_gradient_of_differences),
        cmocka_unit_test(losses_of_real_targets_have_the_gradient_of_differences),
        cmocka_unit_test(real_targets_and_losses_must_fit),
        cmocka_unit_test(linear_without_bias_has_the_gradient_of_differences),
        cmocka_unit_test(linear_and_relu_have_the_gradient_of_differences),
        cmocka_unit_test(cross_entropy_has_the_gradient_of_differences),
        cmocka_unit_test(convolutions_have_the_gradient_of_differences),
        cmocka_unit_test(odd_convolutions_have_the_gradient_of_differences),
        cmocka_unit_test(convolution_and_relu_have_the_gradient_of_differences),
        cmocka_unit_test(batch_norm_has_the_gradient_of_differences),
        cmocka_unit_test(batch_norm_and_relu_have_the_gradient_of_differences),
        cmocka_unit_test(batch_norm_of_the_data_and_of_features_has_the_gradient_of_differences),
        cmocka_unit_test(max_pool_has_the_gradient_of_differences),
        cmocka_unit_test(avg_pool_has_the_gradient_of_differences),
        cmocka_unit_test(dropout_with_a_fixed_mask_has_the_gradient_of_differences),
        cmocka_unit_test(a_value_used_thrice_has_the_gradient_of_differences),
        cmocka_unit_test(residual_blocks_have_the_gradient_of_differences),
        cmocka_unit_test(summands_in_different_layouts_have_the_gradient_of_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
