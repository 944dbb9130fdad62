/* test_cuda_batch_norm.c - batch normalisation on the device, optionally with the sum before the
 * relu and with the relu, and its gradient, against float64. Also divided among ranks, of which one
 * has no samples. */
#include "support/cuda.h"

/* Channels around vectors of 4 and 8 and strips of 256, rows around what one block takes. */
static const struct {
    size_t rows;
    int channels;
} shapes[] = {{1, 1},   {2, 3},    {5, 4},    {7, 8},    {64, 16},  {33, 20}, {100, 64},
              {9, 256}, {40, 264}, {300, 37}, {2000, 8}, {1024, 6}, {3, 512}, {513, 48}};

struct norm {
    struct cddpi_cuda_norm shape;
    size_t count;
    bool has_sum, has_other;
    struct numbers x, sum, dy, other, weight, bias, running_mean, running_variance, mean, inverse;
    struct numbers y, dx, dsum, dweight, dbias;
};

static void norm_make(struct norm *n, cddp_type type, size_t rows, int channels, bool relu,
                      bool has_sum, float offset, float scale)
{
    size_t c = (size_t)channels;

    *n = (struct norm){.shape = {.type = type,
                                 .rows = rows,
                                 .channels = channels,
                                 .epsilon = 1e-5F,
                                 .momentum = 0.1F,
                                 .relu = relu},
                       .count = rows * c,
                       .has_sum = has_sum};
    n->x = random_numbers(type, 1, n->count, scale, offset);
    n->sum = random_numbers(type, 2, n->count, 1, 0);
    n->dy = random_numbers(type, 3, n->count, 1, 0.25F);
    n->other = random_numbers(type, 10, n->count, 1, 0.25F);
    n->weight = random_numbers(CDDP_F32, 4, c, 0.5F, 1);
    n->bias = random_numbers(CDDP_F32, 5, c, 0.5F, 0);
    n->running_mean = random_numbers(CDDP_F32, 6, c, 1, 0);
    n->running_variance = random_numbers(CDDP_F32, 7, c, 0.5F, 1);
    n->dweight = random_numbers(CDDP_F32, 8, c, 1, 0);
    n->dbias = random_numbers(CDDP_F32, 9, c, 1, 0);
    n->mean = no_numbers(CDDP_F32, c);
    n->inverse = no_numbers(CDDP_F32, c);
    n->y = no_numbers(type, n->count);
    n->dx = no_numbers(type, n->count);
    n->dsum = no_numbers(type, n->count);
}

static void norm_free(struct norm *n)
{
    struct numbers *all[] = {&n->other,
                             &n->x,
                             &n->sum,
                             &n->dy,
                             &n->weight,
                             &n->bias,
                             &n->running_mean,
                             &n->mean,
                             &n->inverse,
                             &n->running_variance,
                             &n->y,
                             &n->dx,
                             &n->dsum,
                             &n->dweight,
                             &n->dbias};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        numbers_free(all[i]);
    }
}

static cddp_status forward_whole(struct norm *n)
{
    return cuda->kernels->batch_norm(
        cuda, &n->shape, n->x.device, n->has_sum ? n->sum.device : NULL, n->weight.device,
        n->bias.device, n->running_mean.device, n->running_variance.device, n->mean.device,
        n->inverse.device, n->y.device);
}

static cddp_status backward_whole(struct norm *n, bool add)
{
    return cuda->kernels->batch_norm_grad(
        cuda, &n->shape, n->dy.device, n->has_other ? n->other.device : NULL, n->x.device,
        n->has_sum ? n->y.device : NULL, n->weight.device, n->bias.device, n->mean.device,
        n->inverse.device, add, n->dx.device, n->has_sum ? n->dsum.device : NULL, n->dweight.device,
        n->dbias.device);
}

/* --- in the parts of ranks, one after the other on this device --- */

enum { RANKS = 4 };
static bool by_ranks;

/* Rows of rank @p r; rank 1 has none. */
static size_t first_row(const struct norm *n, int r)
{
    static const size_t sevenths[RANKS + 1] = {0, 3, 3, 5, 7};

    return n->shape.rows * sevenths[r] / 7;
}

