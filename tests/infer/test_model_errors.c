/* test_model_errors.c - what cannot be opened or computed is told, with the file and the key. */
#include "support/failure.h"
#include "support/train.h"

#include <cddp/model.h>
#include <cddp/process.h>

static cddp_model *model; /* of the run "good" */

static int make_run(void **state)
{
    struct run_options options;

    if (make_text_work(state) != 0) {
        return 1;
    }
    options = (struct run_options){.ranks = 1,
                                   .arguments = {run_dir_argument("good"), "train.epochs=1"}};
    run_well(&options);
    return cddp_model_open(in_work("good"), NULL, &model) == CDDP_OK ? 0 : 1;
}

static int close_run(void **state)
{
    cddp_model_close(model);
    return remove_work(state);
}

static void expect_told(cddp_status got, cddp_status status, const char *words)
{
    if (!failure_is(got, status, ANY_RANK, ANY_RANK, NULL) || !last_error_has(words)) {
        fail_msg("status %d and not %d, or '%s' is not in: %s", (int)got, (int)status, words,
                 cddp_last_error());
    }
}

static void expect_closed(const char *path, const cddp_model_options *options, cddp_status status,
                          const char *words)
{
    cddp_model *opened = NULL;

    expect_told(cddp_model_open(path, options, &opened), status, words);
    assert_null(opened);
}

#define WITH(...)                                                                                  \
    &(cddp_model_options)                                                                          \
    {                                                                                              \
        .struct_size = sizeof(cddp_model_options), __VA_ARGS__                                     \
    }

static void what_is_no_model_is_not_opened(void **state)
{
    (void)state;
    expect_closed(NULL, NULL, CDDP_ERR_ARGUMENT, "path is NULL");
    expect_told(cddp_model_open(in_work("good"), NULL, NULL), CDDP_ERR_ARGUMENT, "out is NULL");
    expect_closed(in_work("none"), NULL, CDDP_ERR_NOT_FOUND, in_work("none: No such file"));
    expect_closed(in_work("small.conf"), NULL, CDDP_ERR_CONFIG, "small.conf is no run folder");
    expect_closed(in_work("."), NULL, CDDP_ERR_CONFIG, "is no run folder");
    assert_int_equal(mkdir(in_work("new"), 0755), 0);
    support_write_file(in_work("new/train.conf"), "", 0);
    expect_closed(in_work("new"), NULL, CDDP_ERR_NOT_FOUND, "has no checkpoint yet");
    assert_int_equal(mkdir(in_work("new/checkpoints"), 0755), 0);
    expect_closed(in_work("new"), NULL, CDDP_ERR_NOT_FOUND, in_work("new/checkpoints"));
}

static void options_are_checked(void **state)
{
    cddp_model_options none = {0};

    (void)state;
    expect_closed(in_work("good"), &none, CDDP_ERR_ARGUMENT, "CDDP_MODEL_OPTIONS_INIT");
    expect_closed(in_work("good"), WITH(.image = {1, 8, 0}), CDDP_ERR_ARGUMENT,
                  "image is 1 x 8 x 0");
    expect_closed(in_work("good"), WITH(.threads = 5000), CDDP_ERR_ARGUMENT, "threads is 5000");
    expect_closed(in_work("good"), WITH(.reserved = 1), CDDP_ERR_UNAVAILABLE,
                  "model_open: reserved");
    expect_closed(in_work("good"), WITH(.device = "abacus"), CDDP_ERR_ARGUMENT, "abacus");
    expect_closed(in_work("good"),
                  WITH(.config_text = "model = { loss = \"mse\"; };", .probabilities = true),
                  CDDP_ERR_ARGUMENT, "model.loss = \"mse\"");
}

