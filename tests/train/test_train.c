/* test_train.c - training from end to end with the real program: it learns, follows PyTorch, gives
 * the same for any number of ranks and in every run, and resumes where it stopped. */
#include "support/train.h"

static void a_run_learns_and_leaves_its_files(void **state)
{
    struct run_options options = {.ranks = 1, .arguments = {run_dir_argument("learns")}};
    struct run run = run_well(&options);
    char *text;

    (void)state;
    assert_says(&run, "out", 0, "test accuracy ");
    assert_says(&run, "out", 0, "after 30 steps");
    assert_true(metric("learns", 1, "loss") > 1.0);
    assert_true(metric("learns", 30, "loss") < 0.3);
    assert_true(metric("learns", 30, "eval_accuracy") > 0.9);
    assert_float_equal(metric("learns", 10, "eval_samples"), TEST_SAMPLES, 0);
    assert_true(metric("learns", 5, "lr") > metric("learns", 25, "lr"));
    text = get_file(in_work("learns/train.conf"), NULL);
    assert_non_null(text);
    assert_non_null(strstr(text, "batch_size = 64;"));
    free(text);
    text = get_file(in_work("learns/checkpoints/latest"), NULL);
    assert_non_null(text);
    assert_non_null(strstr(text, "step-00000030"));
    free(text);
}

static void one_two_and_three_ranks_give_the_same_losses(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct run_options options = {.ranks = ranks,
                                      .arguments = {run_dir_argument(argument("n%d", ranks))}};

        run_well(&options);
        for (uint64_t step = 1; step <= 30; step++) {
            double expected = metric("n1", step, "loss");
            double loss = metric(argument("n%d", ranks), step, "loss");

            assert_true(fabs(loss - expected) <= 1e-4 * expected + 1e-6);
        }
        assert_float_equal(metric(argument("n%d", ranks), 30, "eval_samples"), TEST_SAMPLES, 0);
        assert_float_equal(metric(argument("n%d", ranks), 30, "eval_accuracy"),
                           metric("n1", 30, "eval_accuracy"), 0.5 / TEST_SAMPLES);
        assert_float_equal(metric(argument("n%d", ranks), 30, "eval_loss"),
                           metric("n1", 30, "eval_loss"), 1e-3);
    }
}

static void two_runs_give_identical_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run_options options = {
            .ranks = 3,
            .arguments = {run_dir_argument(i == 0 ? "twin-a" : "twin-b"), "optimizer.type=adamw",
                          "optimizer.lr=0.01", "model.dropout=0.1", "data.flip=true",
                          "data.crop_padding=1", "train.checkpoint_steps=10",
                          i == 0 ? "data.threads=0" : "data.threads=2"}};

        run_well(&options);
    }
    assert_same_checkpoint("twin-a", "twin-b", 10);
    assert_same_checkpoint("twin-a", "twin-b", 30);
}

static void stopping_and_going_on_changes_nothing(void **state)
{
    const char *extra[2] = {"train.max_steps=13", "train.resume=auto"};
    struct run_options whole = {.ranks = 2,
                                .arguments = {run_dir_argument("whole"), "model.dropout=0.2"}};

    (void)state;
    run_well(&whole);
    for (int i = 0; i < 2; i++) {
        struct run_options part = {
            .ranks = 2, .arguments = {run_dir_argument("parts"), "model.dropout=0.2", extra[i]}};
        struct run run = run_well(&part);

        if (i == 1) {
            assert_says(&run, "err", 0, "continuing from");
        }
    }
    assert_same_checkpoint("whole", "parts", 30);
    for (uint64_t step = 1; step <= 30; step++) {
        assert_false(isnan(metric("parts", step, "loss")));
        assert_float_equal(metric("parts", step, "loss"), metric("whole", step, "loss"), 1e-9);
    }
}

/* Take the lines with an evaluation out of the run's metrics. */
static void forget_evaluations(const char *run_dir)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    FILE *file = fopen(in_work("%s/metrics.jsonl", run_dir), "we");

    assert_non_null(file);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strstr(line, "\"eval_loss\"") == NULL) {
            fprintf(file, "%s\n", line);
        }
    }
    fclose(file);
    free(text);
}

