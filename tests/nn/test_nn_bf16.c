/* test_nn_bf16.c - models with bf16 products, on this CPU and with fewer instruction sets. */
#include "kernels/cpu/bf16.h"
#include "support/nn.h"

/* In float64 from factors that bf16 holds, and from the factors as they are. */
struct reference {
    double *rounded, *exact;
};

static double as_bf16(double value)
{
    float number = (float)value;

    cddpi_nn_round_bf16(&number, &number, 1);
    return number;
}

/* c[i][j] = sum over l of a(i, l) b(l, j), where a step of i and l in memory is given. */
static struct reference product(const double *a, const size_t a_steps[2], const double *b,
                                const size_t b_steps[2], size_t m, size_t n, size_t k)
{
    struct reference c = {calloc(m * n, sizeof(double)), calloc(m * n, sizeof(double))};

    for (size_t i = 0; i < m; i++) {
        for (size_t l = 0; l < k; l++) {
            double left = a[i * a_steps[0] + l * a_steps[1]];
            double left_rounded = as_bf16(left);

            for (size_t j = 0; j < n; j++) {
                double right = b[l * b_steps[0] + j * b_steps[1]];

                c.exact[i * n + j] += left * right;
                c.rounded[i * n + j] += left_rounded * as_bf16(right);
            }
        }
    }
    return c;
}

static double *widened(const float *values, size_t count)
{
    double *wide = malloc(count * sizeof *wide);

    for (size_t i = 0; i < count; i++) {
        wide[i] = values[i];
    }
    return wide;
}

/* |made - expected| over |expected|, as vectors. */
static double distance(const float *made, const double *expected, size_t count)
{
    double difference = 0;
    double length = 0;

    for (size_t i = 0; i < count; i++) {
        difference += (made[i] - expected[i]) * (made[i] - expected[i]);
        length += expected[i] * expected[i];
    }
    return sqrt(difference / fmax(length, 1e-300));
}

/* What was made is the product of the rounded factors, and not that of the factors as they are:
 * from this it differs as bf16's 8 bits do. */
static void check_product(const char *what, const float *made, struct reference expected,
                          size_t count)
{
    double near = distance(made, expected.rounded, count);
    double far = distance(made, expected.exact, count);

    if (!(near < 1e-4) || !(far < 1.0 / 128) || (count > 100 && !(far > 5e-4))) {
        fail_msg("%s: %g from the rounded product, %g from the exact one", what, near, far);
    }
    free(expected.rounded);
    free(expected.exact);
}

/* Two linear layers and a square error. */
struct sizes {
    size_t rows, inputs, middle, classes;
};

static bool fixture_of(const struct sizes *sizes, enum cddpi_precision precision, struct fixture *f)
{
    const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_FLATTEN},
        {.type = CDDPI_LAYER_LINEAR, .units = (int)sizes->middle, .no_bias = true},
        {.type = CDDPI_LAYER_LINEAR, .units = (int)sizes->classes, .no_bias = true},
    };
    const struct cddpi_model_spec spec = {.layers = layers,
                                          .layer_count = COUNT_OF(layers),
                                          .loss = CDDPI_LOSS_MSE,
                                          .channels = (int)sizes->inputs,
                                          .height = 1,
                                          .width = 1,
                                          .classes = (int)sizes->classes,
                                          .precision = precision};

    return fixture_init(f, &spec, 1, NULL, 0, (int)sizes->rows);
}

/* The derivative of the loss by the model's outputs. */
static double *output_gradient(const struct fixture *f, const struct sizes *sizes)
{
    double *dy = widened(cddpi_model_outputs(f->model), sizes->rows * sizes->classes);

    for (size_t i = 0; i < sizes->rows * sizes->classes; i++) {
        bool is_label = (size_t)f->label[i / sizes->classes] == i % sizes->classes;

        dy[i] = (float)(2 * (dy[i] - is_label) / (double)sizes->classes);
    }
    return dy;
}

