/* test_npy_job.c - training on NumPy's files from end to end with the real program: regression and
 * classes, several files, the same for any number of ranks, and what is refused. */
#include "support/npy.h"
#include "support/train.h"

#include <cddp/model.h>

enum { ROWS = 400, WIDTH = 4 };

static float x[ROWS * WIDTH], y[ROWS * 2];
static uint8_t classes[ROWS];

static float random_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1; /* -1 to 1 */
}

static void put_conf(const char *name, const char *data, const char *model)
{
    char conf[4096];
    int bytes = snprintf(conf, sizeof conf,
                         "data = { type = \"npy\"; %s };\nmodel = { %s };\n"
                         "train = { epochs = 30; batch_size = 40; eval_batch_size = 64;"
                         " log_steps = 1; checkpoint_seconds = 0.0; eval_epochs = 30; };\n"
                         "optimizer = { lr = 0.05; momentum = 0.9; };\n",
                         data, model);

    support_write_file(in_work("%s", name), conf, (size_t)bytes);
}

/* y0 = 2 x0 - x1 + 0.5, y1 = 3 x3 - 1; the class is where x0 + x1 is: below 0, or not. */
static int make_npy_work(void **state)
{
    char data[2048];
    uint32_t random = 7;
    double doubles[ROWS * 2];
    uint8_t *members[2] = {malloc(NPY_MOST), malloc(NPY_MOST)};
    uint8_t *archive = malloc(NPY_MOST);
    struct npz_member both[2];

    if (make_work(state) != 0) {
        return 1;
    }
    for (int i = 0; i < ROWS; i++) {
        float *row = x + (size_t)i * WIDTH;

        for (int j = 0; j < WIDTH; j++) {
            row[j] = random_number(&random);
        }
        y[2 * i] = 2 * row[0] - row[1] + 0.5f;
        y[2 * i + 1] = 3 * row[3] - 1;
        classes[i] = row[0] + row[1] >= 0;
        doubles[2 * i] = (double)y[2 * i];
        doubles[2 * i + 1] = (double)y[2 * i + 1];
    }
    support_write_npy(in_work("x_0.npy"), "<f4", "(300, 4)", x, 300 * WIDTH * 4);
    support_write_npy(in_work("x_1.npy"), "<f4", "(100, 4)", x + 300 * WIDTH, 100 * WIDTH * 4);
    support_write_npy(in_work("y_0.npy"), "<f4", "(300, 2)", y, 300 * 2 * 4);
    support_write_npy(in_work("y_1.npy"), "<f4", "(100, 2)", y + 600, 100 * 2 * 4);
    support_write_npy(in_work("c_0.npy"), "|u1", "(300,)", classes, 300);
    support_write_npy(in_work("c_1.npy"), "|u1", "(100, 1)", classes + 300, 100);
    both[0] = (struct npz_member){"in.npy", members[0],
                                  support_npy(1, "<f4", "(400, 4)", x, sizeof x, members[0]), 1};
    both[1] = (struct npz_member){
        "out.npy", members[1],
        support_npy(1, "<f8", "(400, 2)", doubles, sizeof doubles, members[1]), 0};
    support_write_file(in_work("both.npz"), archive, support_npz(both, 2, 0, archive));
    free(members[0]);
    free(members[1]);
    free(archive);
    snprintf(data, sizeof data, "train = \"%s\"; train_targets = \"%s\"; test_fraction = 0.2;",
             in_work("x_*.npy"), in_work("y_*.npy"));
    put_conf("regression.conf", data, "hidden = []; loss = \"mse\";");
    snprintf(data, sizeof data,
             "train = \"%s\"; test_fraction = 0.2; npz_inputs = \"in\"; npz_targets = \"out\";",
             in_work("both.npz"));
    put_conf("archive.conf", data, "hidden = []; loss = \"mse\";");
    snprintf(data, sizeof data,
             "train = \"%s\"; train_targets = [\"%s\"]; test = \"%s\"; test_targets = \"%s\";",
             in_work("x_0.npy"), in_work("c_0.npy"), in_work("x_1.npy"), in_work("c_1.npy"));
    put_conf("classes.conf", data, "hidden = [16];");
    return 0;
}

static struct run run_npy(int ranks, const char *conf, const char *run_dir, const char *a,
                          const char *b)
{
    struct run_options options = {
        .ranks = ranks, .conf = conf, .arguments = {run_dir_argument(run_dir), a, b}};

    return run_well(&options);
}

