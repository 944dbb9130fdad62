/* test_predict_table.c - cddp-train --predict on rows of CSV files and of NumPy's: a line for each,
 * classes and targets by their names, and files of all outputs. */
#include "support/npy.h"
#include "support/train.h"

#include <dirent.h>
#include <errno.h>

enum { ROWS = 200 };

/* What cddp-train prints with these words behind --predict; release with free(). */
static char *predict(int *out_status, const char *words)
{
    int status = system(argument("%s/src/cddp-train --predict %s > %s 2>&1",
                                 getenv("CDDP_TEST_BUILD"), words, in_work("said")));

    *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return get_file(in_work("said"), NULL);
}

static char *predict_well(const char *words)
{
    int status = -1;
    char *said = predict(&status, words);

    if (status != 0) {
        fail_msg("%s: status %d: %s", words, status, said);
    }
    return said;
}

static void predict_badly(const char *words, const char *expected)
{
    int status = -1;
    char *said = predict(&status, words);

    if (status == 0 || strstr(said, expected) == NULL) {
        fail_msg("%s: status %d, and not '%s' but: %s", words, status, expected, said);
    }
    free(said);
}

static bool is_red(int row)
{
    return row % 4 == 0;
}

/* The class is the colour; y is x, and 1 more for red. */
static void make_rows(const char *name)
{
    static const char *const colours[] = {"blue", "red"};
    char text[ROWS * 64];
    size_t used = (size_t)sprintf(text, "x,colour,kind,y\n");

    for (int i = 0; i < ROWS; i++) {
        double x = (i * 37 % ROWS) / (double)ROWS;

        used += (size_t)sprintf(text + used, "%.3f,%s,%s,%.3f\n", x, colours[is_red(i)],
                                is_red(i) ? "\"yes, \"\"sir\"\"\"" : "no", x + is_red(i));
    }
    support_write_file(in_work("%s", name), text, used);
}

static void train(const char *run, const char *data, const char *model)
{
    struct run_options options = {
        .ranks = 2, .conf = "table.conf", .arguments = {run_dir_argument(run), NULL}};
    char text[4096];

    make_rows("rows.csv");
    snprintf(text, sizeof text,
             "model = { type = \"mlp\"; hidden = [16]; %s };\n"
             "data = { type = \"csv\"; train = \"%s\"; %s };\n"
             "train = { epochs = 60; batch_size = 20; device = \"cpu\"; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.2; };\n",
             model, in_work("rows.csv"), data);
    support_write_file(in_work("table.conf"), text, strlen(text));
    run_well(&options);
}

static const char *words(const char *file, const char *run, const char *more)
{
    return argument("%s %s %s %s", in_work("%s", file), in_work("table.conf"),
                    run_dir_argument(run), more);
}

/* Whether the test's folder has a file whose name contains @p part. */
static bool has_file(const char *part)
{
    DIR *dir = opendir(in_work("%s", "."));
    struct dirent *entry;
    bool found = false;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        found = found || strstr(entry->d_name, part) != NULL;
    }
    closedir(dir);
    return found;
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define NEED_SIGNALLED_PATH()                                                                      \
    print_message("a sanitizer wants to be loaded before the calls that signal\n");                \
    skip()
#else
#define NEED_SIGNALLED_PATH()
#endif

/* As predict(), with a signal once the temporary file of a table "stopped" is open. */
static char *predict_signalled(int *out_status, const char *line)
{
    char *said;

    setenv("LD_PRELOAD", argument("%s/tests/libfailing_calls.so", getenv("CDDP_TEST_BUILD")), 1);
    setenv("SIGNALLED_PATH", ".stopped.", 1);
    said = predict(out_status, line);
    unsetenv("LD_PRELOAD");
    unsetenv("SIGNALLED_PATH");
    return said;
}

static void a_signal_leaves_no_part_of_the_output(void **state)
{
    static const char *const names[] = {"stopped.csv", "stopped.npy"};

    (void)state;
    NEED_SIGNALLED_PATH();
    train("signalled", "target = \"kind\"; ignore = \"y\";", "");
    for (size_t i = 0; i < 2; i++) {
        const char *line = words("rows.csv", "signalled",
                                 argument("--output %s", in_work("%s", names[i])));
        int status = -1;
        char *said = predict_signalled(&status, line);

        if (status != 3 || strstr(said, "a signal stopped the predictions") == NULL) {
            fail_msg("%s: status %d: %s", names[i], status, said);
        }
        free(said);
        assert_false(has_file("stopped."));
    }
}

