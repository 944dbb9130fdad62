/* test_cuda_norm.c - layer norm and sums over rows on the device, against float64. */
#include "support/cuda.h"

struct shape {
    size_t rows, columns;
};

/* One row in a warp, in several, in a loop; widths that no vector divides; more rows than blocks.
 */
static const struct shape shapes[] = {{1, 1},    {5, 3},    {7, 8},     {3, 37},   {9, 64},
                                      {4, 100},  {10, 256}, {9, 768},   {5, 1024}, {3, 1600},
                                      {2, 3072}, {3, 5000}, {2300, 16}, {300, 20}};

/* What a row's normal distribution is made of. */
static void moments_of(const float *x, size_t columns, double epsilon, double *mean,
                       double *inverse)
{
    double sum = 0;
    double squares = 0;

    for (size_t c = 0; c < columns; c++) {
        sum += (double)x[c];
    }
    *mean = sum / (double)columns;
    for (size_t c = 0; c < columns; c++) {
        squares += ((double)x[c] - *mean) * ((double)x[c] - *mean);
    }
    *inverse = 1 / sqrt(squares / (double)columns + epsilon);
}

static void check_norm(const struct numbers *stored, const struct numbers *weight,
                       const struct numbers *bias, const struct shape *shape, struct numbers *out,
                       struct numbers *mean, struct numbers *inverse)
{
    double *expected = malloc(out->count * sizeof *expected);
    double *means = malloc(shape->rows * sizeof *means);
    double *inverses = malloc(shape->rows * sizeof *inverses);

    for (size_t r = 0; r < shape->rows; r++) {
        const float *row = stored->host + r * shape->columns;

        moments_of(row, shape->columns, 1e-5, &means[r], &inverses[r]);
        for (size_t c = 0; c < shape->columns; c++) {
            expected[r * shape->columns + c] = ((double)row[c] - means[r]) * inverses[r] *
                                                   (double)weight->host[c] +
                                               (double)bias->host[c];
        }
    }
    numbers_near(mean, means, 1e-6, 1e-6, "the mean");
    numbers_near(inverse, inverses, 1e-5, 0, "1 / deviation");
    /* the mean of numbers about 3 is known to 2e-7, which a deviation of 0.6 makes 4e-7 */
    numbers_near(out, expected, 2e-6, 3e-6, "layer_norm");
    free(expected);
    free(means);
    free(inverses);
}

static void norm_once(cddp_type type, const struct shape *shape, bool residual, bool keep,
                      const struct numbers *input, struct numbers *out)
{
    size_t count = shape->rows * shape->columns;
    struct numbers weight = random_numbers(CDDP_F32, 3, shape->columns, 0.5F, 1);
    struct numbers bias = random_numbers(CDDP_F32, 4, shape->columns, 1, 0);
    struct numbers mean = no_numbers(CDDP_F32, shape->rows);
    struct numbers inverse = no_numbers(CDDP_F32, shape->rows);
    struct numbers sum = no_numbers(type, count);
    double *sums = malloc(count * sizeof *sums);

    *out = no_numbers(type, count);
    cuda_ok(cuda->kernels->layer_norm(cuda, type, input[0].device,
                                      residual ? input[1].device : NULL, weight.device, bias.device,
                                      1e-5F, shape->rows, shape->columns, keep ? sum.device : NULL,
                                      out->device, mean.device, inverse.device));
    for (size_t i = 0; i < count; i++) {
        sums[i] = (double)input[0].host[i] + (residual ? (double)input[1].host[i] : 0);
    }
    if (keep) {
        numbers_near(&sum, sums, 1e-7, 0, "the sum");
        check_norm(&sum, &weight, &bias, shape, out, &mean, &inverse);
    } else if (!residual) {
        check_norm(&input[0], &weight, &bias, shape, out, &mean, &inverse);
    }
    numbers_free(&weight);
    numbers_free(&bias);
    numbers_free(&mean);
    numbers_free(&inverse);
    numbers_free(&sum);
    free(sums);
}

