/* test_train_cuda.c - training on CUDA devices with the real programs: the CPU's results, the same
 * files each time, loss scales, and what is reported. */
#include "support/npy.h"
#include "support/train_cuda.h"

/* On the processor with one rank, on devices with 1, 2 and 3. */
static void compare_devices(const char *conf, const char *kind, const char *const *arguments,
                            uint64_t steps, double tolerance)
{
    char *here = argument("%s-cpu", kind);
    double few = gpu_is_real() ? 0.02 : 0; /* predictions that hang by a bit */

    run_named(conf, 1, here, CPU, arguments);
    for (int ranks = 1; ranks <= ranks_up_to(3); ranks++) {
        char *there = argument("%s-cuda%d", kind, ranks);

        run_named(conf, ranks, there, CUDA, arguments);
        assert_same_steps(here, there, 1, steps, tolerance);
        assert_close(here, there, steps, "eval_loss", tolerance);
        assert_float_equal(metric(there, steps, "eval_accuracy"),
                           metric(here, steps, "eval_accuracy"), few);
        assert_float_equal(metric(there, steps, "accuracy"), metric(here, steps, "accuracy"), few);
    }
}

static void losses_of_an_mlp_are_the_processors_at_any_number_of_ranks(void **state)
{
    const char *const plain[] = {"train.max_steps=12", NULL}; /* an epoch ends in step 10 */
    const char *const all[] = {"train.max_steps=12",
                               "train.accumulate=3",
                               "model.dropout=0.2",
                               "train.clip_norm=0.5",
                               "optimizer.type=adamw",
                               "optimizer.lr=0.01",
                               NULL};

    (void)state;
    NEEDS_DEVICE();
    compare_devices("small.conf", "mlp", plain, 12, 1e-5);
    compare_devices("small.conf", "mlp-all", all, 12, 1e-5);
}

/* 300 samples of four numbers and two real targets. */
static void make_regression(const char *loss)
{
    enum { SAMPLES = 300 };
    static float x[SAMPLES][4];
    static float y[SAMPLES][2];
    char text[4096];

    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < 4; k++) {
            x[i][k] = (float)((i * 37 + k * 101 + i * k * 13) % 200) / 100 - 1;
        }
        y[i][0] = 3 * x[i][0] - x[i][1];
        y[i][1] = x[i][2] * x[i][3];
    }
    support_write_npy(in_work("rx.npy"), "<f4", "(300, 4)", x, sizeof x);
    support_write_npy(in_work("ry.npy"), "<f4", "(300, 2)", y, sizeof y);
    snprintf(text, sizeof text,
             "model = { type = \"mlp\"; hidden = [16]; loss = \"%s\"; };\n"
             "data = { type = \"npy\"; train = \"%s\"; train_targets = \"%s\";\n"
             "  test_fraction = 0.2; normalize = \"standard\"; };\n"
             "train = { epochs = 3; batch_size = 46; log_steps = 1; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.05; };\n",
             loss, in_work("rx.npy"), in_work("ry.npy"));
    support_write_file(in_work("real.conf"), text, strlen(text));
}

static void losses_of_real_targets_are_the_processors(void **state)
{
    static const char *const losses[][2] = {{"mse", "eval_rmse"}, {"l1", "eval_mae"}};
    const char *const arguments[] = {"train.max_steps=12", NULL};

    (void)state;
    NEEDS_DEVICE();
    for (size_t i = 0; i < 2; i++) {
        char *here = argument("%s-cpu", losses[i][0]);

        make_regression(losses[i][0]);
        run_named("real.conf", 1, here, CPU, arguments);
        for (int ranks = 1; ranks <= ranks_up_to(2); ranks++) {
            char *there = argument("%s-cuda%d", losses[i][0], ranks);

            run_named("real.conf", ranks, there, CUDA, arguments);
            assert_same_steps(here, there, 1, 12, 1e-5);
            assert_close(here, there, 12, losses[i][1], 1e-5);
        }
    }
}

static void losses_of_convolutions_are_the_processors(void **state)
{
    const char *const arguments[] = {"model.type=cnn", "train.max_steps=4", "train.batch_size=12",
                                     "train.accumulate=2", NULL};

    (void)state;
    NEEDS_DEVICE();
    compare_devices("small.conf", "cnn", arguments, 4, 1e-5);
}