static void another_failure_after_a_signal_is_no_stop(void **state)
{
    static const char other[] = "x,colour\n1,red\n1,green\n";
    int status = -1;
    char *said;

    (void)state;
    NEED_SIGNALLED_PATH();
    train("failed", "target = \"kind\"; ignore = \"y\";", "");
    support_write_file(in_work("%s", "bad.csv"), other, sizeof other - 1);
    said = predict_signalled(
        &status, words("bad.csv", "failed", argument("--output %s", in_work("stopped.csv"))));
    if (status != 1 || strstr(said, "green") == NULL) {
        fail_msg("status %d: %s", status, said);
    }
    free(said);
    assert_false(has_file("stopped."));
}

/* Other columns in another order, and no target: as new rows are. */
static void rows_of_a_table_get_classes_by_name(void **state)
{
    static const char new[] = "id,colour,x\n7,red,0.5\n8,blue,0.25\n9,red,0.125\n";
    char *lines, *csv, *rest;
    double probability;

    (void)state;
    train("classes", "target = \"kind\"; ignore = \"y\"; normalize = \"standard\";", "");
    assert_int_equal(unlink(in_work("rows.csv")), 0); /* not needed any more */
    support_write_file(in_work("new.csv"), new, sizeof new - 1);
    lines = rest = predict_well(words("new.csv", "classes", ""));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atoi(strsep(&rest, "\t")), i);
        assert_string_equal(strsep(&rest, "\t"), i == 1 ? "no" : "yes, \"sir\"");
        probability = strtod(strsep(&rest, "\n"), NULL);
        assert_true(probability > 0.8 && probability <= 1);
    }
    assert_string_equal(rest, "");
    free(lines);
    free(predict_well(words("new.csv", "classes", argument("--output %s", in_work("out.csv")))));
    csv = rest = get_file(in_work("out.csv"), NULL);
    assert_string_equal(strsep(&rest, "\n"), "sample,class,no,\"yes, \"\"sir\"\"\"");
    assert_int_equal(strncmp(rest, "0,\"yes, \"\"sir\"\"\",", 17), 0);
    free(csv);
}

static void rows_of_a_table_get_targets_by_name(void **state)
{
    char *lines, *csv, *rest;

    (void)state;
    train("targets", "target = \"y\"; ignore = \"kind\"; ", "loss = \"mse\";");
    make_rows("rows.csv");
    lines = rest = predict_well(words("rows.csv", "targets", ""));
    for (int i = 0; i < ROWS; i++) {
        double y = (i * 37 % ROWS) / (double)ROWS + is_red(i);

        assert_int_equal(atoi(strsep(&rest, "\t")), i);
        assert_float_equal(strtod(strsep(&rest, "\n"), NULL), y, 0.1);
    }
    assert_string_equal(rest, "");
    free(lines);
    free(predict_well(words("rows.csv", "targets", argument("--output %s", in_work("out.csv")))));
    csv = rest = get_file(in_work("out.csv"), NULL);
    assert_string_equal(strsep(&rest, "\n"), "sample,y");
    assert_int_equal(strncmp(rest, "0,", 2), 0);
    free(csv);
}

/* A value that is missing gets the mean that it got in training. */
static void missing_values_get_the_means_of_the_training_data(void **state)
{
    static const char new[] = "x,colour\n,red\n0.5,red\n0.5,?\n";
    char *lines, *rest;
    double y[3];
    size_t bytes = 0;
    char *state_json;

    (void)state;
    train("means", "target = \"y\"; ignore = \"kind\"; missing = \"mean\"; normalize = \"minmax\";",
          "loss = \"mse\";");
    support_write_file(in_work("new.csv"), new, sizeof new - 1);
    lines = rest = predict_well(words("new.csv", "means", ""));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atoi(strsep(&rest, "\t")), i);
        y[i] = strtod(strsep(&rest, "\n"), NULL);
    }
    assert_float_equal(y[0], y[1], 0.05); /* the mean of x is nearly 0.5 */
    assert_float_equal(y[2], 0.75, 0.1);  /* a quarter red */
    free(lines);
    state_json = get_file(in_work("means/checkpoints/step-00000540/state.json"), &bytes);
    assert_non_null(state_json);
    assert_non_null(strstr(state_json, "\"missing\""));
    free(state_json);
}