/* As if the run had been killed between the checkpoint of a step and its evaluation. */
static void an_evaluation_that_a_killed_run_owes_is_made_up_for_once(void **state)
{
    struct run_options whole = {.ranks = 2, .arguments = {run_dir_argument("paid")}};

    (void)state;
    run_well(&whole);
    for (int i = 0; i < 3; i++) {
        struct run_options part = {.ranks = 2,
                                   .arguments = {run_dir_argument("owed"), "train.resume=auto",
                                                 argument("train.max_steps=%d", 10 * (i + 1))}};
        char *text;
        int evaluations = 0;

        run_well(&part);
        text = get_file(in_work("owed/metrics.jsonl"), NULL);
        for (const char *at = text; (at = strstr(at, "\"eval_loss\"")) != NULL; at++) {
            evaluations++;
        }
        free(text);
        assert_int_equal(evaluations, i + 1);
        if (i == 0) {
            forget_evaluations("owed");
        }
    }
    for (uint64_t step = 10; step <= 30; step += 10) {
        assert_true(metric("owed", step, "eval_loss") == metric("paid", step, "eval_loss"));
    }
}

static void another_number_of_ranks_sees_the_same_samples_once(void **state)
{
    static const struct {
        int ranks;
        const char *until;
    } parts[] = {{2, "train.max_steps=4"},
                 {3, "train.max_steps=10"},
                 {1, "train.max_steps=17"},
                 {4, "train.max_steps=0"}};
    int counts[3 * TRAIN_SAMPLES] = {0};
    int lines;

    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct run_options options = {
            .ranks = parts[i].ranks,
            .arguments = {run_dir_argument("mixed"), "train.resume=auto", parts[i].until,
                          argument("train.sample_log=%s", in_work("mixed-log"))}};

        run_well(&options);
    }
    lines = count_samples("mixed-log", 4, 3, counts);
    for (int i = 0; i < 3 * TRAIN_SAMPLES; i++) {
        assert_int_equal(counts[i], 1);
    }
    assert_int_equal(lines, 4 * 2 + 6 * 3 + 7 * 1 + 13 * 4);
    assert_true(metric("mixed", 30, "eval_accuracy") > 0.9);
}

static void a_signal_to_one_rank_stops_all_after_the_same_step(void **state)
{
    struct run_options options = {
        .ranks = 3,
        .arguments = {run_dir_argument("signal"), "train.epochs=100000",
                      argument("train.sample_log=%s", in_work("signal-log"))}};
    struct run run = start(&options);
    unsigned long long step = 0;
    char *text;
    int last[3];

    (void)state;
    wait_for_steps("signal");
    assert_int_equal(kill(run.pids[1], SIGTERM), 0);
    finish_stopped(&run);
    text = output(&run, "out", 0);
    assert_int_equal(
        sscanf(text, "stopped after step %llu; to continue: cddp-run --nproc 3 ", &step), 1);
    assert_non_null(strstr(text, "train.resume=auto\n"));
    free(text);
    for (int rank = 0; rank < 3; rank++) {
        char *log = get_file(in_work("signal-log.%d", rank), NULL);
        char *line = strrchr(log, '\n');

        *line = '\0';
        line = strrchr(log, '\n');
        last[rank] = atoi(line != NULL ? line + 1 : log);
        free(log);
        assert_int_equal(last[rank], step);
    }
    options.arguments[3] = argument("train.max_steps=%llu", step + 3);
    options.arguments[4] = "train.resume=auto";
    options.ranks = 2;
    run = run_well(&options);
    assert_says(&run, "err", 0, argument("step %llu", step));
    assert_false(isnan(metric("signal", step + 3, "loss")));
}

