/* test_long_sums.c - every sum of many values against float64: with a million equal or nearly equal
 * numbers, of which a float32 sum in one chain would keep four digits. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/cpu_loss.h"
#include "kernels/cpu/cpu_optim.h"
#include "kernels/cpu/cpu_tokens.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/transformer.h"
#include "support/nn.h"

enum { MANY = 1000000 };

/* Near 0.94, as bright bytes are. */
static float number(size_t i)
{
    return (float)(225 + (i * 2654435761u >> 7) % 31) / 255;
}

static float *numbers_of(size_t count)
{
    float *x = malloc(count * sizeof *x);

    for (size_t i = 0; i < count; i++) {
        x[i] = number(i);
    }
    return x;
}

static void assert_sum(double got, double expected, const char *what, size_t index)
{
    if (!(fabs(got - expected) <= 1e-6 * fabs(expected))) {
        fail_msg("%s %zu is %.9g, right is %.9g: %.1e off", what, index, got, expected,
                 fabs(got / expected - 1));
    }
}

/* Of each column, where @p y (NULL: everywhere) is above zero; and what was there before. */
static void assert_column_sums(const float *sums, const float *x, const float *y, size_t rows,
                               size_t columns, const char *what)
{
    for (size_t c = 0; c < columns; c++) {
        double sum = 1;

        for (size_t r = 0; r < rows; r++) {
            size_t at = r * columns + c;

            sum += y == NULL || y[at] > 0 ? (double)x[at] : 0;
        }
        assert_sum((double)sums[c], sum, what, c);
    }
}

static void fill_with_ones(float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = 1;
    }
}

static void the_gradient_of_a_bias_is_the_sum_over_a_million_rows(void **state)
{
    static const size_t shapes[][2] = {{MANY, 3}, {100003, 21}, {1007, 2500}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        size_t rows = shapes[i][0];
        size_t columns = shapes[i][1];
        float *x = numbers_of(rows * columns);
        float *y = numbers_of(rows * columns);
        float *sums = malloc(columns * sizeof *sums);

        fill_with_ones(sums, columns);
        cddpi_nn_add_column_sums(x, sums, rows, columns);
        assert_column_sums(sums, x, NULL, rows, columns, "sum of column");
        for (size_t k = 0; k < rows * columns; k += 3) {
            y[k] = -1;
        }
        fill_with_ones(sums, columns);
        cddpi_nn_mask_column_sums(x, y, x, sums, rows, columns);
        assert_column_sums(sums, x, y, rows, columns, "sum of masked column");
        free(x);
        free(y);
        free(sums);
    }
}

static void so_it_is_where_the_gradient_becomes_bf16(void **state)
{
    enum { ROWS = 200000, COLUMNS = 40 };
    float *x = numbers_of((size_t)ROWS * COLUMNS);
    uint16_t *plain = malloc((size_t)ROWS * COLUMNS * sizeof *plain);
    double sums[2][COLUMNS] = {{0}, {0}};
    struct cddpi_bf16_forms forms = {.plain = plain, .sums = sums[0]};

    (void)state;
    cddpi_bf16_split(x, ROWS, COLUMNS, &forms);
    forms.sums = sums[1];
    cddpi_bf16_split_generic(x, ROWS, COLUMNS, &forms);
    for (size_t c = 0; c < COLUMNS; c++) {
        double sum = 0;

        for (size_t r = 0; r < ROWS; r++) {
            sum += (double)x[r * COLUMNS + c];
        }
        assert_sum(sums[0][c], sum, "sum of column", c);
        assert_sum(sums[1][c], sum, "plain C's sum of column", c);
    }
    free(plain);
    free(x);
}