static void errors_of_a_configuration_name_its_file_and_key(void **state)
{
    static const char npy[] = "model = { type = \"mlp\"; hidden = [16]; };\n"
                              "data = { type = \"npy\"; train = \"no\"; train_targets = \"no\";"
                              " classes = 4; };\n"
                              "train = { epochs = 1; batch_size = 8; };\n"
                              "optimizer = { type = \"sgd\"; lr = 0.1; };\n";

    (void)state;
    support_write_file(in_work("npy.conf"), npy, sizeof npy - 1);
    expect_closed(in_work("good"), WITH(.config_path = in_work("gone.conf")), CDDP_ERR_CONFIG,
                  in_work("gone.conf"));
    expect_closed(in_work("good"), WITH(.config_text = "model = { hiden = [16]; };"),
                  CDDP_ERR_CONFIG, "config_text:1: unknown key model.hiden");
    expect_closed(in_work("good"), WITH(.config_text = "model = {"), CDDP_ERR_CONFIG,
                  "config_text:1:");
    expect_closed(in_work("good"), WITH(.config_text = "data = { mean = [0.1, 0.2]; };"),
                  CDDP_ERR_CONFIG, "data.mean: ");
    expect_closed(in_work("good"),
                  WITH(.config_text = "data = { test_images = \"no\"; train_images = \"no\"; };"),
                  CDDP_ERR_NOT_FOUND, "config_text:1: data.test_images: no: ");
    expect_closed(
        in_work("good"), WITH(.config_path = in_work("npy.conf")), CDDP_ERR_NOT_FOUND,
        "the shape of samples is read there, if cddp_model_options.image does not say it");
    expect_closed(in_work("good"),
                  WITH(.config_path = in_work("text.conf"),
                       .config_text = "data = { vocabulary = \"no\"; };"),
                  CDDP_ERR_NOT_FOUND, "data.vocabulary: no");
}

static void files_of_another_model_and_damaged_ones_are_refused(void **state)
{
    static const char text[] = "model = { hidden = [17]; };";
    const char *weights = argument("%s",
                                   in_work("good/checkpoints/step-00000010/model.safetensors"));
    cddp_model *opened = NULL;
    size_t bytes = 0;
    char *file = get_file(weights, &bytes);

    (void)state;
    expect_closed(in_work("good"), WITH(.config_text = text), CDDP_ERR_FORMAT, "fc1.weight");
    expect_closed(
        weights,
        WITH(.config_path = in_work("good/train.conf"), .config_text = "data = { classes = 7; };"),
        CDDP_ERR_FORMAT, "fc2.weight");
    expect_closed(weights, WITH(.config_path = in_work("text.conf")), CDDP_ERR_FORMAT, weights);
    for (size_t length = 0; length < bytes; length += bytes / 7) {
        support_write_file(in_work("cut.safetensors"), file, length);
        expect_closed(in_work("cut.safetensors"), WITH(.config_path = in_work("good/train.conf")),
                      CDDP_ERR_FORMAT, "cut.safetensors");
    }
    free(file);
    /* only the model is read, not the optimizer's state */
    support_change_byte(in_work("good/checkpoints/step-00000010/optimizer.safetensors"), -1);
    assert_int_equal(cddp_model_open(in_work("good"), NULL, &opened), CDDP_OK);
    cddp_model_close(opened);
    /* the newest checkpoint is broken, and there is no other */
    support_change_byte(weights, -1);
    expect_closed(in_work("good"), NULL, CDDP_ERR_NOT_FOUND, "model.safetensors");
    expect_closed(in_work("good/checkpoints/step-00000010"),
                  WITH(.config_path = in_work("good/train.conf")), CDDP_ERR_FORMAT,
                  "model.safetensors: its contents do not match their checksum");
    support_change_byte(weights, -1);
}

/* What forward says to an input and an output. */
static cddp_status forward(const cddp_tensor *in, const cddp_param *out)
{
    return cddp_model_forward(model, in, 1, out, 1);
}