static void a_regression_learns_a_linear_function(void **state)
{
    struct run run = run_npy(2, "regression.conf", "linear", NULL, NULL);

    (void)state;
    /* 320 samples to train on, 80 held back */
    assert_true(metric("linear", 240, "eval_samples") == 80);
    assert_true(metric("linear", 1, "loss") > 1);
    assert_true(metric("linear", 240, "eval_rmse") < 1e-3);
    assert_float_equal(
        metric("linear", 240, "eval_loss") / pow(metric("linear", 240, "eval_rmse"), 2), 1, 1e-6);
    assert_true(isnan(metric("linear", 240, "eval_accuracy")));
    assert_true(isnan(metric("linear", 1, "accuracy")));
    assert_says(&run, "out", 0, ", rmse ");
    assert_says(&run, "err", 0, "test rmse ");
}

static void an_l1_regression_reports_its_mean_absolute_error(void **state)
{
    struct run run = run_npy(3, "regression.conf", "l1", "model.loss=l1", "optimizer.lr=0.01");

    (void)state;
    assert_true(metric("l1", 240, "eval_mae") < 0.05);
    assert_true(metric("l1", 240, "eval_mae") == metric("l1", 240, "eval_loss"));
    assert_says(&run, "out", 0, ", mae ");
}

static void ranks_and_files_do_not_change_what_is_learned(void **state)
{
    (void)state;
    run_npy(1, "regression.conf", "r1", NULL, NULL);
    run_npy(1, "archive.conf", "z1", NULL, NULL);
    assert_same_file(in_work("r1/checkpoints/step-00000240/model.safetensors"),
                     in_work("z1/checkpoints/step-00000240/model.safetensors"));
    run_npy(2, "regression.conf", "r2", NULL, NULL);
    run_npy(3, "archive.conf", "z3", "train.accumulate=2", NULL);
    for (uint64_t step = 1; step <= 240; step += 7) {
        double expected = metric("r1", step, "loss");

        assert_true(expected > 0);
        assert_float_equal(metric("r2", step, "loss"), expected, 1e-5 * expected + 1e-9);
        assert_float_equal(metric("z3", step, "loss"), expected, 1e-5 * expected + 1e-9);
    }
}

static void a_regression_goes_on_bit_by_bit(void **state)
{
    (void)state;
    run_npy(2, "regression.conf", "whole", NULL, NULL);
    run_npy(2, "regression.conf", "parts", "train.max_steps=101", NULL);
    run_npy(2, "regression.conf", "parts", "train.resume=auto", NULL);
    assert_same_checkpoint("whole", "parts", 240);
}

static void pipelines_and_replicas_learn_the_same(void **state)
{
    struct run_options replicas = {.ranks = 1,
                                   .conf = "regression.conf",
                                   .arguments = {run_dir_argument("replicas"), "model.hidden=[8]",
                                                 "parallel.type=data_parallel",
                                                 "parallel.devices=[\"cpu:0\",\"cpu\"]"}};

    (void)state;
    run_npy(1, "regression.conf", "one", "model.hidden=[8]", NULL);
    run_npy(2, "regression.conf", "stages", "model.hidden=[8]", "parallel.pipeline=2");
    run_well(&replicas);
    for (uint64_t step = 1; step <= 240; step += 7) {
        double expected = metric("one", step, "loss");

        assert_true(expected > 0);
        assert_float_equal(metric("stages", step, "loss"), expected, 1e-3 * expected);
        assert_float_equal(metric("replicas", step, "loss"), expected, 1e-3 * expected);
    }
}

static void classes_are_learned_from_floats(void **state)
{
    struct run run = run_npy(2, "classes.conf", "classes", NULL, NULL);

    (void)state;
    assert_true(metric("classes", 240, "eval_samples") == 100);
    assert_true(metric("classes", 240, "eval_accuracy") > 0.95);
    assert_says(&run, "out", 0, "test accuracy ");
}

