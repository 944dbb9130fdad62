/* test_infer.c - programs that use trained models: the examples say what cddp-train says, and
 * libcddp.so and libcddp-model.so work in one program as one. */
#include "support/images.h"
#include "support/train.h"

enum { KINDS = 3, EACH = 4 };

/* What the program `words` of the build folder prints; release with free(). */
static char *says(const char *words, int *out_status)
{
    int status = system(
        argument("%s/%s > %s 2>&1", getenv("CDDP_TEST_BUILD"), words, in_work("said")));

    *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return get_file(in_work("said"), NULL);
}

static void expect_said(const char *words, int status, const char *expected)
{
    int ended = -1;
    char *text = says(words, &ended);

    if (ended != status || strstr(text, expected) == NULL) {
        fail_msg("%s: status %d, and not '%s' but: %s", words, ended, expected, text);
    }
    free(text);
}

static void make_images(void)
{
    struct run_options options = {
        .ranks = 1, .conf = "images.conf", .arguments = {run_dir_argument("images")}};
    char text[4096];

    make_image_folder(in_work("train"), KINDS, 20, 24, 1);
    make_image_folder(in_work("test"), KINDS, EACH, 20, 2);
    snprintf(text, sizeof text,
             "model = { type = \"layers\"; layers = (\n"
             "  { type = \"conv2d\"; units = 8; kernel = 3; padding = 1; }, { type = \"relu\"; },\n"
             "  { type = \"global_avg_pool\"; }, { type = \"linear\"; units = 3; }); };\n"
             "data = { type = \"image_folder\"; train = \"%s\"; test = \"%s\"; size = 16;\n"
             "  mean = [0.4, 0.4, 0.4]; std = [0.2, 0.2, 0.2]; };\n"
             "train = { epochs = 6; batch_size = 12; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.1; };\n",
             in_work("train"), in_work("test"));
    support_write_file(in_work("images.conf"), text, strlen(text));
    run_well(&options);
}

/* "PATH\tcN\t0.1234" of the line of --predict about image @p i of class @p kind. */
static double predicted(const char *lines, int kind, int i)
{
    const char *at = strstr(lines, in_work("test/c%d/%03d.png", kind, i));
    int class = -1;
    double probability = 0;

    assert_non_null(at);
    assert_int_equal(sscanf(strchr(at, '\t'), "\tc%d\t%lf", &class, &probability), 2);
    assert_int_equal(class, kind);
    assert_true(probability > 1.0 / KINDS && probability <= 1);
    return probability;
}

static void classify_prints_what_predict_prints(void **state)
{
    (void)state;
    need_png();
    make_images();
    for (int kind = 0; kind < KINDS; kind++) {
        int status = -1;
        char *lines = says(argument("src/cddp-train --predict %s %s %s", in_work("test/c%d", kind),
                                    in_work("images.conf"), run_dir_argument("images")),
                           &status);

        assert_int_equal(status, 0);
        for (int i = 0; i < EACH; i++) {
            const char *image = argument("%s", in_work("test/c%d/%03d.png", kind, i));

            expect_said(argument("examples/infer_classify %s %s", in_work("images"), image), 0,
                        argument("%s: class %d, probability %.4f\n", image, kind,
                                 predicted(lines, kind, i)));
        }
        free(lines);
    }
    expect_said(argument("src/cddp-train --predict %s %s %s", in_work("test/c1/002.png"),
                         in_work("images.conf"), run_dir_argument("images")),
                0, "\tc1\t");
    expect_said(argument("examples/infer_classify %s %s", in_work("images"), in_work("no.png")), 1,
                "no.png: No such file");
    expect_said("examples/infer_classify", 1, "usage: classify RUN IMAGE");
}

static void idx_files_are_predicted_in_order(void **state)
{
    struct run_options options = {.ranks = 1, .arguments = {run_dir_argument("idx")}};
    uint8_t *labels;
    char *lines, *rest;
    int status = -1;
    int correct = 0;

    (void)state;
    run_well(&options);
    lines = says(argument("src/cddp-train --predict %s %s %s", in_work("test-images"),
                          in_work("small.conf"), run_dir_argument("idx")),
                 &status);
    labels = (uint8_t *)get_file(in_work("test-labels"), NULL);
    assert_int_equal(status, 0);
    rest = lines;
    for (int i = 0; i < TEST_SAMPLES; i++) {
        char *number = strsep(&rest, "\t");
        char *class = strsep(&rest, "\t");

        assert_int_equal(atoi(number), i);
        correct += atoi(class) == labels[8 + i];
        strsep(&rest, "\n");
    }
    assert_string_equal(rest, "");
    assert_float_equal((double)correct / TEST_SAMPLES, metric("idx", 30, "eval_accuracy"), 1e-9);
    free(labels);
    free(lines);
    expect_said(argument("src/cddp-train --predict %s %s %s", in_work("small.conf"),
                         in_work("small.conf"), run_dir_argument("idx")),
                1, "not an IDX file");
    expect_said(argument("src/cddp-train --predict %s %s %s", in_work("."), in_work("small.conf"),
                         run_dir_argument("idx")),
                1, "the folder has no JPEG or PNG file");
    expect_said(
        argument("src/cddp-train --predict %s %s", in_work("test-images"), in_work("text.conf")), 1,
        "has no checkpoint");
}

static void continue_prints_what_generate_prints(void **state)
{
    struct run_options options = {
        .ranks = 1, .conf = "text.conf", .arguments = {run_dir_argument("text")}};
    char *text;
    int status = -1;

    (void)state;
    run_well(&options);
    text = says(argument("src/cddp-train --generate 'abcd ' %s %s", in_work("text.conf"),
                         run_dir_argument("text")),
                &status);
    assert_int_equal(status, 0);
    assert_true(strlen(text) > 20);
    expect_said(argument("examples/infer_continue %s 'abcd '", in_work("text")), 0, text);
    free(text);
    expect_said(argument("examples/infer_continue %s x", in_work("gone")), 1,
                "gone: No such file or directory");
    expect_said(argument("src/cddp-train --predict %s %s %s", in_work("test-images"),
                         in_work("text.conf"), run_dir_argument("text")),
                2, "model.type: only models that give images classes predict");
}

static void one_program_uses_both_libraries_as_one(void **state)
{
    (void)state;
    expect_said(argument("launcher/cddp-run --nproc 2 --no-tag -- %s/tests/both_libraries %s",
                         getenv("CDDP_TEST_BUILD"), in_work("text")),
                0, "good\ngood\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classify_prints_what_predict_prints),
        cmocka_unit_test(idx_files_are_predicted_in_order),
        cmocka_unit_test(continue_prints_what_generate_prints),
        cmocka_unit_test(one_program_uses_both_libraries_as_one),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