static void the_mean_of_an_image_is_that_of_all_its_pixels(void **state)
{
    static const struct cddpi_nn_layout layouts[] = {
        {1, 2, MANY, 1}, {1, 16, 60000, 16}, {2, 20, 60001, 8}, {2, 20, 60001, 20}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        const struct cddpi_nn_layout *l = &layouts[i];
        size_t groups = (l->channels + l->block - 1) / l->block;
        float *x = numbers_of(l->samples * groups * l->spatial * l->block);
        float *mean = malloc(l->samples * l->channels * sizeof *mean);

        cddpi_nn_global_mean(x, l, mean);
        for (size_t k = 0; k < l->samples * l->channels; k++) {
            size_t c = k % l->channels;
            const float *from = x +
                                ((k / l->channels) * groups + c / l->block) * l->spatial *
                                    l->block +
                                c % l->block;
            double sum = 0;

            for (size_t s = 0; s < l->spatial; s++) {
                sum += (double)from[s * l->block];
            }
            assert_sum((double)mean[k], sum / (double)l->spatial, "mean", k);
        }
        free(x);
        free(mean);
    }
}

static void layer_norm_parameters_have_gradients_of_a_million_rows(void **state)
{
    enum { COLUMNS = 5 };
    float *x = numbers_of((size_t)MANY * COLUMNS);
    float *dy = numbers_of((size_t)MANY * COLUMNS);
    float *mean = malloc(MANY * sizeof *mean);
    float *inverse = malloc(MANY * sizeof *inverse);
    float weight[COLUMNS], bias[COLUMNS], grads[2][COLUMNS];
    double expected[2][COLUMNS], magnitude[COLUMNS] = {0};
    double scratch[CDDPI_LAYER_NORM_SCRATCH(COLUMNS)];
    const struct cddpi_layer_norm_kernels *kernels = cddpi_transformer_kernels()->layer_norm;
    float *y = malloc((size_t)MANY * COLUMNS * sizeof *y);

    (void)state;
    fill_with_ones(weight, COLUMNS);
    fill_with_ones(bias, COLUMNS);
    fill_with_ones(grads[0], 2 * COLUMNS);
    for (size_t c = 0; c < COLUMNS; c++) {
        expected[0][c] = expected[1][c] = 1;
    }
    kernels->forward(x, weight, bias, 1e-5f, MANY, COLUMNS, y, mean, inverse);
    kernels->backward(dy, x, weight, mean, inverse, MANY, COLUMNS, NULL, grads[0], grads[1],
                      scratch);
    for (size_t i = 0; i < (size_t)MANY * COLUMNS; i++) {
        double normal = ((double)x[i] - (double)mean[i / COLUMNS]) * (double)inverse[i / COLUMNS];

        expected[0][i % COLUMNS] += (double)dy[i] * normal;
        magnitude[i % COLUMNS] += fabs((double)dy[i] * normal);
        expected[1][i % COLUMNS] += (double)dy[i];
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        assert_sum((double)grads[1][c], expected[1][c], "gradient of bias", c);
        assert_true(fabs((double)grads[0][c] - expected[0][c]) <= 1e-6 * magnitude[c]);
    }
    free(x);
    free(dy);
    free(y);
    free(mean);
    free(inverse);
}

