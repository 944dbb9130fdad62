/* test_nn_bf16.c - operands and products of bf16, and models that are trained with them. */
#include "kernels/cpu/nn_bf16.h"
#include "kernels/cpu/reduce.h"
#include "nn_support.h"

static float *made_up(size_t count, uint32_t stream)
{
    float *values = malloc((count + 1) * sizeof *values);

    for (size_t i = 0; i < count; i++) {
        values[i] = test_number(stream, i);
    }
    return values;
}

/* Forms of a matrix, with a number behind each that must stay. */
struct forms {
    struct cddpi_bf16_forms to;
    size_t counts[3];
};

static struct forms make_forms(size_t rows, size_t columns)
{
    struct forms forms = {
        .counts = {rows * columns, cddpi_bf16_packed_count(rows, columns), rows * columns}};
    uint16_t **places[] = {&forms.to.plain, &forms.to.packed, &forms.to.transposed};

    for (int i = 0; i < 3; i++) {
        *places[i] = malloc((forms.counts[i] + 1) * sizeof **places[i]);
        memset(*places[i], 0x55, (forms.counts[i] + 1) * sizeof **places[i]);
    }
    return forms;
}

static void free_forms(struct forms *forms)
{
    free(forms->to.plain);
    free(forms->to.packed);
    free(forms->to.transposed);
}

static const size_t shapes[][2] = {{1, 1},   {32, 16}, {32, 64}, {33, 65},
                                   {7, 200}, {200, 7}, {96, 48}, {70, 130}};

static void plain_and_transposed_forms_hold_what_a_cast_gives(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        float *x = made_up(rows * columns, 1);
        uint16_t *cast = malloc(rows * columns * sizeof *cast);
        struct forms forms = make_forms(rows, columns);

        cddpi_cast(cast, CDDP_BF16, x, CDDP_F32, rows * columns);
        cddpi_bf16_split(x, rows, columns, &forms.to);
        assert_memory_equal(forms.to.plain, cast, rows * columns * sizeof *cast);
        for (size_t i = 0; i < rows * columns; i++) {
            assert_int_equal(forms.to.transposed[i % columns * rows + i / columns], cast[i]);
        }
        assert_int_equal(forms.to.plain[rows * columns], 0x5555);
        assert_int_equal(forms.to.transposed[rows * columns], 0x5555);
        free_forms(&forms);
        free(cast);
        free(x);
    }
}

static void packed_form_holds_pairs_of_rows_in_blocks_filled_with_zeros(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        size_t blocks = (rows + 31) / 32;
        float *x = made_up(rows * columns, 2);
        struct forms forms = make_forms(rows, columns);

        cddpi_bf16_split(x, rows, columns, &forms.to);
        for (size_t i = 0; i < forms.counts[1]; i++) {
            size_t block = i / 2048;
            size_t row = block % blocks * 32 + i % 2048 / 128 * 2 + i % 2;
            size_t column = block / blocks * 64 + i % 128 / 2;
            bool inside = row < rows && column < columns;

            assert_int_equal(forms.to.packed[i],
                             inside ? forms.to.plain[row * columns + column] : 0);
        }
        assert_int_equal(forms.to.packed[forms.counts[1]], 0x5555);
        free_forms(&forms);
        free(x);
    }
}

static void packing_the_transpose_is_packing_what_was_transposed(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0];
        size_t columns = shapes[s][1];
        float *x = made_up(rows * columns, 3);
        float *turned = malloc(rows * columns * sizeof *turned);
        struct forms direct = make_forms(columns, rows);
        struct forms expected = make_forms(columns, rows);

        for (size_t i = 0; i < rows * columns; i++) {
            turned[i % columns * rows + i / columns] = x[i];
        }
        cddpi_bf16_split(turned, columns, rows, &expected.to);
        cddpi_bf16_pack_transposed(x, rows, columns, direct.to.packed);
        assert_memory_equal(direct.to.packed, expected.to.packed,
                            (direct.counts[1] + 1) * sizeof(uint16_t));
        free_forms(&direct);
        free_forms(&expected);
        free(turned);
        free(x);
    }
}