/* 600 samples: the last batch of the epoch has 2, so of three ranks one has none. */
static void statistics_over_all_ranks_are_those_of_one(void **state)
{
    const char *const arguments[MOST_ARGUMENTS + 1] = {
        "model.type=layers",
        "model.layers=({type=\"conv2d\";units=4;kernel=3;stride=2;},"
        "{type=\"batch_norm\";sync=true;},{type=\"relu\";},{type=\"max_pool\";},"
        "{type=\"flatten\";},{type=\"linear\";units=4;})",
        "train.batch_size=46", "train.max_steps=15"};

    (void)state;
    NEEDS_DEVICE();
    compare_devices("small.conf", "norm", arguments, 15, 1e-4);
}

static void a_language_model_learns_and_writes_what_it_does_on_the_processor(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    compare_devices("text.conf", "text", NULL, 6, 1e-5);
    /* on a real GPU two tokens may be as likely but for a bit */
    for (int ranks = 1; ranks <= 3 && !gpu_is_real(); ranks++) {
        for (int64_t step = 3; step <= 6; step += 3) {
            char *here = written("text-cpu", step);
            char *there = written(argument("text-cuda%d", ranks), step);

            assert_non_null(here);
            assert_non_null(there);
            assert_string_equal(here, there);
            free(here);
            free(there);
        }
    }
}

static void an_lstm_learns_what_it_does_on_the_processor(void **state)
{
    const char *const arguments[] = {"model.type=lstm_lm", "model.hidden=[12, 8]",
                                     "model.tied=true",    "model.embed=8",
                                     "model.dropout=0.2",  NULL};

    (void)state;
    NEEDS_DEVICE();
    compare_devices("text.conf", "lstm", arguments, 6, 1e-5);
}

/* What cddp-train --generate prints of the run's newest checkpoint. */
static char *generated(const char *run_dir, const char *device)
{
    int status = system(argument("%s/src/cddp-train --generate 'abcd e' %s %s '%s' > %s",
                                 getenv("CDDP_TEST_BUILD"), in_work("text.conf"),
                                 run_dir_argument(run_dir), device, in_work("said")));

    assert_int_equal(status, 0);
    return get_file(in_work("said"), NULL);
}

static void a_checkpoint_writes_the_same_text_on_a_device(void **state)
{
    char *here;
    char *there;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("text.conf", 2, "writes", CUDA, NULL);
    here = generated("writes", CPU);
    there = generated("writes", CUDA);
    assert_true(strlen(here) > 6);
    assert_string_equal(here, there);
    free(here);
    free(there);
}

static void half_precision_follows_float32(void **state)
{
    static const char *const precisions[] = {"bf16", "fp16"};
    const char *const steps[] = {"train.max_steps=10", NULL};
    bool differs = false;

    (void)state;
    NEEDS_DEVICE();
    run_named("small.conf", 1, "full", CPU, steps);
    for (int i = 0; i < 2; i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            char *name = argument("%s-%d", precisions[i], ranks);
            const char *const arguments[] = {steps[0],
                                             argument("train.precision=%s", precisions[i]), NULL};

            run_named("small.conf", ranks, name, CUDA, arguments);
            for (uint64_t step = 1; step <= 10; step++) {
                assert_close("full", name, step, "loss", 0.03);
                differs = differs || metric(name, step, "loss") != metric("full", step, "loss");
            }
        }
    }
    assert_true(differs);
}

static void two_runs_give_identical_files_in_any_order_of_streams(void **state)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 3; i++) {
        for (int seed = 1; seed <= gpu_runs(3); seed++) {
            const char *const arguments[] = {"train.max_steps=12",
                                             "train.accumulate=2",
                                             "model.dropout=0.2",
                                             "train.clip_norm=0.5",
                                             argument("train.precision=%s", precisions[i]),
                                             NULL};

            support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
            run_named("small.conf", 2, argument("%s-seed%d", precisions[i], seed), CUDA, arguments);
        }
        unsetenv("CDDP_FAKE_CUDA_SEED");
        for (int seed = 2; seed <= gpu_runs(3); seed++) {
            assert_same_checkpoint(argument("%s-seed1", precisions[i]),
                                   argument("%s-seed%d", precisions[i], seed), 12);
        }
    }
}