static struct cddpi_cuda_norm part_of(const struct norm *n, int r)
{
    struct cddpi_cuda_norm part = n->shape;

    part.rows = first_row(n, r + 1) - first_row(n, r);
    return part;
}

static void *rows_of(const struct norm *n, const struct numbers *all, int r)
{
    return (char *)all->device +
           first_row(n, r) * (size_t)n->shape.channels * cddp_type_bytes(all->type);
}

/* Memory for records of all ranks, and for how many rows there are; it holds garbage. */
static double *make_records(const struct norm *n)
{
    size_t bytes = (RANKS * (1 + 2 * (size_t)n->shape.channels) + 1) * sizeof(double);
    void *garbage = malloc(bytes);
    double *records;

    memset(garbage, 0xff, bytes);
    records = cuda_upload(garbage, bytes);
    free(garbage);
    return records;
}

static cddp_status forward_ranks(struct norm *n)
{
    size_t words = 1 + 2 * (size_t)n->shape.channels;
    double *records = make_records(n);
    cddp_status status = CDDP_OK;

    for (int r = 0; r < RANKS && status == CDDP_OK; r++) {
        struct cddpi_cuda_norm part = part_of(n, r);

        status = cuda->kernels->batch_norm_moments(cuda, &part, rows_of(n, &n->x, r),
                                                   records + (size_t)r * words);
    }
    if (status == CDDP_OK) {
        status = cuda->kernels->batch_norm_merge(
            cuda, &n->shape, records, RANKS, n->running_mean.device, n->running_variance.device,
            n->mean.device, n->inverse.device, records + RANKS * words);
    }
    for (int r = 0; r < RANKS && status == CDDP_OK; r++) {
        struct cddpi_cuda_norm part = part_of(n, r);

        status = cuda->kernels->batch_norm_apply(cuda, &part, rows_of(n, &n->x, r),
                                                 n->has_sum ? rows_of(n, &n->sum, r) : NULL,
                                                 n->weight.device, n->bias.device, n->mean.device,
                                                 n->inverse.device, rows_of(n, &n->y, r));
    }
    cuda_release(records);
    return status;
}

static cddp_status backward_ranks(struct norm *n, bool add)
{
    size_t words = 2 * (size_t)n->shape.channels;
    double rows = (double)n->shape.rows;
    double *sums = make_records(n);
    double *count = cuda_upload(&rows, sizeof rows);
    cddp_status status = CDDP_OK;

    for (int r = 0; r < RANKS && status == CDDP_OK; r++) {
        struct cddpi_cuda_norm part = part_of(n, r);

        status = cuda->kernels->batch_norm_grad_moments(
            cuda, &part, rows_of(n, &n->dy, r), rows_of(n, &n->x, r), rows_of(n, &n->y, r),
            n->mean.device, n->inverse.device, add || r > 0, 0.5, n->dweight.device,
            n->dbias.device, sums + (size_t)r * words);
    }
    for (int r = 0; r < RANKS && status == CDDP_OK; r++) {
        struct cddpi_cuda_norm part = part_of(n, r);

        status = cuda->kernels->batch_norm_grad_apply(
            cuda, &part, rows_of(n, &n->dy, r), rows_of(n, &n->x, r), rows_of(n, &n->y, r),
            n->weight.device, n->mean.device, n->inverse.device, sums, RANKS, count, 0.5,
            rows_of(n, &n->dx, r), n->has_sum ? rows_of(n, &n->dsum, r) : NULL);
    }
    cuda_release(sums);
    cuda_release(count);
    return status;
}

static cddp_status forward(struct norm *n)
{
    return by_ranks ? forward_ranks(n) : forward_whole(n);
}

static cddp_status backward(struct norm *n, bool add)
{
    return by_ranks ? backward_ranks(n, add) : backward_whole(n, add);
}

/* What a channel's statistics are. */
struct moments {
    double mean, variance;
};

