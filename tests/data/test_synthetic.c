/* test_synthetic.c - data without files: any shape, the same on all machines, and without anything
 * to learn. */
#include "data/data_loader.h"
#include "data/dataset.h"
#include "support/failure.h"
#include "support/memory.h"
#include "train/setup_data.h"

static void images_have_the_shape_and_the_classes_that_were_asked_for(void **state)
{
    const int shape[] = {3, 7, 5};
    struct cddpi_dataset data;
    bool seen[1000] = {false};
    int classes = 0;

    (void)state;
    assert_int_equal(cddpi_dataset_open_synthetic_images(shape, 1000, 5000, false, &data), CDDP_OK);
    assert_int_equal(data.count, 5000);
    assert_int_equal(data.channels * 100 + data.height * 10 + data.width, 375);
    assert_null(data.labels);
    for (size_t i = 0; i < 5000; i++) {
        assert_in_range(data.wide_labels[i], 0, 999);
        classes += !seen[data.wide_labels[i]];
        seen[data.wide_labels[i]] = true;
    }
    assert_true(classes > 900); /* of 1000 (1 - exp(-5)) = 993 */
    cddpi_dataset_close(&data);
}

static void bytes_are_spread_evenly(void **state)
{
    const int shape[] = {1, 64, 64};
    struct cddpi_dataset data;
    int counts[256] = {0};

    (void)state;
    assert_int_equal(cddpi_dataset_open_synthetic_images(shape, 10, 16, false, &data), CDDP_OK);
    for (size_t i = 0; i < (size_t)16 * 64 * 64; i++) {
        counts[data.images[i]]++;
    }
    for (int value = 0; value < 256; value++) {
        assert_in_range(counts[value], 256 - 100, 256 + 100); /* 6 standard deviations */
    }
    cddpi_dataset_close(&data);
}

static void the_same_comes_every_time_and_something_else_to_evaluate_on(void **state)
{
    const int shape[] = {1, 5, 3};
    struct cddpi_dataset a;
    struct cddpi_dataset b;
    struct cddpi_dataset test;

    (void)state;
    assert_int_equal(cddpi_dataset_open_synthetic_images(shape, 10, 100, false, &a), CDDP_OK);
    assert_int_equal(cddpi_dataset_open_synthetic_images(shape, 10, 100, false, &b), CDDP_OK);
    assert_int_equal(cddpi_dataset_open_synthetic_images(shape, 10, 100, true, &test), CDDP_OK);
    assert_memory_equal(a.images, b.images, 1500);
    assert_memory_equal(a.wide_labels, b.wide_labels, 200);
    assert_memory_not_equal(a.images, test.images, 1500);
    cddpi_dataset_close(&a);
    cddpi_dataset_close(&b);
    cddpi_dataset_close(&test);
}

static void sequences_of_tokens_follow_each_other(void **state)
{
    struct cddpi_dataset data;
    struct cddpi_token_fault fault;
    int32_t input[2][11];
    int32_t label[2][11];

    (void)state;
    assert_int_equal(cddpi_dataset_open_synthetic_tokens(11, 50304, 40, false, &data), CDDP_OK);
    assert_int_equal(data.count, 40);
    assert_int_equal(data.unused_count, 0);
    assert_true(cddpi_dataset_token_sequence(&data, 38, input[0], label[0], &fault));
    assert_true(cddpi_dataset_token_sequence(&data, 39, input[1], label[1], &fault));
    assert_memory_equal(label[0], input[0] + 1, 10 * sizeof **input);
    assert_int_equal(label[0][10], input[1][0]);
    cddpi_dataset_close(&data);
}

static void what_cannot_be_is_refused(void **state)
{
    static const int shapes[][3] = {{0, 5, 5}, {1, -1, 5}, {1, 5, 0}, {1 << 14, 1 << 14, 1 << 14}};
    const int shape[] = {1, 5, 5};
    struct cddpi_dataset data;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(
            cddpi_dataset_open_synthetic_images(shapes[i], 10, i == 3 ? 1u << 30 : 9, false, &data),
            CDDP_ERR_ARGUMENT);
    }
    assert_int_equal(cddpi_dataset_open_synthetic_images(shape, 65537, 9, false, &data),
                     CDDP_ERR_ARGUMENT);
    assert_true(failure_is(cddpi_dataset_open_synthetic_tokens(8, 65537, 9, false, &data),
                           CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("at most 65536"));
}

