/* test_train_errors.c - what a run does when things are wrong: one clear message, a nonzero status,
 * in time, and nothing lost that was saved. */
#include "checkpoint/snapshot.h"
#include "support/train.h"

static void assert_status(const struct run *run, int status)
{
    for (int rank = 0; rank < run->ranks; rank++) {
        if (!WIFEXITED(run->statuses[rank]) || WEXITSTATUS(run->statuses[rank]) != status) {
            show(run);
            fail_msg("rank %d: wait status %d", rank, run->statuses[rank]);
        }
    }
}

static void an_error_of_the_configuration_exits_with_2(void **state)
{
    struct run_options options = {.ranks = 2, .arguments = {"train.epoch=1"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_status(&run, 2);
    assert_says(&run, "err", 1, "argument train.epoch=1: ");
}

static void a_batch_smaller_than_the_ranks_names_both(void **state)
{
    struct run_options options = {.ranks = 3,
                                  .arguments = {run_dir_argument("tiny"), "train.batch_size=2"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_status(&run, 2);
    assert_says(&run, "err", 0,
                "argument train.batch_size=2: train.batch_size: 2 samples cannot "
                "be divided among a world size of 3");
}

static void a_missing_data_file_is_named(void **state)
{
    struct run_options options = {
        .ranks = 2, .arguments = {run_dir_argument("missing"), "data.test_images=no-such-file"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_status(&run, 1);
    assert_says(&run, "err", 0, "no-such-file");
    assert_says(&run, "err", 1, "no-such-file");
}

static void a_truncated_gz_is_named(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("truncated"),
                      argument("data.train_images=%s", in_work("cut.gz"))}};
    struct run run;

    (void)state;
    assert_int_equal(system(argument("gzip -c %s | head -c 9000 > %s", in_work("train-images"),
                                     in_work("cut.gz"))),
                     0);
    run = run_badly(&options);
    assert_status(&run, 1);
    assert_says(&run, "err", 0, "cut.gz");
    assert_says(&run, "err", 1, "cut.gz");
}

static void labels_outside_the_classes_are_told(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("labels"), "data.classes=3"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_status(&run, 1);
    assert_says(&run, "err", 0, "train-labels");
}

static void a_stray_label_is_warned_of_or_refused_where_classes_are_given(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("stray"), "train.max_steps=1",
                      argument("data.train_labels=%s", in_work("stray-labels"))}};
    size_t bytes = 0;
    char *labels = get_file(in_work("train-labels"), &bytes);
    char *others;
    struct run run;

    (void)state;
    labels[8 + 100] = (char)200;
    support_write_file(in_work("stray-labels"), labels, bytes);
    free(labels);
    run = run_well(&options);
    assert_says(&run, "err", 0,
                "stray-labels: there are 201 classes because sample 100 has label 200, and 196 of "
                "them have no sample: 4-199. If that label is wrong, set data.classes: then it is "
                "an error\n");
    others = output(&run, "err", 1);
    assert_null(strstr(others, "classes"));
    free(others);
    options.arguments[3] = "data.classes=4";
    run = start(&options);
    assert_int_equal(finish(&run), 2);
    assert_says(&run, "err", 0,
                "stray-labels: byte 108: sample 100 has label 200, but there are only 4 classes");
    options.arguments[2] = "data.classes=6";
    options.arguments[3] = NULL;
    run = run_well(&options);
    assert_says(&run, "err", 0,
                "train-labels: of the 6 classes that data.classes says there are, 2 have no "
                "sample: 4-5\n");
}

static void another_configuration_on_one_rank_is_shown_on_all(void **state)
{
    struct run_options options = {
        .ranks = 3, .arguments = {run_dir_argument("other")}, .odd_argument = "model.hidden=[8]"};
    struct run run = run_badly(&options);

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        assert_says(&run, "err", rank, "model.hidden: rank 0 has [16], rank 2 has [8]");
    }
}

/* A run that goes on until it is ended, once it trains. */
static struct run start_endless(const char *name, int timeout_ms)
{
    struct run_options options = {.ranks = 3,
                                  .timeout_ms = timeout_ms,
                                  .arguments = {run_dir_argument(name), "train.epochs=1000000"}};
    struct run run = start(&options);

    wait_for_steps(name);
    return run;
}

static void assert_others_name_rank_1(const struct run *run)
{
    for (int rank = 0; rank < 3; rank += 2) {
        if (!WIFEXITED(run->statuses[rank]) || WEXITSTATUS(run->statuses[rank]) != 1) {
            show(run);
            fail_msg("rank %d: wait status %d", rank, run->statuses[rank]);
        }
        assert_says(run, "err", rank, "cddp-train: rank ");
        assert_says(run, "err", rank, "1");
    }
}

static void a_killed_rank_ends_the_others(void **state)
{
    struct run run = start_endless("killed", 0);

    (void)state;
    assert_int_equal(kill(run.pids[1], SIGKILL), 0);
    assert_int_equal(finish(&run), 3);
    assert_others_name_rank_1(&run);
}

static void a_stopped_rank_ends_the_others_within_the_deadline(void **state)
{
    struct run run = start_endless("halted", 40000);
    struct run others;

    (void)state;
    assert_int_equal(kill(run.pids[1], SIGSTOP), 0);
    others = run;
    others.pids[1] = 0;
    for (int waited = 0; others.pids[0] != 0 || others.pids[2] != 0; waited += 5) {
        for (int rank = 0; rank < 3; rank += 2) {
            if (others.pids[rank] != 0 &&
                waitpid(others.pids[rank], &others.statuses[rank], WNOHANG) != 0) {
                others.pids[rank] = 0;
            }
        }
        if (waited >= SUPPORT_TIMEOUT_MS) {
            for (int rank = 0; rank < 3; rank++) {
                kill(run.pids[rank], SIGKILL);
            }
            fail_msg("the other ranks still wait");
        }
        support_sleep_ms(5);
    }
    kill(run.pids[1], SIGKILL);
    waitpid(run.pids[1], &run.statuses[1], 0);
    assert_others_name_rank_1(&others);
}

static void a_folder_that_a_living_run_writes_to_is_left_alone(void **state)
{
    struct run living = start_endless("taken", 0);
    struct run_options options = {.ranks = 2, .arguments = {run_dir_argument("taken")}};
    struct run second;

    (void)state;
    for (int way = 0; way < 2; way++) {
        second = run_badly(&options);
        assert_status(&second, 1);
        assert_says(&second, "err", 0, "taken: another run that has not ended writes there");
        assert_says(&second, "err", 1, "another run that has not ended writes there");
        options.arguments[1] = "train.resume=auto";
    }
    options.arguments[1] = "data.test_images=no-such-file"; /* the lock comes before the data */
    second = run_badly(&options);
    assert_says(&second, "err", 0, "taken: another run that has not ended writes there");
    assert_int_equal(access(in_work("taken/earlier-1"), F_OK), -1);
    for (int rank = 0; rank < 3; rank++) {
        kill(living.pids[rank], SIGKILL);
    }
    assert_int_equal(finish(&living), 3);
    options.arguments[1] = "train.max_steps=1";
    run_well(&options); /* what was killed holds nothing */
}

static void a_level_of_the_log_that_does_not_exist_is_told(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("loud"), "train.max_steps=1"},
                                  .odd_setting = "CDDP_LOG=INFO"};
    struct run run = run_well(&options);

    (void)state;
    assert_says(&run, "err", 1, "CDDP_LOG=INFO is not one of off, error, warn, info, debug");
}