static void a_long_row_is_normalised_by_the_moments_of_all_of_it(void **state)
{
    float *x = numbers_of(MANY);
    float *weight = malloc(MANY * sizeof *weight);
    float *y = malloc(MANY * sizeof *y);
    double mean = 0;
    double squares = 0;
    float found[2];

    (void)state;
    fill_with_ones(weight, MANY);
    for (size_t i = 0; i < MANY; i++) {
        mean += (double)x[i] / MANY;
    }
    for (size_t i = 0; i < MANY; i++) {
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    cddpi_transformer_kernels()->layer_norm->forward(x, weight, weight, 1e-5f, 1, MANY, y,
                                                     &found[0], &found[1]);
    assert_sum((double)found[0], mean, "mean of row", 0);
    assert_sum((double)found[1], 1 / sqrt(squares / MANY + 1e-5), "1 / deviation of row", 0);
    free(x);
    free(weight);
    free(y);
}

static void a_norm_of_gradients_has_all_digits(void **state)
{
    float *x = numbers_of(MANY);
    struct cddpi_exact_sum found = {{0}};
    double sum = 0;

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    cddpi_optim_kernels()->add_squares(x, MANY, &found);
    assert_true(fabs(cddpi_exact_value(&found) / sum - 1) < 1e-10);
    free(x);
}

static void losses_of_a_hundred_thousand_rows_have_all_digits(void **state)
{
    enum { ROWS = 100000, COLUMNS = 7 };
    float *x = numbers_of((size_t)ROWS * COLUMNS);
    int32_t *label = calloc(ROWS, sizeof *label);
    double entropy = 0;
    double squares = 0;
    int correct = 0;

    (void)state;
    for (size_t r = 0; r < ROWS; r++) {
        const float *row = x + r * COLUMNS;
        double sum = 0;
        double square = 0;

        for (size_t c = 0; c < COLUMNS; c++) {
            double difference = (double)row[c] - (c == 0 ? 1 : 0);

            sum += exp((double)row[c]);
            square += difference * difference / COLUMNS;
        }
        entropy += log(sum) - (double)row[0];
        squares += square;
    }
    assert_sum(cddpi_nn_cross_entropy(x, label, ROWS, COLUMNS, NULL), entropy, "cross entropy", 0);
    assert_sum(cddpi_transformer_kernels()->softmax->forward(x, label, ROWS, COLUMNS, NULL, NULL,
                                                             &correct),
               entropy, "cross entropy of a vocabulary", 0);
    assert_sum(cddpi_nn_mse(x, label, ROWS, COLUMNS, NULL), squares, "square error", 0);
    free(x);
    free(label);
}

static void a_row_of_a_million_classes_has_their_sum(void **state)
{
    float *x = numbers_of(MANY);
    int32_t label = 5;
    int correct = 0;
    double sum = 0;
    double loss;

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        sum += exp((double)x[i]);
    }
    loss = cddpi_transformer_kernels()->softmax->forward(x, &label, 1, MANY, NULL, NULL, &correct);
    assert_sum(loss, log(sum) - (double)x[5], "cross entropy", 0);
    free(x);
}

static void a_token_that_occurs_often_has_the_sum_of_all_its_rows(void **state)
{
    enum { VOCAB = 4, COLUMNS = 20 };
    float *grad = numbers_of((size_t)MANY * COLUMNS);
    int32_t *tokens = malloc(MANY * sizeof *tokens);
    uint32_t *order = malloc((MANY + VOCAB + 1) * sizeof *order);
    float table[VOCAB * COLUMNS];
    double expected[VOCAB * COLUMNS];

    (void)state;
    fill_with_ones(table, VOCAB * COLUMNS);
    for (size_t i = 0; i < VOCAB * COLUMNS; i++) {
        expected[i] = 1;
    }
    for (size_t r = 0; r < MANY; r++) {
        tokens[r] = r % 11 == 3 ? 2 : r % 5 == 0 ? 3 : 0; /* 1 never */
        for (size_t c = 0; c < COLUMNS; c++) {
            expected[(size_t)tokens[r] * COLUMNS + c] += (double)grad[r * COLUMNS + c];
        }
    }
    cddpi_nn_add_rows(grad, tokens, MANY, VOCAB, COLUMNS, order, table);
    for (size_t i = 0; i < VOCAB * COLUMNS; i++) {
        assert_sum((double)table[i], expected[i], "element", i);
    }
    free(grad);
    free(tokens);
    free(order);
}

static const struct cddpi_layer one_channel[] = {
    {.type = CDDPI_LAYER_CONV2D, .name = "seen", .units = 16, .kernel = 3, .padding = 1},
    {.type = CDDPI_LAYER_GLOBAL_AVG_POOL},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 2}};