static void a_batch_of_another_type_or_shape_is_refused(void **state)
{
    static uint8_t images[2 * SIDE * SIDE];
    static float logits[2 * CLASSES];
    const cddp_tensor in = {
        .type = CDDP_U8, .dims = 4, .shape = {2, 1, SIDE, SIDE}, .data = images};
    const cddp_param out = {.type = CDDP_F32, .dims = 2, .shape = {2, CLASSES}, .data = logits};
    cddp_tensor bad = in;
    cddp_param bad_out = out;

    (void)state;
    assert_int_equal(forward(&in, &out), CDDP_OK);
    expect_told(cddp_model_forward(NULL, &in, 1, &out, 1), CDDP_ERR_ARGUMENT, "the model is NULL");
    expect_told(cddp_model_forward(model, &in, 2, &out, 1), CDDP_ERR_ARGUMENT, "2 inputs");
    expect_told(forward(NULL, &out), CDDP_ERR_ARGUMENT, "0 inputs and 1 outputs");
    bad.name = "pictures";
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT,
                "the input is \"images\", not \"pictures\"");
    bad = in;
    bad.type = CDDP_F32;
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT, "has type f32, but must be u8");
    bad = in;
    bad.shape[3] = SIDE + 1;
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT,
                "the input \"images\" has shape 2 x 1 x 8 x 9, but must be batch x 1 x 8 x 8");
    bad = in;
    bad.dims = 9; /* more than a shape has */
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT,
                "the input \"images\" has 9 dimensions, but must be batch x 1 x 8 x 8");
    bad.dims = -1;
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT, "has -1 dimensions");
    bad = in;
    bad.shape[0] = -1;
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT,
                "the input \"images\" is a batch of -1 samples, but 0 to 2147483647 are possible");
    bad.shape[0] = INT64_MAX;
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT, "a batch of 9223372036854775807 samples");
    bad = in;
    bad.dims = 8;
    for (int d = 0; d < 8; d++) {
        bad.shape[d] = INT64_MIN; /* the longest text */
    }
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT,
                "x -9223372036854775808, but must be batch x 1 x 8 x 8");
    bad = in;
    bad.data = NULL;
    expect_told(forward(&bad, &out), CDDP_ERR_ARGUMENT,
                "the data of the input \"images\" are NULL");
    bad = in;
    bad.flags = 1;
    expect_told(forward(&bad, &out), CDDP_ERR_UNAVAILABLE, "model_forward: ");
    bad_out.grad = logits;
    expect_told(forward(&in, &bad_out), CDDP_ERR_ARGUMENT, "grad of the output \"logits\" must");
    bad_out = out;
    bad_out.shape[1] = CLASSES + 1;
    expect_told(forward(&in, &bad_out), CDDP_ERR_ARGUMENT,
                "the output \"logits\" has shape 2 x 5, but must be batch x 4");
    bad_out = out;
    bad_out.shape[0] = 1;
    expect_told(forward(&in, &bad_out), CDDP_ERR_ARGUMENT, "the input has 2 samples");
    expect_told(cddp_model_get_input(model, 1, &(cddp_model_value)CDDP_MODEL_VALUE_INIT),
                CDDP_ERR_ARGUMENT, "the model has one");
    expect_told(cddp_model_get_output(model, 0, NULL), CDDP_ERR_ARGUMENT, "out is NULL");
}

static cddp_status no_text(void *state, const char *piece, size_t bytes)
{
    (void)state;
    (void)piece;
    (void)bytes;
    return CDDP_ERR_CLOSED;
}

