/* test_cuda_conv.c - convolution and its two gradients on the device, channels last, against
 * float64. The bounds allow for the transforms that cuDNN's engines may use. */
#include "support/cuda_whole.h"
#include "support/failure.h"

static const struct cddpi_cuda_conv shapes[] = {
    {0, 1, 1, 1, 1, 1, 1, 1, 0, false},  {0, 2, 3, 7, 5, 4, 3, 1, 1, false},
    {0, 2, 8, 6, 6, 16, 3, 1, 1, false}, {0, 3, 16, 8, 8, 8, 1, 1, 0, false},
    {0, 2, 8, 9, 9, 8, 1, 2, 0, false},  {0, 2, 3, 17, 15, 8, 7, 2, 3, false},
    {0, 2, 5, 9, 8, 7, 3, 2, 1, false},  {0, 1, 16, 5, 5, 32, 5, 1, 2, false},
    {0, 2, 4, 8, 8, 6, 2, 2, 0, false},  {0, 1, 8, 10, 10, 8, 3, 3, 0, false},
};

struct conv {
    struct cddpi_cuda_conv shape;
    int out_height, out_width;
    struct numbers x, weight, dy, y, dx, dweight;
};

/* An expected array, and the size of the sums it comes from. */
struct expected {
    double *value, *size;
};

static struct expected no_expectation(size_t count)
{
    return (struct expected){calloc(count, sizeof(double)), calloc(count, sizeof(double))};
}

static void expect(const struct expected *e, size_t at, float a, float b)
{
    e->value[at] += (double)a * (double)b;
    e->size[at] += fabs((double)a * (double)b);
}

static void conv_make(struct conv *c, cddp_type type, const struct cddpi_cuda_conv *shape)
{
    size_t images = (size_t)shape->count;

    *c = (struct conv){.shape = *shape};
    c->shape.type = type;
    c->out_height = (shape->height + 2 * shape->padding - shape->kernel) / shape->stride + 1;
    c->out_width = (shape->width + 2 * shape->padding - shape->kernel) / shape->stride + 1;
    c->x = random_numbers(type, 1,
                          images * (size_t)(shape->height * shape->width * shape->channels), 1, 0);
    c->weight = random_numbers(
        type, 2, (size_t)(shape->outputs * shape->kernel * shape->kernel * shape->channels), 1, 0);
    c->dy = random_numbers(type, 3,
                           images * (size_t)(c->out_height * c->out_width * shape->outputs), 1, 0);
    c->y = no_numbers(type, c->dy.count);
    c->dx = no_numbers(type, c->x.count);
    c->dweight = random_numbers(CDDP_F32, 4, c->weight.count, 1, 0);
}

static void conv_free(struct conv *c)
{
    numbers_free(&c->x);
    numbers_free(&c->weight);
    numbers_free(&c->dy);
    numbers_free(&c->y);
    numbers_free(&c->dx);
    numbers_free(&c->dweight);
}

/* Calls @p visit for each pair of an input and an output that a filter's element connects. */
static void for_each_pair(const struct conv *c,
                          void (*visit)(const struct conv *c, size_t x, size_t w, size_t y,
                                        void *context),
                          void *context)
{
    const struct cddpi_cuda_conv *s = &c->shape;
    size_t y = 0;

    for (int place = 0; place < s->count * c->out_height * c->out_width; place++) {
        int top = place / c->out_width % c->out_height * s->stride - s->padding;
        int left = place % c->out_width * s->stride - s->padding;
        int image = place / (c->out_height * c->out_width);

        for (size_t w = 0; w < c->weight.count; w++) {
            int channel = (int)w % s->channels;
            int column = left + (int)w / s->channels % s->kernel;
            int row = top + (int)w / (s->channels * s->kernel) % s->kernel;
            size_t output = w / (size_t)(s->channels * s->kernel * s->kernel);

            if (row >= 0 && row < s->height && column >= 0 && column < s->width) {
                visit(c,
                      (size_t)(((image * s->height + row) * s->width + column) * s->channels +
                               channel),
                      w, y + output, context);
            }
        }
        y += (size_t)s->outputs;
    }
}

static void visit_forward(const struct conv *c, size_t x, size_t w, size_t y, void *context)
{
    expect(context, y, c->x.host[x], c->weight.host[w]);
}

static void visit_input(const struct conv *c, size_t x, size_t w, size_t y, void *context)
{
    expect(context, x, c->dy.host[y], c->weight.host[w]);
}

static void visit_weight(const struct conv *c, size_t x, size_t w, size_t y, void *context)
{
    expect(context, w, c->dy.host[y], c->x.host[x]);
}

