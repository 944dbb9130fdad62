/* test_batch_norm.c - batch normalisation against float64: statistics of millions of values, in
 * every layout, for every instruction set and any number of threads. */
#include "kernels/cpu/norm.h"
#include "nn/ops/norm_passes.h"
#include "support/nn.h"

#include <dlfcn.h>

/* Distributions whose mean is large over their deviation, or whose first values mislead. */
enum kind {
    BRIGHT_BYTES,
    FAR_FROM_ZERO,
    LAST_DIGITS,
    FIRST_IS_AN_OUTLIER,
    FIRST_SAMPLE_IS_BLACK,
    TWO_VALUES,
    ORDINARY,
    KINDS
};

static float value(enum kind kind, uint64_t i, uint64_t sample_elements)
{
    float noise = test_number(7, i);

    switch (kind) {
    case BRIGHT_BYTES:
        return (float)(225 + (i * 2654435761u >> 7) % 31) / 255;
    case FAR_FROM_ZERO:
        return 1000 + noise * 0.3f;
    case LAST_DIGITS:
        return 1 + (float)((i * 2654435761u >> 9) % 5) * 1.1920929e-7f;
    case FIRST_IS_AN_OUTLIER:
        return i == 0 ? -3e4f : 0.7f + noise * 0.01f;
    case FIRST_SAMPLE_IS_BLACK:
        return i < sample_elements ? 0 : 0.9f + noise * 0.01f;
    case TWO_VALUES:
        return i % 3 == 0 ? 0.1f : 0.3f;
    default:
        return noise;
    }
}

static struct cddpi_layer norm_layers[] = {{.type = CDDPI_LAYER_BATCH_NORM, .momentum = 1},
                                           {.type = CDDPI_LAYER_GLOBAL_AVG_POOL},
                                           {.type = CDDPI_LAYER_FLATTEN},
                                           {.type = CDDPI_LAYER_LINEAR, .units = 2}};

static void assert_relative(double got, double expected, double scale, const char *what, int kind)
{
    if (!(fabs(got - expected) <= 1e-6 * scale)) {
        fail_msg("%s of distribution %d is %.9g, right is %.9g: %.1e off", what, kind, got,
                 expected, fabs(got - expected) / scale);
    }
}

static void compare_running(struct fixture *f, enum kind kind)
{
    size_t count = f->sample_elements * (size_t)f->batch.count;
    size_t buffers;
    const cddp_param *buffer = cddpi_model_buffers(f->model, &buffers);
    double mean = 0;
    double squares = 0;

    for (size_t i = 0; i < count; i++) {
        f->input[i] = value(kind, i, f->sample_elements);
        mean += (double)f->input[i];
    }
    mean /= (double)count;
    for (size_t i = 0; i < count; i++) {
        squares += ((double)f->input[i] - mean) * ((double)f->input[i] - mean);
    }
    (void)fixture_loss(f);
    squares /= (double)(count - 1);
    /* a mean near zero is known as well as the values are */
    assert_relative((double)((float *)buffer[0].data)[0], mean, fmax(fabs(mean), sqrt(squares)),
                    "the mean", (int)kind);
    assert_relative((double)((float *)buffer[1].data)[0], squares, squares, "the variance",
                    (int)kind);
}

static void compare_images(enum cddpi_precision precision)
{
    const struct cddpi_model_spec spec = {.layers = norm_layers,
                                          .layer_count = COUNT_OF(norm_layers),
                                          .precision = precision,
                                          .channels = 1,
                                          .height = 224,
                                          .width = 224,
                                          .classes = 2};
    struct fixture f;

    assert_true(fixture_init(&f, &spec, 1, NULL, 0, 64));
    for (int kind = 0; kind < KINDS; kind++) {
        compare_running(&f, (enum kind)kind);
    }
    fixture_fini(&f);
}

static void running_statistics_of_three_million_values_have_six_digits(void **state)
{
    (void)state;
    compare_images(CDDPI_PRECISION_F32);
}