static void layer_norm_is_that_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            size_t count = shapes[s].rows * shapes[s].columns;
            struct numbers input[2] = {random_numbers(cuda_types[t], 1, count, 1, 3),
                                       random_numbers(cuda_types[t], 2, count, 1, 0)};
            struct numbers out;

            norm_once(cuda_types[t], &shapes[s], false, false, input, &out);
            numbers_free(&out);
            norm_once(cuda_types[t], &shapes[s], true, true, input, &out);
            numbers_free(&out);
            numbers_free(&input[0]);
            numbers_free(&input[1]);
        }
    }
}

static void layer_norm_is_the_same_whether_the_sum_is_kept(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s += 3) {
            size_t count = shapes[s].rows * shapes[s].columns;
            struct numbers input[2] = {random_numbers(cuda_types[t], 1, count, 1, 3),
                                       random_numbers(cuda_types[t], 2, count, 1, 0)};
            struct numbers kept, lost;

            norm_once(cuda_types[t], &shapes[s], true, true, input, &kept);
            norm_once(cuda_types[t], &shapes[s], true, false, input, &lost);
            numbers_same(&kept, &lost);
            numbers_free(&kept);
            numbers_free(&lost);
            numbers_free(&input[0]);
            numbers_free(&input[1]);
        }
    }
}

/* A row of equal numbers, far from zero: its deviation is none, and no rounding makes it one. */
static void layer_norm_of_a_constant_row_is_the_bias(void **state)
{
    static const size_t widths[] = {24, 768, 5000};

    (void)state;
    NEEDS_CUDA();
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        struct numbers x = random_numbers(CDDP_F32, 1, widths[w], 0, 12345.678F);
        struct numbers weight = random_numbers(CDDP_F32, 3, widths[w], 1, 0);
        struct numbers bias = random_numbers(CDDP_F32, 4, widths[w], 1, 0);
        struct numbers out = no_numbers(CDDP_F32, widths[w]);
        double *expected = malloc(widths[w] * sizeof *expected);

        cuda_ok(cuda->kernels->layer_norm(cuda, CDDP_F32, x.device, NULL, weight.device,
                                          bias.device, 1e-5F, 1, widths[w], NULL, out.device, NULL,
                                          NULL));
        for (size_t c = 0; c < widths[w]; c++) {
            expected[c] = (double)bias.host[c];
        }
        /* the mean may be off by a bit of 12345: 0.001 of 1 / sqrt(epsilon) = 316 */
        numbers_near(&out, expected, 0, 0.35, "layer_norm of a constant");
        free(expected);
        numbers_free(&x);
        numbers_free(&weight);
        numbers_free(&bias);
        numbers_free(&out);
    }
}

struct gradients {
    struct numbers dx, dweight, dbias;
};

static void gradients_free(struct gradients *g)
{
    numbers_free(&g->dx);
    numbers_free(&g->dweight);
    numbers_free(&g->dbias);
}

/* dy, x, other; weight; mean and inverse of x's rows. */
struct grad_input {
    struct numbers dy, x, other, weight, mean, inverse;
};

static struct grad_input grad_input_of(cddp_type type, const struct shape *shape)
{
    size_t count = shape->rows * shape->columns;
    float *means = malloc(shape->rows * sizeof *means);
    float *inverses = malloc(shape->rows * sizeof *inverses);
    struct grad_input in = {.dy = random_numbers(type, 1, count, 1, 0.1F),
                            .x = random_numbers(type, 2, count, 2, 1),
                            .other = random_numbers(type, 3, count, 1, 0),
                            .weight = random_numbers(CDDP_F32, 4, shape->columns, 0.5F, 1)};