static void check_products(const struct sizes *sizes)
{
    size_t rows = sizes->rows;
    size_t inputs = sizes->inputs;
    size_t middle = sizes->middle;
    size_t classes = sizes->classes;
    struct cddpi_loss_result result;
    struct fixture f;
    double *x, *first, *second, *dy;
    struct reference h, dh;

    assert_true(fixture_of(sizes, CDDPI_PRECISION_BF16, &f));
    x = widened(f.input, rows * inputs);
    first = widened(f.params[0].data, middle * inputs);
    second = widened(f.params[1].data, classes * middle);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
    dy = output_gradient(&f, sizes);
    h = product(x, (size_t[]){inputs, 1}, first, (size_t[]){1, inputs}, rows, middle, inputs);
    check_product("forward", cddpi_model_outputs(f.model),
                  product(h.rounded, (size_t[]){middle, 1}, second, (size_t[]){1, middle}, rows,
                          classes, middle),
                  rows * classes);
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    check_product("gradient of the weight", f.grads[1],
                  product(dy, (size_t[]){1, classes}, h.rounded, (size_t[]){middle, 1}, classes,
                          middle, rows),
                  classes * middle);
    dh = product(dy, (size_t[]){classes, 1}, second, (size_t[]){middle, 1}, rows, middle, classes);
    check_product(
        "gradient by way of the input's", f.grads[0],
        product(dh.rounded, (size_t[]){1, middle}, x, (size_t[]){inputs, 1}, middle, inputs, rows),
        middle * inputs);
    free(h.rounded);
    free(h.exact);
    free(dh.rounded);
    free(dh.exact);
    free(x);
    free(first);
    free(second);
    free(dy);
    fixture_fini(&f);
}

static void products_are_those_of_factors_rounded_to_bf16(void **state)
{
    static const struct sizes all[] = {{64, 64, 64, 64},  {1, 1, 1, 1},     {7, 13, 257, 3},
                                       {33, 77, 100, 50}, {2, 200, 10, 10}, {128, 100, 64, 10},
                                       {1, 64, 65, 128},  {256, 3, 5, 2}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        check_products(&all[i]);
    }
}

static const int widths[] = {64, 48};

static struct cddpi_model_spec mlp(enum cddpi_precision precision)
{
    return (struct cddpi_model_spec){.preset = "mlp",
                                     .hidden = widths,
                                     .hidden_count = COUNT_OF(widths),
                                     .channels = 1,
                                     .height = 8,
                                     .width = 8,
                                     .classes = 5,
                                     .precision = precision};
}

/* A few steps of gradient descent over the same batch; out[i] is the loss before step i. */
static void train(enum cddpi_precision precision, double *out, int steps, struct fixture *f)
{
    const struct cddpi_model_spec spec = mlp(precision);

    assert_true(fixture_init(f, &spec, 3, NULL, 0, 60));
    for (int i = 0; i < steps; i++) {
        struct cddpi_loss_result result;

        assert_int_equal(cddpi_model_forward(f->model, &f->batch, true, &result), CDDP_OK);
        assert_int_equal(cddpi_model_backward(f->model, 1.0 / 60, false, NULL, NULL), CDDP_OK);
        out[i] = result.loss_sum / 60;
        for (size_t p = 0; p < f->param_count; p++) {
            float *values = f->params[p].data;

            for (size_t e = 0; e < cddpi_tensor_elements(&f->params[p]); e++) {
                values[e] -= 0.2f * ((const float *)f->grads[p])[e];
            }
        }
    }
}

static void training_in_bf16_follows_the_losses_of_f32(void **state)
{
    enum { STEPS = 80 };
    double losses[2][STEPS];
    struct fixture f[2];

    (void)state;
    train(CDDPI_PRECISION_F32, losses[0], STEPS, &f[0]);
    train(CDDPI_PRECISION_BF16, losses[1], STEPS, &f[1]);
    assert_true(losses[0][STEPS - 1] < losses[0][0] / 2);
    assert_false(losses[0][0] == losses[1][0]);
    for (int i = 0; i < STEPS; i++) {
        assert_true(fabs(losses[0][i] - losses[1][i]) < 0.03 * losses[0][i] + 0.002);
    }
    fixture_fini(&f[0]);
    fixture_fini(&f[1]);
}

