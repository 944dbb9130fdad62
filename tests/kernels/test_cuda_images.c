/* test_cuda_images.c - pools and transposes of images, channels last, on the device. */
#include "support/cuda.h"
#include "support/failure.h"

/* count, channels, height, width, kernel, stride, padding */
static const struct cddpi_cuda_pool pools[] = {
    {CDDP_F32, 2, 3, 5, 7, 2, 2, 0, false},
    {CDDP_F32, 2, 8, 9, 8, 3, 2, 1, false},
    {CDDP_F32, 1, 16, 6, 6, 3, 1, 1, false},
    {CDDP_F32, 3, 1, 4, 4, 4, 4, 0, false},
    {CDDP_F32, 1, 40, 11, 5, 5, 2, 2, false},
    {CDDP_F32, 1, 8, 9, 9, 2, 3, 0, false},
    {CDDP_F32, 2, 12, 3, 17, 1, 1, 0, false},
    {CDDP_F32, 1, 24, 4, 4, 3, 3, 2, false},
    /* 3 / 2 and 2 / 2 have kernels of their own for whole vectors; the last are large windows */
    {CDDP_F32, 2, 8, 7, 6, 2, 2, 1, false},
    {CDDP_F32, 1, 16, 5, 8, 2, 2, 0, false},
    {CDDP_F32, 3, 24, 6, 10, 3, 2, 0, false},
    {CDDP_F32, 2, 8, 1, 1, 3, 2, 1, false},
    {CDDP_F32, 2, 16, 1, 7, 3, 2, 1, false},
    {CDDP_F32, 1, 8, 17, 16, 16, 1, 1, false},
    {CDDP_F32, 1, 8, 19, 18, 17, 1, 8, false},
};

static int out_side(const struct cddpi_cuda_pool *p, int side)
{
    return (side + 2 * p->padding - p->kernel) / p->stride + 1;
}

static size_t at(const struct cddpi_cuda_pool *p, int height, int width, int n, int h, int w, int c)
{
    return (((size_t)n * (size_t)height + (size_t)h) * (size_t)width + (size_t)w) *
               (size_t)p->channels +
           (size_t)c;
}

/* One window: its value, and with @p dx (in which @p gradient is spread) its winner or shares. */
static double pool_window(const struct cddpi_cuda_pool *p, const float *x, int n, int row,
                          int column, int c, double gradient, double *dx)
{
    double sum = 0;
    double most = -INFINITY;
    size_t winner = 0;

    for (int i = 0; i < p->kernel * p->kernel; i++) {
        int h = row * p->stride - p->padding + i / p->kernel;
        int w = column * p->stride - p->padding + i % p->kernel;

        if (h >= 0 && h < p->height && w >= 0 && w < p->width) {
            size_t place = at(p, p->height, p->width, n, h, w, c);

            sum += (double)x[place];
            winner = (double)x[place] > most ? place : winner;
            most = fmax(most, (double)x[place]);
            if (p->average && dx != NULL) {
                dx[place] += gradient / (p->kernel * p->kernel);
            }
        }
    }
    if (!p->average && dx != NULL) {
        dx[winner] += gradient;
    }
    return p->average ? sum / (p->kernel * p->kernel) : most;
}

/* Memory for them, whose first contents are no places. */
static struct numbers some_places(const struct cddpi_cuda_pool *p)
{
    size_t bytes = cuda->kernels->pool_places_bytes(p);

    return no_numbers(CDDP_F32, bytes / sizeof(float) + 1);
}