static void a_program_without_standard_streams_trains_and_saves(void **state)
{
    char *metrics;

    (void)state;
    assert_int_equal(system(argument("%s/src/cddp-train %s %s train.max_steps=2 <&- >&- 2>&-",
                                     getenv("CDDP_TEST_BUILD"), in_work("small.conf"),
                                     run_dir_argument("bare"))),
                     0);
    metrics = get_file(in_work("bare/metrics.jsonl"), NULL);
    assert_non_null(metrics);
    assert_null(strstr(metrics, "test accuracy")); /* what was meant for stdout */
    free(metrics);
    assert_int_equal(access(in_work("bare/checkpoints/step-00000002/state.json"), R_OK), 0);
}

static void a_corrupt_newest_checkpoint_is_passed_over(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("corrupt"),
                                                "train.checkpoint_steps=5", "train.keep=0",
                                                "train.max_steps=20"}};
    struct run_options whole = {.ranks = 2, .arguments = {run_dir_argument("intact")}};
    const char *newest;
    struct run run;
    size_t bytes = 0;
    char *text;

    (void)state;
    run_well(&whole);
    run_well(&options);
    newest = argument("%s", in_work("corrupt/checkpoints/step-00000020/model.safetensors"));
    text = get_file(newest, &bytes);
    assert_non_null(text);
    text[bytes - 1] ^= 1;
    support_write_file(newest, text, bytes);
    free(text);
    options.arguments[3] = "train.resume=auto";
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000020");
    assert_says(&run, "err", 0, "step-00000015: step 15");
    assert_same_checkpoint("corrupt", "intact", 30);
}

static void checkpoints_that_are_all_corrupt_are_an_error(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("ruined"), "train.max_steps=2"}};
    struct run run;

    (void)state;
    run_well(&options);
    assert_int_equal(truncate(in_work("ruined/checkpoints/step-00000002/model.safetensors"), 50),
                     0);
    options.arguments[2] = "train.resume=auto";
    run = run_badly(&options);
    assert_status(&run, 1);
    assert_says(&run, "err", 0, "step-00000002");
}