static void rows_that_do_not_fit_are_refused(void **state)
{
    static const char less[] = "x\n1\n";
    static const char other[] = "x,colour\n1,red\n1,green\n";
    static const char empty[] = "x,colour\n1,red\n,red\n";

    (void)state;
    train("classes", "target = \"kind\"; ignore = \"y\";", "");
    support_write_file(in_work("new.csv"), less, sizeof less - 1);
    predict_badly(words("new.csv", "classes", ""),
                  "new.csv: no column is called \"colour\", which the model needs");
    support_write_file(in_work("new.csv"), other, sizeof other - 1);
    predict_badly(words("new.csv", "classes", ""), "new.csv:3: column 2 (colour): \"green\"");
    support_write_file(in_work("new.csv"), empty, sizeof empty - 1);
    predict_badly(words("new.csv", "classes", ""), "new.csv:3: column 1 (x): ");
    support_write_file(in_work("new.csv"), "x,colour\n", 9);
    predict_badly(words("new.csv", "classes", ""), "new.csv: ");
    predict_badly(words("none.csv", "classes", ""), "none.csv: ");
}

static void rows_of_numpy_get_what_the_model_gives(void **state)
{
    struct run_options options = {
        .ranks = 1, .conf = "table.conf", .arguments = {run_dir_argument("npy"), NULL}};
    static double x[ROWS][2];
    static float y[ROWS];
    double bad[2] = {1, NAN};
    char text[4096];
    char *lines, *rest, *npy;
    size_t bytes = 0;

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        x[i][0] = i / (double)ROWS;
        x[i][1] = i * 37 % ROWS / (double)ROWS;
        y[i] = (float)(x[i][0] - x[i][1]);
    }
    support_write_npy(in_work("x.npy"), "<f8", "(200, 2)", x, sizeof x);
    support_write_npy(in_work("y.npy"), "<f4", "(200,)", y, sizeof y);
    snprintf(text, sizeof text,
             "model = { type = \"mlp\"; hidden = [16]; loss = \"mse\"; };\n"
             "data = { type = \"npy\"; train = \"%s\"; train_targets = \"%s\"; };\n"
             "train = { epochs = 60; batch_size = 20; device = \"cpu\"; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.2; };\n",
             in_work("x.npy"), in_work("y.npy"));
    support_write_file(in_work("table.conf"), text, strlen(text));
    run_well(&options);
    lines = rest = predict_well(words("x.npy", "npy", ""));
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(atoi(strsep(&rest, "\t")), i);
        assert_float_equal(strtod(strsep(&rest, "\n"), NULL), (double)y[i], 0.1);
    }
    assert_string_equal(rest, "");
    free(lines);
    free(predict_well(words("x.npy", "npy", argument("--output %s", in_work("out.npy")))));
    npy = get_file(in_work("out.npy"), &bytes);
    assert_int_equal(bytes, 128 + ROWS * sizeof(float));
    free(npy);
    predict_badly(words("y.npy", "npy", ""),
                  "y.npy: samples are 1 x 1 x 1, but the model takes 2 x 1 x 1");
    support_write_npy(in_work("bad.npy"), "<f8", "(1, 2)", bad, sizeof bad);
    predict_badly(words("bad.npy", "npy", ""), "bad.npy: number 1 of sample 0 is NaN");
    predict_badly(words("table.conf", "npy", ""), "table.conf: byte 0: this is not a .npy file");
}

#define IN_WORK(test) cmocka_unit_test_setup_teardown(test, make_work, remove_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORK(rows_of_a_table_get_classes_by_name),
        IN_WORK(a_signal_leaves_no_part_of_the_output),
        IN_WORK(another_failure_after_a_signal_is_no_stop),
        IN_WORK(rows_of_a_table_get_targets_by_name),
        IN_WORK(missing_values_get_the_means_of_the_training_data),
        IN_WORK(rows_that_do_not_fit_are_refused),
        IN_WORK(rows_of_numpy_get_what_the_model_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
