/* test_model_cuda.c - models that compute on a GPU say what they say on the processor. */
#include "support/train.h"

#include <cddp/model.h>

enum { COUNT = 150, LENGTH = 9, VOCABULARY = 257 };

static cddp_model *open_on(const char *run_dir, const char *device, uint32_t max_batch)
{
    cddp_model_options options = {CDDP_SIZED(cddp_model_options), .device = device,
                                  .max_batch = max_batch};
    cddp_model_info info = CDDP_MODEL_INFO_INIT;
    cddp_model *model = NULL;

    if (cddp_model_open(in_work("%s", run_dir), &options, &model) != CDDP_OK ||
        cddp_model_get_info(model, &info) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_string_equal(info.device, device);
    return model;
}

static void expect_close(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(fabsf(a[i] - b[i]) <= 1e-4F + 1e-3F * fabsf(b[i]));
    }
}

/* What @p run_dir says on both devices to @p in is the same. */
static void compare(const char *run_dir, const cddp_tensor *in, const cddp_param *like,
                    size_t count)
{
    float *values[2];

    for (int i = 0; i < 2; i++) {
        cddp_model *model = open_on(run_dir, i == 0 ? "cpu" : "cuda", i == 0 ? 0 : 7);
        cddp_param out = *like;

        values[i] = calloc(count, sizeof *values[i]);
        out.data = values[i];
        if (cddp_model_forward(model, in, 1, &out, 1) != CDDP_OK) {
            fail_msg("%s", cddp_last_error());
        }
        cddp_model_close(model);
    }
    expect_close(values[1], values[0], count);
    free(values[0]);
    free(values[1]);
}

static void images_give_the_same_on_a_gpu(void **state)
{
    struct run_options options = {
        .ranks = 1,
        .arguments = {run_dir_argument("images"), "train.max_steps=5", "model.type=layers",
                      "model.layers=( { type = \"conv2d\"; units = 6; kernel = 3; padding = 1; },"
                      " { type = \"batch_norm\"; sync = true; }, { type = \"relu\"; },"
                      " { type = \"flatten\"; }, { type = \"linear\"; units = 4; } )"}};
    char *file;
    cddp_tensor in = {.type = CDDP_U8, .dims = 4, .shape = {COUNT, 1, SIDE, SIDE}};
    cddp_param out = {.type = CDDP_F32, .dims = 2, .shape = {COUNT, CLASSES}};

    (void)state;
    run_well(&options);
    file = get_file(in_work("test-images"), NULL);
    in.data = file + 16;
    compare("images", &in, &out, COUNT * CLASSES);
    free(file);
}

static cddp_status add_piece(void *state, const char *piece, size_t bytes)
{
    return strlen(strncat(state, piece, bytes)) < 200 ? CDDP_OK : CDDP_ERR_CLOSED;
}

static void tokens_and_texts_are_the_same_on_a_gpu(void **state)
{
    struct run_options options = {
        .ranks = 1, .conf = "text.conf", .arguments = {run_dir_argument("text")}};
    static int32_t tokens[20 * LENGTH];
    cddp_tensor in = {.type = CDDP_I32, .dims = 2, .shape = {20, LENGTH}, .data = tokens};
    cddp_param out = {.type = CDDP_F32, .dims = 3, .shape = {20, LENGTH, VOCABULARY}};
    char texts[2][400] = {"", ""};

    (void)state;
    run_well(&options);
    for (int i = 0; i < 20 * LENGTH; i++) {
        tokens[i] = 'a' + i % 16;
    }
    compare("text", &in, &out, (size_t)20 * LENGTH * VOCABULARY);
    for (int i = 0; i < 2; i++) {
        cddp_model *model = open_on("text", i == 0 ? "cpu" : "cuda", 0);

        if (cddp_model_generate(model, "abcd ", NULL, add_piece, texts[i]) != CDDP_OK) {
            fail_msg("%s", cddp_last_error());
        }
        cddp_model_close(model);
    }
    assert_int_equal(strlen(texts[0]), 20);
    assert_string_equal(texts[0], texts[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_give_the_same_on_a_gpu),
        cmocka_unit_test(tokens_and_texts_are_the_same_on_a_gpu),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
