/* test_cuda_elements.c - gelu, silu, relu, tanh, sigmoid, leaky relu, sums and dropout on the
 * device, against float64 and the CPU's kernels. */
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/transformer.h"
#include "support/cuda.h"

/* Less than a vector, whole ones, and more than a block has. */
static const size_t counts[] = {0, 1, 7, 8, 64, 1001, 8192, 20003};

static double gelu_of(double x, bool exact)
{
    double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

    /* 1 + tanh, without the difference of nearly equal numbers */
    return exact ? x * erfc(-x / sqrt(2)) / 2 : x / (1 + exp(-2 * inner));
}

static double gelu_slope(double x, bool exact)
{
    double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    double right = 1 / (1 + exp(-2 * inner));

    return exact
               ? erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI)
               : right + x * right * (1 - right) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static const enum cddpi_pointwise gelus[] = {CDDPI_POINTWISE_GELU, CDDPI_POINTWISE_GELU_EXACT};

static void gelu_and_its_gradient_are_those_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(counts) * 2; i++) {
        cddp_type type = cuda_types[i / 2 % COUNT_OF(cuda_types)];
        size_t count = counts[i / 2 / COUNT_OF(cuda_types)];
        bool exact = i % 2 == 1;
        enum cddpi_pointwise function = gelus[exact];
        struct numbers x = random_numbers(type, 1, count, 6, 0);
        struct numbers dy = random_numbers(type, 2, count, 1, 0);
        struct numbers y = no_numbers(type, count);
        struct numbers dx = no_numbers(type, count);
        double *expected = calloc(count + 1, sizeof *expected);
        double *slope = calloc(count + 1, sizeof *slope);

        cuda_ok(cuda->kernels->pointwise(cuda, type, function, 0, x.device, count, y.device));
        cuda_ok(cuda->kernels->pointwise_grad(cuda, type, function, 0, dy.device, x.device, count,
                                              dx.device));
        for (size_t e = 0; e < count; e++) {
            expected[e] = gelu_of((double)x.host[e], exact);
            slope[e] = (double)dy.host[e] * gelu_slope((double)x.host[e], exact);
        }
        /* the left tail is a power of up to 40, which float32 knows to 2e-6 */
        numbers_near(&y, expected, 4e-6, 0, "gelu");
        numbers_near(&dx, slope, 4e-6, 2e-7, "gelu_grad");
        free(expected);
        free(slope);
        numbers_free(&x);
        numbers_free(&dy);
        numbers_free(&y);
        numbers_free(&dx);
    }
}

static void gelu_far_from_zero_is_none_or_all(void **state)
{
    static const float far[] = {-1e30F, -100, -40, 40, 100, 1e30F, 0};
    struct numbers x, y;

    (void)state;
    NEEDS_CUDA();
    for (int exact = 0; exact < 2; exact++) {
        x = numbers_from(CDDP_F32, far, COUNT_OF(far));
        y = no_numbers(CDDP_F32, COUNT_OF(far));
        cuda_ok(cuda->kernels->pointwise(cuda, CDDP_F32, gelus[exact], 0, x.device, COUNT_OF(far),
                                         y.device));
        numbers_near(&y, (double[]){0, 0, 0, 40, 100, (double)1e30F, 0}, 1e-7, 1e-30, "gelu");
        cuda_ok(cuda->kernels->pointwise_grad(cuda, CDDP_F32, gelus[exact], 0, x.device, x.device,
                                              COUNT_OF(far), y.device));
        numbers_near(&y, (double[]){0, 0, 0, 40, 100, (double)1e30F, 0}, 1e-7, 1e-30, "gelu_grad");
        numbers_free(&x);
        numbers_free(&y);
    }
}

static void silu_and_its_gradient_are_those_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(counts); i++) {
        cddp_type type = cuda_types[i % COUNT_OF(cuda_types)];
        size_t count = counts[i / COUNT_OF(cuda_types)];
        struct numbers x = random_numbers(type, 1, count, 6, 0);
        struct numbers dy = random_numbers(type, 2, count, 1, 0);
        struct numbers y = no_numbers(type, count);
        struct numbers dx = no_numbers(type, count);
        double *expected = calloc(count + 1, sizeof *expected);
        double *slope = calloc(count + 1, sizeof *slope);

        cuda_ok(cuda->kernels->pointwise(cuda, type, CDDPI_POINTWISE_SILU, 0, x.device, count,
                                         y.device));
        cuda_ok(cuda->kernels->pointwise_grad(cuda, type, CDDPI_POINTWISE_SILU, 0, dy.device,
                                              x.device, count, dx.device));
        for (size_t e = 0; e < count; e++) {
            double at = (double)x.host[e];
            double right = 1 / (1 + exp(-at));

            expected[e] = at * right;
            slope[e] = (double)dy.host[e] * (right + at * right / (1 + exp(at)));
        }
        numbers_near(&y, expected, 4e-6, 0, "silu");
        numbers_near(&dx, slope, 4e-6, 2e-7, "silu_grad");
        free(expected);
        free(slope);
        numbers_free(&x);
        numbers_free(&dy);
        numbers_free(&y);
        numbers_free(&dx);
    }
}

