/* test_gan_cuda.c - dcgan on CUDA devices: its steps are those of PyTorch's example, which the CPU
 * also follows (test_gan.c); checkpoints resume on either; images equal the CPU's. */
#include "support/gan.h"
#include "support/train_cuda.h"

#include <cddp/checkpoint.h>

static int make_gan_devices(void **state)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", !gpu_is_real());
    return make_gan_work(state);
}

/* Twenty steps let other orders of sums grow. */
static double tolerance(void)
{
    return gpu_is_real() ? 100 * GAN_TOLERANCE : 2 * GAN_TOLERANCE;
}

static void follow_pytorch(int ranks, const char *shards)
{
    const char *const arguments[] = {argument("ddp.shard_optimizer=%s", shards), NULL};
    const char *dir = argument("follow-%d-%s", ranks, shards);

    run_named("gan.conf", ranks, dir, CUDA, arguments);
    expect_pytorchs_steps(dir, ranks, tolerance());
    assert_true(metric(dir, 4, "forward_ms") > 0);
    assert_true(metric(dir, 4, "backward_ms") > 0);
    assert_true(metric(dir, 4, "optimizer_ms") > 0);
}

static void a_step_makes_the_passes_of_pytorchs_example_on_any_number_of_ranks(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    follow_pytorch(1, "true");
    follow_pytorch(2, "true");
    follow_pytorch(2, "false");
}

/* Steps that are not reported are taken behind the next; clipping, accuracy and the norm are those
 * of the processor. */
static void reports_of_several_steps_are_the_processors(void **state)
{
    static const char *const names[] = {"loss_d", "loss_g", "d_real", "d_fake", "loss"};
    const char *const arguments[] = {"train.log_steps=4", "train.eval_steps=6",
                                     "train.clip_norm=0.5", NULL};

    (void)state;
    NEEDS_DEVICE();
    run_named("gan.conf", 1, "few-cpu", CPU, arguments);
    for (int ranks = 1; ranks <= ranks_up_to(3); ranks++) {
        const char *dir = argument("few-%d", ranks);

        if (ranks > 1) {
            run_named("gan.conf", ranks, argument("few-cpu-%d", ranks), CPU, arguments);
        }
        run_named("gan.conf", ranks, dir, CUDA, arguments);
        for (uint64_t step = 4; step <= GAN_STEPS; step += 4) {
            const char *here = ranks > 1 ? argument("few-cpu-%d", ranks) : "few-cpu";

            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                assert_float_equal(metric(dir, step, names[i]), metric(here, step, names[i]),
                                   tolerance());
            }
            assert_float_equal(metric(dir, step, "accuracy"), metric(here, step, "accuracy"),
                               gpu_is_real() ? 0.02 : 0);
            assert_close(here, dir, step, "grad_norm", 1e-4);
            assert_true(metric(dir, step, "samples_per_s") > 0);
        }
        assert_close(ranks > 1 ? argument("few-cpu-%d", ranks) : "few-cpu", dir, 12, "eval_loss",
                     1e-5);
    }
}

/* A run of @p steps steps on @p device in @p dir, from where it is. */
static void go_on(const char *dir, int ranks, const char *device, int steps)
{
    const char *const arguments[] = {argument("train.max_steps=%d", steps), "train.resume=auto",
                                     "optimizer.discriminator_lr=1e-3", NULL};

    run_named("gan.conf", ranks, dir, device, arguments);
}

static void both_networks_go_on_from_a_checkpoint_with_the_same_bits(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *whole = argument("whole-%d", ranks);
        const char *dir = argument("resumed-%d", ranks);

        go_on(whole, ranks, CUDA, 6);
        go_on(dir, ranks, CUDA, 3);
        go_on(dir, ranks, CUDA, 6);
        assert_same_checkpoint(whole, dir, 6);
        assert_true(metric(dir, 5, "loss_g") == metric(whole, 5, "loss_g"));
    }
}

static void checkpoints_go_on_on_the_processor_and_back(void **state)
{
    static const char *const names[] = {"loss_d", "loss_g", "d_real", "d_fake"};
    const char *dirs[] = {"there", "here"};

    (void)state;
    NEEDS_DEVICE();
    go_on("never", 1, CPU, 9);
    go_on("there", 1, CPU, 3);
    go_on("there", 2, CUDA, 3); /* nothing is left to do */
    go_on("there", 1, CUDA, 6);
    go_on("there", 1, CPU, 9);
    go_on("here", 1, CUDA, 3);
    go_on("here", 1, CPU, 6);
    go_on("here", 1, CUDA, 9);
    for (size_t d = 0; d < 2; d++) {
        for (uint64_t step = 1; step <= 9; step++) {
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                assert_float_equal(metric(dirs[d], step, names[i]), metric("never", step, names[i]),
                                   tolerance());
            }
        }
    }
}

/* The first weights of both networks are those of a file. */
static void weights_of_a_file_are_those_of_both_networks(void **state)
{
    const char *const first[] = {"train.max_steps=2", NULL};
    const char *weights;
    const char *const still[] = {"train.max_steps=1", "optimizer.lr=0.0", NULL, NULL};
    const char *arguments[4];
    cddp_safetensors *files[2];

    (void)state;
    NEEDS_DEVICE();
    run_named("gan.conf", 1, "first", CPU, first);
    weights = argument("model.weights=%s",
                       in_work("first/checkpoints/step-00000002/model.safetensors"));
    memcpy(arguments, still, sizeof arguments);
    arguments[2] = weights;
    run_named("gan.conf", 2, "still", CUDA, arguments);
    files[0] = open_weights("first", 2);
    files[1] = open_weights("still", 1);
    for (size_t i = 0; i < cddp_safetensors_count(files[0]); i++) {
        const cddp_tensor *a = cddp_safetensors_at(files[0], i);
        const cddp_tensor *b = cddp_safetensors_find(files[1], a->name);

        assert_non_null(b);
        if (a->dims == 4) {
            assert_memory_equal(
                a->data, b->data,
                sizeof(float) * (size_t)(a->shape[0] * a->shape[1] * a->shape[2] * a->shape[3]));
        }
    }
    cddp_safetensors_close(files[0]);
    cddp_safetensors_close(files[1]);
}

