/* test_cuda_loss.c - losses on the device against float64: values, gradients that overwrite the
 * logits, and which rows count as correct. */
#include "kernels/cpu/cpu_loss.h"
#include "support/cuda.h"

struct shape {
    size_t rows, columns;
};

/* Classes; vocabularies that start and end in the middle of a vector; rows that registers hold,
 * with shared memory, and not even that. */
static const struct shape shapes[] = {{1, 1},     {3, 2},     {9, 10},    {40, 1000},
                                      {5, 2047},  {3, 2049},  {3, 5001},  {2, 16384},
                                      {3, 33333}, {2, 50257}, {1, 50304}, {1, 70001}};

struct loss {
    double sum, correct;
};

typedef cddp_status (*loss_fn)(struct cddpi_device *device, cddp_type type, void *logits,
                               const int32_t *labels, size_t rows, size_t columns, bool grads,
                               float scale, const float *device_scale,
                               struct cddpi_loss_totals *out, void *scratch);

/* Sums that have begun: 2^80 would take all bits of a sum that is rounded. */
static struct cddpi_loss_totals begun_totals(void)
{
    struct cddpi_loss_totals totals = {.correct = 7};

    cddpi_exact_add(&totals.losses, 0x1p80);
    return totals;
}

/* What was added to begun_totals() on the device. */
static struct loss fetch_totals(void *device_totals)
{
    struct cddpi_loss_totals *out = cuda_download(device_totals, sizeof *out);
    struct loss loss;

    cddpi_exact_add(&out->losses, -0x1p80);
    loss = (struct loss){cddpi_exact_value(&out->losses), (double)(out->correct - 7)};
    free(out);
    return loss;
}

/* With a loss scale of 8, and sums that have begun. */
static struct loss run(loss_fn function, struct numbers *logits, const int32_t *labels,
                       const struct shape *shape, bool grads, float scale)
{
    static const float eight = 8;
    struct cddpi_loss_totals begun = begun_totals();
    void *device_labels = cuda_upload(labels, shape->rows * sizeof *labels);
    void *device_scale = cuda_upload(&eight, sizeof eight);
    void *totals = cuda_upload(&begun, sizeof begun);
    void *scratch = cuda_alloc(cuda->kernels->loss_scratch(shape->rows));
    struct loss loss;

    cuda_ok(function(cuda, logits->type, logits->device, device_labels, shape->rows, shape->columns,
                     grads, scale, device_scale, totals, scratch));
    loss = fetch_totals(totals);
    cuda_release(device_labels);
    cuda_release(device_scale);
    cuda_release(totals);
    cuda_release(scratch);
    return loss;
}

/* Every third label is the largest element, if there is one. */
static int32_t *labels_of(const struct numbers *logits, const struct shape *shape)
{
    int32_t *labels = malloc(shape->rows * sizeof *labels);

    for (size_t r = 0; r < shape->rows; r++) {
        const float *row = logits->host + r * shape->columns;

        labels[r] = (int32_t)((r * 7919 + 13) % shape->columns);
        for (size_t c = 0; c < shape->columns && r % 3 == 0; c++) {
            labels[r] = row[c] > row[labels[r]] ? (int32_t)c : labels[r];
        }
    }
    return labels;
}

static double expect_entropy(const struct numbers *logits, const int32_t *labels,
                             const struct shape *shape, double scale, double *gradient)
{
    double loss = 0;

    for (size_t r = 0; r < shape->rows; r++) {
        const float *row = logits->host + r * shape->columns;
        double *to = gradient + r * shape->columns;
        double most = -INFINITY;
        double sum = 0;

        for (size_t c = 0; c < shape->columns; c++) {
            most = fmax(most, (double)row[c]);
        }
        for (size_t c = 0; c < shape->columns; c++) {
            to[c] = exp((double)row[c] - most);
            sum += to[c];
        }
        for (size_t c = 0; c < shape->columns; c++) {
            to[c] = scale * (to[c] / sum - (c == (size_t)labels[r] ? 1 : 0));
        }
        loss += log(sum) - ((double)row[labels[r]] - most);
    }
    return loss;
}

