/* test_csv_job.c - whole runs on CSV files, and with data.normalize: classes and real targets are
 * learned, from columns of numbers and of text; errors name key, file, line and column. */
#include "support/npy.h"
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

/* Numbers of 30 to 50 and of 2000 to 4000 are learned only when they are normalised. */
static void a_run_on_a_table_learns_classes_from_normalised_numbers_and_text(void **state)
{
    struct run_options two = {
        .ranks = 2, .conf = "people.conf", .arguments = {run_dir_argument("two"), NULL}};
    struct run_options raw = {
        .ranks = 1,
        .conf = "people.conf",
        .arguments = {run_dir_argument("raw"), "data.normalize=none", NULL, NULL}};

    (void)state;
    make_classes("normalize = \"standard\";");
    run_well(&two);
    assert_true(metric("two", 600, "eval_accuracy") > 0.95);
    raw.arguments[2] = "optimizer.lr=0.00001"; /* a rate at which it does not diverge */
    run_well(&raw);
    assert_true(metric("raw", 600, "eval_accuracy") < 0.75);
}

/* y is 1 where the first number is above 5000. */
static void numbers_of_npy_files_are_normalised_too(void **state)
{
    struct run_options options = {
        .ranks = 2, .conf = "npy.conf", .arguments = {run_dir_argument("npy"), NULL}};
    float x[ROWS][2];
    uint8_t y[ROWS];
    char text[4096];
    uint32_t seed = 3;

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        x[i][0] = (float)(5000 + 1000 * next_number(&seed));
        x[i][1] = (float)(next_number(&seed) / 1000);
        y[i] = x[i][0] > 5000;
    }
    support_write_npy(in_work("x.npy"), "<f4", "(400, 2)", x, sizeof x);
    support_write_npy(in_work("y.npy"), "|u1", "(400,)", y, sizeof y);
    snprintf(text, sizeof text,
             "model = { type = \"mlp\"; hidden = [8]; };\n"
             "data = { type = \"npy\"; train = \"%s\"; train_targets = \"%s\";\n"
             "  test_fraction = 0.2; normalize = \"minmax\"; };\n"
             "train = { epochs = 40; batch_size = 32; device = \"cpu\"; log_steps = 10; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.2; };\n",
             in_work("x.npy"), in_work("y.npy"));
    support_write_file(in_work("npy.conf"), text, strlen(text));
    run_well(&options);
    assert_true(metric("npy", 400, "eval_accuracy") > 0.95);
}

/* The state.json of a checkpoint, without its checksum. */
static json_t *state_of(const char *run, int step)
{
    size_t bytes = 0;
    char *text = get_file(in_work("%s/checkpoints/step-%08d/state.json", run, step), &bytes);
    json_t *document = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *state = json_incref(json_object_get(document, "state"));

    assert_non_null(state);
    json_decref(document);
    free(text);
    return state;
}

static void checkpoints_keep_the_statistics_and_the_names_of_columns(void **state)
{
    struct run_options first = {
        .ranks = 2,
        .conf = "people.conf",
        .arguments = {run_dir_argument("kept"), "train.max_steps=10", NULL}};
    json_t *of_run;
    const json_t *subtract, *divide, *features, *target;

    (void)state;
    make_classes("normalize = \"standard\";");
    run_well(&first);
    of_run = state_of("kept", 10);
    subtract = json_object_get(json_object_get(of_run, "normalize"), "subtract");
    divide = json_object_get(json_object_get(of_run, "normalize"), "divide");
    assert_int_equal(json_array_size(subtract), 5); /* age, three colours, income */
    assert_true(fabs(json_number_value(json_array_get(subtract, 0)) - 40) < 1);
    assert_true(fabs(json_number_value(json_array_get(divide, 0)) - 10 / sqrt(3)) < 0.5);
    assert_true(json_number_value(json_array_get(subtract, 2)) == 0);
    assert_true(json_number_value(json_array_get(divide, 2)) == 1);
    assert_true(fabs(json_number_value(json_array_get(subtract, 4)) - 3000) < 100);
    features = json_object_get(json_object_get(of_run, "columns"), "features");
    target = json_array_get(json_object_get(json_object_get(of_run, "columns"), "targets"), 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(features, 2), "name")),
                        "income");
    assert_string_equal(json_string_value(json_array_get(json_object_get(target, "classes"), 1)),
                        "yes");
    json_decref(of_run);
}