static void a_batch_that_leaves_ranks_without_samples_counts_right(void **state)
{
    (void)state;
    /* 600 = 9 * 66 + 6: the last batch of an epoch has fewer samples than 8 ranks */
    for (int ranks = 1; ranks <= 8; ranks += 7) {
        struct run_options options = {.ranks = ranks,
                                      .arguments = {run_dir_argument(argument("short%d", ranks)),
                                                    "train.batch_size=66", "train.epochs=2",
                                                    "train.eval_batch_size=7"}};

        run_well(&options);
    }
    for (uint64_t step = 1; step <= 20; step++) {
        double expected = metric("short1", step, "loss");

        assert_true(fabs(metric("short8", step, "loss") - expected) <= 1e-4 * expected + 1e-6);
    }
}

static void a_named_checkpoint_can_be_gone_on_from(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("from"), "train.keep=0", "train.checkpoint_steps=10"}};

    (void)state;
    run_well(&options);
    /* of another run: it stays as it is */
    options.arguments[0] = run_dir_argument("other");
    options.arguments[3] = argument("train.resume=%s", in_work("from/checkpoints/step-%08d", 10));
    run_well(&options);
    assert_same_checkpoint("from", "other", 30);
    assert_int_not_equal(access(in_work("other/checkpoints/step-%08d", 10), F_OK), 0);
    assert_true(isnan(metric("other", 10, "loss")));
    assert_false(isnan(metric("other", 11, "loss")));
    /* of the run itself: what came after it is done again */
    options.arguments[0] = run_dir_argument("from");
    run_well(&options);
    assert_same_checkpoint("from", "other", 30);
    assert_same_checkpoint("from", "other", 20);
    assert_false(isnan(metric("from", 10, "loss")));
}

static void a_named_run_is_gone_on_from_its_newest_checkpoint(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("short"), "train.max_steps=10", "train.checkpoint_steps=4"}};
    const char *const names[] = {"short", "short/checkpoints"};

    (void)state;
    run_well(&options);
    for (size_t i = 0; i < 2; i++) {
        struct run run;

        options.arguments[0] = run_dir_argument("long");
        options.arguments[1] = "train.max_steps=12";
        options.arguments[3] = argument("train.resume=%s", in_work("%s", names[i]));
        run = run_well(&options);
        assert_says(&run, "err", 0, "step-00000010: step 10");
        assert_true(isnan(metric("long", 10, "loss")));
        assert_false(isnan(metric("long", 11, "loss")));
    }
}

static void an_earlier_run_is_put_aside_and_kept(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .arguments = {run_dir_argument("again"), "train.max_steps=2"}};
    struct run run;
    char *text;

    (void)state;
    run_well(&options);
    options.arguments[1] = "train.max_steps=1";
    run = run_well(&options);
    assert_says(&run, "err", 0, "earlier-1");
    text = get_file(in_work("again/earlier-1/checkpoints/latest"), NULL);
    assert_non_null(text);
    free(text);
    text = get_file(in_work("again/checkpoints/latest"), NULL);
    assert_non_null(strstr(text, "step-00000001"));
    free(text);
}

/* As a run leaves them that is killed between its renames, however far it has come. */
static void going_on_clears_up_behind_a_killed_run(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("untidy"), "train.max_steps=2",
                                                "train.checkpoint_steps=1", "train.keep=0"}};
    const char *left[] = {argument("%s", in_work("untidy/.train.conf.tmp-1-0")),
                          argument("%s", in_work("untidy/.metrics.jsonl.tmp-1-0")),
                          argument("%s", in_work("untidy/.report.html.tmp-1-0")),
                          argument("%s", in_work("untidy/checkpoints/.latest.tmp-1")),
                          argument("%s", in_work("untidy/checkpoints/.step-00000002.tmp-1"))};
    const char *latest = argument("%s", in_work("untidy/checkpoints/latest"));

    (void)state;
    run_well(&options);
    options.arguments[4] = "train.resume=auto";
    for (int i = 0; i < 2; i++) { /* it was finished; then it is not */
        char *text;

        support_write_file(latest, "step-00000001\n", 14);
        for (size_t k = 0; k < 4; k++) {
            support_write_file(left[k], "half", 4);
        }
        assert_int_equal(mkdir(left[4], 0700), 0);
        options.arguments[1] = i == 0 ? "train.max_steps=2" : "train.max_steps=3";
        run_well(&options);
        text = get_file(latest, NULL);
        assert_string_equal(text, i == 0 ? "step-00000002\n" : "step-00000003\n");
        free(text);
        for (size_t k = 0; k < 5; k++) {
            assert_int_equal(access(left[k], F_OK), -1);
        }
    }
}