static void text_that_cannot_be_written_is_told(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .conf = "text.conf",
                                  .arguments = {run_dir_argument("words"), "train.max_steps=1"}};
    cddp_model *words = NULL;
    int32_t token = 300;
    float logits[257];
    const cddp_tensor in = {.type = CDDP_I32, .dims = 2, .shape = {1, 1}, .data = &token};
    const cddp_param out = {.type = CDDP_F32, .dims = 3, .shape = {1, 1, 257}, .data = logits};
    cddp_generate_options how = CDDP_GENERATE_OPTIONS_INIT;

    (void)state;
    expect_told(cddp_model_generate(model, "x", NULL, no_text, NULL), CDDP_ERR_UNAVAILABLE,
                "only models of tokens write text");
    run_well(&options);
    assert_int_equal(cddp_model_open(in_work("words"), NULL, &words), CDDP_OK);
    /* as many numbers, but another model */
    expect_closed(in_work("words"), WITH(.config_text = "model = { heads = 4; };"), CDDP_ERR_FORMAT,
                  "2 heads");
    expect_told(cddp_model_forward(words, &in, 1, &out, 1), CDDP_ERR_ARGUMENT,
                "token 0 of sample 0 is 300, but the vocabulary has 257 tokens");
    expect_closed(in_work("words"), WITH(.normalised = true), CDDP_ERR_ARGUMENT,
                  "normalised: the model takes no images, but tokens");
    expect_told(cddp_model_generate(words, NULL, NULL, no_text, NULL), CDDP_ERR_ARGUMENT,
                "prompt is NULL");
    expect_told(cddp_model_generate(words, "x", NULL, NULL, NULL), CDDP_ERR_ARGUMENT, "fn is NULL");
    how.temperature = -1;
    expect_told(cddp_model_generate(words, "x", &how, no_text, NULL), CDDP_ERR_ARGUMENT,
                "temperature is -1");
    how.temperature = NAN;
    expect_told(cddp_model_generate(words, "x", &how, no_text, NULL), CDDP_ERR_ARGUMENT,
                "temperature is nan");
    how = (cddp_generate_options)CDDP_GENERATE_OPTIONS_INIT;
    how.top_k = 258;
    expect_told(cddp_model_generate(words, "x", &how, no_text, NULL), CDDP_ERR_ARGUMENT,
                "top_k 258");
    expect_told(cddp_model_read_image(words, "x.png", (uint8_t *)logits, 3), CDDP_ERR_UNAVAILABLE,
                "takes no images");
    cddp_model_close(words);
    cddp_model_close(NULL);
}

static void image_files_that_cannot_be_read_are_told(void **state)
{
    uint8_t image[SIDE * SIDE];

    (void)state;
    expect_told(cddp_model_read_image(model, in_work("no.png"), image, sizeof image),
                CDDP_ERR_NOT_FOUND, in_work("no.png"));
    expect_told(cddp_model_read_image(model, in_work("small.conf"), image, sizeof image),
                CDDP_ERR_FORMAT, in_work("small.conf"));
    expect_told(cddp_model_read_image(model, in_work("no.png"), image, 3), CDDP_ERR_ARGUMENT,
                "room for 3 bytes, but an image has 64");
}

/* A rank of a job opens models like any process: variables of launchers mean nothing here. */
static void variables_of_a_launcher_are_not_read(void **state)
{
    cddp_model *opened = NULL;

    (void)state;
    setenv("CDDP_RANK", "3", 1);
    setenv("CDDP_WORLD_SIZE", "2", 1); /* a contradiction */
    setenv("CDDP_STORE", "tcp://localhost:1", 1);
    setenv("CDDP_DEVICE", "cuda", 1);
    setenv("CDDP_RUN_DIR", "~no-such-user/x", 1);
    assert_int_equal(cddp_model_open(in_work("good"), NULL, &opened), CDDP_OK);
    cddp_model_close(opened);
    unsetenv("CDDP_RANK");
    unsetenv("CDDP_WORLD_SIZE");
    unsetenv("CDDP_STORE");
    unsetenv("CDDP_DEVICE");
    unsetenv("CDDP_RUN_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_model_is_not_opened),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(errors_of_a_configuration_name_its_file_and_key),
        cmocka_unit_test(files_of_another_model_and_damaged_ones_are_refused),
        cmocka_unit_test(a_batch_of_another_type_or_shape_is_refused),
        cmocka_unit_test(text_that_cannot_be_written_is_told),
        cmocka_unit_test(image_files_that_cannot_be_read_are_told),
        cmocka_unit_test(variables_of_a_launcher_are_not_read),
    };

    return cmocka_run_group_tests(tests, make_run, close_run);
}
