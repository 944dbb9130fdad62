/* test_numbers.c - datasets of numbers in memory: what each element type becomes, which rows are
 * samples, and what is refused. */
#include "base/alloc.h"
#include "data/dataset_memory.h"
#include "support/test.h"

#include <math.h>

enum { ROWS = 40, WIDTH = 3 };

static float inputs[ROWS * WIDTH];
static uint8_t classes[ROWS];
static float targets[ROWS * 2];

/* Two shards of 30 and 10 rows; number j of row i is 10 i + j, its class i % 4, its targets i and
 * -i. */
static cddp_status open_numbers(int target_count, int limit, struct cddpi_dataset *out)
{
    struct cddpi_dataset_memory *memory = cddpi_dataset_memory_create(1, 0, NULL);
    struct cddpi_dataset dataset = {
        .channels = 1, .height = 1, .width = WIDTH, .target_count = target_count, .memory = memory};
    struct cddpi_number_shard *shards = cddpi_zalloc_array(2, sizeof *shards);
    cddp_status status;

    memory->number_shards = shards;
    for (int i = 0; i < 2; i++) {
        size_t first = i == 0 ? 0 : 30;

        shards[i].path = i == 0 ? "a" : "b";
        shards[i].target_path = i == 0 ? "ya" : "yb";
        shards[i].inputs = (struct cddpi_numbers){inputs + first * WIDTH, CDDPI_NUMBER_F32};
        shards[i].targets = target_count > 0
                                ? (struct cddpi_numbers){targets + first * 2, CDDPI_NUMBER_F32}
                                : (struct cddpi_numbers){classes + first, CDDPI_NUMBER_U8};
        shards[i].count = i == 0 ? 30 : 10;
    }
    status = cddpi_numbers_lay_out(shards, 2, limit, &dataset);
    if (status != CDDP_OK) {
        cddpi_dataset_close(&dataset);
        return status;
    }
    *out = dataset;
    return CDDP_OK;
}

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < WIDTH; j++) {
            inputs[i * WIDTH + j] = (float)(10 * i + j);
        }
        classes[i] = (uint8_t)(i % 4);
        targets[2 * i] = (float)i;
        targets[2 * i + 1] = (float)-i;
    }
    return 0;
}

static void each_type_becomes_float32(void **state)
{
    static const struct {
        enum cddpi_number_type type;
        uint8_t bytes[8];
        float expected;
    } cases[] = {
        {CDDPI_NUMBER_F32, {0, 0, 0xC0, 0xBF}, -1.5F},
        {CDDPI_NUMBER_F64, {0, 0, 0, 0, 0, 0, 0xF8, 0x3F}, 1.5F},
        {CDDPI_NUMBER_F16, {0x00, 0x3E}, 1.5F},
        {CDDPI_NUMBER_F16, {0x01, 0x80}, -5.9604644775390625e-8F},
        {CDDPI_NUMBER_F16, {0xFF, 0x7B}, 65504.0F},
        {CDDPI_NUMBER_F16, {0x00, 0x04}, 6.103515625e-5F},
        {CDDPI_NUMBER_F16, {0x00, 0x7C}, INFINITY},
        {CDDPI_NUMBER_U8, {200}, 200},
        {CDDPI_NUMBER_I8, {200}, -56},
        {CDDPI_NUMBER_U16, {0x01, 0xFF}, 65281},
        {CDDPI_NUMBER_I16, {0x01, 0xFF}, -255},
        {CDDPI_NUMBER_U32, {0, 0, 0, 0x80}, 2147483648.0F},
        {CDDPI_NUMBER_I32, {0xFF, 0xFF, 0xFF, 0xFF}, -1},
        {CDDPI_NUMBER_U64, {0, 0, 0, 0, 0, 0, 0, 0x80}, 9223372036854775808.0F},
        {CDDPI_NUMBER_I64, {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, -2},
    };

    float nan = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char odd[9]; /* any alignment */
        float found = 0;

        memcpy(odd + 1, cases[i].bytes, 8);
        cddpi_numbers_to_f32(cases[i].type, odd + 1, 1, &found);
        if (found != cases[i].expected) {
            fail_msg("case %zu: %g, not %g", i, (double)found, (double)cases[i].expected);
        }
    }
    cddpi_numbers_to_f32(CDDPI_NUMBER_F16, "\x01\xFC", 1, &nan);
    assert_true(isnan(nan));
}