static void check_pool(const struct cddpi_cuda_pool *p, float levels)
{
    int height = out_side(p, p->height);
    int width = out_side(p, p->width);
    size_t in_count = (size_t)(p->count * p->height * p->width * p->channels);
    size_t out_count = (size_t)(p->count * height * width * p->channels);
    struct numbers x = random_numbers(p->type, 1, in_count, 1, 0);
    struct numbers dy = random_numbers(p->type, 2, out_count, 1, 0);
    struct numbers y = no_numbers(p->type, out_count);
    struct numbers dx = no_numbers(p->type, in_count);
    struct numbers places = some_places(p);
    double *expected = calloc(out_count, sizeof *expected);
    double *gradient = calloc(in_count, sizeof *gradient);

    for (size_t i = 0; i < in_count && levels > 0; i++) { /* many equal ones */
        x.host[i] = roundf(levels * x.host[i]) / levels;
    }
    if (levels > 0) {
        struct numbers rounded = numbers_from(p->type, x.host, in_count);

        numbers_free(&x);
        x = rounded;
    }
    for (size_t i = 0; i < out_count; i++) {
        int c = (int)(i % (size_t)p->channels);
        int place = (int)(i / (size_t)p->channels);

        expected[i] = pool_window(p, x.host, place / width / height, place / width % height,
                                  place % width, c, (double)dy.host[i], gradient);
    }
    cuda_ok(cuda->kernels->pool(cuda, p, x.device, y.device, NULL)); /* as in evaluation */
    numbers_near(&y, expected, 1e-6, p->average ? 1e-6 : 0, "pool");
    numbers_free(&y);
    y = no_numbers(p->type, out_count);
    cuda_ok(cuda->kernels->pool(cuda, p, x.device, y.device, places.device));
    numbers_near(&y, expected, 1e-6, p->average ? 1e-6 : 0, "pool");
    cuda_ok(cuda->kernels->pool_grad(cuda, p, dy.device, places.device, dx.device));
    numbers_near(&dx, gradient, 1e-6, 1e-6, "pool_grad");
    free(expected);
    free(gradient);
    numbers_free(&x);
    numbers_free(&dy);
    numbers_free(&y);
    numbers_free(&dx);
    numbers_free(&places);
}

static void pools_are_those_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t i = 0; i < COUNT_OF(pools) * 2; i++) {
            struct cddpi_cuda_pool pool = pools[i / 2];

            pool.type = cuda_types[t];
            pool.average = i % 2 == 1;
            check_pool(&pool, 0);
        }
    }
}

static void of_equal_maxima_the_first_gets_the_gradient(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < COUNT_OF(cuda_types); t++) {
        for (size_t i = 0; i < COUNT_OF(pools); i++) {
            struct cddpi_cuda_pool pool = pools[i];

            pool.type = cuda_types[t];
            check_pool(&pool, 2);
        }
    }
}

/* Nothing is read: the kernels' 32-bit counts do not reach. */
static void more_images_than_can_be_counted_are_refused(void **state)
{
    struct cddpi_cuda_pool pool = {CDDP_BF16, 1 << 20, 3, 64, 64, 2, 2, 0, false};
    struct numbers some;

    (void)state;
    NEEDS_CUDA();
    some = no_numbers(CDDP_BF16, 8);
    assert_int_equal(cuda->kernels->pool(cuda, &pool, some.device, some.device, some.device),
                     CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("1048576 images of 64 x 64 with 3 channels"));
    assert_int_equal(cuda->kernels->pool_grad(cuda, &pool, some.device, some.device, some.device),
                     CDDP_ERR_ARGUMENT);
    assert_int_equal(cuda->kernels->add_bias(cuda, CDDP_BF16, some.device, some.device, false,
                                             (size_t)1 << 32, 3, some.device),
                     CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("4294967296 rows of 3"));
    numbers_free(&some);
}