static void a_full_disk_costs_the_run_but_no_older_checkpoint(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .arguments = {run_dir_argument("full"), "model.hidden=[64]",
                                                "train.log_steps=1000", "train.tensorboard=false",
                                                "train.max_steps=10"}};
    struct run run;

    (void)state;
    if (LIMIT_KILLS) {
        skip();
    }
    run_well(&options);
    options.file_bytes = 8192;
    options.arguments[4] = "train.max_steps=20";
    options.arguments[5] = "train.checkpoint_steps=5";
    options.arguments[6] = "train.resume=auto";
    options.arguments[7] = "train.checkpoint_async=false"; /* or training may have ended by then */
    run = run_badly(&options);
    assert_status(&run, 1);
    assert_says(&run, "err", 0, "warning: checkpoint of step 15");
    assert_says(&run, "err", 0, "training goes on");
    assert_says(&run, "err", 0, "cddp-train: rank 0: checkpoint of step 20");
    assert_says(&run, "err", 0, "File too large (ulimit -f)");
    options.file_bytes = 0;
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000010: step 10");
}

static void a_seed_that_differs_on_resuming_is_named(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("seeds"), "train.max_steps=2"}};
    struct run run;

    (void)state;
    run_well(&options);
    options.arguments[2] = "train.resume=auto";
    options.arguments[3] = "train.seed=9";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "argument train.seed=9: train.seed: is 9, but ");
    options.arguments[3] = "data.order=sequential";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "data.order: is sequential, but ");
    options.arguments[3] = "model.hidden=[20]";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "fc1.weight");
    assert_says(&run, "err", 0, "made with another model or another optimizer?");
    options.arguments[3] = "optimizer.type=adamw";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "made with another model or another optimizer?");
    options.arguments[2] = "train.resume=";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "argument train.resume=: train.resume: is empty");
}

/* Give a checkpoint's state.json another @p value of "state"'s @p field, and the right checksum. */
static void forge(const char *path, const char *field, json_t *value)
{
    json_t *document = json_load_file(path, 0, NULL);

    assert_non_null(document);
    assert_int_equal(json_object_del(document, "blake2b"), 0);
    assert_int_equal(json_object_set_new(json_object_get(document, "state"), field, value), 0);
    assert_true(cddpi_state_seal(document));
    assert_int_equal(json_dump_file(document, path, 0), 0);
    json_decref(document);
}

/* The run has made 2 steps of 64 samples of 600. */
static void a_forged_place_in_the_run_names_file_and_field(void **state)
{
    const struct {
        const char *field;
        json_t *value;
        const char *says;
    } cases[] = {
        {"epoch", json_integer(1000000000000000000), "epoch is 1000000000000000000, but"},
        {"epoch", json_integer(3), "epoch is 3, but"},
        {"epoch", json_integer(-1), "epoch is -1, but"},
        {"epoch", json_real(0.5), "epoch is not a whole number"},
        {"epoch", json_null(), "epoch is not a whole number"},
        {"position", json_integer(600), "position is 600, but"},
        {"position", json_integer(INT64_MAX), "position is 9223372036854775807, but"},
        {"position", json_integer(-64), "position is -64, but"},
        {"position", json_integer(1), "position is 1, but"},
        {"position", json_string("128"), "position is not a whole number"},
        {"step", json_integer(3), "step is 3, but"},
        {"samples", json_string("600"), "samples is not a whole number"},
        {"seed", json_true(), "seed is not a whole number"},
        {"threads", json_string("2"), "threads is not a whole number"},
    };
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("forged"), "train.max_steps=2"}};
    char *path = argument("%s", in_work("forged/checkpoints/step-00000002/state.json"));
    size_t bytes = 0;
    char *genuine;

    (void)state;
    run_well(&options);
    genuine = get_file(path, &bytes);
    options.arguments[1] = "train.max_steps=4";
    options.arguments[2] = "train.resume=auto";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run;

        support_write_file(path, genuine, bytes);
        forge(path, cases[i].field, cases[i].value);
        run = run_badly(&options);
        assert_status(&run, 1);
        assert_says(&run, "err", 0, "step-00000002/state.json: ");
        assert_says(&run, "err", 0, cases[i].says);
        assert_says(&run, "err", 1, cases[i].says);
    }
    support_write_file(path, genuine, bytes);
    free(genuine);
    run_well(&options);
}