static void so_they_have_where_products_are_of_bf16(void **state)
{
    (void)state;
    compare_images(CDDPI_PRECISION_BF16);
}

/* Arrays of a layout, and what float64 makes of them, by channel. */
struct case_of {
    struct cddpi_nn_layout layout;
    enum kind kind;
    bool relu;
    size_t elements;
    float *x, *dy, *y, *dx;
    float *weight, *bias;
    double *partial, *statistics; /* mean, variance, sums, products */
};

/* Which channel an element is of; false: it only fills a block up. */
static bool channel_of(const struct cddpi_nn_layout *layout, size_t i, size_t *channel)
{
    size_t groups = (layout->channels + layout->block - 1) / layout->block;

    *channel = i / (layout->block * layout->spatial) % groups * layout->block + i % layout->block;
    return *channel < layout->channels;
}

static struct case_of make_case(struct cddpi_nn_layout layout, enum kind kind, bool relu)
{
    size_t groups = (layout.channels + layout.block - 1) / layout.block;
    struct case_of c = {.layout = layout, .kind = kind, .relu = relu};

    c.elements = layout.samples * groups * layout.spatial * layout.block;
    c.x = calloc(c.elements, sizeof *c.x);
    c.dy = calloc(c.elements, sizeof *c.dy);
    c.y = calloc(c.elements, sizeof *c.y);
    c.dx = calloc(c.elements, sizeof *c.dx);
    c.weight = calloc(layout.channels, sizeof *c.weight);
    c.bias = calloc(layout.channels, sizeof *c.bias);
    c.partial = calloc(cddpi_norm_partial(&layout), sizeof *c.partial);
    c.statistics = calloc(4 * layout.channels, sizeof *c.statistics);
    for (size_t i = 0; i < c.elements; i++) {
        size_t channel;

        if (channel_of(&layout, i, &channel)) {
            c.x[i] = value(kind, i, c.elements / layout.samples);
            c.dy[i] = 0.01f * test_number(8, i) + 0.02f;
        }
    }
    for (size_t i = 0; i < layout.channels; i++) {
        c.weight[i] = 1 + 0.1f * test_number(9, i);
        c.bias[i] = 0.1f * test_number(10, i);
    }
    return c;
}

static void drop_case(struct case_of *c)
{
    free(c->x);
    free(c->dy);
    free(c->y);
    free(c->dx);
    free(c->weight);
    free(c->bias);
    free(c->partial);
    free(c->statistics);
}

static void run_case(struct case_of *c)
{
    size_t channels = c->layout.channels;
    struct cddpi_norm_affine affine = {
        c->statistics, c->statistics + channels, c->weight, c->bias, 1e-5, c->relu};
    struct cddpi_norm_grad grad = {c->dy, c->partial, c->statistics + 2 * channels,
                                   c->statistics + 3 * channels,
                                   (double)(c->layout.samples * c->layout.spatial)};

    cddpi_norm_forward(c->x, &c->layout, &affine, c->partial, c->statistics,
                       c->statistics + channels, c->y);
    cddpi_norm_backward(c->x, &c->layout, &affine, &grad, c->dx);
}

/* In float64: means (in three rounds), variances, sums of dy, of dy (x - mean), and of their
 * magnitudes. */
static double *sum_in_f64(const struct case_of *c)
{
    size_t n = c->layout.channels;
    double count = (double)(c->layout.samples * c->layout.spatial);
    double *r = calloc(6 * n, sizeof *r);
    size_t channel;

    for (int round = 0; round < 2; round++) {
        for (size_t ch = 0; ch < n; ch++) {
            r[ch] += r[n + ch] / count;
            r[n + ch] = 0;
        }
        for (size_t i = 0; i < c->elements; i++) {
            if (channel_of(&c->layout, i, &channel)) {
                r[n + channel] += (double)c->x[i] - r[channel];
            }
        }
    }
    for (size_t ch = 0; ch < n; ch++) {
        r[ch] += r[n + ch] / count;
        r[n + ch] = 0;
    }
    for (size_t i = 0; i < c->elements; i++) {
        if (channel_of(&c->layout, i, &channel)) {
            double d = (double)c->x[i] - r[channel];
            /* the mask is what the output says */
            double dy = c->relu && c->y[i] <= 0 ? 0 : (double)c->dy[i];

            r[n + channel] += d * d / count;
            r[2 * n + channel] += dy;
            r[3 * n + channel] += dy * d;
            r[4 * n + channel] += fabs(dy);
            r[5 * n + channel] += fabs(dy * d);
        }
    }
    return r;
}