/* Numbers that round up, down, to even, to infinity, and those that are none. */
static void fill_with_edges(float *x, size_t count)
{
    static const uint32_t edges[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
                                     0xff7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0xffffffff,
                                     0x00000001, 0x80008000, 0x00000000, 0x80000000};

    for (size_t i = 0; i < count; i++) {
        memcpy(&x[i], &edges[i % COUNT_OF(edges)], sizeof x[i]);
    }
}

static void every_instruction_set_makes_the_same_forms_of_every_number(void **state)
{
    enum { ROWS = 64, COLUMNS = 96 };
    float x[ROWS * COLUMNS];
    struct forms here = make_forms(ROWS, COLUMNS);
    struct forms generic = make_forms(ROWS, COLUMNS);
    uint16_t *packed[] = {malloc(2 * ROWS * 128), malloc(2 * ROWS * 128)};

    (void)state;
    fill_with_edges(x, ROWS * COLUMNS);
    cddpi_bf16_split(x, ROWS, COLUMNS, &here.to);
    cddpi_bf16_split_generic(x, ROWS, COLUMNS, &generic.to);
    assert_memory_equal(here.to.plain, generic.to.plain, 2 * generic.counts[0]);
    assert_memory_equal(here.to.packed, generic.to.packed, 2 * generic.counts[1]);
    assert_memory_equal(here.to.transposed, generic.to.transposed, 2 * generic.counts[2]);
    cddpi_bf16_pack_transposed(x, ROWS, COLUMNS, packed[0]);
    cddpi_bf16_pack_transposed_generic(x, ROWS, COLUMNS, packed[1]);
    assert_memory_equal(packed[0], packed[1], 2 * cddpi_bf16_packed_count(COLUMNS, ROWS));
    free_forms(&here);
    free_forms(&generic);
    free(packed[0]);
    free(packed[1]);
}

static void rounding_gives_what_bf16_can_hold(void **state)
{
    float x[100];
    float out[100];
    uint16_t half[100];
    float back[100];

    (void)state;
    fill_with_edges(x, COUNT_OF(x));
    cddpi_nn_round_bf16(x, out, COUNT_OF(x));
    cddpi_cast(half, CDDP_BF16, x, CDDP_F32, COUNT_OF(x));
    cddpi_cast(back, CDDP_F32, half, CDDP_BF16, COUNT_OF(x));
    assert_memory_equal(out, back, sizeof out);
}

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
    struct cddpi_result result;
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
        struct cddpi_result result;

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
    const struct cddpi_model_spec spec = mlp(CDDPI_PRECISION_BF16);
    unsigned nth = 0;
    cddp_status status;

    (void)state;
    do {
        struct cddpi_model *model = NULL;

        cddpi_alloc_fail_nth(++nth);
        status = cddpi_model_create(&spec, 1, NULL, &model);
        if (status == CDDP_OK) {
            status = cddpi_model_prepare(model, 2, true);
        }
        cddpi_alloc_fail_nth(0);
        cddpi_model_destroy(model);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    } while (status != CDDP_OK && nth < 1000);
    assert_int_equal(status, CDDP_OK);
}

static const struct CMUnitTest model_tests[] = {
    cmocka_unit_test(products_are_those_of_factors_rounded_to_bf16),
    cmocka_unit_test(training_in_bf16_follows_the_losses_of_f32),
    cmocka_unit_test(training_in_bf16_gives_the_same_bits_twice),
    cmocka_unit_test(gradients_in_bf16_are_near_those_of_f32),
    cmocka_unit_test(accumulated_gradients_in_bf16_are_sums),
    cmocka_unit_test(every_failing_allocation_of_a_bf16_model_is_an_error),
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
    case CDDPI_BF16_TILES:
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
        cmocka_unit_test(plain_and_transposed_forms_hold_what_a_cast_gives),
        cmocka_unit_test(packed_form_holds_pairs_of_rows_in_blocks_filled_with_zeros),
        cmocka_unit_test(packing_the_transpose_is_packing_what_was_transposed),
        cmocka_unit_test(every_instruction_set_makes_the_same_forms_of_every_number),
        cmocka_unit_test(rounding_gives_what_bf16_can_hold),
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
