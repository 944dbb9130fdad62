/* test_model_forward.c - a model that cddp-train has trained computes what the run's evaluation
 * computed, says what it takes and gives, and does so for batches of any size. */
#include "support/failure.h"
#include "support/gan.h"
#include "support/images.h"

#include <cddp/model.h>
#include <dlfcn.h>

enum { MOST = TEST_SAMPLES };

static cddp_model *open_run(const char *run_dir, const cddp_model_options *options)
{
    cddp_model *model = NULL;

    must(cddp_model_open(in_work("%s", run_dir), options, &model));
    return model;
}

/* The bytes of an IDX file of make_work() behind its header; release the whole with free(). */
static uint8_t *idx_of(const char *name, size_t header)
{
    uint8_t *all = (uint8_t *)get_file(in_work("%s", name), NULL);

    assert_non_null(all);
    memmove(all, all + header, TEST_SAMPLES * SIDE * SIDE / (header == 16 ? 1 : SIDE * SIDE));
    return all;
}

static cddp_status forward_images(cddp_model *model, cddp_type type, const void *images, int count,
                                  float *out)
{
    cddp_tensor in = {.type = type, .dims = 4, .shape = {count, 1, SIDE, SIDE}, .data = images};
    cddp_param result = {.type = CDDP_F32, .dims = 2, .shape = {count, CLASSES}, .data = out};

    return cddp_model_forward(model, &in, 1, &result, 1);
}

/* The loss of one row of logits, in double. */
static double cross_entropy(const float *logits, int classes, int label)
{
    double largest = logits[0];
    double sum = 0;

    for (int c = 1; c < classes; c++) {
        largest = logits[c] > largest ? logits[c] : largest;
    }
    for (int c = 0; c < classes; c++) {
        sum += exp(logits[c] - largest);
    }
    return log(sum) + largest - logits[label];
}

static int best_of(const float *values, int count)
{
    int best = 0;

    for (int c = 1; c < count; c++) {
        best = values[c] > values[best] ? c : best;
    }
    return best;
}

static void expect_evaluation(const char *run_dir, uint64_t step, const float *logits,
                              const uint8_t *labels, int count, int classes)
{
    double loss = 0;
    double expected = metric(run_dir, step, "eval_loss");
    int correct = 0;

    for (int i = 0; i < count; i++) {
        loss += cross_entropy(logits + i * classes, classes, labels[i]) / count;
        correct += best_of(logits + i * classes, classes) == labels[i];
    }
    assert_true(expected > 0);
    assert_true(fabs(loss - expected) <= 1e-5 * expected + 1e-7);
    assert_float_equal((double)correct / count, metric(run_dir, step, "eval_accuracy"), 1e-9);
}

static void images_give_the_evaluations_loss_and_accuracy(void **state)
{
    static const char *const models[][2] = {
        {"mlp", "model.type=mlp"},
        {"cnn", "model.type=layers"},
    };
    static const char layers[] =
        "model.layers=( { type = \"conv2d\"; units = 6; kernel = 3; padding = 1; },"
        " { type = \"batch_norm\"; sync = true; }, { type = \"relu\"; }, { type = \"max_pool\"; },"
        " { type = \"flatten\"; }, { type = \"linear\"; units = 4; } )";
    uint8_t *images = idx_of("test-images", 16);
    uint8_t *labels = idx_of("test-labels", 8);
    float logits[MOST * CLASSES];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct run_options options = {
            .ranks = 2,
            .arguments = {run_dir_argument(models[i][0]), models[i][1], i == 1 ? layers : NULL}};
        cddp_model *model;

        run_well(&options);
        model = open_run(models[i][0], NULL);
        must(forward_images(model, CDDP_U8, images, MOST, logits));
        expect_evaluation(models[i][0], 30, logits, labels, MOST, CLASSES);
        cddp_model_close(model);
    }
    free(images);
    free(labels);
}