/* Of four ranks NCCL adds up one after the other, as the emulation has it, and a tree pairs them.
 */
static void sums_are_in_one_order_unless_told_otherwise(void **state)
{
    static const char *const backends[] = {"ipc", "nccl", "nccl"};
    static const char *const names[] = {"order-ipc", "order-nccl", "order-any"};
    char *weights[3];
    size_t bytes = 0;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_PRODUCTS", "first", 1);
    for (int i = 0; i < 3; i++) {
        const char *const arguments[] = {
            "train.max_steps=4", "ddp.shard_optimizer=false",
            i == 2 ? "ddp.deterministic=false" : "ddp.deterministic=true", NULL};

        setenv("CDDP_BACKEND", backends[i], 1);
        run_named("small.conf", 4, names[i], CUDA, arguments);
        weights[i] = get_file(in_work("%s/checkpoints/step-00000004/model.safetensors", names[i]),
                              &bytes);
        assert_non_null(weights[i]);
    }
    unsetenv("CDDP_BACKEND");
    unsetenv("CDDP_PRODUCTS");
    assert_memory_equal(weights[0], weights[1], bytes);
    assert_memory_not_equal(weights[0], weights[2], bytes);
    for (int i = 0; i < 3; i++) {
        free(weights[i]);
    }
}

/* Copies of weights in 16 bits come from the update, and where ranks update a part each from those
 * of all ranks. */
static void a_sharded_optimizer_learns_the_same(void **state)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 3; i++) {
        const char *arguments[] = {
            "train.max_steps=12",        "optimizer.type=adamw",
            "optimizer.lr=0.02",         argument("train.precision=%s", precisions[i]),
            "ddp.shard_optimizer=false", "ddp.first_bucket_bytes=512",
            "ddp.bucket_bytes=1024",     NULL};
        char *whole = argument("whole-%s", precisions[i]);

        run_named("small.conf", 2, whole, CUDA, arguments);
        arguments[4] = "ddp.shard_optimizer=true";
        for (int ranks = 1; ranks <= ranks_up_to(3); ranks++) {
            char *shards = argument("shards-%s%d", precisions[i], ranks);

            run_named("small.conf", ranks, shards, CUDA, arguments);
            assert_same_steps(whole, shards, 1, 12, i == 0 ? 1e-5 : ranks == 2 ? 1e-6 : 0.02);
        }
        assert_true(fabs(metric(whole, 12, "loss") / metric(whole, 1, "loss") - 1) > 0.1);
    }
}

static void run_part(const char *name, int ranks, const char *device, const char *steps,
                     const char *precision)
{
    const char *const arguments[] = {"optimizer.type=adamw",
                                     "optimizer.lr=0.01",
                                     "model.dropout=0.2",
                                     "optimizer.schedule.total_steps=18",
                                     argument("train.max_steps=%s", steps),
                                     "train.resume=auto",
                                     argument("train.precision=%s", precision),
                                     NULL};

    run_named("small.conf", ranks, name, device, arguments);
}

static void a_run_goes_on_between_devices_and_the_processor(void **state)
{
    (void)state;
    NEEDS_DEVICE();
    run_part("straight", 1, CPU, "18", "f32");
    run_part("travels", 2, CUDA, "6", "f32");
    run_part("travels", 3, CPU, "12", "f32");
    run_part("travels", 2, CUDA, "18", "f32");
    assert_same_steps("straight", "travels", 1, 18, 1e-5);
}

static void a_run_that_was_stopped_goes_on_with_the_same_bits(void **state)
{
    static const char *const precisions[] = {"f32", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 2; i++) {
        char *straight = argument("straight-%s", precisions[i]);
        char *parts = argument("parts-%s", precisions[i]);

        run_part(straight, 2, CUDA, "14", precisions[i]);
        run_part(parts, 2, CUDA, "7", precisions[i]);
        run_part(parts, 2, CUDA, "14", precisions[i]);
        assert_same_checkpoint(straight, parts, 14);
    }
}