/* @p type: in which sums are rounded once, at the end, or twice. */
static void check(struct numbers *got, struct expected *e, cddp_type type, const char *what)
{
    numbers_fetch(got);
    for (size_t i = 0; i < got->count; i++) {
        double bound = 4e-6 * e->size[i] + 2 * rounding_of(type, e->value[i]) + 1e-6;

        if (!(fabs((double)got->host[i] - e->value[i]) <= bound)) {
            fail_msg("%s of %s: element %zu of %zu is %.9g and should be %.9g +- %.3g", what,
                     cddp_type_name(type), i, got->count, (double)got->host[i], e->value[i], bound);
        }
    }
    free(e->value);
    free(e->size);
}

static void check_conv(struct conv *c)
{
    struct expected e = no_expectation(c->y.count);

    for_each_pair(c, visit_forward, &e);
    cuda_ok(cuda->kernels->conv(cuda, &c->shape, c->x.device, c->weight.device, c->y.device));
    check(&c->y, &e, c->shape.type, "conv");
    e = no_expectation(c->dx.count);
    for_each_pair(c, visit_input, &e);
    cuda_ok(
        cuda->kernels->conv_input(cuda, &c->shape, c->dy.device, c->weight.device, c->dx.device));
    check(&c->dx, &e, c->shape.type, "conv_input");
}

/* cuDNN rounds the gradient to the type of activations before it is added. */
static void check_conv_weight(struct conv *c, bool add)
{
    struct expected e = no_expectation(c->dweight.count);

    numbers_fetch(&c->dweight);
    for_each_pair(c, visit_weight, &e);
    for (size_t i = 0; i < c->dweight.count && add; i++) {
        e.value[i] += (double)c->dweight.host[i];
        e.size[i] += c->shape.type == CDDP_F32 ? 0 : 1000 * fabs((double)c->dweight.host[i]);
    }
    cuda_ok(cuda->kernels->conv_weight(cuda, &c->shape, c->dy.device, c->x.device, add,
                                       c->dweight.device));
    check(&c->dweight, &e, c->shape.type, "conv_weight");
}

static void convolution_and_its_gradients_are_those_of_the_formulas(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof cuda_types / sizeof cuda_types[0]; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            struct conv c;

            conv_make(&c, cuda_types[t], &shapes[s]);
            check_conv(&c);
            check_conv_weight(&c, false);
            check_conv_weight(&c, true);
            conv_free(&c);
        }
    }
}

static void check_bits(const struct cddpi_cuda_conv *shape)
{
    struct conv a, b;

    conv_make(&a, CDDP_BF16, shape);
    conv_make(&b, CDDP_BF16, shape);
    for (int i = 0; i < 2; i++) {
        struct conv *c = i == 0 ? &a : &b;

        cuda_ok(cuda->kernels->conv(cuda, &c->shape, c->x.device, c->weight.device, c->y.device));
        cuda_ok(cuda->kernels->conv_input(cuda, &c->shape, c->dy.device, c->weight.device,
                                          c->dx.device));
        cuda_ok(cuda->kernels->conv_weight(cuda, &c->shape, c->dy.device, c->x.device, false,
                                           c->dweight.device));
    }
    numbers_same(&a.y, &b.y);
    numbers_same(&a.dx, &b.dx);
    numbers_same(&a.dweight, &b.dweight);
    conv_free(&a);
    conv_free(&b);
}

static void convolution_has_the_same_bits_in_every_run(void **state)
{
    (void)state;
    NEEDS_CUDA();
    check_bits(&shapes[2]);
    check_bits(&shapes[5]); /* an image's channels */
}

/* Of ResNet-50, as its example has them; the second is for the emulation. The last two have
 * channels and sizes that no tile divides. */
static const struct {
    cddp_type type;
    struct cddpi_cuda_conv card, emulated;
} wholes[] = {
    {CDDP_BF16, {0, 8, 64, 56, 56, 64, 3, 1, 1, true}, {0, 1, 32, 9, 9, 32, 3, 1, 1, true}},
    {CDDP_F16, {0, 8, 64, 56, 56, 64, 3, 1, 1, true}, {0, 1, 16, 9, 9, 32, 3, 1, 1, true}},
    {CDDP_BF16, {0, 8, 64, 56, 56, 256, 1, 1, 0, true}, {0, 1, 32, 8, 8, 64, 1, 1, 0, true}},
    {CDDP_BF16, {0, 8, 128, 56, 56, 128, 3, 2, 1, true}, {0, 1, 32, 9, 9, 32, 3, 2, 1, true}},
    {CDDP_BF16, {0, 8, 256, 56, 56, 512, 1, 2, 0, true}, {0, 1, 32, 8, 8, 64, 1, 2, 0, true}},
    {CDDP_BF16, {0, 4, 3, 224, 224, 64, 7, 2, 3, true}, {0, 1, 3, 24, 24, 16, 7, 2, 3, true}},
    {CDDP_BF16, {0, 32, 512, 7, 7, 512, 3, 1, 1, true}, {0, 3, 64, 4, 4, 64, 3, 1, 1, true}},
    {CDDP_BF16, {0, 5, 33, 27, 29, 20, 5, 1, 2, true}, {0, 2, 13, 7, 9, 20, 5, 1, 2, true}},
    {CDDP_F16, {0, 7, 6, 31, 31, 17, 3, 2, 0, true}, {0, 3, 6, 9, 9, 17, 3, 2, 0, true}},
};