/* 240 samples in batches of 14: the last one has 2. */
static void a_rank_without_samples_takes_part(void **state)
{
    const char *const arguments[] = {"train.batch_size=14", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("gan.conf", 3, "short-cpu", CPU, arguments);
    run_named("gan.conf", 3, "short", CUDA, arguments); /* ranks compare both networks at its end */
    assert_float_equal(metric("short", 18, "loss_d"), metric("short-cpu", 18, "loss_d"), 1e-5);
    assert_float_equal(metric("short", 18, "loss_g"), metric("short-cpu", 18, "loss_g"), 1e-5);
}

/* Steps of 14 samples in 5 micro-batches, but the last has 2 samples in one. A rank without
 * others has more passes in a step than results that may wait. */
static void steps_that_are_cut_by_position_have_the_same_bits_on_any_number_of_ranks(void **state)
{
    static const char *const names[] = {"loss", "loss_d", "loss_g", "d_real", "d_fake", "accuracy"};
    const char *const arguments[] = {"train.batch_size=14", "train.micro_batch=3",
                                     "train.log_steps=3", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("gan.conf", 1, "cut-cpu", CPU, arguments);
    for (int ranks = 1; ranks <= 3; ranks++) {
        const char *dir = argument("cut-%d", ranks);

        run_named("gan.conf", ranks, dir, CUDA, arguments);
        assert_same_checkpoint("cut-1", dir, 18);
        for (uint64_t step = 3; step <= 18; step += 3) {
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                assert_true(metric(dir, step, names[i]) == metric("cut-1", step, names[i]));
                assert_float_equal(metric(dir, step, names[i]), metric("cut-cpu", step, names[i]),
                                   tolerance());
            }
        }
    }
}

static void they_need_sums_in_one_order(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .conf = "gan.conf",
                                  .arguments = {run_dir_argument("any-order"), CUDA,
                                                "train.micro_batch=3", "ddp.deterministic=false"}};
    struct run run;

    (void)state;
    NEEDS_DEVICE();
    run = run_badly(&options);
    assert_says(&run, "err", 0,
                "train.micro_batch: dcgan has it on GPUs only with ddp.deterministic = true");
}

/* The first step of a process has no samples for two of three ranks. */
static void a_run_goes_on_at_a_step_of_other_ranks(void **state)
{
    const char *const before[] = {"train.batch_size=14", "train.micro_batch=3", "train.resume=auto",
                                  "train.max_steps=17", NULL};
    const char *const last[] = {"train.batch_size=14", "train.micro_batch=3", "train.resume=auto",
                                NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("gan.conf", 2, "parts", CUDA, before);
    run_named("gan.conf", 3, "parts", CUDA, last);
    assert_same_checkpoint("cut-1", "parts", 18);
}

/* Bits may make another pixel of a value between two. */
static void sheets_of_images_are_the_processors(void **state)
{
    const char *const arguments[] = {"train.max_steps=4", "train.eval_steps=2", NULL};
    size_t bytes[2] = {0, 0};
    char *files[2];

    (void)state;
    NEEDS_DEVICE();
    run_named("gan.conf", 2, "sheets-cpu", CPU, arguments);
    run_named("gan.conf", 2, "sheets", CUDA, arguments);
    for (int step = 2; step <= 4; step += 2) {
        int farthest = 0;

        files[0] = get_file(in_work("sheets-cpu/images/step-%08d.pgm", step), &bytes[0]);
        files[1] = get_file(in_work("sheets/images/step-%08d.pgm", step), &bytes[1]);
        assert_non_null(files[0]);
        assert_non_null(files[1]);
        assert_int_equal(bytes[1], bytes[0]);
        for (size_t i = 0; i < bytes[0]; i++) {
            int apart = abs((unsigned char)files[0][i] - (unsigned char)files[1][i]);

            farthest = apart > farthest ? apart : farthest;
        }
        assert_in_range(farthest, 0, 1);
        free(files[0]);
        free(files[1]);
    }
    assert_close("sheets-cpu", "sheets", 4, "eval_loss", 1e-5);
}

static void a_loss_that_is_no_number_ends_the_run(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .conf = "gan.conf",
        .arguments = {run_dir_argument("burst"), CUDA, "optimizer.lr=1e6", "optimizer.type=sgd"}};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_badly(&options);
    assert_says(&run, "err", 0, ": the learning rate may be too high");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_makes_the_passes_of_pytorchs_example_on_any_number_of_ranks),
        cmocka_unit_test(reports_of_several_steps_are_the_processors),
        cmocka_unit_test(both_networks_go_on_from_a_checkpoint_with_the_same_bits),
        cmocka_unit_test(checkpoints_go_on_on_the_processor_and_back),
        cmocka_unit_test(weights_of_a_file_are_those_of_both_networks),
        cmocka_unit_test(a_rank_without_samples_takes_part),
        cmocka_unit_test(steps_that_are_cut_by_position_have_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(they_need_sums_in_one_order),
        cmocka_unit_test(a_run_goes_on_at_a_step_of_other_ranks),
        cmocka_unit_test(sheets_of_images_are_the_processors),
        cmocka_unit_test(a_loss_that_is_no_number_ends_the_run),
    };

    return cmocka_run_group_tests(tests, make_gan_devices, remove_work);
}