/* Let the first age be 99 and something. */
static void change_data(void)
{
    size_t bytes = 0;
    char *text = get_file(in_work("people.csv"), &bytes);

    memcpy(strstr(text, "\n0,") + 3, "99", 2);
    support_write_file(in_work("people.csv"), text, bytes);
    free(text);
}

static void a_resumed_run_keeps_the_statistics_that_it_began_with(void **state)
{
    struct run_options first = {
        .ranks = 2,
        .conf = "people.conf",
        .arguments = {run_dir_argument("kept"), "train.max_steps=10", NULL}};
    struct run_options other = {.ranks = 1,
                                .conf = "people.conf",
                                .arguments = {run_dir_argument("kept"), "train.max_steps=20",
                                              "train.resume=auto", "data.normalize=minmax", NULL}};
    struct run_options changed = {.ranks = 2,
                                  .conf = "people.conf",
                                  .arguments = {run_dir_argument("kept"), "train.max_steps=20",
                                                "train.resume=auto", "train.resume_data=any",
                                                NULL}};
    struct run run;
    json_t *before, *after;

    (void)state;
    make_classes("normalize = \"standard\";");
    run_well(&first);
    run = run_badly(&other);
    assert_says(&run, "err", 0, "data.normalize: is \"minmax\", but");
    change_data();
    run = run_well(&changed);
    assert_says(&run, "err", 0,
                "data.normalize: the run keeps the statistics of the data that it "
                "began with; those of these data differ");
    before = state_of("kept", 10);
    after = state_of("kept", 20);
    assert_true(
        json_equal(json_object_get(before, "normalize"), json_object_get(after, "normalize")));
    json_decref(before);
    json_decref(after);
}

/* Replace each @p old in people.csv. */
static void replace_in_data(const char *old, const char *new)
{
    size_t bytes = 0, used = 0;
    char *text = get_file(in_work("people.csv"), &bytes);
    char *changed = malloc(2 * bytes);

    for (const char *at = text; *at != '\0';) {
        bool is_old = strncmp(at, old, strlen(old)) == 0;

        used += (size_t)sprintf(changed + used, "%.*s", is_old ? (int)strlen(new) : 1,
                                is_old ? new : at);
        at += is_old ? strlen(old) : 1;
    }
    support_write_file(in_work("people.csv"), changed, used);
    free(changed);
    free(text);
}

/* As many categories as before, so the model has the same width, but each has another weight. */
static void a_run_cannot_go_on_with_other_columns(void **state)
{
    struct run_options first = {
        .ranks = 2,
        .conf = "people.conf",
        .arguments = {run_dir_argument("kept"), "train.max_steps=10", NULL}};
    struct run_options changed = {.ranks = 2,
                                  .conf = "people.conf",
                                  .arguments = {run_dir_argument("kept"), "train.max_steps=20",
                                                "train.resume=auto", "train.resume_data=any",
                                                NULL}};
    struct run run;

    (void)state;
    make_classes("");
    run_well(&first);
    replace_in_data("green", "yellow");
    run = run_badly(&changed);
    assert_says(&run, "err", 0, "data.train: the columns");
    assert_says(&run, "err", 0, "\"colour\"");
}