static double expect_squares(const struct numbers *logits, const int32_t *labels,
                             const struct shape *shape, double scale, double *gradient)
{
    double loss = 0;

    for (size_t i = 0; i < logits->count; i++) {
        double target = i % shape->columns == (size_t)labels[i / shape->columns] ? 1 : 0;
        double difference = (double)logits->host[i] - target;

        loss += difference * difference / (double)shape->columns;
        gradient[i] = 2 * scale * difference / (double)shape->columns;
    }
    return loss;
}

static double expect_binary(const struct numbers *logits, const int32_t *labels,
                            const struct shape *shape, double scale, double *gradient)
{
    double loss = 0;

    for (size_t i = 0; i < logits->count; i++) {
        double x = (double)logits->host[i];
        int32_t label = labels[i / shape->columns];
        double target = shape->columns == 1 ? label : i % shape->columns == (size_t)label ? 1 : 0;

        loss += (fmax(x, 0) + log1p(exp(-fabs(x))) - target * x) / (double)shape->columns;
        gradient[i] = scale * (1 / (1 + exp(-x)) - target) / (double)shape->columns;
    }
    return loss;
}

typedef double (*expect_fn)(const struct numbers *logits, const int32_t *labels,
                            const struct shape *shape, double scale, double *gradient);

/* Without gradients, then with them; twice, for the bits. */
static void check(loss_fn function, expect_fn expect, cddp_type type, const struct shape *shape,
                  float spread)
{
    bool signs = expect == expect_binary && shape->columns == 1;
    size_t count = shape->rows * shape->columns;
    struct numbers logits = random_numbers(type, 1, count, spread, 0.5F);
    struct numbers again = random_numbers(type, 1, count, spread, 0.5F);
    struct numbers untouched = random_numbers(type, 1, count, spread, 0.5F);
    int32_t *labels = labels_of(&logits, shape);
    double *gradient = malloc(count * sizeof *gradient);
    float scale = 1 / (float)shape->rows;
    double expected;
    int correct;
    struct loss loss, second;

    for (size_t r = 0; r < shape->rows && signs; r++) {
        labels[r] = r % 3 == 1 ? 1 : 0;
    }
    expected = expect(&logits, labels, shape, 8 * (double)scale, gradient);
    correct = signs ? cddpi_nn_count_correct_signs(logits.host, labels, shape->rows)
                    : cddpi_nn_count_correct(logits.host, labels, shape->rows, shape->columns);
    loss = run(function, &logits, labels, shape, false, scale);

    numbers_same(&logits, &untouched);
    assert_true(fabs(loss.sum - expected) <= 2e-6 * fabs(expected) + 1e-6 * (double)shape->rows);
    assert_true(loss.correct == correct);
    second = run(function, &logits, labels, shape, true, scale);
    assert_true(fabs(second.sum - loss.sum) < 1e-12 && second.correct == loss.correct);
    second = run(function, &again, labels, shape, true, scale);
    assert_true(fabs(second.sum - loss.sum) < 1e-12 && second.correct == loss.correct);
    numbers_same(&logits, &again);
    /* a logit of 30 is known to 2e-6, and so is its power */
    numbers_near(&logits, gradient, 1e-6 + 3e-7 * (double)spread, 3e-7 * 8 * (double)scale,
                 expect == expect_entropy  ? "cross_entropy"
                 : expect == expect_binary ? "binary_cross_entropy"
                                           : "squared_error");
    free(labels);
    free(gradient);
    numbers_free(&logits);
    numbers_free(&again);
    numbers_free(&untouched);
}

static void cross_entropy_is_that_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            check(cuda->kernels->cross_entropy, expect_entropy, cuda_types[t], &shapes[s],
                  s % 2 == 0 ? 3 : 30);
        }
    }
}

static void squared_error_is_that_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < 6; s++) {
            check(cuda->kernels->squared_error, expect_squares, cuda_types[t], &shapes[s], 2);
        }
    }
}

static void binary_cross_entropy_is_that_of_float64(void **state)
{
    static const struct shape of_one[] = {{1, 1}, {7, 1}, {300, 1}};

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(of_one); s++) {
            check(cuda->kernels->binary_cross_entropy, expect_binary, cuda_types[t], &of_one[s], 9);
        }
        for (size_t s = 1; s < 6; s++) {
            check(cuda->kernels->binary_cross_entropy, expect_binary, cuda_types[t], &shapes[s], 2);
        }
    }
}