static double function_of(enum cddpi_pointwise function, double x)
{
    return function == CDDPI_POINTWISE_TANH      ? tanh(x)
           : function == CDDPI_POINTWISE_SIGMOID ? 1 / (1 + exp(-x))
           : x > 0                               ? x
                                                 : 0.25 * x;
}

/* From the value, as the type holds it. */
static double slope_of(enum cddpi_pointwise function, double y)
{
    return function == CDDPI_POINTWISE_TANH      ? 1 - y * y
           : function == CDDPI_POINTWISE_SIGMOID ? y * (1 - y)
           : y > 0                               ? 1
                                                 : 0.25;
}

static void functions_known_from_their_values_are_those_of_float64(void **state)
{
    static const enum cddpi_pointwise known[] = {CDDPI_POINTWISE_TANH, CDDPI_POINTWISE_SIGMOID,
                                                 CDDPI_POINTWISE_LEAKY_RELU};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(counts) * 3; i++) {
        enum cddpi_pointwise function = known[i % 3];
        cddp_type type = cuda_types[i / 3 % COUNT_OF(cuda_types)];
        size_t count = counts[i / 3 / COUNT_OF(cuda_types)];
        struct numbers x = random_numbers(type, 1, count, 6, 0);
        struct numbers dy = random_numbers(type, 2, count, 1, 0);
        struct numbers y = no_numbers(type, count);
        double *expected = calloc(count + 1, sizeof *expected);

        cuda_ok(cuda->kernels->pointwise(cuda, type, function, 0.25F, x.device, count, y.device));
        for (size_t e = 0; e < count; e++) {
            expected[e] = function_of(function, (double)x.host[e]);
        }
        numbers_near(&y, expected, 4e-6, 0, "pointwise");
        for (size_t e = 0; e < count; e++) {
            expected[e] = (double)dy.host[e] * slope_of(function, (double)y.host[e]);
        }
        cuda_ok(cuda->kernels->pointwise_grad(cuda, type, function, 0.25F, dy.device, y.device,
                                              count, dy.device)); /* in place */
        numbers_near(&dy, expected, 4e-6, 2e-7, "pointwise_grad");
        free(expected);
        numbers_free(&x);
        numbers_free(&dy);
        numbers_free(&y);
    }
}

static void check_relu(cddp_type type, size_t count)
{
    struct numbers x = random_numbers(type, 1, count, 2, 0);
    struct numbers dy = random_numbers(type, 2, count, 1, 0);
    double *expected = calloc(count + 1, sizeof *expected);
    double *gradient = calloc(count + 1, sizeof *gradient);

    for (size_t e = 0; e < count; e++) {
        expected[e] = fmax((double)x.host[e], 0);
        gradient[e] = x.host[e] > 0 ? (double)dy.host[e] : 0;
    }
    cuda_ok(cuda->kernels->pointwise(cuda, type, CDDPI_POINTWISE_RELU, 0, x.device, count,
                                     x.device)); /* in place */
    numbers_near(&x, expected, 0, 0, "relu");
    cuda_ok(cuda->kernels->pointwise_grad(cuda, type, CDDPI_POINTWISE_RELU, 0, dy.device, x.device,
                                          count, dy.device));
    numbers_near(&dy, gradient, 0, 0, "relu_grad");
    free(expected);
    free(gradient);
    numbers_free(&x);
    numbers_free(&dy);
}

static void check_add(cddp_type type, size_t count, bool relu)
{
    struct numbers a = random_numbers(type, 1, count, 2, 0);
    struct numbers b = random_numbers(type, 2, count, 1, 0);
    struct numbers out = no_numbers(type, count);
    double *expected = calloc(count + 1, sizeof *expected);

    for (size_t e = 0; e < count; e++) {
        double sum = (double)(a.host[e] + b.host[e]);

        expected[e] = relu && sum < 0 ? 0 : sum;
    }
    cuda_ok(cuda->kernels->add(cuda, type, a.device, b.device, relu, count, out.device));
    numbers_near(&out, expected, 0, 0, "add");
    cuda_ok(cuda->kernels->add(cuda, type, a.device, b.device, relu, count, b.device));
    numbers_same(&out, &b);
    free(expected);
    numbers_free(&a);
    numbers_free(&b);
    numbers_free(&out);
}

