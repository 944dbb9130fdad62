/* test_first_values.c - initial values of parameters: the documented function of seed, number and
 * element, for any number of threads. */
#include "support/nn.h"

#include "base/philox.h"

#include <pthread.h>

enum { SEED = 77 };

/* Counts that are odd, or several blocks of a thread with a part of one behind them, or both. */
static const struct cddpi_layer layers[] = {
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 257},
    {.type = CDDPI_LAYER_LINEAR, .units = 301, .deviation = 0.02},
    {.type = CDDPI_LAYER_LINEAR, .units = 3},
};
static const struct cddpi_model_spec spec = {
    .layers = layers, .layer_count = 4, .channels = 3, .height = 19, .width = 17, .classes = 3};

static struct cddpi_model *create(void)
{
    struct cddpi_model *model = NULL;

    assert_int_equal(cddpi_model_create(&spec, SEED, NULL, &model), CDDP_OK);
    return model;
}

static struct cddpi_model *create_with(const char *threads)
{
    struct cddpi_model *model;

    setenv("CDDP_THREADS", threads, 1);
    model = create();
    unsetenv("CDDP_THREADS");
    return model;
}

static float uniform(uint64_t number, size_t element, double bound)
{
    struct cddpi_philox stream = cddpi_philox_stream(SEED, CDDPI_RANDOM_INIT, (uint32_t)number);
    uint32_t words[4];

    cddpi_philox4(&stream, element / 4, words);
    return (float)((2.0 * (double)(words[element % 4] >> 8) * 0x1p-24 - 1.0) * bound);
}

static float normal(uint64_t number, size_t element, double deviation)
{
    struct cddpi_philox stream = cddpi_philox_stream(SEED, CDDPI_RANDOM_INIT, (uint32_t)number);
    uint32_t words[4];
    double radius, angle;

    cddpi_philox4(&stream, element / 4, words);
    radius = sqrt(-2.0 * log(((double)words[element % 4 / 2 * 2] + 1.0) * 0x1p-32));
    angle = 6.283185307179586 * ((double)words[element % 4 / 2 * 2 + 1] * 0x1p-32);
    return (float)(deviation * radius * (element % 2 == 0 ? cos(angle) : sin(angle)));
}

static void expect_documented_values(struct cddpi_model *model)
{
    size_t count;
    const cddp_param *params = cddpi_model_params(model, &count);
    const double first = 1 / sqrt(969.0);
    const double spreads[] = {first, first, 0.02, 0, 1 / sqrt(301.0), 1 / sqrt(301.0)};

    assert_int_equal(count, 6);
    for (size_t p = 0; p < count; p++) {
        const float *values = params[p].data;

        for (size_t e = 0; e < cddpi_tensor_elements(&params[p]); e++) {
            float should = (p == 2 ? normal : uniform)(p, e, spreads[p]);

            if (!(fabsf(values[e] - should) <= 1e-6f * fabsf(should))) {
                fail_msg("%s[%zu] is %.9g, not %.9g", params[p].name, e, (double)values[e],
                         (double)should);
            }
        }
    }
}

static void values_are_the_documented_function_of_seed_and_number(void **state)
{
    struct cddpi_model *model = create_with("1");

    (void)state;
    expect_documented_values(model);
    cddpi_model_destroy(model);
}

static void expect_equal(struct cddpi_model *a, struct cddpi_model *b)
{
    size_t count;
    const cddp_param *of_a = cddpi_model_params(a, &count);
    const cddp_param *of_b = cddpi_model_params(b, &count);

    for (size_t p = 0; p < count; p++) {
        assert_memory_equal(of_a[p].data, of_b[p].data,
                            cddpi_tensor_elements(&of_a[p]) * sizeof(float));
    }
}

static void any_number_of_threads_makes_the_same_bits(void **state)
{
    static const char *const threads[] = {"2", "5", "1024"};
    struct cddpi_model *one = create_with("1");
    struct cddpi_model *model;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        model = create_with(threads[i]);
        expect_equal(one, model);
        cddpi_model_destroy(model);
    }
    model = create(); /* by as many as there are processors */
    expect_equal(one, model);
    cddpi_model_destroy(model);
    cddpi_model_destroy(one);
}

/* No thread can be started where its stack has no place. */
static void threads_that_cannot_be_started_are_not_missed(void **state)
{
    struct cddpi_model *one = create_with("1");
    struct cddpi_model *alone;
    pthread_attr_t usual, huge;

    (void)state;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 48), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    alone = create_with("5");
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    expect_equal(one, alone);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    cddpi_model_destroy(alone);
    cddpi_model_destroy(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_documented_function_of_seed_and_number),
        cmocka_unit_test(any_number_of_threads_makes_the_same_bits),
        cmocka_unit_test(threads_that_cannot_be_started_are_not_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