static struct moments moments_of(const struct norm *n, size_t channel)
{
    size_t channels = (size_t)n->shape.channels;
    struct moments m = {0, 0};

    for (size_t r = 0; r < n->shape.rows; r++) {
        m.mean += (double)n->x.host[r * channels + channel] / (double)n->shape.rows;
    }
    for (size_t r = 0; r < n->shape.rows; r++) {
        double away = (double)n->x.host[r * channels + channel] - m.mean;

        m.variance += away * away / (double)n->shape.rows;
    }
    return m;
}

static double output_of(const struct norm *n, size_t i, double mean, double inverse)
{
    size_t channel = i % (size_t)n->shape.channels;
    double y = ((double)n->x.host[i] - mean) * inverse * (double)n->weight.host[channel] +
               (double)n->bias.host[channel] + (n->has_sum ? (double)n->sum.host[i] : 0);

    return n->shape.relu && y < 0 ? 0 : y;
}

static void check_forward(struct norm *n)
{
    size_t channels = (size_t)n->shape.channels;
    double unbiased = n->shape.rows > 1 ? (double)n->shape.rows / ((double)n->shape.rows - 1) : 1;
    double *mean = malloc(channels * sizeof *mean);
    double *inverse = malloc(channels * sizeof *inverse);
    double *running_mean = malloc(channels * sizeof *running_mean);
    double *running_variance = malloc(channels * sizeof *running_variance);
    double *y = malloc(n->count * sizeof *y);

    for (size_t c = 0; c < channels; c++) {
        struct moments m = moments_of(n, c);

        mean[c] = m.mean;
        inverse[c] = 1 / sqrt(m.variance + (double)n->shape.epsilon);
        running_mean[c] = 0.9 * (double)n->running_mean.host[c] + 0.1 * m.mean;
        running_variance[c] = 0.9 * (double)n->running_variance.host[c] +
                              0.1 * unbiased * m.variance;
    }
    for (size_t i = 0; i < n->count; i++) {
        y[i] = output_of(n, i, mean[i % channels], inverse[i % channels]);
    }
    cuda_ok(forward(n));
    numbers_near(&n->mean, mean, 1e-6, 1e-6, "the mean");
    numbers_near(&n->inverse, inverse, 2e-5, 0, "1 / deviation");
    numbers_near(&n->running_mean, running_mean, 1e-6, 1e-6, "the running mean");
    numbers_near(&n->running_variance, running_variance, 1e-5, 1e-6, "the running variance");
    numbers_near(&n->y, y, 3e-5, 3e-5, "batch_norm");
    free(mean);
    free(inverse);
    free(running_mean);
    free(running_variance);
    free(y);
}

/* From the outputs as they are there: which of them the relu let through is no matter of bounds. */
static void check_backward(struct norm *n, bool add)
{
    size_t channels = (size_t)n->shape.channels;
    double rows = (double)n->shape.rows;
    double *dx = malloc(n->count * sizeof *dx);
    double *dsum = malloc(n->count * sizeof *dsum);
    double *dweight = calloc(channels, sizeof *dweight);
    double *dbias = calloc(channels, sizeof *dbias);

    for (size_t i = 0; i < n->count; i++) {
        dsum[i] = n->shape.relu && !(n->y.host[i] > 0)
                      ? 0
                      : (double)n->dy.host[i] + (n->has_other ? (double)n->other.host[i] : 0);
    }
    cuda_ok(backward(n, add));
    if (n->has_sum) { /* where it is rounded once */
        numbers_near(&n->dsum, dsum, n->has_other ? 1e-7 : 0, 0, "the sum's gradient");
    }
    for (size_t i = 0; i < n->count; i++) {
        size_t c = i % channels;

        dsum[i] = n->has_sum ? (double)n->dsum.host[i] : dsum[i];
        dbias[c] += dsum[i];
        dweight[c] += dsum[i] * ((double)n->x.host[i] - (double)n->mean.host[c]) *
                      (double)n->inverse.host[c];
    }
    for (size_t i = 0; i < n->count; i++) {
        size_t c = i % channels;
        double inverse = (double)n->inverse.host[c];
        double normal = ((double)n->x.host[i] - (double)n->mean.host[c]) * inverse;

        dx[i] = (double)n->weight.host[c] * inverse *
                (dsum[i] - dbias[c] / rows - normal * dweight[c] / rows);
    }
    for (size_t c = 0; c < channels && add; c++) {
        dweight[c] += (double)n->dweight.host[c];
        dbias[c] += (double)n->dbias.host[c];
    }
    numbers_near(&n->dx, dx, 1e-5, 1e-5, "the gradient");
    numbers_near(&n->dweight, dweight, 1e-5, 2e-6 * rows + 1e-6, "the weight's gradient");
    numbers_near(&n->dbias, dbias, 1e-5, 1e-6 * rows + 1e-6, "the bias's gradient");
    free(dx);
    free(dsum);
    free(dweight);
    free(dbias);
}