/* Element @p w of filters' windows at each place: where it reads the input; SIZE_MAX: padding. */
static size_t place_in_x(const struct conv *c, size_t place, size_t w)
{
    const struct cddpi_cuda_conv *s = &c->shape;
    size_t area = (size_t)(c->out_height * c->out_width);
    int at = (int)(place % area);
    int row = at / c->out_width * s->stride - s->padding + (int)w / (s->channels * s->kernel);
    int column = at % c->out_width * s->stride - s->padding + (int)w / s->channels % s->kernel;
    size_t image = place / area * (size_t)s->height * (size_t)s->width;

    return row < 0 || row >= s->height || column < 0 || column >= s->width
               ? SIZE_MAX
               : (image + (size_t)(row * s->width + column)) * (size_t)s->channels +
                     w % (size_t)s->channels;
}

static void is_near(const struct numbers *got, const float *want, const struct conv *c,
                    const char *what)
{
    struct distance d = {0, 0};
    char name[160];

    for (size_t i = 0; i < got->count; i++) {
        distance_add(&d, got->host[i], want[i]);
    }
    snprintf(name, sizeof name, "%s of %s, %d images, %d x %d x %d to %d, kernel %d, stride %d",
             what, cddp_type_name(c->shape.type), c->shape.count, c->shape.height, c->shape.width,
             c->shape.channels, c->shape.outputs, c->shape.kernel, c->shape.stride);
    distance_is_small(&d, name);
}

/* The three passes as products of windows in float32, which have nothing of cuDNN. */
static void check_by_windows(struct conv *c)
{
    size_t window = (size_t)(c->shape.kernel * c->shape.kernel * c->shape.channels);
    size_t places = c->y.count / (size_t)c->shape.outputs;
    struct cddpi_cuda_linear linear = {
        .type = CDDP_F32, .rows = places, .inputs = window, .outputs = (size_t)c->shape.outputs};
    float *windows = malloc(places * window * sizeof *windows);
    float *dx = calloc(c->dx.count, sizeof *dx);
    struct numbers columns, dcolumns = no_numbers(CDDP_F32, places * window);
    struct numbers weight = numbers_from(CDDP_F32, c->weight.host, c->weight.count);
    struct numbers dy = numbers_from(CDDP_F32, c->dy.host, c->dy.count);
    struct numbers y = no_numbers(CDDP_F32, c->y.count);
    struct numbers dweight = no_numbers(CDDP_F32, c->weight.count);

    for (size_t i = 0; i < places * window; i++) {
        size_t at = place_in_x(c, i / window, i % window);

        windows[i] = at == SIZE_MAX ? 0 : c->x.host[at];
    }
    columns = numbers_from(CDDP_F32, windows, places * window);
    cuda_ok(
        cuda->kernels->linear(cuda, &linear, columns.device, weight.device, NULL, y.device, NULL));
    cuda_ok(cuda->kernels->linear_input(cuda, &linear, dy.device, weight.device, NULL,
                                        dcolumns.device));
    cuda_ok(cuda->kernels->linear_weight(cuda, &linear, dy.device, columns.device, false,
                                         dweight.device, NULL));
    numbers_fetch(&y);
    numbers_fetch(&dcolumns);
    numbers_fetch(&dweight);
    for (size_t i = 0; i < places * window; i++) {
        size_t at = place_in_x(c, i / window, i % window);

        if (at != SIZE_MAX) {
            dx[at] += dcolumns.host[i];
        }
    }
    is_near(&c->y, y.host, c, "conv");
    is_near(&c->dx, dx, c, "conv_input");
    is_near(&c->dweight, dweight.host, c, "conv_weight");
    numbers_free(&columns);
    numbers_free(&dcolumns);
    numbers_free(&weight);
    numbers_free(&dy);
    numbers_free(&y);
    numbers_free(&dweight);
    free(windows);
    free(dx);
}

