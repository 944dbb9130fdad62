/* test_train_cuda_positions.c - with train.micro_batch, runs on CUDA devices leave the same files
 * at any number of ranks, and report the same numbers. */
#include "support/cuda.h"
#include "support/train_cuda.h"

/* What a line of metrics says of a step, but for times; evaluations come last. */
static const char *const names[] = {"loss",          "accuracy",  "grad_norm",
                                    "skipped_steps", "eval_loss", "eval_accuracy"};

enum { NOT_EVALUATED = 4, ALL = 6 };

static void assert_same_metrics(const char *run_a, const char *run_b, uint64_t steps, size_t count)
{

    for (uint64_t step = 1; step <= steps; step++) {
        for (size_t i = 0; i < count; i++) {
            double a = metric(run_a, step, names[i]);
            double b = metric(run_b, step, names[i]);

            if (a != b && !(isnan(a) && isnan(b))) {
                fail_msg("step %llu: %s is %.17g in %s, but %.17g in %s", (unsigned long long)step,
                         names[i], a, run_a, b, run_b);
            }
        }
    }
}

/* The files of 1, 2, 3 and 5 ranks. */
static void compare_ranks(const char *conf, const char *kind, const char *const *arguments,
                          int steps)
{
    static const int counts[] = {1, 2, 3, 5};
    char *first = argument("%s-1", kind);

    for (size_t i = 0; i < COUNT_OF(counts) && counts[i] <= ranks_up_to(5); i++) {
        char *name = argument("%s-%d", kind, counts[i]);

        run_named(conf, counts[i], name, CUDA, arguments);
        assert_true(isfinite(metric(name, (uint64_t)steps, "grad_norm")));
        assert_same_checkpoint(first, name, steps);
        assert_same_metrics(first, name, (uint64_t)steps, ALL);
    }
}

/* 600 samples in batches of 64: an epoch's last batch has 24, so with 5 ranks, or in micro-batches
 * of 7, it is cut otherwise. */
static void an_mlp_has_the_same_bits_at_any_number_of_ranks(void **state)
{
    static const char *const sizes[] = {"train.micro_batch=8", "train.micro_batch=7",
                                        "train.micro_batch=12"};

    (void)state;
    NEEDS_DEVICE();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const char *const arguments[] = {"train.max_steps=12", sizes[i],
                                         "model.dropout=0.2",  "optimizer.type=adamw",
                                         "optimizer.lr=0.01",  NULL};

        compare_ranks("small.conf", argument("mlp%zu", i), arguments, 12);
    }
}

static void clipping_and_shards_change_no_bit(void **state)
{
    static const char *const shards[] = {"ddp.shard_optimizer=false", "ddp.shard_optimizer=true"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 2; i++) {
        const char *const arguments[] = {"train.max_steps=12",
                                         "train.micro_batch=6",
                                         "optimizer.type=adamw",
                                         "optimizer.lr=0.01",
                                         "train.clip_norm=0.5",
                                         shards[i],
                                         NULL};

        compare_ranks("small.conf", i == 0 ? "whole" : "shards", arguments, 12);
    }
    assert_same_metrics("whole-1", "shards-3", 12, ALL);
}

static void sixteen_bits_have_the_same_bits_at_any_number_of_ranks(void **state)
{
    static const char *const precisions[] = {"bf16", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 2; i++) {
        const char *const arguments[] = {"train.max_steps=10", "train.micro_batch=8",
                                         argument("train.precision=%s", precisions[i]),
                                         "train.clip_norm=0.5", NULL};

        compare_ranks("small.conf", precisions[i], arguments, 10);
    }
}

static void the_same_steps_are_skipped_at_any_number_of_ranks(void **state)
{
    /* steps so large that the model is soon very sure of wrong answers */
    const char *const arguments[] = {"train.max_steps=12",
                                     "train.micro_batch=1",
                                     "train.precision=fp16",
                                     "optimizer.lr=2",
                                     "optimizer.momentum=0",
                                     "train.batch_size=5",
                                     "optimizer.schedule.type=constant",
                                     NULL};
    double skipped = 0;

    (void)state;
    NEEDS_DEVICE();
    for (int ranks = 1; ranks <= ranks_up_to(5); ranks++) {
        run_named("small.conf", ranks, argument("skips-%d", ranks), CUDA, arguments);
        assert_same_checkpoint("skips-1", argument("skips-%d", ranks), 12);
        assert_same_metrics("skips-1", argument("skips-%d", ranks), 12, ALL);
    }
    for (uint64_t step = 1; step <= 12; step++) {
        skipped += metric("skips-1", step, "skipped_steps");
    }
    assert_true(skipped >= 2);
}

static void convolutions_have_the_same_bits_at_any_number_of_ranks(void **state)
{
    const char *const arguments[] = {"model.type=cnn", "train.max_steps=4", "train.batch_size=12",
                                     "train.micro_batch=2", NULL};

    (void)state;
    NEEDS_DEVICE();
    compare_ranks("small.conf", "cnn", arguments, 4);
}