/* What a configuration of these lines says of its data; the text of the failure, or "". */
static const char *open_configured(const char *lines, struct cddpi_config *config,
                                   struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    char *folder = support_mkdtemp();
    char path[4200];
    cddp_status status;

    memset(train, 0, sizeof *train);
    memset(test, 0, sizeof *test);
    snprintf(path, sizeof path, "%s/synthetic.conf", folder);
    support_write_file(path, lines, strlen(lines));
    status = cddpi_config_load(path, NULL, 0, config);
    support_rmdir(folder);
    if (status == CDDP_OK) {
        status = cddpi_trainer_open_data(config, NULL, train, test);
    }
    return status == CDDP_OK ? "" : cddp_last_error();
}

static void a_model_of_tokens_gets_tokens_and_others_get_images(void **state)
{
    struct cddpi_config config;
    struct cddpi_dataset train;
    struct cddpi_dataset test;

    (void)state;
    assert_string_equal(open_configured("data = { type = \"synthetic\"; samples = 50; };\n"
                                        "model = { type = \"gpt2\"; blocks = 1; heads = 1; "
                                        "embed = 8; context = 16; vocab = 300; };",
                                        &config, &train, &test),
                        "");
    assert_int_equal(train.kind, CDDPI_DATASET_TOKENS);
    assert_int_equal(train.classes, 300);
    assert_int_equal(train.count, 50);
    assert_int_equal(test.count, 5);
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
    cddpi_config_fini(&config);
    assert_string_equal(open_configured("data = { type = \"synthetic\"; image = [3, 8, 8]; "
                                        "classes = 1000; mean = [0.4, 0.5, 0.6]; };",
                                        &config, &train, &test),
                        "");
    assert_int_equal(train.kind, CDDPI_DATASET_IMAGES);
    assert_int_equal(train.classes, 1000);
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
    cddpi_config_fini(&config);
}

static void what_lacks_names_its_key(void **state)
{
    static const struct {
        const char *lines, *said;
    } cases[] = {{"data = { type = \"synthetic\"; };\nmodel = { type = \"gpt2\"; };",
                  "model.vocab (its default): must be given for synthetic tokens"},
                 {"data = { type = \"synthetic\"; image = [28, 28]; };",
                  "data.image: 2 numbers, but an image has channels, height and width"},
                 {"data = { type = \"synthetic\"; image = [3, 28, 28]; mean = [0.1, 0.2]; };",
                  "data.mean: 2 numbers, but the images have 3 channels"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cddpi_config config;
        struct cddpi_dataset train;
        struct cddpi_dataset test;

        assert_non_null(
            strstr(open_configured(cases[i].lines, &config, &train, &test), cases[i].said));
        cddpi_dataset_close(&train);
        cddpi_dataset_close(&test);
        cddpi_config_fini(&config);
    }
}

static void what_cannot_fit_names_its_key_and_how_much_memory_there_is(void **state)
{
    char *machine = support_mkdtemp();
    struct cddpi_config config;
    struct cddpi_dataset train;
    struct cddpi_dataset test;
    const char *said;

    (void)state;
    support_set_memory(machine, 1024);
    said = open_configured("data = { type = \"synthetic\"; samples = 10000; };\n", &config, &train,
                           &test);
    assert_non_null(strstr(said, "synthetic.conf:1: data.samples: 10000 synthetic samples to train "
                                 "on and 1000 to evaluate on, in each of 1 rank of this machine: "
                                 "8.2 MiB "));
    cddpi_config_fini(&config);
    said = open_configured("data = { type = \"synthetic\"; samples = 10000; };\n"
                           "model = { type = \"gpt2\"; blocks = 1; heads = 1; embed = 8; "
                           "context = 1024; vocab = 300; };",
                           &config, &train, &test);
    assert_non_null(strstr(said, ": 21.5 MiB "));
    cddpi_config_fini(&config);
    support_end_memory();
    support_rmdir(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_have_the_shape_and_the_classes_that_were_asked_for),
        cmocka_unit_test(bytes_are_spread_evenly),
        cmocka_unit_test(the_same_comes_every_time_and_something_else_to_evaluate_on),
        cmocka_unit_test(sequences_of_tokens_follow_each_other),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_model_of_tokens_gets_tokens_and_others_get_images),
        cmocka_unit_test(what_lacks_names_its_key),
        cmocka_unit_test(what_cannot_fit_names_its_key_and_how_much_memory_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