/* One window of 2 x 2 in each of @p channels channels. */
static void check_window(const struct cddpi_cuda_pool *pool, const float *host,
                         const double *gradient, const float *want)
{
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    size_t channels = (size_t)pool->channels;
    struct numbers x = numbers_from(pool->type, host, 4 * channels);
    struct numbers y = no_numbers(pool->type, channels);
    struct numbers dy = numbers_from(pool->type, ones, channels);
    struct numbers dx = no_numbers(pool->type, 4 * channels);
    struct numbers places = some_places(pool);

    cuda_ok(cuda->kernels->pool(cuda, pool, x.device, y.device, places.device));
    numbers_fetch(&y);
    for (size_t c = 0; c < channels; c++) {
        assert_true(isnan(want[c]) ? isnan(y.host[c]) : y.host[c] == want[c]);
    }
    cuda_ok(cuda->kernels->pool_grad(cuda, pool, dy.device, places.device, dx.device));
    numbers_near(&dx, gradient, 0, 0, "pool_grad");
    numbers_free(&x);
    numbers_free(&y);
    numbers_free(&dy);
    numbers_free(&dx);
    numbers_free(&places);
}

/* A NaN comes out of its window, and the first one takes the gradient; of minus infinities the
 * first does, too. */
static void a_nan_is_the_maximum(void **state)
{
    /* four places of eight channels: the largest is last, two NaN, equals, the largest behind a
     * NaN, nothing but -INFINITY, zeros of both signs, -INFINITY first, a NaN last */
    static const float host[32] = {
        0, 5,   0, NAN, -INFINITY, -0.0F, -INFINITY, 1, 0, NAN, 0, 7,   -INFINITY, 0, -2, 2,
        0, NAN, 0, 1,   -INFINITY, -0.0F, -1,        1, 3, 0,   0, NAN, -INFINITY, 0, -3, NAN};
    static const float want[8] = {3, NAN, 0, NAN, -INFINITY, 0, -1, NAN};
    static const int winner[8] = {3, 1, 0, 0, 0, 0, 2, 3};

    (void)state;
    NEEDS_CUDA();
    /* 2 / 2 by whole vectors, as vectors but otherwise, and channel by channel */
    for (size_t i = 0; i < 3 * COUNT_OF(cuda_types); i++) {
        struct cddpi_cuda_pool pool = {
            cuda_types[i / 3], 1, i % 3 == 2 ? 7 : 8, 2, 2, 2, i % 3 == 1 ? 1 : 2, 0, false};
        double gradient[32] = {0};
        float x[32];

        for (int c = 0; c < pool.channels; c++) {
            for (int place = 0; place < 4; place++) {
                x[place * pool.channels + c] = host[8 * place + c];
            }
            gradient[winner[c] * pool.channels + c] = 1;
        }
        check_window(&pool, x, gradient, want);
    }
}

static void places_take_a_byte_where_a_window_has_at_most_256(void **state)
{
    struct cddpi_cuda_pool pool = {CDDP_BF16, 2, 8, 40, 36, 16, 4, 2, false};

    (void)state;
    NEEDS_CUDA();
    assert_int_equal(cuda->kernels->pool_places_bytes(&pool), 2 * 8 * 8 * 7);
    pool.kernel = 17;
    assert_int_equal(cuda->kernels->pool_places_bytes(&pool), 2 * 8 * 7 * 6 * 4);
    pool.average = true;
    assert_int_equal(cuda->kernels->pool_places_bytes(&pool), 0);
}

static void check_global(cddp_type type, size_t count, size_t area, size_t channels)
{
    struct numbers x = random_numbers(type, 1, count * area * channels, 1, 0.2F);
    struct numbers dy = random_numbers(type, 2, count * channels, 1, 0);
    struct numbers y = no_numbers(type, count * channels);
    struct numbers dx = no_numbers(type, count * area * channels);
    double *expected = calloc(count * channels, sizeof *expected);
    double *gradient = calloc(x.count, sizeof *gradient);

    for (size_t i = 0; i < x.count; i++) {
        size_t out = i / channels / area * channels + i % channels;

        expected[out] += (double)x.host[i] / (double)area;
        gradient[i] = (double)dy.host[out] / (double)area;
    }
    cuda_ok(cuda->kernels->global_pool(cuda, type, x.device, count, area, channels, y.device));
    cuda_ok(
        cuda->kernels->global_pool_grad(cuda, type, dy.device, count, area, channels, dx.device));
    numbers_near(&y, expected, 1e-6, 1e-6, "global_pool");
    numbers_near(&dx, gradient, 1e-6, 0, "global_pool_grad");
    free(expected);
    free(gradient);
    numbers_free(&x);
    numbers_free(&dy);
    numbers_free(&y);
    numbers_free(&dx);
}

