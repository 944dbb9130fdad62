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
        char *lines = says(argument("src/cddp-train --predict %s%s %s %s",
                                    in_work("test/c%d", kind), kind == 0 ? "/" : "",
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
                1, "the folder has no JPEG or PNG file of its own; folders in it are not read");
    expect_said(
        argument("src/cddp-train --predict %s %s", in_work("test-images"), in_work("text.conf")), 1,
        "has no checkpoint");
}

/* NumPy's format 1.0, as its documentation has it: magic number, version, length of the head in 16
 * bits, a dictionary that spaces and a newline fill up to a multiple of 64 bytes, the elements. */
static void a_npy_of_outputs_has_the_accuracy_of_the_evaluation(void **state)
{
    static const char head[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (150, 4), }";
    const size_t data = 128;
    struct run_options options = {.ranks = 1, .arguments = {run_dir_argument("npy")}};
    uint8_t *labels;
    char *npy, *csv, *rest;
    size_t bytes;
    int correct = 0;

    (void)state;
    run_well(&options);
    for (int i = 0; i < 2; i++) {
        expect_said(argument("src/cddp-train --predict %s --output %s %s %s",
                             in_work("test-images"), in_work(i == 0 ? "out.npy" : "out.csv"),
                             in_work("small.conf"), run_dir_argument("npy")),
                    0, ": 150 rows of 4 outputs\n");
    }
    npy = get_file(in_work("out.npy"), &bytes);
    csv = get_file(in_work("out.csv"), NULL);
    labels = (uint8_t *)get_file(in_work("test-labels"), NULL);
    assert_int_equal(bytes, data + sizeof(float) * CLASSES * TEST_SAMPLES);
    assert_memory_equal(npy, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_memory_equal(npy + 10, head, sizeof head - 1);
    for (size_t i = 10 + sizeof head - 1; i < data; i++) {
        assert_int_equal(npy[i], i + 1 < data ? ' ' : '\n');
    }
    rest = csv;
    assert_string_equal(strsep(&rest, "\n"), "sample,class,0,1,2,3");
    for (int i = 0; i < TEST_SAMPLES; i++) {
        float row[CLASSES];
        double sum = 0;
        int best = 0;

        memcpy(row, npy + data + sizeof row * (size_t)i, sizeof row);
        assert_int_equal(atoi(strsep(&rest, ",")), i);
        for (int c = 0; c < CLASSES; c++) {
            best = row[c] > row[best] ? c : best;
            sum += (double)row[c];
        }
        assert_float_equal(sum, 1.0, 1e-5);
        correct += best == labels[8 + i];
        assert_int_equal(atoi(strsep(&rest, ",")), best);
        for (int c = 0; c < CLASSES; c++) {
            assert_true(strtof(strsep(&rest, c < CLASSES - 1 ? "," : "\n"), NULL) == row[c]);
        }
    }
    assert_string_equal(rest, "");
    assert_float_equal((double)correct / TEST_SAMPLES, metric("npy", 30, "eval_accuracy"), 1e-9);
    free(npy);
    free(csv);
    free(labels);
}

static void an_output_that_cannot_be_written_is_refused(void **state)
{
    const char *words = argument("%s %s", in_work("small.conf"), run_dir_argument("npy"));

    (void)state;
    expect_said(argument("src/cddp-train --predict x --output out.txt %s", words), 2,
                "--output out.txt: the name must end in .npy or .csv");
    expect_said(argument("src/cddp-train --output out.npy %s", words), 2,
                "--output has a meaning only with --predict");
    expect_said(argument("src/cddp-train --predict %s --output %s %s", in_work("small.conf"),
                         in_work("none.npy"), words),
                1, "not an IDX file");
    assert_int_equal(access(in_work("none.npy"), F_OK), -1);
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
                2, "data.type: \"text\": --predict takes models of images");
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
        cmocka_unit_test(a_npy_of_outputs_has_the_accuracy_of_the_evaluation),
        cmocka_unit_test(an_output_that_cannot_be_written_is_refused),
        cmocka_unit_test(continue_prints_what_generate_prints),
        cmocka_unit_test(one_program_uses_both_libraries_as_one),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