static void running_statistics_have_the_same_bits_at_any_number_of_ranks(void **state)
{
    static const char *const precisions[] = {"f32", "bf16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 2; i++) {
        const char *const arguments[] = {
            "model.type=layers",
            "model.layers=({type=\"conv2d\";units=4;kernel=3;stride=2;},{type=\"batch_norm\";},"
            "{type=\"relu\";},{type=\"flatten\";},{type=\"linear\";units=4;})",
            "train.batch_size=46",
            "train.max_steps=15",
            "train.micro_batch=5",
            argument("train.precision=%s", precisions[i]),
            NULL};

        compare_ranks("small.conf", argument("norm-%s", precisions[i]), arguments, 15);
    }
}

static void a_language_model_has_the_same_bits_at_any_number_of_ranks(void **state)
{
    static const char *const precisions[] = {"f32", "bf16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 2; i++) {
        const char *const arguments[] = {
            "train.accumulate=1", "train.micro_batch=2",
            argument("train.precision=%s", precisions[i]),
            i == 0 ? "ddp.shard_optimizer=false" : "ddp.shard_optimizer=true", NULL};

        compare_ranks("text.conf", argument("text-%s", precisions[i]), arguments, 6);
    }
}

static void a_run_goes_on_at_another_number_of_ranks_with_the_same_bits(void **state)
{
    static const int counts[] = {2, 5, 1, 3};
    const char *steps[] = {"train.max_steps=3", "train.max_steps=6", "train.max_steps=9",
                           "train.max_steps=14"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 5; i++) {
        const char *const arguments[] = {"train.micro_batch=8",
                                         "train.precision=fp16",
                                         "optimizer.type=adamw",
                                         "optimizer.lr=0.01",
                                         "optimizer.schedule.total_steps=18",
                                         "train.resume=auto",
                                         steps[i < 4 ? i : 3],
                                         NULL};

        run_named("small.conf", i < 4 ? ranks_up_to(counts[i]) : 1, i < 4 ? "moves" : "stays", CUDA,
                  arguments);
    }
    assert_same_checkpoint("stays", "moves", 14);
    assert_same_metrics("stays", "moves", 14, NOT_EVALUATED);
}

/* 32 of the 64 samples for each of two ranks, and they fit any device. */
static void a_size_that_is_chosen_has_the_bits_of_the_same_that_is_given(void **state)
{
    const char *const automatic[] = {"train.max_steps=6", "train.micro_batch=auto",
                                     "train.precision=bf16", NULL};
    const char *const given[] = {"train.max_steps=6", "train.micro_batch=32",
                                 "train.precision=bf16", NULL};

    (void)state;
    NEEDS_DEVICE();
    run_named("small.conf", 2, "automatic", CUDA, automatic);
    run_named("small.conf", 1, "given", CUDA, given);
    assert_same_checkpoint("automatic", "given", 6);
    assert_same_metrics("automatic", "given", 6, ALL);
}

/* The MiB that one rank's micro-batches may take. */
static double budget_of(const char *name, int ranks)
{
    const char *const arguments[] = {"train.max_steps=2", "train.micro_batch=auto", NULL};
    struct run run = run_named("small.conf", ranks, name, CUDA, arguments);
    char *text = output(&run, "err", 0);
    const char *at = strstr(text, "\"auto\" is ");
    double mib = 0;

    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"auto\" is %*d: here, %*d need %*f %*s of %lf MiB", &mib), 1);
    free(text);
    return mib;
}

static void ranks_that_share_a_gpu_share_its_memory(void **state)
{
    double one;
    double three;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_MEMORY", "1000000000", 1);
    setenv("CDDP_FAKE_CUDA_DEVICES", "1", 1);
    setenv("CDDP_BACKEND", "host", 1);
    one = budget_of("alone", 1);
    three = budget_of("shared", 3);
    assert_true(three > 0.3 * one && three < 0.35 * one);
    unsetenv("CDDP_BACKEND");
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
    unsetenv("CDDP_FAKE_CUDA_MEMORY");
}

static void what_cannot_have_the_same_bits_is_refused(void **state)
{
    struct run_options options = {
        .ranks = 1,
        .arguments = {run_dir_argument("refused"), CUDA, "train.micro_batch=8", "ddp.wire=bf16"}};
    struct run run;

    (void)state;
    NEEDS_DEVICE();
    run = run_badly(&options);
    assert_says(&run, "err", 0, "ddp.wire: rounds what each rank sends");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp_has_the_same_bits_at_any_number_of_ranks),
        cmocka_unit_test(clipping_and_shards_change_no_bit),
        cmocka_unit_test(sixteen_bits_have_the_same_bits_at_any_number_of_ranks),
        cmocka_unit_test(the_same_steps_are_skipped_at_any_number_of_ranks),
        cmocka_unit_test(convolutions_have_the_same_bits_at_any_number_of_ranks),
        cmocka_unit_test(running_statistics_have_the_same_bits_at_any_number_of_ranks),
        cmocka_unit_test(a_language_model_has_the_same_bits_at_any_number_of_ranks),
        cmocka_unit_test(a_run_goes_on_at_another_number_of_ranks_with_the_same_bits),
        cmocka_unit_test(a_size_that_is_chosen_has_the_bits_of_the_same_that_is_given),
        cmocka_unit_test(ranks_that_share_a_gpu_share_its_memory),
        cmocka_unit_test(what_cannot_have_the_same_bits_is_refused),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
