/* test_normalization.c - the statistics by which numbers are normalised: of which numbers they are,
 * and what they do to samples. */
#include "base/alloc.h"
#include "data/dataset_memory.h"
#include "data/normalization.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

/* Describe @p rows samples of @p shape at @p values, with classes of zeros. */
static void describe(const float *values, const int shape[3], uint64_t rows,
                     struct cddpi_dataset *out)
{
    static const int32_t classes[64];
    struct cddpi_dataset_memory *memory = cddpi_dataset_memory_create(1, 0, NULL);

    assert_non_null(memory);
    memory->number_shards = cddpi_zalloc_array(1, sizeof *memory->number_shards);
    memory->number_shards[0] = (struct cddpi_number_shard){.path = "a",
                                                           .target_path = "a",
                                                           .inputs = {values, CDDPI_NUMBER_F32},
                                                           .targets = {classes, CDDPI_NUMBER_I32},
                                                           .count = rows};
    *out = (struct cddpi_dataset){
        .channels = shape[0], .height = shape[1], .width = shape[2], .memory = memory};
    assert_int_equal(cddpi_numbers_lay_out(memory->number_shards, 1, 2, out), CDDP_OK);
}

static void find(const struct cddpi_dataset *data, enum cddpi_normalize type,
                 struct cddpi_normalization **out)
{
    *out = cddpi_normalization_create(cddpi_normalization_count(data));
    assert_non_null(*out);
    assert_int_equal(cddpi_normalization_find(data, type, NULL, *out), CDDP_OK);
}

static void each_number_of_a_row_has_its_own_statistics(void **state)
{
    static const float values[] = {1e6F + 1, 5, 0.25F, 1e6F + 3, 5, 0.75F};
    static const int shape[] = {1, 1, 3};
    struct cddpi_normalization *found;
    struct cddpi_dataset data;
    float sample[3];

    (void)state;
    describe(values, shape, 2, &data);
    find(&data, CDDPI_NORMALIZE_STANDARD, &found);
    assert_int_equal(found->count, 3);
    assert_true(found->subtract[0] == 1e6F + 2 && found->divide[0] == 1);
    assert_true(found->subtract[1] == 5 && found->divide[1] == 1); /* one value only */
    assert_true(found->subtract[2] == 0.5F && found->divide[2] == 0.25F);
    memcpy(sample, values, sizeof sample);
    cddpi_normalization_apply(found, 3, sample);
    assert_true(sample[0] == -1 && sample[1] == 0 && sample[2] == -1);
    cddpi_normalization_destroy(found);
    find(&data, CDDPI_NORMALIZE_MINMAX, &found);
    memcpy(sample, values + 3, sizeof sample);
    cddpi_normalization_apply(found, 3, sample);
    assert_true(sample[0] == 1 && sample[1] == 0 && sample[2] == 1);
    cddpi_normalization_destroy(found);
    cddpi_dataset_close(&data);
}

static void the_channels_of_an_image_have_their_own_statistics(void **state)
{
    static const float values[] = {0, 2, 0, 2, 7, 7, 9, 9};
    static const int shape[] = {2, 2, 2};
    struct cddpi_normalization *found;
    struct cddpi_dataset data;

    (void)state;
    describe(values, shape, 1, &data);
    find(&data, CDDPI_NORMALIZE_STANDARD, &found);
    assert_int_equal(found->count, 2);
    assert_true(found->subtract[0] == 1 && found->divide[0] == 1);
    assert_true(found->subtract[1] == 8 && found->divide[1] == 1);
    cddpi_normalization_destroy(found);
    cddpi_dataset_close(&data);
}