static void a_trained_regression_predicts_from_c(void **state)
{
    cddp_model *model = NULL;
    cddp_model_value value = CDDP_MODEL_VALUE_INIT;
    float outputs[ROWS * 2];
    cddp_tensor in = {.type = CDDP_F32, .dims = 4, .shape = {ROWS, WIDTH, 1, 1}, .data = x};
    cddp_param out = {.type = CDDP_F32, .dims = 2, .shape = {ROWS, 2}, .data = outputs};

    (void)state;
    run_npy(2, "archive.conf", "used", NULL, NULL);
    if (cddp_model_open(in_work("used"), NULL, &model) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(cddp_model_get_input(model, 0, &value), CDDP_OK);
    assert_string_equal(value.name, "numbers");
    assert_int_equal(value.type, CDDP_F32);
    assert_int_equal(value.shape[1], WIDTH);
    assert_int_equal(cddp_model_get_output(model, 0, &value), CDDP_OK);
    assert_string_equal(value.name, "targets");
    assert_int_equal(value.shape[1], 2);
    assert_int_equal(cddp_model_forward(model, &in, 1, &out, 1), CDDP_OK);
    for (int i = 0; i < 2 * ROWS; i++) {
        assert_float_equal(outputs[i], y[i], 0.01);
    }
    cddp_model_close(model);
}

static void other_targets_are_not_gone_on_with(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .conf = "regression.conf",
                                  .arguments = {run_dir_argument("edited"), "train.resume=auto"}};
    struct run run;

    (void)state;
    run_npy(1, "regression.conf", "edited", "train.max_steps=10", NULL);
    y[0] += 1;
    support_write_npy(in_work("y_0.npy"), "<f4", "(300, 2)", y, 300 * 2 * 4);
    run = run_badly(&options);
    assert_says(&run, "err", 0, "data.train_targets: the data ");
    y[0] -= 1;
    support_write_npy(in_work("y_0.npy"), "<f4", "(300, 2)", y, 300 * 2 * 4);
}

static void badly(const char *conf, const char *a, const char *b, const char *words)
{
    struct run_options options = {
        .ranks = 2, .conf = conf, .arguments = {run_dir_argument("bad"), a, b}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void what_cannot_be_trained_is_named(void **state)
{
    float strange[2 * WIDTH] = {0};

    (void)state;
    badly("classes.conf", "model.loss=l1", argument("data.test=%s", in_work("x_0.npy")),
          "there are 100 targets, but 300 samples in ");
    badly("regression.conf", "model.loss=cross_entropy", NULL,
          argument("data.train_targets: %s: ", in_work("y_0.npy")));
    badly("classes.conf", "data.classes=1", NULL, "data.train_targets: ");
    badly("classes.conf", argument("data.train_targets=%s", in_work("none.npy")), NULL,
          "data.train_targets: ");
    badly("regression.conf", "model.type=layers", "model.layers=({type=\"linear\";units=3;})",
          "but there are 2 real targets: end with a linear layer of units = 2");
    badly("regression.conf", "model.type=dcgan", "model.loss=cross_entropy",
          "\"dcgan\" takes images, but data.type = \"npy\" has none");
    badly("regression.conf", "model.type=lstm_lm", NULL,
          "argument model.type=lstm_lm: model.type: ");
    strange[5] = NAN;
    support_write_npy(in_work("strange.npy"), "<f4", "(2, 4)", strange, sizeof strange);
    support_write_npy(in_work("labels.npy"), "|u1", "(2,)", classes, 2);
    badly("classes.conf", argument("data.train=%s", in_work("strange.npy")),
          argument("data.train_targets=%s", in_work("labels.npy")),
          "strange.npy: number 1 of sample 1 is NaN as float32");
    badly("classes.conf", argument("data.train_targets=%s", in_work("y_0.npy")), NULL,
          argument("data.train_targets: %s", in_work("y_0.npy")));
    badly("classes.conf", argument("data.test_targets=%s", in_work("y_1.npy")), NULL,
          argument("data.test_targets: %s", in_work("y_1.npy")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_regression_learns_a_linear_function),
        cmocka_unit_test(an_l1_regression_reports_its_mean_absolute_error),
        cmocka_unit_test(ranks_and_files_do_not_change_what_is_learned),
        cmocka_unit_test(a_regression_goes_on_bit_by_bit),
        cmocka_unit_test(pipelines_and_replicas_learn_the_same),
        cmocka_unit_test(classes_are_learned_from_floats),
        cmocka_unit_test(a_trained_regression_predicts_from_c),
        cmocka_unit_test(other_targets_are_not_gone_on_with),
        cmocka_unit_test(what_cannot_be_trained_is_named),
    };

    return cmocka_run_group_tests(tests, make_npy_work, remove_work);
}