static const struct cddpi_layer many_channels[] = {
    {.type = CDDPI_LAYER_CONV2D, .units = 16, .kernel = 3, .padding = 1},
    {.type = CDDPI_LAYER_CONV2D, .name = "seen", .units = 20, .kernel = 1},
    {.type = CDDPI_LAYER_GLOBAL_AVG_POOL},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 2}};
static const struct cddpi_layer transposed[] = {
    {.type = CDDPI_LAYER_CONV_TRANSPOSE2D, .name = "seen", .units = 6, .kernel = 3, .padding = 1},
    {.type = CDDPI_LAYER_GLOBAL_AVG_POOL},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 2}};

static size_t param_named(const struct fixture *f, const char *name)
{
    for (size_t i = 0; i < f->param_count; i++) {
        if (strcmp(f->params[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("no parameter %s", name);
    return 0;
}

/* A convolution whose output is only averaged: the gradient of its bias is that of the linear layer
 * behind, times that layer's weight. */
static void compare_bias(const struct cddpi_layer *layers, size_t count, size_t channels,
                         bool accumulate)
{
    const struct cddpi_model_spec spec = {.layers = layers,
                                          .layer_count = (int)count,
                                          .channels = 1,
                                          .height = 224,
                                          .width = 224,
                                          .classes = 2};
    struct fixture f;
    const float *bias, *weight, *of_head;

    assert_true(fixture_init(&f, &spec, 1, NULL, 0, 24));
    for (int i = 0; i < f.batch.count; i++) {
        f.label[i] = 1;
    }
    if (accumulate) {
        assert_int_equal(fixture_step(&f, 0.5, false), CDDP_OK);
    }
    assert_int_equal(fixture_step(&f, 1, accumulate), CDDP_OK);
    bias = f.grads[param_named(&f, "seen.bias")];
    weight = f.params[param_named(&f, "head.weight")].data;
    of_head = f.grads[param_named(&f, "head.bias")];
    for (size_t c = 0; c < channels; c++) {
        double expected = (double)weight[c] * (double)of_head[0] +
                          (double)weight[channels + c] * (double)of_head[1];
        double scale = fabs((double)weight[c] * (double)of_head[0]) +
                       fabs((double)weight[channels + c] * (double)of_head[1]);

        if (!(fabs((double)bias[c] - expected) <= 1e-6 * scale)) {
            fail_msg("gradient of bias %zu is %.9g, right is %.9g: %.1e off", c, (double)bias[c],
                     expected, fabs((double)bias[c] - expected) / scale);
        }
    }
    fixture_fini(&f);
}

static void the_gradient_of_a_convolution_s_bias_is_the_sum_over_all_images(void **state)
{
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        compare_bias(one_channel, COUNT_OF(one_channel), 16, accumulate != 0);
        compare_bias(many_channels, COUNT_OF(many_channels), 20, accumulate != 0);
        compare_bias(transposed, COUNT_OF(transposed), 6, accumulate != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_of_a_bias_is_the_sum_over_a_million_rows),
        cmocka_unit_test(so_it_is_where_the_gradient_becomes_bf16),
        cmocka_unit_test(the_mean_of_an_image_is_that_of_all_its_pixels),
        cmocka_unit_test(layer_norm_parameters_have_gradients_of_a_million_rows),
        cmocka_unit_test(a_long_row_is_normalised_by_the_moments_of_all_of_it),
        cmocka_unit_test(a_norm_of_gradients_has_all_digits),
        cmocka_unit_test(losses_of_a_hundred_thousand_rows_have_all_digits),
        cmocka_unit_test(a_row_of_a_million_classes_has_their_sum),
        cmocka_unit_test(a_token_that_occurs_often_has_the_sum_of_all_its_rows),
        cmocka_unit_test(the_gradient_of_a_convolution_s_bias_is_the_sum_over_all_images),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