/* What real_error computes on the device, and the loss and gradient of the CPU's kernel, which the
 * device's must be near. */
static double run_real(struct numbers *outputs, const float *targets, const struct shape *shape,
                       bool absolute, bool grads, float scale)
{
    static const float eight = 8;
    struct cddpi_loss_totals begun = begun_totals();
    void *device_targets = cuda_upload(targets, outputs->count * sizeof *targets);
    void *device_scale = cuda_upload(&eight, sizeof eight);
    void *totals = cuda_upload(&begun, sizeof begun);
    void *scratch = cuda_alloc(cuda->kernels->loss_scratch(shape->rows));
    struct loss loss;

    cuda_ok(cuda->kernels->real_error(cuda, outputs->type, outputs->device, device_targets,
                                      absolute, shape->rows, shape->columns, grads, scale,
                                      device_scale, totals, scratch));
    loss = fetch_totals(totals);
    assert_true(loss.correct == 0);
    cuda_release(device_targets);
    cuda_release(device_scale);
    cuda_release(totals);
    cuda_release(scratch);
    return loss.sum;
}

static void check_real(cddp_type type, const struct shape *shape, bool absolute)
{
    size_t count = shape->rows * shape->columns;
    struct numbers outputs = random_numbers(type, 1, count, 5, 0.5F);
    struct numbers untouched = random_numbers(type, 1, count, 5, 0.5F);
    float *targets = malloc(count * sizeof *targets);
    float *derivative = malloc(count * sizeof *derivative);
    double *gradient = malloc(count * sizeof *gradient);
    float scale = 1 / (float)shape->rows;
    double expected;
    double found;

    for (size_t i = 0; i < count; i++) {
        targets[i] = i % 5 == 0 ? outputs.host[i] : (float)((double)(i * 7919 % 1000) / 100 - 5);
    }
    expected = (absolute ? cddpi_nn_absolute_error : cddpi_nn_squared_error)(
        outputs.host, targets, shape->rows, shape->columns, derivative);
    for (size_t i = 0; i < count; i++) {
        gradient[i] = 8 * (double)scale * (double)derivative[i];
    }
    found = run_real(&outputs, targets, shape, absolute, false, scale);
    numbers_same(&outputs, &untouched);
    assert_true(fabs(found - expected) <= 1e-9 * fabs(expected));
    found = run_real(&outputs, targets, shape, absolute, true, scale);
    assert_true(fabs(found - expected) <= 1e-9 * fabs(expected));
    numbers_near(&outputs, gradient, 1e-6, 3e-7 * 8 * (double)scale, "real_error");
    free(targets);
    free(derivative);
    free(gradient);
    numbers_free(&outputs);
    numbers_free(&untouched);
}

static void errors_of_real_targets_are_the_processors(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < 6; s++) {
            check_real(cuda_types[t], &shapes[s], false);
            check_real(cuda_types[t], &shapes[s], true);
        }
    }
}

static void the_gradient_of_an_error_that_is_not_finite_is_not_either(void **state)
{
    static const float bad[] = {-INFINITY, INFINITY, NAN};
    const struct shape shape = {1, 10};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < 2 * COUNT_OF(bad); i++) {
        float host[10] = {0};
        float targets[10] = {0};
        struct numbers outputs;

        host[4] = bad[i / 2];
        outputs = numbers_from(CDDP_F16, host, shape.columns);
        assert_false(isfinite(run_real(&outputs, targets, &shape, i % 2 == 0, true, 1)));
        numbers_fetch(&outputs);
        assert_false(isfinite(outputs.host[4]));
        assert_true(outputs.host[3] == 0);
        numbers_free(&outputs);
    }
}