static void batch_norm_and_its_gradient_are_those_of_the_formulas(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof cuda_types / sizeof cuda_types[0]; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            for (int way = 0; way < 8; way++) {
                struct norm n;

                norm_make(&n, cuda_types[t], shapes[s].rows, shapes[s].channels, way & 1, way & 2,
                          0.5F, 2);
                n.has_other = !by_ranks && (way & 4) != 0; /* ranks take one part */
                check_forward(&n);
                check_backward(&n, way == 0 || way == 3 || way == 5);
                norm_free(&n);
            }
        }
    }
}

/* Each test by ranks, too. */
static int set_by_ranks(void **state)
{
    (void)state;
    by_ranks = true;
    return 0;
}

static int set_whole(void **state)
{
    (void)state;
    by_ranks = false;
    return 0;
}

#define BY_RANKS(test)                                                                             \
    {                                                                                              \
        "by ranks: " #test, test, set_by_ranks, set_whole, NULL                                    \
    }

static void evaluation_takes_the_running_statistics(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof cuda_types / sizeof cuda_types[0]; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            struct norm n;
            double *y;

            norm_make(&n, cuda_types[t], shapes[s].rows, shapes[s].channels, s % 2 == 0, s % 3 == 0,
                      0.5F, 2);
            y = malloc(n.count * sizeof *y);
            for (size_t i = 0; i < n.count; i++) {
                size_t c = i % (size_t)n.shape.channels;
                double variance = (double)n.running_variance.host[c];

                y[i] = output_of(&n, i, (double)n.running_mean.host[c],
                                 1 / sqrt(variance + (double)n.shape.epsilon));
            }
            cuda_ok(cuda->kernels->batch_norm_eval(
                cuda, &n.shape, n.x.device, n.has_sum ? n.sum.device : NULL, n.weight.device,
                n.bias.device, n.running_mean.device, n.running_variance.device, n.y.device));
            numbers_near(&n.y, y, 3e-6, 3e-6, "batch_norm_eval");
            free(y);
            norm_free(&n);
        }
    }
}

/* E[x^2] - E[x]^2 in float32 would know nothing of it. */
static void a_small_variance_beside_a_large_mean_survives(void **state)
{
    struct norm n;

    (void)state;
    NEEDS_CUDA();
    norm_make(&n, CDDP_F32, 3000, 24, false, false, 100, 0.05F);
    cuda_ok(forward(&n));
    numbers_fetch(&n.inverse);
    for (size_t c = 0; c < 24; c++) {
        double expected = 1 / sqrt(moments_of(&n, c).variance + (double)n.shape.epsilon);

        assert_true(fabs((double)n.inverse.host[c] - expected) <= 1e-4 * expected);
    }
    norm_free(&n);
}

