/* test_examples.c - the configurations in examples/ that are for processors train some steps, with
 * 2 ranks; their data are replaced by random numbers, as the data sets need not be installed. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_example_of_images_trains),
        cmocka_unit_test(lenet_learns_the_same_with_one_rank_and_two),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
