/* test_csv_job.c - whole runs on CSV files: classes and real targets are learned, from columns of
 * numbers and of text; errors name key, file, line and column. */
#include "support/train.h"

enum { ROWS = 400 };

/* Numbers in [-1, 1) that look random. */
static double next_number(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (double)(*seed >> 8) / (1 << 23) - 1;
}

/* What a row's class depends on differs by its colour. */
static void make_classes(const char *more)
{
    static const char *const colours[] = {"red", "green", "\"blue, \"\"dark\"\"\""};
    char text[ROWS * 64];
    size_t used = (size_t)sprintf(text, "id,age,colour,income,kind\r\n");
    uint32_t seed = 1;

    for (int i = 0; i < ROWS; i++) {
        double age = next_number(&seed);
        double income = next_number(&seed);
        int colour = (int)((next_number(&seed) + 1) * 1.5);
        bool kind = colour == 0 ? age > 0 : colour == 1 ? age < 0 : income > 0;

        used += (size_t)sprintf(text + used, "%d,%.4f,%s,%.4f,%s\r\n", i, 40 + 10 * age,
                                colours[colour], 3000 + 1000 * income, kind ? "yes" : "no");
    }
    support_write_file(in_work("people.csv"), text, used);
    used = (size_t)snprintf(
        text, sizeof text,
        "model = { type = \"mlp\"; hidden = [32]; };\n"
        "data = { type = \"csv\"; train = \"%s\";\n"
        "  target = \"kind\"; ignore = \"id\"; test_fraction = 0.2; %s };\n"
        "train = { epochs = 60; batch_size = 32; device = \"cpu\"; log_steps = 10; };\n"
        "optimizer = { type = \"sgd\"; lr = 0.1; };\n",
        in_work("people.csv"), more);
    support_write_file(in_work("people.conf"), text, used);
}

static void make_real(void)
{
    char text[ROWS * 64];
    size_t used = (size_t)sprintf(text, "a;b;c;sum;difference\n");
    uint32_t seed = 2;

    for (int i = 0; i < ROWS; i++) {
        double a = next_number(&seed);
        double b = next_number(&seed);
        bool c = next_number(&seed) > 0;

        used += (size_t)sprintf(text + used, "%.4f;%.4f;%s;%.4f;%.4f\n", a, b, c ? "u" : "v",
                                3 * a + b + (c ? 1 : 0), a - b);
    }
    support_write_file(in_work("real.csv"), text, used);
    used = (size_t)snprintf(
        text, sizeof text,
        "model = { type = \"mlp\"; hidden = [32]; loss = \"mse\"; };\n"
        "data = { type = \"csv\"; train = \"%s\"; delimiter = \";\";\n"
        "  target = [\"sum\", \"difference\"]; test_fraction = 0.2; };\n"
        "train = { epochs = 40; batch_size = 32; device = \"cpu\"; log_steps = 10; };\n"
        "optimizer = { type = \"sgd\"; lr = 0.05; };\n",
        in_work("real.csv"));
    support_write_file(in_work("real.conf"), text, used);
}

static void a_run_on_a_table_learns_real_targets(void **state)
{
    struct run_options two = {
        .ranks = 2, .conf = "real.conf", .arguments = {run_dir_argument("two"), NULL}};
    struct run_options one = {
        .ranks = 1, .conf = "real.conf", .arguments = {run_dir_argument("one"), NULL}};

    (void)state;
    make_real();
    run_well(&two);
    assert_true(metric("two", 10, "eval_rmse") > 0.15);
    assert_true(metric("two", 400, "eval_rmse") < 0.1);
    run_well(&one);
    assert_true(fabs(metric("one", 400, "eval_rmse") - metric("two", 400, "eval_rmse")) < 1e-3);
}

static void faults_are_named_with_key_line_and_column(void **state)
{
    struct run_options options = {
        .ranks = 2, .conf = "people.conf", .arguments = {run_dir_argument("bad"), NULL}};
    static const struct {
        const char *argument, *words;
    } cases[] = {
        {"data.target=sort", "no column is called \"sort\", which data.target names"},
        {"data.target=age", "people.csv:2: column 2 (age): "},
        {"data.delimiter=;;", "data.delimiter: must be one character"},
        {"data.target=[\"kind\",\"age\"]", "data.target: 2 columns, but classes lie in one"},
        {"data.target=[]", "data.target: must name a column"},
        {"model.type=gpt2", "takes tokens, but data.type = \"csv\" are numbers"},
        {"data.train=none.csv", "none.csv"},
    };

    (void)state;
    make_classes("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        char *said;

        options.arguments[1] = cases[i].argument;
        run = run_badly(&options);
        said = output(&run, "err", 0);
        if (strstr(said, cases[i].words) == NULL) {
            assert_says(&run, "err", 1, cases[i].words);
        }
        free(said);
    }
}

#define IN_WORK(test) cmocka_unit_test_setup_teardown(test, make_work, remove_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORK(a_run_on_a_table_learns_real_targets),
        IN_WORK(faults_are_named_with_key_line_and_column),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