static void relu_and_sums_are_exact_also_in_place(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(counts); i++) {
        cddp_type type = cuda_types[i % COUNT_OF(cuda_types)];
        size_t count = counts[i / COUNT_OF(cuda_types)];

        check_relu(type, count);
        check_add(type, count, false);
        check_add(type, count, true);
    }
}

static void relu_keeps_what_is_not_a_number(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        struct numbers x = no_numbers(cuda_types[t], 9);

        cuda_ok(cuda->kernels->pointwise(cuda, cuda_types[t], CDDPI_POINTWISE_RELU, 0, x.device, 9,
                                         x.device));
        numbers_fetch(&x);
        for (size_t e = 0; e < 9; e++) {
            assert_true(isnan(x.host[e]));
        }
        numbers_free(&x);
    }
}

static void a_bias_is_added_to_each_row(void **state)
{
    static const size_t shapes[][2] = {{1, 1}, {3, 5}, {100, 64}, {33, 136}, {700, 10}, {0, 8}};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(shapes) * 2; i++) {
        cddp_type type = cuda_types[i / 2 % COUNT_OF(cuda_types)];
        size_t rows = shapes[i / 2 / COUNT_OF(cuda_types)][0];
        size_t columns = shapes[i / 2 / COUNT_OF(cuda_types)][1];
        bool relu = i % 2 == 1;
        struct numbers x = random_numbers(type, 1, rows * columns, 2, 0);
        struct numbers bias = random_numbers(CDDP_F32, 2, columns, 1, 0);
        double *expected = calloc(rows * columns + 1, sizeof *expected);

        for (size_t e = 0; e < rows * columns; e++) {
            double sum = (double)(x.host[e] + bias.host[e % columns]);

            expected[e] = relu && sum < 0 ? 0 : sum;
        }
        cuda_ok(cuda->kernels->add_bias(cuda, type, x.device, bias.device, relu, rows, columns,
                                        x.device));
        numbers_near(&x, expected, 0, 0, "add_bias");
        free(expected);
        numbers_free(&x);
        numbers_free(&bias);
    }
}

/* The processor's bits, applied to what the type has of x. */
static void check_dropout(cddp_type type, size_t samples, size_t elements, float probability)
{
    struct numbers x = random_numbers(type, 1, samples * elements, 2, 0);
    struct numbers out = no_numbers(type, samples * elements);
    uint32_t *streams = malloc(samples * 4 * sizeof *streams);
    uint8_t *kept = malloc((elements + 7) / 8);
    double *expected = calloc(samples * elements + 1, sizeof *expected);
    uint32_t threshold = (uint32_t)((double)probability * 0x1p32);
    float scale = 1 / (1 - probability);
    void *device_streams;

    for (size_t s = 0; s < samples; s++) {
        const uint32_t stream[4] = {0x12345 + (uint32_t)s, 0xfedcba98U, CDDPI_RANDOM_DROPOUT, 7};

        memcpy(streams + 4 * s, stream, sizeof stream);
        cddpi_transformer_kernels()->dropout->draw(stream, threshold, kept, elements);
        for (size_t e = 0; e < elements; e++) {
            float value = x.host[s * elements + e] * scale;

            expected[s * elements + e] = (kept[e / 8] >> e % 8 & 1) != 0 ? (double)value : 0;
        }
    }
    device_streams = cuda_upload(streams, samples * 4 * sizeof *streams);
    cuda_ok(cuda->kernels->dropout(cuda, type, device_streams, threshold, scale, x.device, samples,
                                   elements, out.device));
    numbers_near(&out, expected, 0, 0, "dropout");
    cuda_ok(cuda->kernels->dropout(cuda, type, device_streams, threshold, scale, x.device, samples,
                                   elements, x.device));
    numbers_same(&out, &x);
    cuda_release(device_streams);
    free(streams);
    free(kept);
    free(expected);
    numbers_free(&x);
    numbers_free(&out);
}

static void dropout_keeps_what_the_processor_keeps(void **state)
{
    static const size_t shapes[][2] = {{1, 1},  {3, 5},    {2, 64},   {5, 1024},
                                       {7, 37}, {2, 3000}, {4, 1001}, {66000, 4}};

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            check_dropout(cuda_types[t], shapes[s][0], shapes[s][1], s % 2 == 0 ? 0.1F : 0.5F);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_and_its_gradient_are_those_of_float64),
        cmocka_unit_test(gelu_far_from_zero_is_none_or_all),
        cmocka_unit_test(silu_and_its_gradient_are_those_of_float64),
        cmocka_unit_test(functions_known_from_their_values_are_those_of_float64),
        cmocka_unit_test(relu_and_sums_are_exact_also_in_place),
        cmocka_unit_test(relu_keeps_what_is_not_a_number),
        cmocka_unit_test(a_bias_is_added_to_each_row),
        cmocka_unit_test(dropout_keeps_what_the_processor_keeps),
    };

    return RUN_ON_CUDA(tests);
}