static void checkpoints_by_time_are_written(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("timed"), "train.checkpoint_seconds=0.000001",
                      "train.keep=0", "train.max_steps=4", "train.checkpoint_async=false"}};

    (void)state;
    run_well(&options);
    for (int step = 2; step <= 4; step++) {
        char *text = get_file(in_work("timed/checkpoints/step-%08d/state.json", step), NULL);

        assert_non_null(text);
        free(text);
    }
}

static void a_run_that_only_measures_leaves_no_checkpoint(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("measured"),
                                                "train.checkpoint_at_end=false",
                                                "train.max_steps=3"}};

    (void)state;
    run_well(&options);
    assert_true(metric("measured", 3, "loss") > 0);
    assert_int_not_equal(access(in_work("measured/checkpoints/latest"), F_OK), 0);
    assert_int_not_equal(access(in_work("measured/checkpoints/step-%08d", 3), F_OK), 0);
}

/* Statistics over all ranks make N ranks equal to one, also where ranks have no samples: the last
 * batch of an epoch has 6. */
static void layers_with_statistics_over_all_ranks_agree(void **state)
{
    static const char layers[] =
        "model.layers=({type=\"conv2d\";units=4;kernel=3;padding=1;},"
        "{type=\"batch_norm\";sync=true;},{type=\"relu\";},{type=\"max_pool\";},"
        "{type=\"flatten\";},{type=\"linear\";units=4;})";

    (void)state;
    for (int ranks = 1; ranks <= 7; ranks += 6) {
        struct run_options options = {.ranks = ranks,
                                      .arguments = {run_dir_argument(argument("conv%d", ranks)),
                                                    "model.type=layers", layers,
                                                    "train.batch_size=66", "train.max_steps=12"}};

        run_well(&options);
    }
    for (uint64_t step = 1; step <= 12; step++) {
        double expected = metric("conv1", step, "loss");

        assert_true(fabs(metric("conv7", step, "loss") - expected) <= 1e-3 * expected);
    }
}

static void losses_follow_pytorch(void **state)
{
    static const char *const files = "/usr/share/datasets/fashion-mnist";
    const char *source = getenv("CDDP_TEST_SOURCE");
    json_t *reference = json_load_file(argument("%s/tests/vectors/reference_mlp.json", source), 0,
                                       NULL);
    json_t *losses = json_object_get(reference, "losses");
    char *conf = argument("data = { train_images = \"%s/train-images-idx3-ubyte.gz\";"
                          " train_labels = \"%s/train-labels-idx1-ubyte.gz\";"
                          " test_images = \"%s/t10k-images-idx3-ubyte.gz\";"
                          " test_labels = \"%s/t10k-labels-idx1-ubyte.gz\";"
                          " mean = 0.2860; std = 0.3530; order = \"torch\"; };\n",
                          files, files, files, files);

    (void)state;
    assert_non_null(reference);
    if (access(files, R_OK) != 0) {
        json_decref(reference);
        skip();
    }
    support_write_file(in_work("fashion.conf"), conf, strlen(conf));
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        struct run_options options = {
            .ranks = ranks,
            .conf = "fashion.conf",
            .arguments = {
                run_dir_argument(argument("torch%d", ranks)), "model.hidden=[32, 32]",
                argument("model.weights=%s/tests/vectors/reference_init.safetensors", source),
                "train.seed=1", "train.batch_size=256", "train.max_steps=50", "train.log_steps=1",
                "optimizer.lr=0.05", "optimizer.momentum=0.9"}};

        run_well(&options);
        for (size_t i = 0; i < json_array_size(losses); i++) {
            double expected = json_real_value(json_array_get(losses, i));
            double loss = metric(argument("torch%d", ranks), i + 1, "loss");

            if (!(fabs(loss - expected) <= 1e-4 * expected)) {
                fail_msg("%d ranks, step %zu: loss %.7f, PyTorch's is %.7f", ranks, i + 1, loss,
                         expected);
            }
        }
    }
    json_decref(reference);
}