    for (size_t r = 0; r < shape->rows; r++) {
        double mean, inverse;

        moments_of(in.x.host + r * shape->columns, shape->columns, 1e-5, &mean, &inverse);
        means[r] = (float)mean;
        inverses[r] = (float)inverse;
    }
    in.mean = numbers_from(CDDP_F32, means, shape->rows);
    in.inverse = numbers_from(CDDP_F32, inverses, shape->rows);
    free(means);
    free(inverses);
    return in;
}

static void grad_input_free(struct grad_input *in)
{
    numbers_free(&in->dy);
    numbers_free(&in->x);
    numbers_free(&in->other);
    numbers_free(&in->weight);
    numbers_free(&in->mean);
    numbers_free(&in->inverse);
}

static struct gradients grad_once(const struct grad_input *in, const struct shape *shape,
                                  bool other, bool add)
{
    void *scratch = cuda_alloc(
        cuda->kernels->layer_norm_scratch(cuda, shape->rows, shape->columns));
    struct gradients g = {no_numbers(in->x.type, in->x.count),
                          random_numbers(CDDP_F32, 5, shape->columns, 1, 0),
                          random_numbers(CDDP_F32, 6, shape->columns, 1, 0)};

    cuda_ok(cuda->kernels->layer_norm_grad(
        cuda, in->x.type, in->dy.device, in->x.device, in->weight.device, in->mean.device,
        in->inverse.device, shape->rows, shape->columns, other ? in->other.device : NULL, add,
        g.dx.device, g.dweight.device, g.dbias.device, scratch));
    cuda_ok(cuda->ops->finish(cuda, 60000));
    cuda_release(scratch);
    return g;
}

static void check_grad(const struct grad_input *in, const struct shape *shape, bool other, bool add,
                       struct gradients *g)
{
    size_t columns = shape->columns;
    double *dx = malloc(in->x.count * sizeof *dx);
    double *dweight = calloc(columns, sizeof *dweight);
    double *dbias = calloc(columns, sizeof *dbias);

    for (size_t c = 0; c < columns && add; c++) {
        dweight[c] = (double)g->dweight.host[c];
        dbias[c] = (double)g->dbias.host[c];
    }
    for (size_t r = 0; r < shape->rows; r++) {
        double inverse = (double)in->inverse.host[r];
        double g_mean = 0;
        double product_mean = 0;

        for (int pass = 0; pass < 2; pass++) {
            for (size_t c = 0; c < columns; c++) {
                size_t at = r * columns + c;
                double normal = ((double)in->x.host[at] - (double)in->mean.host[r]) * inverse;
                double dy = (double)in->dy.host[at];
                double gradient = dy * (double)in->weight.host[c];

                if (pass == 0) {
                    g_mean += gradient / (double)columns;
                    product_mean += gradient * normal / (double)columns;
                    dweight[c] += dy * normal;
                    dbias[c] += dy;
                } else {
                    dx[at] = (gradient - g_mean - normal * product_mean) * inverse +
                             (other ? (double)in->other.host[at] : 0);
                }
            }
        }
    }
    /* one column: 1 / sqrt(epsilon) = 316 times what is left of nothing */
    numbers_near(&g->dx, dx, 2e-6, columns == 1 ? 3e-4 : 3e-6, "dx of layer_norm");
    numbers_near(&g->dweight, dweight, 1e-6, 1e-6 * sqrt((double)shape->rows), "dweight");
    numbers_near(&g->dbias, dbias, 1e-6, 1e-6 * sqrt((double)shape->rows), "dbias");
    free(dx);
    free(dweight);
    free(dbias);
}

static void layer_norm_has_the_gradients_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            struct grad_input in = grad_input_of(cuda_types[t], &shapes[s]);

            for (int variant = 0; variant < 2; variant++) {
                struct gradients g = grad_once(&in, &shapes[s], variant == 0, variant == 1);

                check_grad(&in, &shapes[s], variant == 0, variant == 1, &g);
                gradients_free(&g);
            }
            grad_input_free(&in);
        }
    }
}