/* Where the largest element comes twice, the first one is the answer. */
static void the_first_of_equals_is_the_answer(void **state)
{
    static const size_t widths[] = {10, 3000, 50257};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(widths) * 2; i++) {
        struct shape shape = {2, widths[i / 2]};
        loss_fn function = i % 2 == 0 ? cuda->kernels->cross_entropy : cuda->kernels->squared_error;
        float *host = calloc(2 * shape.columns, sizeof *host);
        int32_t labels[2] = {4, (int32_t)shape.columns - 2};
        struct numbers logits;

        for (size_t r = 0; r < 2; r++) {
            host[r * shape.columns + 4] = 2;
            host[r * shape.columns + shape.columns - 2] = 2;
        }
        logits = numbers_from(CDDP_BF16, host, 2 * shape.columns);
        assert_true(run(function, &logits, labels, &shape, false, 1).correct == 1);
        free(host);
        numbers_free(&logits);
    }
}

static void a_row_with_a_nan_is_not_correct_and_its_loss_is_a_nan(void **state)
{
    static const size_t widths[] = {10, 50257};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(widths) * 2; i++) {
        struct shape shape = {1, widths[i / 2]};
        loss_fn function = i % 2 == 0 ? cuda->kernels->cross_entropy : cuda->kernels->squared_error;
        float *host = calloc(shape.columns, sizeof *host);
        int32_t label = 4;
        struct numbers logits;
        struct loss loss;

        host[4] = 2;
        host[7] = NAN;
        logits = numbers_from(CDDP_F32, host, shape.columns);
        loss = run(function, &logits, &label, &shape, false, 1);
        assert_true(isnan(loss.sum) && loss.correct == 0);
        free(host);
        numbers_free(&logits);
    }
}

/* Otherwise the other ranks would not see that a step overflowed: losses are not reduced. */
static void the_gradient_of_a_loss_that_is_not_finite_is_not_either(void **state)
{
    static const size_t widths[] = {10, 50257};
    static const float bad[] = {-INFINITY, INFINITY, NAN};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(widths) * 3 * COUNT_OF(bad); i++) {
        struct shape shape = {1, widths[i % 2]};
        const loss_fn functions[] = {cuda->kernels->cross_entropy, cuda->kernels->squared_error,
                                     cuda->kernels->binary_cross_entropy};
        loss_fn function = functions[i / 2 % 3];
        float *host = calloc(shape.columns, sizeof *host);
        int32_t label = 4;
        struct numbers logits;

        host[4] = bad[i / 6];
        logits = numbers_from(CDDP_F16, host, shape.columns);
        assert_false(isfinite(run(function, &logits, &label, &shape, true, 1).sum));
        numbers_fetch(&logits);
        assert_false(isfinite(logits.host[4]));
        free(host);
        numbers_free(&logits);
    }
}

/* As a mask makes them; whole vectors of a thread have nothing else. */
static void logits_of_minus_infinity_have_no_part(void **state)
{
    struct shape shape = {1, 40000};
    float *host = malloc(shape.columns * sizeof *host);
    double *gradient = calloc(shape.columns, sizeof *gradient);
    int32_t label = 123;
    struct numbers logits;

    (void)state;
    for (size_t c = 0; c < shape.columns; c++) {
        host[c] = c == 123 || c == 39999 ? 1 : -INFINITY;
    }
    if (cuda != NULL) {
        logits = numbers_from(CDDP_BF16, host, shape.columns);
        assert_true(fabs(run(cuda->kernels->cross_entropy, &logits, &label, &shape, true, 1).sum -
                         log(2)) < 1e-6);
        gradient[123] = -4;
        gradient[39999] = 4;
        numbers_near(&logits, gradient, 1e-6, 0, "cross_entropy");
        numbers_free(&logits);
    }
    free(host);
    free(gradient);
    NEEDS_CUDA();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_is_that_of_float64),
        cmocka_unit_test(squared_error_is_that_of_float64),
        cmocka_unit_test(binary_cross_entropy_is_that_of_float64),
        cmocka_unit_test(errors_of_real_targets_are_the_processors),
        cmocka_unit_test(the_gradient_of_an_error_that_is_not_finite_is_not_either),
        cmocka_unit_test(the_first_of_equals_is_the_answer),
        cmocka_unit_test(a_row_with_a_nan_is_not_correct_and_its_loss_is_a_nan),
        cmocka_unit_test(the_gradient_of_a_loss_that_is_not_finite_is_not_either),
        cmocka_unit_test(logits_of_minus_infinity_have_no_part),
    };

    return RUN_ON_CUDA(tests);
}