/* --- what is told --- */

/* The number, or NAN, and the text (free()) of the first line of a run's metrics. */
static char *of_run(const char *run_dir, const char *name, double *out_number)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    json_t *object = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    const json_t *value = json_object_get(object, name);
    char *found = json_is_string(value) ? strdup(json_string_value(value)) : NULL;

    *out_number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(object);
    free(text);
    return found;
}

static void assert_first_line(const char *run_dir, const char *device, double tflops)
{
    double number = 0;
    char *text = of_run(run_dir, "device", &number);

    assert_non_null(text);
    assert_string_equal(text, device);
    free(text);
    (void)of_run(run_dir, "peak_tflops", &number);
    assert_true(isnan(tflops) ? isnan(number) : fabs(number - tflops) < 1e-9 * tflops);
}

static void metrics_have_the_device_and_its_utilisation_where_the_peak_is_known(void **state)
{
    const char *const f32[] = {"train.max_steps=2", NULL};
    const char *const bf16[] = {"train.max_steps=2", "train.precision=bf16", NULL};
    /* multiplications of a sample: 64 pixels, 16 hidden units, 4 classes */
    const double flops = 6.0 * (64 * 16 + 16 * 4);
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 2, "told-not", CUDA, f32);
    assert_first_line("told-not", "Fake GPU 0", NAN);
    assert_true(isnan(metric("told-not", 1, "mfu")));
    run_named("small.conf", 1, "told-cpu", CPU, f32);
    assert_first_line("told-cpu", "processor", NAN);
    setenv("CDDP_FAKE_CUDA_NAME", "NVIDIA H200", 1);
    run = run_named("small.conf", 1, "told-1", CUDA, f32);
    assert_first_line("told-1", "NVIDIA H200", 66.9);
    run_named("small.conf", 2, "told-2", CUDA, bf16);
    assert_first_line("told-2", "NVIDIA H200", 2 * 989.4);
    setenv("CDDP_BACKEND", "host", 1); /* ranks may share a device then */
    setenv("CDDP_FAKE_CUDA_DEVICES", "1", 1);
    run_named("small.conf", 2, "told-shared", CUDA, bf16);
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
    unsetenv("CDDP_BACKEND");
    unsetenv("CDDP_FAKE_CUDA_NAME");
    assert_first_line("told-shared", "NVIDIA H200", 989.4);
    for (uint64_t step = 1; step <= 2; step++) {
        double one = flops * metric("told-1", step, "samples_per_s") / 66.9e12;
        double two = flops * metric("told-2", step, "samples_per_s") / (2 * 989.4e12);

        assert_float_equal(metric("told-1", step, "mfu"), one, 1e-6 * one);
        assert_float_equal(metric("told-2", step, "mfu"), two, 1e-6 * two);
    }
    assert_says(&run, "err", 0, " samples/s  MFU 0.0 %  exposed comm ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_an_mlp_are_the_processors_at_any_number_of_ranks),
        cmocka_unit_test(losses_of_real_targets_are_the_processors),
        cmocka_unit_test(losses_of_convolutions_are_the_processors),
        cmocka_unit_test(statistics_over_all_ranks_are_those_of_one),
        cmocka_unit_test(a_language_model_learns_and_writes_what_it_does_on_the_processor),
        cmocka_unit_test(an_lstm_learns_what_it_does_on_the_processor),
        cmocka_unit_test(a_checkpoint_writes_the_same_text_on_a_device),
        cmocka_unit_test(half_precision_follows_float32),
        cmocka_unit_test(two_runs_give_identical_files_in_any_order_of_streams),
        cmocka_unit_test(sums_are_in_one_order_unless_told_otherwise),
        cmocka_unit_test(a_sharded_optimizer_learns_the_same),
        cmocka_unit_test(a_run_goes_on_between_devices_and_the_processor),
        cmocka_unit_test(a_run_that_was_stopped_goes_on_with_the_same_bits),
        cmocka_unit_test(metrics_have_the_device_and_its_utilisation_where_the_peak_is_known),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