static void a_model_says_what_it_takes_and_gives(void **state)
{
    cddp_model *model = open_run("mlp", NULL);
    cddp_model_value value = CDDP_MODEL_VALUE_INIT;
    cddp_model_info info = CDDP_MODEL_INFO_INIT;

    (void)state;
    assert_int_equal(cddp_model_inputs(model), 1);
    assert_int_equal(cddp_model_outputs(model), 1);
    must(cddp_model_get_input(model, 0, &value));
    assert_string_equal(value.name, "images");
    assert_string_equal(value.meaning, "planes of bytes, 0 to 255");
    assert_int_equal(value.type, CDDP_U8);
    assert_int_equal(value.dims, 4);
    assert_int_equal(value.shape[0], CDDP_MODEL_BATCH);
    assert_int_equal(value.shape[1], 1);
    assert_int_equal(value.shape[2], SIDE);
    assert_int_equal(value.shape[3], SIDE);
    assert_float_equal(value.mean[0], 0.3F, 0);
    assert_float_equal(value.std[0], 0.2F, 0);
    must(cddp_model_get_output(model, 0, &value));
    assert_string_equal(value.name, "logits");
    assert_int_equal(value.dims, 2);
    assert_int_equal(value.shape[0], CDDP_MODEL_BATCH);
    assert_int_equal(value.shape[1], CLASSES);
    must(cddp_model_get_info(model, &info));
    assert_string_equal(info.type, "mlp");
    assert_string_equal(info.device, "cpu");
    assert_string_equal(info.path, in_work("mlp/checkpoints/step-00000030"));
    assert_int_equal(info.step, 30);
    assert_int_equal(info.classes, CLASSES);
    assert_int_equal(info.parameters, 64 * 16 + 16 + 16 * CLASSES + CLASSES);
    assert_int_equal(info.max_batch, 64);
    assert_int_equal(info.writes_text, 0);
    cddp_model_close(model);
}

static void floats_that_the_caller_normalised_give_the_same_bits(void **state)
{
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *bytes = open_run("mlp", NULL);
    cddp_model *floats;
    cddp_model_value value = CDDP_MODEL_VALUE_INIT;
    uint8_t *images = idx_of("test-images", 16);
    float *normalised = calloc(MOST * SIDE * SIDE, sizeof *normalised);
    float a[MOST * CLASSES], b[MOST * CLASSES];

    (void)state;
    options.normalised = true;
    floats = open_run("mlp", &options);
    must(cddp_model_get_input(floats, 0, &value));
    assert_int_equal(value.type, CDDP_F32);
    for (int i = 0; i < MOST * SIDE * SIDE; i++) {
        normalised[i] = ((float)images[i] / 255.0F - value.mean[0]) / value.std[0];
    }
    must(forward_images(bytes, CDDP_U8, images, MOST, a));
    must(forward_images(floats, CDDP_F32, normalised, MOST, b));
    assert_memory_equal(a, b, sizeof a);
    cddp_model_close(bytes);
    cddp_model_close(floats);
    free(images);
    free(normalised);
}

static void batches_of_any_size_give_the_same(void **state)
{
    static const int sizes[] = {1, 7, 64, 65, 128, MOST};
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *model = open_run("cnn", NULL);
    cddp_model *small;
    uint8_t *images = idx_of("test-images", 16);
    float whole[MOST * CLASSES], part[MOST * CLASSES];

    (void)state;
    options.max_batch = 3;
    options.threads = 2;
    small = open_run("cnn", &options);
    must(forward_images(model, CDDP_U8, images, MOST, whole));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int which = 0; which < 2; which++) {
            memset(part, 0, sizeof part);
            must(forward_images(which == 0 ? model : small, CDDP_U8, images, sizes[i], part));
            for (int k = 0; k < sizes[i] * CLASSES; k++) {
                assert_float_equal(part[k], whole[k], 1e-5);
            }
        }
    }
    must(forward_images(model, CDDP_U8, NULL, 0, NULL));
    cddp_model_close(model);
    cddp_model_close(small);
    free(images);
}