static void options_that_print_do_not_train(void **state)
{
    const char *program = argument("%s/src/cddp-train", getenv("CDDP_TEST_BUILD"));
    char *text;

    (void)state;
    assert_int_equal(
        system(argument("cd %s && CDDP_RANK= %s --dry-run small.conf > dry", work, program)), 0);
    text = get_file(in_work("dry"), NULL);
    assert_non_null(strstr(text, "batch_size = 64;"));
    assert_non_null(strstr(text, "fc1"));
    assert_non_null(strstr(text, "steps: 10 per epoch, 30 in 3 epochs"));
    assert_non_null(strstr(text, "expected time of a step of 64 samples on one core"));
    assert_non_null(strstr(text, "600 samples of 1 x 8 x 8 in 4 classes, 150 for evaluation"));
    free(text);
    assert_int_not_equal(access(in_work("runs"), F_OK), 0);
    assert_int_equal(system(argument("cd %s && taskset -c 0 %s --print-nproc small.conf > nproc",
                                     work, program)),
                     0);
    text = get_file(in_work("nproc"), NULL);
    assert_string_equal(text, "1\n");
    free(text);
}

/* 64 samples in micro-batches of 22 are 3. */
static void as_many_ranks_are_proposed_as_replicas_have_work(void **state)
{
    const struct {
        const char *cores, *arguments, *ranks;
    } cases[] = {
        {"8", "", "8\n"},
        {"8", "train.micro_batch=22", "3\n"},
        {"7", "parallel.pipeline=2", "6\n"},
        {"1", "parallel.pipeline=2", "2\n"},
        {"8", "parallel.pipeline=2 train.micro_batch=22", "6\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;

        assert_int_equal(
            system(argument("cd %s && CDDP_AVAILABLE_CORES=%s %s/src/cddp-train "
                            "--print-nproc small.conf %s > nproc",
                            work, cases[i].cores, getenv("CDDP_TEST_BUILD"), cases[i].arguments)),
            0);
        text = get_file(in_work("nproc"), NULL);
        assert_string_equal(text, cases[i].ranks);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_learns_and_leaves_its_files),
        cmocka_unit_test(one_two_and_three_ranks_give_the_same_losses),
        cmocka_unit_test(two_runs_give_identical_files),
        cmocka_unit_test(stopping_and_going_on_changes_nothing),
        cmocka_unit_test(an_evaluation_that_a_killed_run_owes_is_made_up_for_once),
        cmocka_unit_test(another_number_of_ranks_sees_the_same_samples_once),
        cmocka_unit_test(as_many_ranks_are_proposed_as_replicas_have_work),
        cmocka_unit_test(a_signal_to_one_rank_stops_all_after_the_same_step),
        cmocka_unit_test(a_batch_that_leaves_ranks_without_samples_counts_right),
        cmocka_unit_test(a_named_checkpoint_can_be_gone_on_from),
        cmocka_unit_test(a_named_run_is_gone_on_from_its_newest_checkpoint),
        cmocka_unit_test(an_earlier_run_is_put_aside_and_kept),
        cmocka_unit_test(going_on_clears_up_behind_a_killed_run),
        cmocka_unit_test(checkpoints_by_time_are_written),
        cmocka_unit_test(a_run_that_only_measures_leaves_no_checkpoint),
        cmocka_unit_test(layers_with_statistics_over_all_ranks_agree),
        cmocka_unit_test(losses_follow_pytorch),
        cmocka_unit_test(options_that_print_do_not_train),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