/* Blocks run in another order each time. */
static void gradients_of_layer_norm_are_the_same_bits_in_every_run(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        struct grad_input in = grad_input_of(CDDP_F32, &shapes[s]);
        struct gradients first = grad_once(&in, &shapes[s], true, false);

        for (int run = 0; run < 3; run++) {
            struct gradients g = grad_once(&in, &shapes[s], true, false);

            numbers_same(&g.dx, &first.dx);
            numbers_same(&g.dweight, &first.dweight);
            numbers_same(&g.dbias, &first.dbias);
            gradients_free(&g);
        }
        gradients_free(&first);
        grad_input_free(&in);
    }
}

/* The same, and more rows than the blocks' threads take at once. */
static const struct shape sums_shapes[] = {{1, 1},     {5, 3},     {7, 8},    {4, 100},
                                           {9, 768},   {2300, 16}, {300, 20}, {36000, 3},
                                           {36000, 8}, {70, 2500}};

static struct numbers sums_once(const struct numbers *x, const struct shape *shape, bool add)
{
    void *scratch = cuda_alloc(cuda->kernels->sums_scratch(cuda, shape->rows, shape->columns));
    struct numbers sums = random_numbers(CDDP_F32, 9, shape->columns, 1, 0);

    cuda_ok(cuda->kernels->column_sums(cuda, x->type, x->device, shape->rows, shape->columns, add,
                                       sums.device, scratch));
    cuda_ok(cuda->ops->finish(cuda, 60000));
    cuda_release(scratch);
    return sums;
}

static void column_sums_are_those_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(sums_shapes) * 2; i++) {
        cddp_type type = cuda_types[i / 2 % COUNT_OF(cuda_types)];
        const struct shape *shape = &sums_shapes[i / 2 / COUNT_OF(cuda_types)];
        bool add = i % 2 == 1;
        struct numbers x = random_numbers(type, 1, shape->rows * shape->columns, 1, 0.1F);
        struct numbers sums = sums_once(&x, shape, add);
        struct numbers again = sums_once(&x, shape, add);
        double *expected = calloc(shape->columns, sizeof *expected);

        for (size_t c = 0; c < shape->columns; c++) {
            expected[c] = add ? (double)sums.host[c] : 0;
            for (size_t r = 0; r < shape->rows; r++) {
                expected[c] += (double)x.host[r * shape->columns + c];
            }
        }
        numbers_same(&sums, &again);
        numbers_near(&sums, expected, 1e-6, 1e-6 * sqrt((double)shape->rows), "column_sums");
        free(expected);
        numbers_free(&x);
        numbers_free(&sums);
        numbers_free(&again);
    }
}

static void no_rows_have_no_gradient(void **state)
{
    struct shape none = {0, 40};
    struct shape one = {1, 40};
    struct grad_input in;
    struct gradients g;
    double zeros[40] = {0};

    (void)state;
    NEEDS_CUDA();
    in = grad_input_of(CDDP_F32, &one);
    g = grad_once(&in, &none, false, false);
    numbers_near(&g.dweight, zeros, 0, 0, "dweight of no rows");
    numbers_near(&g.dbias, zeros, 0, 0, "dbias of no rows");
    gradients_free(&g);
    grad_input_free(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norm_is_that_of_float64),
        cmocka_unit_test(layer_norm_is_the_same_whether_the_sum_is_kept),
        cmocka_unit_test(layer_norm_of_a_constant_row_is_the_bias),
        cmocka_unit_test(layer_norm_has_the_gradients_of_float64),
        cmocka_unit_test(gradients_of_layer_norm_are_the_same_bits_in_every_run),
        cmocka_unit_test(column_sums_are_those_of_float64),
        cmocka_unit_test(no_rows_have_no_gradient),
    };

    return RUN_ON_CUDA(tests);
}