static void openmp_settings_of_the_caller_do_not_change(void **state)
{
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    uint8_t *images = idx_of("test-images", 16);
    float out[MOST * CLASSES];
    int (*max_threads)(void);
    void (*set_threads)(int);
    cddp_model *model;

    (void)state;
    *(void **)&max_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (max_threads == NULL || set_threads == NULL) {
        skip();
    }
    set_threads(3);
    options.threads = 2;
    model = open_run("cnn", &options);
    assert_int_equal(max_threads(), 3);
    must(forward_images(model, CDDP_U8, images, MOST, out));
    assert_int_equal(max_threads(), 3);
    cddp_model_close(model);
    assert_int_equal(max_threads(), 3);
    free(images);
}

static void probabilities_are_the_softmax_of_the_logits(void **state)
{
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *logits_of = open_run("mlp", NULL);
    cddp_model *model;
    cddp_model_value value = CDDP_MODEL_VALUE_INIT;
    uint8_t *images = idx_of("test-images", 16);
    float logits[MOST * CLASSES], probabilities[MOST * CLASSES];

    (void)state;
    options.probabilities = true;
    model = open_run("mlp", &options);
    must(cddp_model_get_output(model, 0, &value));
    assert_string_equal(value.name, "probabilities");
    must(forward_images(logits_of, CDDP_U8, images, MOST, logits));
    must(forward_images(model, CDDP_U8, images, MOST, probabilities));
    for (int i = 0; i < MOST * CLASSES; i++) {
        const float *row = logits + i / CLASSES * CLASSES;

        assert_float_equal(probabilities[i], exp(-cross_entropy(row, CLASSES, i % CLASSES)), 1e-6);
    }
    cddp_model_close(model);
    cddp_model_close(logits_of);
    free(images);
}

/* The processor has no fp16, so it computes these models in f32. */
static void models_of_runs_in_16_bits_open(void **state)
{
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *model = open_run("mlp", NULL);
    uint8_t *images = idx_of("test-images", 16);
    float f32[MOST * CLASSES], out[MOST * CLASSES];

    (void)state;
    must(forward_images(model, CDDP_U8, images, MOST, f32));
    cddp_model_close(model);
    options.config_text = "train = { precision = \"fp16\"; };";
    model = open_run("mlp", &options);
    must(forward_images(model, CDDP_U8, images, MOST, out));
    assert_memory_equal(out, f32, sizeof out);
    cddp_model_close(model);
    options.config_text = "train = { precision = \"bf16\"; };";
    model = open_run("mlp", &options);
    must(forward_images(model, CDDP_U8, images, MOST, out));
    assert_memory_not_equal(out, f32, sizeof out);
    for (int i = 0; i < MOST * CLASSES; i++) {
        assert_float_equal(out[i], f32[i], 0.05);
    }
    cddp_model_close(model);
    free(images);
}