static void global_pools_are_means_over_the_image(void **state)
{
    static const size_t shapes[][3] = {{1, 1, 1}, {2, 49, 64}, {3, 64, 10}, {5, 7, 136}};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(shapes); i++) {
        const size_t *shape = shapes[i / COUNT_OF(cuda_types)];

        check_global(cuda_types[i % COUNT_OF(cuda_types)], shape[0], shape[1], shape[2]);
    }
}

/* count, channels, area: pixels, weights of 3 x 3, of 1 x 1, sides longer than a tile. */
static const size_t images[][3] = {{1, 1, 1},   {4, 3, 1000}, {2, 64, 49}, {3, 100, 9},
                                   {2, 700, 1}, {1, 1, 700},  {2, 33, 65}, {1, 130, 77},
                                   {5, 32, 32}, {3, 2, 5000}, {0, 3, 4},   {1, 4097, 2}};

static void check_layout(cddp_type type, size_t count, size_t channels, size_t area)
{
    size_t elements = count * channels * area;
    struct numbers plain = random_numbers(CDDP_F32, 1, elements, 1, 0);
    struct numbers last = no_numbers(type, elements);
    struct numbers back = random_numbers(CDDP_F32, 2, elements, 1, 0);
    struct numbers turned = no_numbers(type, elements);
    double *expected = calloc(elements + 1, sizeof *expected);
    double *sums = calloc(elements + 1, sizeof *sums);

    for (size_t i = 0; i < elements; i++) {
        size_t n = i / channels / area;
        size_t from = (n * channels + i % channels) * area + i / channels % area;

        expected[i] = (double)plain.host[from];
    }
    cuda_ok(cuda->kernels->to_channels_last(cuda, type, plain.device, count, channels, area,
                                            last.device));
    numbers_near(&last, expected, 0, 0, "to_channels_last");
    for (size_t i = 0; i < elements; i++) {
        size_t n = i / channels / area;
        size_t from = (n * area + i % area) * channels + i / area % channels;

        expected[i] = (double)last.host[from];
        sums[i] = (double)(back.host[i] + last.host[from]);
    }
    cuda_ok(
        cuda->kernels->transpose(cuda, type, last.device, count, area, channels, turned.device));
    numbers_near(&turned, expected, 0, 0, "transpose");
    cuda_ok(cuda->kernels->from_channels_last(cuda, type, last.device, count, channels, area, true,
                                              back.device));
    numbers_near(&back, sums, 0, 0, "from_channels_last, added");
    cuda_ok(cuda->kernels->from_channels_last(cuda, type, last.device, count, channels, area, false,
                                              back.device));
    numbers_near(&back, expected, 0, 0, "from_channels_last");
    free(expected);
    free(sums);
    numbers_free(&plain);
    numbers_free(&last);
    numbers_free(&back);
    numbers_free(&turned);
}

static void images_go_to_channels_last_and_back(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(images); i++) {
        const size_t *image = images[i / COUNT_OF(cuda_types)];

        check_layout(cuda_types[i % COUNT_OF(cuda_types)], image[0], image[1], image[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_are_those_of_float64),
        cmocka_unit_test(of_equal_maxima_the_first_gets_the_gradient),
        cmocka_unit_test(more_images_than_can_be_counted_are_refused),
        cmocka_unit_test(a_nan_is_the_maximum),
        cmocka_unit_test(places_take_a_byte_where_a_window_has_at_most_256),
        cmocka_unit_test(global_pools_are_means_over_the_image),
        cmocka_unit_test(images_go_to_channels_last_and_back),
    };

    return RUN_ON_CUDA(tests);
}
