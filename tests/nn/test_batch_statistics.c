/* test_batch_statistics.c - statistics of batch normalisation that a forward writes to bound
 * memory, and running statistics that have one update a step from their sums. */
#include "support/nn_statistics.h"

static float statistics[NORMED_VALUES];
static float *const bound[NORMED_BUFFERS] = {statistics, statistics + NORMED_CHANNELS,
                                             statistics + 2 * NORMED_CHANNELS,
                                             statistics + 3 * NORMED_CHANNELS};

static void setup(struct fixture *f, bool recompute)
{
    struct normed_layers layers;
    struct cddpi_model_spec spec = normed_spec(&layers, 0);

    spec.recompute = recompute;
    layers.layers[4].segment = layers.layers[3].segment = layers.layers[2].segment = 1;
    layers.layers[1].segment = layers.layers[0].segment = 1;
    assert_true(fixture_init(f, &spec, NORMED_SEED, NULL, 0, 4));
    cddpi_model_bind_statistics(f->model, bound);
    memset(statistics, 0, sizeof statistics);
}

static void expect_running(const struct fixture *f, const float *mean, const float *variance)
{
    size_t count;
    const cddp_param *buffer = cddpi_model_buffers(f->model, &count);

    for (size_t i = 0; i < count; i++) {
        const float *running = buffer[i].data;

        for (int c = 0; c < NORMED_CHANNELS; c++) {
            assert_true(running[c] == (i % 2 == 0 ? mean : variance)[c]);
        }
    }
}

static void a_forward_writes_its_statistics_by_the_weight_and_updates_nothing(void **state)
{
    static const float zeros[NORMED_CHANNELS];
    static const float ones[NORMED_CHANNELS] = {1, 1, 1, 1, 1};
    float expected[NORMED_VALUES];
    struct fixture f;

    (void)state;
    setup(&f, false);
    normed_expected(0, 4, expected);
    f.batch.weight = 0.25;
    (void)fixture_loss(&f);
    for (int i = 0; i < NORMED_VALUES; i++) {
        assert_true(statistics[i] == 0.25f * expected[i]);
    }
    expect_running(&f, zeros, ones);
    fixture_fini(&f);
}

/* Two batches, of 4 and 2 of a step's 6 samples. */
static void running_statistics_have_one_update_from_the_sums(void **state)
{
    float sums[NORMED_VALUES];
    float *const from[NORMED_BUFFERS] = {sums, sums + NORMED_CHANNELS, sums + 2 * NORMED_CHANNELS,
                                         sums + 3 * NORMED_CHANNELS};
    size_t count;
    const cddp_param *buffer;
    struct fixture f;

    (void)state;
    setup(&f, false);
    f.batch.weight = 4.0 / 6;
    (void)fixture_loss(&f);
    memcpy(sums, statistics, sizeof sums);
    fixture_batch(&f, 4, 2);
    f.batch.weight = 2.0 / 6;
    (void)fixture_loss(&f);
    for (int i = 0; i < NORMED_VALUES; i++) {
        sums[i] += statistics[i];
    }
    assert_int_equal(cddpi_model_blend_statistics(f.model, from), CDDP_OK);
    buffer = cddpi_model_buffers(f.model, &count);
    for (size_t i = 0; i < count; i++) {
        double momentum = normed_momenta[i];

        for (int c = 0; c < NORMED_CHANNELS; c++) {
            double old = i % 2 == 0 ? 0 : 1;
            double blended = (1 - momentum) * old + momentum * (double)from[i][c];

            assert_true(((const float *)buffer[i].data)[c] == (float)blended);
        }
    }
    fixture_fini(&f);
}

static void what_is_recomputed_is_not_written_again(void **state)
{
    static const unsigned char spoilt = 0x5a;
    struct fixture f;

    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        setup(&f, recompute == 1);
        f.batch.weight = 1;
        (void)fixture_loss(&f);
        memset(statistics, spoilt, sizeof statistics);
        assert_int_equal(cddpi_model_backward(f.model, 1, false, NULL, NULL), CDDP_OK);
        for (size_t i = 0; i < sizeof statistics; i++) {
            assert_int_equal(((const unsigned char *)statistics)[i], spoilt);
        }
        fixture_fini(&f);
    }
}

static void a_training_batch_without_a_weight_is_refused(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, false);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, true, NULL), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "the batch's weight is 0"));
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, NULL), CDDP_OK);
    f.batch.count = 0; /* of a rank without samples */
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, true, NULL), CDDP_OK);
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forward_writes_its_statistics_by_the_weight_and_updates_nothing),
        cmocka_unit_test(running_statistics_have_one_update_from_the_sums),
        cmocka_unit_test(what_is_recomputed_is_not_written_again),
        cmocka_unit_test(a_training_batch_without_a_weight_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