static void training_in_bf16_gives_the_same_bits_twice(void **state)
{
    double losses[2][10];
    struct fixture f[2];

    (void)state;
    train(CDDPI_PRECISION_BF16, losses[0], 10, &f[0]);
    train(CDDPI_PRECISION_BF16, losses[1], 10, &f[1]);
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    for (size_t p = 0; p < f[0].param_count; p++) {
        assert_memory_equal(f[0].params[p].data, f[1].params[p].data,
                            cddpi_tensor_elements(&f[0].params[p]) * sizeof(float));
    }
    fixture_fini(&f[0]);
    fixture_fini(&f[1]);
}

/* With biases and relus, against a model of float32. */
static void gradients_in_bf16_are_near_those_of_f32(void **state)
{
    const struct cddpi_model_spec specs[] = {mlp(CDDPI_PRECISION_F32), mlp(CDDPI_PRECISION_BF16)};
    struct fixture f[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(fixture_init(&f[i], &specs[i], 2, NULL, 0, 50));
        assert_int_equal(fixture_step(&f[i], 1.0 / 50, false), CDDP_OK);
    }
    for (size_t p = 0; p < f[0].param_count; p++) {
        size_t count = cddpi_tensor_elements(&f[0].params[p]);
        double *expected = widened(f[0].grads[p], count);

        /* most of it from relus that open or close */
        assert_true(distance(f[1].grads[p], expected, count) < 0.1);
        free(expected);
    }
    fixture_fini(&f[0]);
    fixture_fini(&f[1]);
}

static void accumulated_gradients_in_bf16_are_sums(void **state)
{
    const struct cddpi_model_spec spec = mlp(CDDPI_PRECISION_BF16);
    float *once[6];
    struct fixture f;

    (void)state;
    assert_true(fixture_init(&f, &spec, 2, NULL, 0, 50));
    assert_int_equal(f.param_count, COUNT_OF(once));
    assert_int_equal(fixture_step(&f, 1.0, false), CDDP_OK);
    for (size_t p = 0; p < f.param_count; p++) {
        size_t bytes = cddpi_tensor_elements(&f.params[p]) * sizeof(float);

        once[p] = memcpy(malloc(bytes), f.grads[p], bytes);
    }
    assert_int_equal(fixture_step(&f, 2.0, true), CDDP_OK);
    for (size_t p = 0; p < f.param_count; p++) {
        size_t count = cddpi_tensor_elements(&f.params[p]);

        for (size_t e = 0; e < count; e++) {
            once[p][e] *= 3;
        }
        assert_true(relative_difference(once[p], f.grads[p], count) < 1e-5);
        free(once[p]);
    }
    fixture_fini(&f);
}

static void every_failing_allocation_of_a_bf16_model_is_an_error(void **state)
{
    const struct cddpi_model_spec spec = {.preset = "cnn",
                                          .channels = 1,
                                          .height = 16,
                                          .width = 16,
                                          .classes = 5,
                                          .precision = CDDPI_PRECISION_BF16};

    (void)state;
    assert_survives_want_of_memory(&spec, 50);
}

struct conv_case {
    struct cddpi_layer conv;
    int channels, side;
};

/* A convolution as the whole model: its outputs are the classes of a square error. */
static bool conv_fixture(const struct conv_case *c, enum cddpi_precision precision,
                         struct fixture *f)
{
    int out = (c->side + 2 * c->conv.padding - c->conv.kernel) / c->conv.stride + 1;
    const struct cddpi_layer layers[] = {c->conv, {.type = CDDPI_LAYER_FLATTEN}};
    const struct cddpi_model_spec spec = {.layers = layers,
                                          .layer_count = COUNT_OF(layers),
                                          .loss = CDDPI_LOSS_MSE,
                                          .channels = c->channels,
                                          .height = c->side,
                                          .width = c->side,
                                          .classes = c->conv.units * out * out,
                                          .precision = precision};