static void a_run_that_was_stopped_ends_with_the_bits_of_one_that_was_not(void **state)
{
    struct run_options whole = {
        .ranks = 2,
        .conf = "people.conf",
        .arguments = {run_dir_argument("whole"), "train.max_steps=20", NULL}};
    struct run_options half = {.ranks = 2,
                               .conf = "people.conf",
                               .arguments = {run_dir_argument("half"), "train.max_steps=10", NULL}};
    struct run_options rest = {
        .ranks = 2,
        .conf = "people.conf",
        .arguments = {run_dir_argument("half"), "train.max_steps=20", "train.resume=auto", NULL}};

    (void)state;
    make_classes("normalize = \"standard\";");
    run_well(&whole);
    run_well(&half);
    run_well(&rest);
    assert_same_checkpoint("whole", "half", 20);
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
        {"data.delimiter=\t;", "data.delimiter: must be one character"},
        {"data.delimiter=;;", "data.delimiter: must be one character"},
        {"data.target=[\"kind\",\"age\"]", "data.target: 2 columns, but classes lie in one"},
        {"data.target=[]", "data.target: must name a column"},
        {"model.type=gpt2", "argument model.type=gpt2: model.type: "},
        {"data.train=none.csv", "none.csv"},
        {"data.ignore=id, colour", "which data.ignore names: several columns are written "
                                   "[\"id\", \"colour\"]"},
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

/* Rank 0 reads and fails; the rank that failed is named before the key, not behind it. */
static void a_fault_is_blamed_on_the_key_of_its_file(void **state)
{
    static const char test[] = "id,age,colour,income,kind\n1,40,red,3000,maybe\n";
    struct run_options options = {
        .ranks = 2, .conf = "people.conf", .arguments = {run_dir_argument("bad"), NULL, NULL}};
    struct run run;

    (void)state;
    make_classes("");
    support_write_file(in_work("test.csv"), test, sizeof test - 1);
    options.arguments[1] = argument("data.test=%s", in_work("test.csv"));
    run = run_badly(&options);
    for (int rank = 0; rank < 2; rank++) {
        char *said = output(&run, "err", rank);

        assert_says(&run, "err", rank, argument("data.test: %s:2: column 5", in_work("test.csv")));
        assert_null(strstr(said, "data.train: "));
        assert_null(strstr(said, "data.test: rank "));
        free(said);
    }
}

/* Rows of a number that is different in each, and of a text that is. */
static void make_list(void)
{
    char text[100 * 32];
    size_t used = (size_t)sprintf(text, "income,name,age\n");

    for (int i = 0; i < 100; i++) {
        used += (size_t)sprintf(text + used, "%d,name%d,%d\n", 1000 + 7 * i, i, i % 30);
    }
    support_write_file(in_work("list.csv"), text, used);
    used = (size_t)snprintf(text, sizeof text,
                            "model = { type = \"mlp\"; hidden = [4]; };\n"
                            "data = { type = \"csv\"; train = \"%s\"; target = \"income\"; };\n"
                            "train = { max_steps = 2; batch_size = 8; device = \"cpu\"; };\n"
                            "optimizer = { type = \"sgd\"; lr = 0.001; };\n",
                            in_work("list.csv"));
    support_write_file(in_work("list.conf"), text, used);
}

static void numbers_as_classes_and_texts_that_never_repeat_are_doubted(void **state)
{
    struct run_options options = {
        .ranks = 1, .conf = "list.conf", .arguments = {run_dir_argument("list"), NULL, NULL, NULL}};
    struct run run;
    char *said;

    (void)state;
    make_list();
    run = run_well(&options);
    assert_says(&run, "err", 0,
                "column income, the target, has 100 different whole numbers in 100 rows, and each "
                "is a class: to predict numbers, set model.loss = \"mse\"");
    assert_says(&run, "err", 0, "column name has 100 different texts in 100 rows");
    assert_says(&run, "err", 0, "data.ignore");
    options.arguments[1] = "model.loss=mse";
    options.arguments[2] = "data.ignore=name";
    run = run_well(&options);
    said = output(&run, "err", 0);
    assert_null(strstr(said, "column "));
    free(said);
}

/* The same for float64 and integers, which NumPy's files have. */
static void numbers_of_npy_that_floats_cannot_tell_apart_are_doubted(void **state)
{
    struct run_options options = {
        .ranks = 2, .conf = "npy.conf", .arguments = {run_dir_argument("npy"), NULL}};
    double x[200][2];
    uint8_t y[200];
    char text[4096];
    struct run run;
    char *said;

    (void)state;
    for (int i = 0; i < 200; i++) {
        x[i][0] = i / 1000.0;
        x[i][1] = 1700000000 + i;
        y[i] = (uint8_t)(i % 2);
    }
    support_write_npy(in_work("x.npy"), "<f8", "(200, 2)", x, sizeof x);
    support_write_npy(in_work("y.npy"), "|u1", "(200,)", y, sizeof y);
    snprintf(text, sizeof text,
             "model = { type = \"mlp\"; hidden = [8]; };\n"
             "data = { type = \"npy\"; train = \"%s\"; train_targets = \"%s\";\n"
             "  normalize = \"minmax\"; };\n"
             "train = { max_steps = 2; batch_size = 8; device = \"cpu\"; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.001; };\n",
             in_work("x.npy"), in_work("y.npy"));
    support_write_file(in_work("npy.conf"), text, strlen(text));
    run = run_well(&options);
    assert_says(&run, "err", 0, "x.npy: number 1 of the samples: ");
    said = output(&run, "err", 0);
    assert_null(strstr(said, "number 0 of the samples"));
    free(said);
}

/* 200 timestamps, of which 32-bit floats make 3. */
static void numbers_that_floats_cannot_tell_apart_are_doubted(void **state)
{
    struct run_options options = {
        .ranks = 2, .conf = "time.conf", .arguments = {run_dir_argument("time"), NULL}};
    char text[200 * 40];
    size_t used = (size_t)sprintf(text, "time,price,share,kind\n");
    struct run run;
    char *said;

    (void)state;
    for (int i = 0; i < 200; i++) {
        used += (size_t)sprintf(text + used, "%d,%.2f,%.3f,%c\n", 1700000000 + i, 0.1 + 13.7 * i,
                                i / 1000.0, 'a' + i % 2);
    }
    support_write_file(in_work("time.csv"), text, used);
    used = (size_t)snprintf(text, sizeof text,
                            "model = { type = \"mlp\"; hidden = [4]; };\n"
                            "data = { type = \"csv\"; train = \"%s\"; target = \"kind\";\n"
                            "  normalize = \"minmax\"; };\n"
                            "train = { max_steps = 2; batch_size = 8; device = \"cpu\"; };\n"
                            "optimizer = { type = \"sgd\"; lr = 0.001; };\n",
                            in_work("time.csv"));
    support_write_file(in_work("time.conf"), text, used);
    run = run_well(&options);
    assert_says(&run, "err", 0,
                "column time: numbers from 1700000000 to 1700000199 become only about 3 different "
                "32-bit floats: subtract 1700000000 from all of them in the file");
    said = output(&run, "err", 0);
    assert_null(strstr(said, "column price"));
    assert_null(strstr(said, "column share"));
    free(said);
}

#define IN_WORK(test) cmocka_unit_test_setup_teardown(test, make_work, remove_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORK(a_run_on_a_table_learns_real_targets),
        IN_WORK(a_run_on_a_table_learns_classes_from_normalised_numbers_and_text),
        IN_WORK(numbers_of_npy_files_are_normalised_too),
        IN_WORK(checkpoints_keep_the_statistics_and_the_names_of_columns),
        IN_WORK(a_resumed_run_keeps_the_statistics_that_it_began_with),
        IN_WORK(a_run_cannot_go_on_with_other_columns),
        IN_WORK(a_run_that_was_stopped_ends_with_the_bits_of_one_that_was_not),
        IN_WORK(faults_are_named_with_key_line_and_column),
        IN_WORK(a_fault_is_blamed_on_the_key_of_its_file),
        IN_WORK(numbers_of_npy_that_floats_cannot_tell_apart_are_doubted),
        IN_WORK(numbers_that_floats_cannot_tell_apart_are_doubted),
        IN_WORK(numbers_as_classes_and_texts_that_never_repeat_are_doubted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