static void samples_that_are_held_back_do_not_count(void **state)
{
    static const int shape[] = {1, 1, 1};
    struct cddpi_dataset data, test;
    struct cddpi_normalization *found;
    float values[40];
    double sum = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        values[i] = (float)(i * i);
    }
    describe(values, shape, 40, &data);
    assert_int_equal(cddpi_numbers_split(&data, 0.25, &test), CDDP_OK);
    for (uint64_t i = 0; i < data.count; i++) {
        float number;
        int32_t label;
        char text[64];

        assert_true(cddpi_dataset_numbers(&data, i, &number, &label, text, sizeof text));
        sum += (double)number;
    }
    find(&data, CDDPI_NORMALIZE_STANDARD, &found);
    assert_true(fabs((double)found->subtract[0] - sum / 30) < 1e-4);
    cddpi_normalization_destroy(found);
    cddpi_dataset_close(&data);
    cddpi_dataset_close(&test);
}

static void categories_stay_zeros_and_ones(void **state)
{
    static const float values[] = {3, 1, 0, 0, 9, 5, 0, 1, 0, 7};
    static const int shape[] = {1, 1, 5};
    struct cddpi_normalization *found;
    struct cddpi_dataset data;
    float sample[5];

    (void)state;
    describe(values, shape, 2, &data);
    data.columns = "{\"features\":[{\"name\":\"a\"},{\"categories\":[\"p\",\"q\",\"r\"],"
                   "\"name\":\"b\"},{\"name\":\"c\"}]}";
    find(&data, CDDPI_NORMALIZE_STANDARD, &found);
    memcpy(sample, values, sizeof sample);
    cddpi_normalization_apply(found, 5, sample);
    assert_true(sample[0] == -1 && sample[4] == 1);
    assert_true(sample[1] == 1 && sample[2] == 0 && sample[3] == 0);
    cddpi_normalization_destroy(found);
    cddpi_dataset_close(&data);
}

static void a_number_that_is_none_is_named(void **state)
{
    static const float values[] = {1, NAN, 3};
    static const int shape[] = {1, 1, 1};
    struct cddpi_normalization *found = cddpi_normalization_create(1);
    struct cddpi_dataset data;

    (void)state;
    describe(values, shape, 3, &data);
    assert_int_equal(cddpi_normalization_find(&data, CDDPI_NORMALIZE_STANDARD, NULL, found),
                     CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "of sample 1 is NaN"));
    cddpi_normalization_destroy(found);
    cddpi_dataset_close(&data);
}

/* The difference to what is subtracted would be infinite. */
static void a_range_that_is_too_large_is_refused(void **state)
{
    static const float values[] = {1, 3e38F, 2, -3e38F};
    static const int shape[] = {1, 1, 2};
    struct cddpi_normalization *found = cddpi_normalization_create(2);
    struct cddpi_dataset data;

    (void)state;
    describe(values, shape, 2, &data);
    assert_int_equal(cddpi_normalization_find(&data, CDDPI_NORMALIZE_MINMAX, NULL, found),
                     CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "number 1 of the samples"));
    assert_non_null(strstr(cddp_last_error(), "from -3e+38 to 3e+38"));
    data.columns = "{\"features\":[{\"name\":\"a\"},{\"name\":\"wide\"}]}";
    assert_int_equal(cddpi_normalization_find(&data, CDDPI_NORMALIZE_MINMAX, NULL, found),
                     CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "column wide"));
    data.columns = NULL;
    assert_int_equal(cddpi_normalization_find(&data, CDDPI_NORMALIZE_STANDARD, NULL, found),
                     CDDP_OK);
    assert_true(found->divide[1] == 3e38F);
    cddpi_normalization_destroy(found);
    cddpi_dataset_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_of_a_row_has_its_own_statistics),
        cmocka_unit_test(the_channels_of_an_image_have_their_own_statistics),
        cmocka_unit_test(samples_that_are_held_back_do_not_count),
        cmocka_unit_test(categories_stay_zeros_and_ones),
        cmocka_unit_test(a_number_that_is_none_is_named),
        cmocka_unit_test(a_range_that_is_too_large_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