static void batch_norm_has_the_same_bits_in_every_run(void **state)
{
    struct norm a, b;

    (void)state;
    NEEDS_CUDA();
    norm_make(&a, CDDP_BF16, 3000, 40, true, true, 0, 1);
    norm_make(&b, CDDP_BF16, 3000, 40, true, true, 0, 1);
    cuda_ok(forward(&a));
    cuda_ok(backward(&a, false));
    cuda_ok(forward(&b));
    cuda_ok(backward(&b, false));
    numbers_same(&a.y, &b.y);
    numbers_same(&a.running_variance, &b.running_variance);
    numbers_same(&a.dx, &b.dx);
    numbers_same(&a.dsum, &b.dsum);
    numbers_same(&a.dweight, &b.dweight);
    numbers_same(&a.dbias, &b.dbias);
    norm_free(&a);
    norm_free(&b);
}

/* 528 pieces of 34 rows are more than 17429 rows: the last ones would begin behind the end. */
static void no_piece_begins_behind_the_last_row(void **state)
{
    struct norm n;

    (void)state;
    NEEDS_CUDA();
    norm_make(&n, CDDP_F32, 17429, 31, true, false, 0.5F, 2);
    check_forward(&n);
    check_backward(&n, false);
    norm_free(&n);
}

/* A step that overflows is skipped; what it left in the running statistics would stay for ever. */
static void a_nan_goes_through_the_relu_but_not_into_running_statistics(void **state)
{
    struct norm n;
    float *host;
    float before[2][4];

    (void)state;
    NEEDS_CUDA();
    norm_make(&n, CDDP_F32, 12, 4, true, false, 0, 1);
    host = malloc(n.count * sizeof *host);
    memcpy(host, n.x.host, n.count * sizeof *host);
    host[5] = NAN;      /* channel 1 */
    host[7] = INFINITY; /* channel 3 */
    numbers_free(&n.x);
    n.x = numbers_from(CDDP_F32, host, n.count);
    memcpy(before[0], n.running_mean.host, sizeof before[0]);
    memcpy(before[1], n.running_variance.host, sizeof before[1]);
    cuda_ok(forward(&n));
    numbers_fetch(&n.y);
    numbers_fetch(&n.running_mean);
    numbers_fetch(&n.running_variance);
    for (size_t i = 0; i < n.count; i++) {
        assert_int_equal(!!isnan(n.y.host[i]), i % 2 == 1);
    }
    for (size_t c = 0; c < 4; c++) {
        assert_true((n.running_mean.host[c] == before[0][c]) == (c % 2 == 1));
        assert_true((n.running_variance.host[c] == before[1][c]) == (c % 2 == 1));
    }
    free(host);
    norm_free(&n);
}

static void no_rows_give_no_gradient(void **state)
{
    const struct cddpi_cuda_norm shape = {.type = CDDP_F32, .rows = 0, .channels = 3};
    struct numbers dweight, dbias;
    double zeros[3] = {0, 0, 0};

    (void)state;
    NEEDS_CUDA();
    dweight = no_numbers(CDDP_F32, 3);
    dbias = no_numbers(CDDP_F32, 3);
    cuda_ok(cuda->kernels->batch_norm_grad(cuda, &shape, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                           NULL, false, NULL, NULL, dweight.device, dbias.device));
    numbers_near(&dweight, zeros, 0, 0, "the weight's gradient");
    numbers_near(&dbias, zeros, 0, 0, "the bias's gradient");
    numbers_free(&dweight);
    numbers_free(&dbias);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_and_its_gradient_are_those_of_the_formulas),
        cmocka_unit_test(evaluation_takes_the_running_statistics),
        cmocka_unit_test(a_small_variance_beside_a_large_mean_survives),
        cmocka_unit_test(batch_norm_has_the_same_bits_in_every_run),
        cmocka_unit_test(no_piece_begins_behind_the_last_row),
        cmocka_unit_test(a_nan_goes_through_the_relu_but_not_into_running_statistics),
        cmocka_unit_test(no_rows_give_no_gradient),
        BY_RANKS(batch_norm_and_its_gradient_are_those_of_the_formulas),
        BY_RANKS(a_small_variance_beside_a_large_mean_survives),
        BY_RANKS(batch_norm_has_the_same_bits_in_every_run),
        BY_RANKS(no_piece_begins_behind_the_last_row),
        BY_RANKS(a_nan_goes_through_the_relu_but_not_into_running_statistics),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
