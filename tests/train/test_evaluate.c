/* test_evaluate.c - when runs are evaluated, and on how much of the test data. */
#include "support/train.h"

static void a_run_is_evaluated_every_so_many_steps_and_at_the_end(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("steps"), "train.eval_steps=7"}};

    (void)state;
    run_well(&options); /* 3 epochs of 10 steps */
    for (uint64_t step = 1; step <= 30; step++) {
        int due = step % 7 == 0 || step == 30;

        assert_int_equal(!isnan(metric("steps", step, "eval_loss")), due);
    }
    assert_float_equal(metric("steps", 14, "eval_samples"), TEST_SAMPLES, 0);
}

static void evaluating_between_steps_does_not_change_the_run(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run_options options = {
            .ranks = 2,
            .arguments = {run_dir_argument(i == 0 ? "often" : "once"), "model.dropout=0.2",
                          i == 0 ? "train.eval_steps=1" : "train.eval_epochs=3"}};

        run_well(&options);
    }
    assert_same_checkpoint("often", "once", 30);
    assert_true(isnan(metric("once", 10, "eval_loss")));
}

static void only_the_first_batches_of_the_test_data_are_evaluated_if_so_wanted(void **state)
{
    static const struct {
        const char *batches;
        int samples;
    } cases[] = {{"train.eval_batches=1", 40},
                 {"train.eval_batches=3", 120},
                 {"train.eval_batches=4", 150},
                 {"train.eval_batches=9000000000000000000", 150}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double loss = 0;

        for (int ranks = 1; ranks <= 3; ranks++) {
            struct run_options options = {
                .ranks = ranks,
                .arguments = {run_dir_argument("part"), "train.max_steps=2",
                              "train.eval_batch_size=40", cases[i].batches}};

            run_well(&options);
            assert_float_equal(metric("part", 2, "eval_samples"), cases[i].samples, 0);
            loss = ranks == 1 ? metric("part", 2, "eval_loss") : loss;
            assert_true(fabs(metric("part", 2, "eval_loss") - loss) <= 1e-6 * loss);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_evaluated_every_so_many_steps_and_at_the_end),
        cmocka_unit_test(evaluating_between_steps_does_not_change_the_run),
        cmocka_unit_test(only_the_first_batches_of_the_test_data_are_evaluated_if_so_wanted),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