/* Whether @p run has warned that its checkpoint is one of @p made threads and it has @p threads. */
static bool warns_of_threads(const struct run *run, int threads, int made)
{
    char *text = output(run, "err", 0);
    char expected[2][64];
    bool warns;

    snprintf(expected[0], sizeof expected[0], "warning: CDDP_THREADS is %d, but ", threads);
    snprintf(expected[1], sizeof expected[1], " was made with %d: ", made);
    warns = strstr(text, expected[0]) != NULL && strstr(text, expected[1]) != NULL;
    assert_true(warns || strstr(text, "CDDP_THREADS") == NULL);
    free(text);
    return warns;
}

static void going_on_with_other_threads_warns(void **state)
{
    struct run_options options = {.ranks = 1, .odd_setting = "CDDP_THREADS=2"};
    struct run run;

    (void)state;
    options.arguments[0] = run_dir_argument("threads");
    options.arguments[1] = "train.max_steps=2";
    run_well(&options);
    options.arguments[1] = "train.max_steps=4";
    options.arguments[2] = "train.resume=auto";
    run = run_well(&options);
    assert_false(warns_of_threads(&run, 2, 2));
    options.arguments[1] = "train.max_steps=6";
    options.odd_setting = NULL;
    run = run_well(&options);
    assert_true(warns_of_threads(&run, 1, 2));
    options.arguments[1] = "train.max_steps=8";
    run = run_well(&options);
    assert_false(warns_of_threads(&run, 1, 1));
    options.arguments[1] = "train.max_steps=10";
    options.odd_setting = "CDDP_THREADS=3";
    run = run_well(&options);
    assert_true(warns_of_threads(&run, 3, 1));
}

static void weights_that_do_not_fit_are_told(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("weights"),
                      argument("model.weights=%s/tests/vectors/reference_init.safetensors",
                               getenv("CDDP_TEST_SOURCE"))}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0, "model.weights");
    assert_says(&run, "err", 1, "model.weights");
}

static void a_loss_that_is_no_number_ends_the_run(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("nan"), "optimizer.lr=1e6",
                                                "model.loss=mse",
                                                "optimizer.schedule.type=constant"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0, "the loss of step ");
    assert_says(&run, "err", 0, ": the learning rate may be too high");
}

/* Each step multiplies the weights by a million, and the loss of the seventh is still finite. */
static void parameters_that_are_not_finite_become_no_checkpoint(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("burst"), "model.type=layers",
                      "model.layers=({type=\"flatten\";},{type=\"linear\";units=4;})",
                      "optimizer.lr=1e4", "optimizer.schedule.type=constant",
                      "optimizer.momentum=0", "optimizer.weight_decay=1e2",
                      "train.checkpoint_steps=1", "train.keep=0", "train.max_steps=7"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_status(&run, 1);
    assert_says(&run, "err", 0, "checkpoint of step 7: linear2.weight has become ");
    assert_says(&run, "err", 0, "so nothing is written: the learning rate may be too high");
    assert_true(access(in_work("burst/checkpoints/step-00000006"), F_OK) == 0);
    assert_false(access(in_work("burst/checkpoints/step-00000007"), F_OK) == 0);
}

static void a_folder_that_cannot_be_written_is_named(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {argument("train.run_dir=%s", in_work("train-images"
                                                                                     "/run"))}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0, "train-images/run: Not a directory");
    assert_says(&run, "err", 1, "train-images/run: Not a directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_of_the_configuration_exits_with_2),
        cmocka_unit_test(a_batch_smaller_than_the_ranks_names_both),
        cmocka_unit_test(a_missing_data_file_is_named),
        cmocka_unit_test(a_truncated_gz_is_named),
        cmocka_unit_test(labels_outside_the_classes_are_told),
        cmocka_unit_test(a_stray_label_is_warned_of_or_refused_where_classes_are_given),
        cmocka_unit_test(another_configuration_on_one_rank_is_shown_on_all),
        cmocka_unit_test(a_killed_rank_ends_the_others),
        cmocka_unit_test(a_stopped_rank_ends_the_others_within_the_deadline),
        cmocka_unit_test(a_folder_that_a_living_run_writes_to_is_left_alone),
        cmocka_unit_test(a_level_of_the_log_that_does_not_exist_is_told),
        cmocka_unit_test(a_program_without_standard_streams_trains_and_saves),
        cmocka_unit_test(a_corrupt_newest_checkpoint_is_passed_over),
        cmocka_unit_test(checkpoints_that_are_all_corrupt_are_an_error),
        cmocka_unit_test(a_full_disk_costs_the_run_but_no_older_checkpoint),
        cmocka_unit_test(a_seed_that_differs_on_resuming_is_named),
        cmocka_unit_test(a_forged_place_in_the_run_names_file_and_field),
        cmocka_unit_test(going_on_with_other_threads_warns),
        cmocka_unit_test(weights_that_do_not_fit_are_told),
        cmocka_unit_test(a_loss_that_is_no_number_ends_the_run),
        cmocka_unit_test(parameters_that_are_not_finite_become_no_checkpoint),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_named),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