/* Weights alone, with train.conf as text, where the data are gone. */
static void weights_alone_need_a_train_conf_and_the_size_of_images(void **state)
{
    const char *weights = in_work("mlp/checkpoints/step-00000030/model.safetensors");
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *model = NULL;
    cddp_model *run = open_run("mlp", NULL);
    uint8_t *images = idx_of("test-images", 16);
    float a[MOST * CLASSES], b[MOST * CLASSES];

    (void)state;
    assert_true(failure_is(cddp_model_open(weights, NULL, &model), CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has(weights));
    options.config_text =
        "model = { hidden = [16]; }; optimizer = { lr = 0.1; };"
        "data = { train_images = \"gone\"; train_labels = \"gone\";"
        " test_images = \"gone\"; test_labels = \"gone\"; mean = 0.3; std = 0.2; };";
    assert_true(
        failure_is(cddp_model_open(weights, &options, &model), CDDP_ERR_NOT_FOUND, -1, -1, ""));
    assert_true(failure_errno_is(ENOENT));
    assert_true(last_error_has("data.test_images: gone: "));
    options.image[0] = 1;
    options.image[1] = options.image[2] = SIDE;
    must(cddp_model_open(weights, &options, &model));
    must(forward_images(run, CDDP_U8, images, MOST, a));
    must(forward_images(model, CDDP_U8, images, MOST, b));
    assert_memory_equal(a, b, sizeof a);
    cddp_model_close(model);
    options.config_text = "data.mean = 0.5;"; /* changes a key of the run's */
    assert_int_equal(cddp_model_open(in_work("mlp"), &options, &model), CDDP_ERR_CONFIG);
    options.config_text = "data = { mean = 0.5; };";
    must(cddp_model_open(in_work("mlp"), &options, &model));
    must(forward_images(model, CDDP_U8, images, MOST, b));
    assert_memory_not_equal(a, b, sizeof a);
    cddp_model_close(model);
    cddp_model_close(run);
    free(images);
}

static void image_files_give_the_evaluation_of_a_folder(void **state)
{
    enum { KINDS = 3, EACH = 4, BYTES = 3 * 16 * 16 };
    struct run_options options = {
        .ranks = 1, .conf = "images.conf", .arguments = {run_dir_argument("folder")}};
    uint8_t images[KINDS * EACH * BYTES];
    uint8_t labels[KINDS * EACH];
    float logits[KINDS * EACH * KINDS];
    cddp_tensor in = {
        .type = CDDP_U8, .dims = 4, .shape = {KINDS * EACH, 3, 16, 16}, .data = images};
    cddp_param out = {.type = CDDP_F32, .dims = 2, .shape = {KINDS * EACH, KINDS}, .data = logits};
    cddp_model *model;
    char text[4096];

    (void)state;
    need_png();
    make_image_folder(in_work("train"), KINDS, 20, 24, 1);
    make_image_folder(in_work("test"), KINDS, EACH, 20, 2);
    snprintf(text, sizeof text,
             "model = { type = \"layers\"; layers = (\n"
             "  { type = \"conv2d\"; units = 8; kernel = 3; padding = 1; }, { type = \"relu\"; },\n"
             "  { type = \"global_avg_pool\"; }, { type = \"linear\"; units = 3; }); };\n"
             "data = { type = \"image_folder\"; train = \"%s\"; test = \"%s\"; size = 16;\n"
             "  mean = [0.4, 0.4, 0.5]; std = [0.2, 0.2, 0.3]; };\n"
             "train = { epochs = 1; batch_size = 12; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.1; };\n",
             in_work("train"), in_work("test"));
    support_write_file(in_work("images.conf"), text, strlen(text));
    run_well(&options);
    model = open_run("folder", NULL);
    for (int i = 0; i < KINDS * EACH; i++) {
        labels[i] = (uint8_t)(i / EACH);
        must(cddp_model_read_image(model, in_work("test/c%d/%03d.png", i / EACH, i % EACH),
                                   images + i * BYTES, BYTES));
    }
    must(cddp_model_forward(model, &in, 1, &out, 1));
    expect_evaluation("folder", 5, logits, labels, KINDS * EACH, KINDS);
    cddp_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_give_the_evaluations_loss_and_accuracy),
        cmocka_unit_test(a_model_says_what_it_takes_and_gives),
        cmocka_unit_test(floats_that_the_caller_normalised_give_the_same_bits),
        cmocka_unit_test(batches_of_any_size_give_the_same),
        cmocka_unit_test(openmp_settings_of_the_caller_do_not_change),
        cmocka_unit_test(probabilities_are_the_softmax_of_the_logits),
        cmocka_unit_test(models_of_runs_in_16_bits_open),
        cmocka_unit_test(weights_alone_need_a_train_conf_and_the_size_of_images),
        cmocka_unit_test(image_files_give_the_evaluation_of_a_folder),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