    return fixture_init(f, &spec, 1, NULL, 0, 6);
}

/* The outputs in training, copied; with factors that bf16 can hold if @p rounded. */
static double *conv_outputs(struct fixture *f, bool rounded, size_t *out_count)
{
    struct cddpi_loss_result result;

    if (rounded) {
        cddpi_nn_round_bf16(f->input, f->input, 6 * f->sample_elements);
        cddpi_nn_round_bf16(f->params[0].data, f->params[0].data,
                            cddpi_tensor_elements(&f->params[0]));
    }
    assert_int_equal(cddpi_model_forward(f->model, &f->batch, true, &result), CDDP_OK);
    *out_count = 6 * (size_t)f->model->classes;
    return widened(cddpi_model_outputs(f->model), *out_count);
}

static void check_conv(const struct conv_case *c)
{
    struct fixture exact, rounded, bf16;
    struct reference expected;
    size_t count;

    assert_true(conv_fixture(c, CDDPI_PRECISION_F32, &exact));
    assert_true(conv_fixture(c, CDDPI_PRECISION_F32, &rounded));
    assert_true(conv_fixture(c, CDDPI_PRECISION_BF16, &bf16));
    expected.exact = conv_outputs(&exact, false, &count);
    expected.rounded = conv_outputs(&rounded, true, &count);
    free(conv_outputs(&bf16, false, &count));
    check_product("convolution", cddpi_model_outputs(bf16.model), expected, count);
    assert_int_equal(cddpi_model_backward(exact.model, 1, false, NULL, NULL), CDDP_OK);
    assert_int_equal(cddpi_model_backward(bf16.model, 1, false, NULL, NULL), CDDP_OK);
    for (size_t p = 0; p < bf16.param_count; p++) {
        size_t elements = cddpi_tensor_elements(&exact.params[p]);
        double *grad = widened(exact.grads[p], elements);

        assert_true(distance(bf16.grads[p], grad, elements) < 1.0 / 64);
        free(grad);
    }
    fixture_fini(&exact);
    fixture_fini(&rounded);
    fixture_fini(&bf16);
}

static void convolutions_are_those_of_factors_rounded_to_bf16(void **state)
{
#define CONV(units_, kernel_, stride_, padding_)                                                   \
    {                                                                                              \
        .type = CDDPI_LAYER_CONV2D, .units = units_, .kernel = kernel_, .stride = stride_,         \
        .padding = padding_                                                                        \
    }
    static const struct conv_case all[] = {{CONV(16, 3, 1, 1), 1, 9},  {CONV(16, 3, 1, 1), 16, 8},
                                           {CONV(32, 3, 2, 1), 16, 8}, {CONV(24, 1, 1, 0), 32, 5},
                                           {CONV(5, 3, 1, 0), 20, 7},  {CONV(64, 5, 1, 2), 48, 6},
                                           {CONV(32, 1, 2, 0), 64, 7}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        check_conv(&all[i]);
    }
}

/* Deep ones, where gradients pass several convolutions, with strides and sums. What is rounded in
 * one layer opens and closes relus of twenty others: whatever multiplies, resnet20's first gradient
 * is some 0.28 off, but a lost part would be 1. */
static void gradients_of_presets_in_bf16_are_near_those_of_f32(void **state)
{
    static const char *const presets[] = {"cnn", "resnet20"};

    (void)state;
    for (size_t k = 0; k < COUNT_OF(presets); k++) {
        struct fixture f[2];

        for (int i = 0; i < 2; i++) {
            const struct cddpi_model_spec spec = {.preset = presets[k],
                                                  .channels = 3,
                                                  .height = 16,
                                                  .width = 16,
                                                  .classes = 5,
                                                  .precision = (enum cddpi_precision)i};

            assert_true(fixture_init(&f[i], &spec, 2, NULL, 0, 16));
            assert_int_equal(fixture_step(&f[i], 1.0 / 16, false), CDDP_OK);
            assert_int_equal(fixture_step(&f[i], 1.0 / 16, true), CDDP_OK);
        }
        for (size_t p = 0; p < f[0].param_count; p++) {
            size_t count = cddpi_tensor_elements(&f[0].params[p]);
            double *expected = widened(f[0].grads[p], count);
            double off = distance(f[1].grads[p], expected, count);

            if (!(off < 0.5)) {
                fail_msg("%s: the gradient of %s is %g off", presets[k], f[0].params[p].name, off);
            }
            free(expected);
        }
        fixture_fini(&f[0]);
        fixture_fini(&f[1]);
    }
}