static void compare_elements(const struct case_of *c, const double *r)
{
    size_t n = c->layout.channels;
    double count = (double)(c->layout.samples * c->layout.spatial);
    size_t ch;

    for (size_t i = 0; i < c->elements; i++) {
        double inverse, normal, y, dy, dx;

        if (!channel_of(&c->layout, i, &ch)) {
            assert_true(c->y[i] == 0 && c->dx[i] == 0);
            continue;
        }
        inverse = 1 / sqrt(r[n + ch] + 1e-5);
        normal = ((double)c->x[i] - r[ch]) * inverse;
        y = normal * (double)c->weight[ch] + (double)c->bias[ch];
        dy = c->relu && c->y[i] <= 0 ? 0 : (double)c->dy[i];
        dx = (double)c->weight[ch] * inverse *
             (dy - r[2 * n + ch] / count - normal * inverse * r[3 * n + ch] / count);
        y = c->relu && y < 0 ? 0 : y;
        if (!(fabs((double)c->y[i] - y) <= 2e-6 * (1 + fabs(normal)))) {
            fail_msg("output %zu is %g, right is %g (distribution %d)", i, (double)c->y[i], y,
                     (int)c->kind);
        }
        if (!(fabs((double)c->dx[i] - dx) <= 1e-6 * inverse * (1 + fabs(normal)))) {
            fail_msg("gradient %zu is %g, right is %g (distribution %d)", i, (double)c->dx[i], dx,
                     (int)c->kind);
        }
    }
}

static void compare_case(struct cddpi_nn_layout layout, enum kind kind, bool relu)
{
    struct case_of c = make_case(layout, kind, relu);
    size_t n = layout.channels;
    double *r;

    run_case(&c);
    r = sum_in_f64(&c);
    for (size_t i = 0; i < n; i++) {
        assert_relative(c.statistics[i], r[i], fmax(fabs(r[i]), sqrt(r[n + i])), "the mean",
                        (int)kind);
        assert_relative(c.statistics[n + i], r[n + i], r[n + i], "the variance", (int)kind);
        assert_relative(c.statistics[2 * n + i], r[2 * n + i], r[4 * n + i], "the sum of gradients",
                        (int)kind);
        assert_relative(c.statistics[3 * n + i], r[3 * n + i], r[5 * n + i], "the sum of products",
                        (int)kind);
    }
    compare_elements(&c, r);
    free(r);
    drop_case(&c);
}

/* {samples, channels, positions, block}: plain, blocks of 8 and 16 with and without channels that
 * fill them up, channels last, features; whole vectors and what is left behind them. */
static const struct cddpi_nn_layout layouts[] = {
    {3, 2, 35000, 1}, {5, 20, 49, 16},  {9, 16, 1000, 16}, {4, 8, 777, 8},   {3, 12, 33, 8},
    {7, 20, 50, 20},  {4, 64, 100, 64}, {6, 3, 81, 3},     {200, 40, 1, 1},  {33, 17, 1, 17},
    {1, 4, 5, 1},     {2, 1, 3, 1},     {16, 32, 16, 16},  {2, 35, 400, 16}, {30, 24, 1, 8}};

static void every_layout_is_normalised_as_in_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            compare_case(layouts[i], (enum kind)kind, kind % 2 == 0);
            compare_case(layouts[i], (enum kind)kind, kind % 2 != 0);
        }
    }
}

static void set_threads(int count)
{
    void (*set)(int);

    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set != NULL) {
        set(count);
    }
}

