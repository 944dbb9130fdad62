/* test_nn_threads.c - a step of a convolutional network has the same bits for any number of compute
 * threads. Matrix products do not guarantee that: a library may split them along the sum. */
#include "support/nn.h"

#include <stdlib.h>

struct kind {
    const char *name;
    struct cddpi_model_spec spec;
    int samples;
    bool large;
};

static const struct cddpi_layer strided[] = {
    {.type = CDDPI_LAYER_CONV2D, .units = 24, .kernel = 5, .stride = 2, .padding = 2},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_CONV2D, .units = 40, .kernel = 3, .padding = 1},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_MAX_POOL, .kernel = 2},
    {.type = CDDPI_LAYER_CONV2D, .units = 33, .kernel = 1},
    {.type = CDDPI_LAYER_RESPONSE_NORM, .kernel = 5},
    {.type = CDDPI_LAYER_BATCH_NORM},
    {.type = CDDPI_LAYER_TANH},
    {.type = CDDPI_LAYER_AVG_POOL, .kernel = 2},
    {.type = CDDPI_LAYER_CONV2D, .units = 64, .kernel = 3, .stride = 2, .padding = 1},
    {.type = CDDPI_LAYER_LEAKY_RELU},
    {.type = CDDPI_LAYER_GLOBAL_AVG_POOL},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 10}};

#define IMAGES(channel_count, size)                                                                \
    .channels = (channel_count), .height = (size), .width = (size), .classes = 10

static const struct kind kinds[] = {
    {"cnn", {.preset = "cnn", IMAGES(1, 28)}, 33, false},
    {"resnet20", {.preset = "resnet20", IMAGES(3, 32)}, 21, false},
    {"resnet50", {.preset = "resnet50", IMAGES(3, 40)}, 3, true},
    {"layers", {.layers = strided, .layer_count = COUNT_OF(strided), IMAGES(3, 37)}, 19, false},
};

struct outcome {
    struct fixture f;
    double loss;
};

static void run(const struct kind *kind, enum cddpi_precision precision, const char *threads,
                struct outcome *out)
{
    struct cddpi_model_spec spec = kind->spec;

    spec.precision = precision;
    setenv("CDDP_THREADS", threads, 1);
    if (!fixture_init(&out->f, &spec, 1, NULL, 0, kind->samples)) {
        fail_msg("%s: %s", kind->name, cddp_last_error());
    }
    out->loss = fixture_loss(&out->f);
    assert_int_equal(cddpi_model_backward(out->f.model, 1.0 / kind->samples, false, NULL, NULL),
                     CDDP_OK);
    unsetenv("CDDP_THREADS");
}

static int compare(const struct kind *kind, const char *threads, struct outcome *a,
                   struct outcome *b)
{
    int bad = 0;

    if (a->loss != b->loss) {
        print_error("%s, %s threads: the loss differs\n", kind->name, threads);
        bad++;
    }
    for (size_t i = 0; i < a->f.param_count; i++) {
        size_t bytes = cddpi_tensor_elements(&a->f.params[i]) * sizeof(float);

        if (strncmp(a->f.params[i].name, "fc", 2) != 0 && /* a product's */
            memcmp(a->f.grads[i], b->f.grads[i], bytes) != 0) {
            print_error("%s, %s threads: the gradient of %s differs\n", kind->name, threads,
                        a->f.params[i].name);
            bad++;
        }
    }
    return bad;
}

/* Whether a convolution is made of products of matrices, because oneDNN has nothing better for this
 * processor. */
static bool multiplies_matrices(struct cddpi_model *model, int samples)
{
    struct cddpi_plan *plan = NULL;
    bool found = false;

    assert_int_equal(cddpi_model_plan(model, samples, true, &plan), CDDP_OK);
    for (int i = 0; i < plan->part_count; i++) {
        found = found || strstr(plan->parts[i].name, "columns") != NULL ||
                strstr(plan->parts[i].name, "gemm") != NULL;
    }
    return found;
}

static void compare_all(enum cddpi_precision precision)
{
    static const char *const counts[] = {"2", "3"};
    int bad = 0;

    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct outcome one, several;

        if (precision == CDDPI_PRECISION_BF16 && kinds[k].large) {
            continue;
        }
        run(&kinds[k], precision, "1", &one);
        if (multiplies_matrices(one.f.model, kinds[k].samples)) {
            print_message("%s is left out: it has products of matrices here\n", kinds[k].name);
            fixture_fini(&one.f);
            continue;
        }
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            run(&kinds[k], precision, counts[c], &several);
            bad += compare(&kinds[k], counts[c], &one, &several);
            fixture_fini(&several.f);
        }
        fixture_fini(&one.f);
    }
    assert_int_equal(bad, 0);
}

static void one_two_and_three_threads_make_the_same_gradients(void **state)
{
    (void)state;
    compare_all(CDDPI_PRECISION_F32);
}

static void so_they_do_where_products_are_of_bf16(void **state)
{
    (void)state;
    compare_all(CDDPI_PRECISION_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_two_and_three_threads_make_the_same_gradients),
        cmocka_unit_test(so_they_do_where_products_are_of_bf16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