static struct cddpi_model_spec gpt2(enum cddpi_precision precision)
{
    return (struct cddpi_model_spec){.preset = "gpt2",
                                     .blocks = 2,
                                     .heads = 2,
                                     .embed = 64,
                                     .context = 80,
                                     .vocab = 60,
                                     .classes = 60,
                                     .precision = precision};
}

/* Attention, gelu and a head that is tied to the table of tokens, twice for accumulation. */
static void gradients_of_gpt2_in_bf16_are_near_those_of_f32(void **state)
{
    struct fixture f[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct cddpi_model_spec spec = gpt2((enum cddpi_precision)i);

        assert_true(fixture_init(&f[i], &spec, 2, NULL, 0, 3));
        assert_int_equal(fixture_step(&f[i], 1.0 / 240, false), CDDP_OK);
        assert_int_equal(fixture_step(&f[i], 1.0 / 240, true), CDDP_OK);
    }
    for (size_t p = 0; p < f[0].param_count; p++) {
        size_t count = cddpi_tensor_elements(&f[0].params[p]);
        double *expected = widened(f[0].grads[p], count);
        double off = distance(f[1].grads[p], expected, count);

        if (!(off < 0.03)) {
            fail_msg("the gradient of %s is %g off", f[0].params[p].name, off);
        }
        free(expected);
    }
    assert_false(fixture_loss(&f[0]) == fixture_loss(&f[1]));
    fixture_fini(&f[0]);
    fixture_fini(&f[1]);
}

static void blocks_that_run_again_give_the_same_bits_in_bf16(void **state)
{
    struct fixture f[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cddpi_model_spec spec = gpt2(CDDPI_PRECISION_BF16);

        spec.recompute = i == 1;
        assert_true(fixture_init(&f[i], &spec, 2, NULL, 0, 3));
        assert_int_equal(fixture_step(&f[i], 1.0 / 240, false), CDDP_OK);
    }
    assert_true(cddpi_model_arena_bytes(f[1].model) < cddpi_model_arena_bytes(f[0].model));
    for (size_t p = 0; p < f[0].param_count; p++) {
        assert_memory_equal(f[0].grads[p], f[1].grads[p],
                            cddpi_tensor_elements(&f[0].params[p]) * sizeof(float));
    }
    fixture_fini(&f[0]);
    fixture_fini(&f[1]);
}

static const struct CMUnitTest model_tests[] = {
    cmocka_unit_test(products_are_those_of_factors_rounded_to_bf16),
    cmocka_unit_test(training_in_bf16_follows_the_losses_of_f32),
    cmocka_unit_test(training_in_bf16_gives_the_same_bits_twice),
    cmocka_unit_test(gradients_in_bf16_are_near_those_of_f32),
    cmocka_unit_test(accumulated_gradients_in_bf16_are_sums),
    cmocka_unit_test(every_failing_allocation_of_a_bf16_model_is_an_error),
    cmocka_unit_test(convolutions_are_those_of_factors_rounded_to_bf16),
    cmocka_unit_test(gradients_of_presets_in_bf16_are_near_those_of_f32),
    cmocka_unit_test(gradients_of_gpt2_in_bf16_are_near_those_of_f32),
    cmocka_unit_test(blocks_that_run_again_give_the_same_bits_in_bf16),
};

static enum cddpi_bf16 level_here(const char **out_note)
{
    const struct cddpi_model_spec spec = mlp(CDDPI_PRECISION_BF16);
    enum cddpi_bf16 level;
    struct fixture f;