static void any_number_of_threads_makes_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct case_of one = make_case(layouts[i], ORDINARY, true);

        set_threads(1);
        run_case(&one);
        for (int threads = 2; threads <= 7; threads += i % 2 == 0 ? 1 : 3) {
            struct case_of several = make_case(layouts[i], ORDINARY, true);

            set_threads(threads);
            run_case(&several);
            assert_memory_equal(one.y, several.y, one.elements * sizeof *one.y);
            assert_memory_equal(one.dx, several.dx, one.elements * sizeof *one.dx);
            assert_memory_equal(one.statistics, several.statistics,
                                4 * layouts[i].channels * sizeof *one.statistics);
            drop_case(&several);
        }
        set_threads(1);
        drop_case(&one);
    }
}

enum { SAMPLES = 3, WIDTH = 90, LANES = CDDPI_NORM_LANES, ELEMENTS = SAMPLES * WIDTH * LANES };

struct made {
    double sums[4][LANES];
    float y[ELEMENTS], dx[ELEMENTS];
};

static void make(const struct cddpi_norm_kernels *kernels, const float *x, const float *dy,
                 const struct cddpi_norm_tile *tile, bool relu, struct made *out)
{
    struct cddpi_norm_lanes lanes = {.relu = relu};

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < LANES; i++) {
        lanes.mean[i] = test_number(1, i);
        lanes.factor[i] = test_number(2, i);
        lanes.shift[i] = test_number(3, i);
        lanes.offset[i] = test_number(4, i);
        lanes.slope[i] = test_number(5, i);
    }
    kernels->moments(x, tile, lanes.mean, out->sums[0], out->sums[1]);
    kernels->products(dy, x, tile, &lanes, out->sums[2], out->sums[3]);
    kernels->normalize(x, tile, &lanes, out->y);
    kernels->gradient(dy, x, tile, &lanes, out->dx);
}

static void every_set_of_instructions_makes_the_same_bits(void **state)
{
    static const struct cddpi_norm_tile tiles[] = {{SAMPLES, WIDTH * LANES, 0, WIDTH, 0, 0, LANES},
                                                   {SAMPLES, WIDTH * LANES, 0, 67, 1, 5, LANES},
                                                   {SAMPLES, WIDTH * LANES, 3, 0, 60, 11, 20},
                                                   {1, 0, 1, 61, 0, 0, 23}};
    const struct cddpi_norm_kernels *builds[3];
    size_t count = cddpi_norm_kernels_all(builds);
    static struct made first, other;
    static float x[ELEMENTS], dy[ELEMENTS];

    (void)state;
    for (size_t i = 0; i < ELEMENTS; i++) {
        x[i] = i == 700 ? NAN : test_number(11, i);
        dy[i] = test_number(12, i);
    }
    for (size_t t = 0; t < 2 * COUNT_OF(tiles); t++) {
        x[700] = t % 2 == 0 ? 0.5f : x[700];
        make(builds[0], x, dy, &tiles[t / 2], t % 2 == 0, &first);
        for (size_t b = 1; b < count; b++) {
            make(builds[b], x, dy, &tiles[t / 2], t % 2 == 0, &other);
            assert_memory_equal(&first, &other, sizeof first);
        }
    }
}

static void a_value_that_is_not_a_number_reaches_the_output_through_the_relu(void **state)
{
    struct case_of c = make_case((struct cddpi_nn_layout){2, 1, 40, 1}, ORDINARY, true);

    (void)state;
    c.x[50] = NAN;
    run_case(&c);
    assert_true(isnan(c.y[50]) && isnan(c.y[0]) && isnan(c.statistics[0]));
    drop_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_statistics_of_three_million_values_have_six_digits),
        cmocka_unit_test(so_they_have_where_products_are_of_bf16),
        cmocka_unit_test(every_layout_is_normalised_as_in_float64),
        cmocka_unit_test(any_number_of_threads_makes_the_same_bits),
        cmocka_unit_test(every_set_of_instructions_makes_the_same_bits),
        cmocka_unit_test(a_value_that_is_not_a_number_reaches_the_output_through_the_relu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
