/* test_model_csv.c - a model that was trained on CSV files computes what the run's evaluation
 * computed: its checkpoint has the columns, and how numbers are normalised. */
#include "support/failure.h"
#include "support/train.h"

#include <cddp/model.h>

enum { ROWS = 200, WIDTH = 4, TARGETS = 2 };

/* The rows of the test file, as the model takes them. */
struct rows {
    float inputs[ROWS][WIDTH];
    float targets[ROWS][TARGETS];
};

static double next_number(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (double)(*seed >> 8) / (1 << 23) - 1;
}

static void make_table(const char *name, uint32_t seed, struct rows *out)
{
    static const char *const colours[] = {"blue", "red"};
    char text[ROWS * 64];
    size_t used = (size_t)sprintf(text, "a,colour,b,sum,difference\n");

    memset(out, 0, sizeof *out);
    for (int i = 0; i < ROWS; i++) {
        int colour = next_number(&seed) > 0;

        out->inputs[i][0] = (float)(int)(2000 + 100 * next_number(&seed));
        out->inputs[i][1 + colour] = 1;
        out->inputs[i][3] = (float)(int)(50 * next_number(&seed));
        out->targets[i][0] = (out->inputs[i][0] - 2000) / 64 + (float)colour;
        out->targets[i][1] = out->inputs[i][3] / 64;
        used += (size_t)sprintf(text + used, "%.9g,%s,%.9g,%.9g,%.9g\n", (double)out->inputs[i][0],
                                colours[colour], (double)out->inputs[i][3],
                                (double)out->targets[i][0], (double)out->targets[i][1]);
    }
    support_write_file(in_work("%s", name), text, used);
}

static void train(const char *run, struct rows *test)
{
    struct run_options options = {
        .ranks = 2, .conf = "csv.conf", .arguments = {run_dir_argument(run), NULL}};
    struct rows ignored;
    char text[8192];

    make_table("train.csv", 1, &ignored);
    make_table("test.csv", 2, test);
    snprintf(text, sizeof text,
             "model = { type = \"mlp\"; hidden = [16]; loss = \"mse\"; };\n"
             "data = { type = \"csv\"; train = \"%s\"; test = \"%s\";\n"
             "  target = [\"sum\", \"difference\"]; normalize = \"standard\"; };\n"
             "train = { epochs = 5; batch_size = 20; device = \"cpu\"; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.05; };\n",
             in_work("train.csv"), in_work("test.csv"));
    support_write_file(in_work("csv.conf"), text, strlen(text));
    run_well(&options);
}

static void a_model_of_a_table_computes_what_evaluation_computed(void **state)
{
    struct rows *test = malloc(sizeof *test);
    float outputs[ROWS][TARGETS];
    cddp_tensor in = {
        .type = CDDP_F32, .dims = 4, .shape = {ROWS, 1, 1, WIDTH}, .data = test->inputs};
    cddp_param out = {.type = CDDP_F32, .dims = 2, .shape = {ROWS, TARGETS}, .data = outputs};
    cddp_model *model = NULL;
    double squares = 0;

    (void)state;
    train("run", test);
    assert_int_equal(unlink(in_work("train.csv")), 0); /* not needed any more */
    must(cddp_model_open(in_work("run"), NULL, &model));
    must(cddp_model_forward(model, &in, 1, &out, 1));
    for (int i = 0; i < ROWS; i++) {
        for (int t = 0; t < TARGETS; t++) {
            double error = (double)(outputs[i][t] - test->targets[i][t]);

            squares += error * error;
        }
    }
    assert_true(fabs(sqrt(squares / (ROWS * TARGETS)) - metric("run", 50, "eval_rmse")) < 1e-5);
    assert_true(metric("run", 50, "eval_rmse") < 0.5);
    cddp_model_close(model);
    free(test);
}

static void weights_without_their_checkpoint_are_refused(void **state)
{
    struct rows *test = malloc(sizeof *test);
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *model = NULL;

    (void)state;
    train("run", test);
    options.config_path = in_work("run/train.conf");
    assert_int_equal(cddp_model_open(in_work("run/checkpoints/step-00000050/model.safetensors"),
                                     &options, &model),
                     CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "needs the columns in its checkpoint's state.json"));
    free(test);
}

#define IN_WORK(test) cmocka_unit_test_setup_teardown(test, make_work, remove_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORK(a_model_of_a_table_computes_what_evaluation_computed),
        IN_WORK(weights_without_their_checkpoint_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