    assert_true(fixture_init(&f, &spec, 2, NULL, 0, 50));
    level = f.model->bf16;
    *out_note = cddpi_model_precision_note(f.model);
    fixture_fini(&f);
    return level;
}

/* This program again, with less of the processor: oneDNN asks once in a process. */
static void check_processor(const char *isa, enum cddpi_bf16 most)
{
    enum cddpi_bf16 expected;
    const char *note;
    int status = -1;
    pid_t child;

    expected = level_here(&note);
    expected = expected < most ? expected : most;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char level[] = {(char)('0' + expected), '\0'};

        setenv("DNNL_MAX_CPU_ISA", isa, 1);
        execl("/proc/self/exe", "test_nn_bf16", level, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_processor_without_avx512_gives_the_same_products(void **state)
{
    (void)state;
    check_processor("AVX2", CDDPI_BF16_ROUNDED);
}

static void a_processor_without_bf16_gives_the_same_products(void **state)
{
    (void)state;
    check_processor("AVX512_CORE", CDDPI_BF16_ROUNDED);
}

static void a_processor_without_amx_gives_the_same_products(void **state)
{
    (void)state;
    check_processor("AVX512_CORE_BF16", CDDPI_BF16_PAIRS);
}

static void a_model_tells_why_bf16_is_not_faster(void **state)
{
    const struct cddpi_model_spec spec = mlp(CDDPI_PRECISION_F32);
    const char *note;
    struct fixture f;

    (void)state;
    switch (level_here(&note)) {
    case CDDPI_BF16_ROUNDED:
        assert_non_null(strstr(note, "multiplied as f32"));
        break;
    case CDDPI_BF16_PAIRS:
        assert_non_null(strstr(note, "without AMX"));
        break;
    case CDDPI_BF16_AMX:
        assert_null(note);
        break;
    }
    assert_true(fixture_init(&f, &spec, 2, NULL, 0, 50));
    assert_null(cddpi_model_precision_note(f.model));
    fixture_fini(&f);
}

static void the_table_of_a_model_tells_how_bf16_is_multiplied(void **state)
{
    static const char *const ways[] = {"rounded, multiplied as f32\n", "AVX512_BF16\n", "AMX\n"};
    const struct cddpi_model_spec specs[] = {mlp(CDDPI_PRECISION_F32), mlp(CDDPI_PRECISION_BF16)};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        char *table;
        const char *line;

        assert_true(fixture_init(&f, &specs[i], 2, NULL, 0, 50));
        table = cddpi_model_describe(f.model);
        assert_non_null(table);
        line = strstr(table, "products of bf16 factors: ");
        assert_int_equal(line != NULL, i == 1);
        if (line != NULL) {
            assert_string_equal(strchr(line, ':') + 2, ways[f.model->bf16]);
        }
        cddp_free(table);
        fixture_fini(&f);
    }
}

static char wanted_level;

static void oneDNN_offers_what_it_was_left_with(void **state)
{
    const char *note;

    (void)state;
    assert_int_equal(level_here(&note), wanted_level - '0');
}

/* With an argument: as a processor with less. */
int main(int argc, char **argv)
{
    const struct CMUnitTest less[] = {
        cmocka_unit_test(oneDNN_offers_what_it_was_left_with),
        cmocka_unit_test(a_model_tells_why_bf16_is_not_faster),
        cmocka_unit_test(the_table_of_a_model_tells_how_bf16_is_multiplied),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_tells_why_bf16_is_not_faster),
        cmocka_unit_test(the_table_of_a_model_tells_how_bf16_is_multiplied),
        cmocka_unit_test(a_processor_without_avx512_gives_the_same_products),
        cmocka_unit_test(a_processor_without_bf16_gives_the_same_products),
        cmocka_unit_test(a_processor_without_amx_gives_the_same_products),
    };
    int failed = 0;

    if (argc > 1) {
        wanted_level = argv[1][0];
        failed = cmocka_run_group_tests(less, NULL, NULL);
    } else {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + cmocka_run_group_tests(model_tests, NULL, NULL);
}
