/* test_examples.c - the configurations in examples/ for CPUs train some steps with 2 ranks. Random
 * numbers or a short text replace their data, since the data sets need not be installed. */
#include "support/train.h"

enum { STEPS = 10 };

/* A few samples over and over: STEPS steps of the example, into a folder of the run's own. */
static const char *train(const char *example, int ranks)
{
    const char *run_dir = argument("%s-%d", example, ranks);
    char *text = get_file(argument("%s/examples/%s.conf", getenv("CDDP_TEST_SOURCE"), example),
                          NULL);
    struct run_options options = {
        .ranks = ranks,
        .conf = argument("%s.conf", example),
        .arguments = {run_dir_argument(run_dir), "data.type=synthetic", "data.samples=8",
                      "train.batch_size=8", "train.eval_batch_size=8", "train.log_steps=1",
                      argument("train.epochs=%d", STEPS), argument("train.eval_epochs=%d", STEPS),
                      "optimizer.schedule.warmup_steps=0"}};

    assert_non_null(text);
    support_write_file(in_work("%s", options.conf), text, strlen(text));
    free(text);
    run_well(&options);
    for (uint64_t step = 1; step <= STEPS; step++) {
        assert_true(isfinite(metric(run_dir, step, "loss")));
    }
    return run_dir;
}

static void each_example_of_images_trains(void **state)
{
    (void)state;
    train("fashion_mnist", 2);
    train("fashion_mnist_cnn", 2);
    train("fashion_mnist_resnet", 2);
}

static void lenet_learns_the_same_with_one_rank_and_two(void **state)
{
    const char *one = train("lenet", 1);
    const char *two = train("lenet", 2);

    (void)state;
    assert_true(metric(one, STEPS, "loss") < metric(one, 1, "loss"));
    for (uint64_t step = 1; step <= STEPS; step++) {
        double expected = metric(one, step, "loss");

        assert_float_equal(metric(two, step, "loss"), expected, 1e-4 * expected);
    }
}

static void run_program(const char *words)
{
    const char *command = argument("'%s/src/%s > '%s' 2>&1", getenv("CDDP_TEST_BUILD"), words,
                                   in_work("said"));

    if (system(command) != 0) {
        fail_msg("%s: %s", command, get_file(in_work("said"), NULL));
    }
}

static void words_are_learnt_by_lstms_and_written(void **state)
{
    const char *text = argument("%s/tests/vectors/genesis.txt", getenv("CDDP_TEST_SOURCE"));
    const char *vocabulary = in_work("words.json");
    char *example = get_file(argument("%s/examples/lstm_text.conf", getenv("CDDP_TEST_SOURCE")),
                             NULL);
    struct run_options options = {
        .ranks = 2,
        .conf = "lstm_text.conf",
        .arguments = {run_dir_argument("words"), argument("data.train=%s", text),
                      argument("data.vocabulary=%s", vocabulary), "train.max_steps=10",
                      "train.batch_size=8", "model.context=10", "train.log_steps=1",
                      "train.eval_batch_size=8", "train.generate_tokens=5",
                      "optimizer.schedule.decay_steps=1", "optimizer.schedule.warmup_steps=0"}};
    char *said;

    (void)state;
    run_program(argument("cddp-tokenize' --train 300 --words -o '%s' '%s'", vocabulary, text));
    support_write_file(in_work("lstm_text.conf"), example, strlen(example));
    free(example);
    run_well(&options);
    assert_true(metric("words", 10, "loss") < 0.95 * metric("words", 1, "loss"));
    run_program(argument("cddp-train' --generate 'And God said' '%s' %s 'data.train=%s' "
                         "'data.vocabulary=%s' model.context=10 train.generate_tokens=5 "
                         "train.batch_size=8",
                         in_work("lstm_text.conf"), run_dir_argument("words"), text, vocabulary));
    said = get_file(in_work("said"), NULL);
    assert_non_null(strstr(said, "And God said"));
    assert_true(strlen(said) > strlen("And God said") + 5);
    free(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_example_of_images_trains),
        cmocka_unit_test(lenet_learns_the_same_with_one_rank_and_two),
        cmocka_unit_test(words_are_learnt_by_lstms_and_written),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