static void samples_of_all_shards_are_numbered_through(void **state)
{
    struct cddpi_dataset dataset = {0};
    float input[WIDTH];
    int32_t label[2];
    char text[256] = "";

    (void)state;
    assert_int_equal(open_numbers(0, 0, &dataset), CDDP_OK);
    assert_int_equal(dataset.count, ROWS);
    assert_int_equal(dataset.classes, 4);
    assert_int_equal(cddpi_dataset_labels(&dataset), 1);
    for (uint64_t i = 0; i < ROWS; i++) {
        assert_true(cddpi_dataset_numbers(&dataset, i, input, label, text, sizeof text));
        assert_true(input[2] == (float)(10 * i + 2));
        assert_int_equal(label[0], i % 4);
    }
    cddpi_dataset_close(&dataset);
    assert_int_equal(open_numbers(2, 0, &dataset), CDDP_OK);
    assert_int_equal(dataset.classes, 2);
    assert_int_equal(cddpi_dataset_labels(&dataset), 2);
    assert_true(cddpi_dataset_numbers(&dataset, 35, input, label, text, sizeof text));
    assert_true(((float *)label)[1] == -35.0F);
    cddpi_dataset_close(&dataset);
}

static void a_part_held_back_shares_no_sample_with_the_rest(void **state)
{
    struct cddpi_dataset train = {0};
    struct cddpi_dataset test = {0};
    float input[WIDTH];
    int32_t label[2];
    int seen[ROWS] = {0};
    int ordered = 1;
    int last = -1;
    char text[256] = "";

    (void)state;
    assert_int_equal(open_numbers(0, 0, &train), CDDP_OK);
    assert_int_equal(cddpi_numbers_split(&train, 0.25, &test), CDDP_OK);
    assert_int_equal(train.count, 30);
    assert_int_equal(test.count, 10);
    for (uint64_t i = 0; i < ROWS; i++) {
        int row;

        assert_true(cddpi_dataset_numbers(i < 30 ? &train : &test, i < 30 ? i : i - 30, input,
                                          label, text, sizeof text));
        row = (int)input[0] / 10;
        ordered &= row > last;
        last = row;
        seen[row]++;
    }
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_false(ordered); /* a sorted file must not lose its last class */
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
}

static void numbers_that_are_none_are_named(void **state)
{
    struct cddpi_dataset dataset = {0};
    float input[WIDTH];
    int32_t label[2];
    char text[256] = "";

    (void)state;
    assert_int_equal(open_numbers(2, 0, &dataset), CDDP_OK);
    inputs[35 * WIDTH + 1] = NAN;
    assert_false(cddpi_dataset_numbers(&dataset, 35, input, label, text, sizeof text));
    assert_non_null(strstr(text, "b: number 1 of sample 5 is NaN"));
    targets[2 * 7] = -INFINITY;
    assert_false(cddpi_dataset_numbers(&dataset, 7, input, label, text, sizeof text));
    assert_non_null(strstr(text, "ya: target 0 of sample 7 is infinite"));
    cddpi_dataset_close(&dataset);
}

static void classes_out_of_range_are_named(void **state)
{
    struct cddpi_dataset dataset = {.count = 77};

    (void)state;
    assert_int_equal(open_numbers(0, 3, &dataset), CDDP_ERR_FORMAT);
    assert_string_equal(cddp_last_error(),
                        "ya: the class of sample 3 is too large, but classes are 0 to 2");
    assert_int_equal(dataset.count, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_type_becomes_float32, fill),
        cmocka_unit_test_setup(samples_of_all_shards_are_numbered_through, fill),
        cmocka_unit_test_setup(a_part_held_back_shares_no_sample_with_the_rest, fill),
        cmocka_unit_test_setup(numbers_that_are_none_are_named, fill),
        cmocka_unit_test_setup(classes_out_of_range_are_named, fill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