static void convolutions_in_any_order_are_near_products_of_float32(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < whole_cases(sizeof wholes / sizeof wholes[0]); i++) {
        struct listening log;
        struct conv c;

        conv_make(&c, wholes[i].type, on_a_card() ? &wholes[i].card : &wholes[i].emulated);
        log = listen_to_the_log();
        cuda_ok(cuda->kernels->conv(cuda, &c.shape, c.x.device, c.weight.device, c.y.device));
        cuda_ok(
            cuda->kernels->conv_input(cuda, &c.shape, c.dy.device, c.weight.device, c.dx.device));
        cuda_ok(cuda->kernels->conv_weight(cuda, &c.shape, c.dy.device, c.x.device, false,
                                           c.dweight.device));
        nothing_slower_was_taken(&log, "convolution");
        numbers_fetch(&c.y);
        numbers_fetch(&c.dx);
        numbers_fetch(&c.dweight);
        check_by_windows(&c);
        conv_free(&c);
    }
}

/* Images to whole vectors, filters' gradients back: exactly, whatever follows in a row. */
static void check_channels(cddp_type type, size_t rows, int channels)
{
    size_t few = (size_t)channels;
    struct numbers x = random_numbers(type, 1, rows * few + 1, 1, 0);
    struct numbers whole = no_numbers(type, rows * 8 + 1);
    struct numbers back = random_numbers(CDDP_F32, 2, rows * few + 1, 1, 0);
    double *padded = calloc(whole.count, sizeof *padded);
    double *sums = calloc(back.count, sizeof *sums);
    struct numbers all;

    for (size_t i = 0; i < rows * few; i++) {
        padded[i / few * 8 + i % few] = (double)x.host[i];
    }
    cuda_ok(cuda->kernels->pad_channels(cuda, type, x.device, rows, channels, whole.device));
    numbers_fetch(&whole);
    assert_true(isnan(whole.host[rows * 8])); /* what lies behind is not written */
    whole.count--;
    numbers_near(&whole, padded, 0, 0, "pad_channels");
    all = random_numbers(type, 3, rows * 8 + 1, 1, 0);
    for (int add = 1; add >= 0; add--) {
        for (size_t i = 0; i < rows * few; i++) {
            sums[i] = (double)((add ? back.host[i] : 0) + all.host[i / few * 8 + i % few]);
        }
        sums[rows * few] = (double)back.host[rows * few];
        cuda_ok(
            cuda->kernels->add_channels(cuda, type, all.device, rows, channels, add, back.device));
        numbers_near(&back, sums, 0, 0, "add_channels");
    }
    free(padded);
    free(sums);
    whole.count++;
    numbers_free(&x);
    numbers_free(&whole);
    numbers_free(&back);
    numbers_free(&all);
}

static void few_channels_go_to_whole_vectors_and_back(void **state)
{
    static const size_t rows[] = {0, 1, 3, 255, 1024, 2500};

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < 2 * 8 * sizeof rows / sizeof rows[0]; i++) {
        check_channels(i % 2 == 0 ? CDDP_BF16 : CDDP_F16, rows[i / 16], (int)(i / 2 % 8) + 1);
    }
}

static void channels_that_are_not_few_are_refused(void **state)
{
    struct numbers some;

    (void)state;
    NEEDS_CUDA();
    some = no_numbers(CDDP_F32, 16);
    assert_int_equal(cuda->kernels->pad_channels(cuda, CDDP_BF16, some.device, 1, 9, some.device),
                     CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("9 channels"));
    assert_int_equal(cuda->kernels->pad_channels(cuda, CDDP_F32, some.device, 1, 3, some.device),
                     CDDP_ERR_ARGUMENT);
    numbers_free(&some);
}

static void no_images_give_no_gradient(void **state)
{
    struct cddpi_cuda_conv shape = shapes[2];
    struct numbers dweight;
    double *zeros;

    (void)state;
    NEEDS_CUDA();
    shape.count = 0;
    dweight = no_numbers(CDDP_F32, 16 * 3 * 3 * 8);
    zeros = calloc(dweight.count, sizeof *zeros);
    cuda_ok(cuda->kernels->conv(cuda, &shape, NULL, NULL, NULL));
    cuda_ok(cuda->kernels->conv_input(cuda, &shape, NULL, NULL, NULL));
    cuda_ok(cuda->kernels->conv_weight(cuda, &shape, NULL, NULL, false, dweight.device));
    numbers_near(&dweight, zeros, 0, 0, "the gradient of nothing");
    free(zeros);
    numbers_free(&dweight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_and_its_gradients_are_those_of_the_formulas),
        cmocka_unit_test(convolution_has_the_same_bits_in_every_run),
        cmocka_unit_test(convolutions_in_any_order_are_near_products_of_float32),
        cmocka_unit_test(few_channels_go_to_whole_vectors_and_back),
        cmocka_unit_test(channels_that_are_not_few_are_refused),
        cmocka_unit_test(no_images_give_no_gradient),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
