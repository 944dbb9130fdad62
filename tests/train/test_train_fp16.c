/* test_train_fp16.c - runs in fp16 on CUDA devices: steps that overflow are skipped on all ranks,
 * captured or not, and the run continues, also from a checkpoint, until every step overflows. */
#include "support/train_graphs.h"

#include <cddp/checkpoint.h>

/* The number @p name of a checkpoint's optimizer state. */
static double saved_number(const char *run_dir, uint64_t step, const char *name)
{
    char *path = in_work("%s/checkpoints/step-%08llu/optimizer.safetensors", run_dir,
                         (unsigned long long)step);
    cddp_safetensors *file = NULL;
    double value = NAN;

    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    for (size_t i = 0; i < cddp_safetensors_count(file); i++) {
        const cddp_tensor *tensor = cddp_safetensors_at(file, i);

        if (strcmp(tensor->name, name) == 0) {
            float f32;
            int64_t i64;

            if (tensor->type == CDDP_F32) { /* numbers lie anywhere in a file */
                memcpy(&f32, tensor->data, sizeof f32);
                value = (double)f32;
            } else {
                memcpy(&i64, tensor->data, sizeof i64);
                value = (double)i64;
            }
        }
    }
    cddp_safetensors_close(file);
    return value;
}

/* Whether all tensors of two checkpoints of a run are the same. */
static bool same_tensors(const char *run_dir, uint64_t a, uint64_t b)
{
    cddp_safetensors *files[2] = {open_weights(run_dir, (int)a), open_weights(run_dir, (int)b)};
    bool same = true;

    for (size_t i = 0; i < cddp_safetensors_count(files[0]); i++) {
        const cddp_tensor *tensor = cddp_safetensors_at(files[0], i);
        size_t bytes = cddp_type_bytes(tensor->type);

        for (int d = 0; d < tensor->dims; d++) {
            bytes *= (size_t)tensor->shape[d];
        }
        same = same && memcmp(tensor->data, cddp_safetensors_at(files[1], i)->data, bytes) == 0;
    }
    cddp_safetensors_close(files[0]);
    cddp_safetensors_close(files[1]);
    return same;
}

/* A sample a rank, and steps so large that the model is soon very sure of wrong answers: the
 * gradient of such a loss is as large as the loss scale. */
#define OVERFLOWS                                                                                  \
    "train.precision=fp16", "optimizer.lr=2", "optimizer.momentum=0", "train.batch_size=2",        \
        "train.checkpoint_steps=1", "train.keep=0"

enum { OVERFLOW_STEPS = 9 };

static void a_gradient_that_overflows_skips_the_step_everywhere(void **state)
{
    const char *const arguments[] = {OVERFLOWS, "train.max_steps=9", NULL};
    double scale = 65536;
    int skipped = 0;
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_named("small.conf", 2, "overflows", CUDA, arguments); /* compares parameters, too */
    for (uint64_t step = 2; step <= OVERFLOW_STEPS; step++) {
        bool same = same_tensors("overflows", step - 1, step);

        if (same) {
            scale /= 2;
            skipped++;
            assert_true(isnan(metric("overflows", step, "grad_norm")));
            assert_says(&run, "err", 0,
                        argument("cddp-train: warning: step %llu was skipped: a gradient "
                                 "overflowed; the loss scale is %g now\n",
                                 (unsigned long long)step, scale));
        } else {
            assert_true(isfinite(metric("overflows", step, "grad_norm")));
        }
        assert_float_equal(saved_number("overflows", step, "loss_scale"), scale, 0);
        assert_float_equal(saved_number("overflows", step, "loss_scale.skipped"), skipped, 0);
        assert_float_equal(saved_number("overflows", step, "step"), (double)step - skipped, 0);
    }
    assert_true(skipped >= 2 && skipped < OVERFLOW_STEPS - 2);
}

static void a_loss_scale_that_fell_is_taken_up_again(void **state)
{
    const char *const half[] = {OVERFLOWS, "train.max_steps=5", NULL};
    const char *const rest[] = {OVERFLOWS, "train.max_steps=9", "train.resume=auto", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 2, "scale", CUDA, half);
    run_named("small.conf", 2, "scale", CUDA, rest);
    assert_same_checkpoint("overflows", "scale", OVERFLOW_STEPS);
}

static void fp16_is_not_for_the_processor(void **state)
{
    struct run_options options = {
        .ranks = 1, .arguments = {run_dir_argument("no-fp16"), CPU, "train.precision=fp16"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0, "fp16");
}

/* --- activations that overflow --- */

enum { SPIKE_BATCH = 64, LAST_STEP = 13 };

/* In spiked.conf: which steps of 10 an epoch have one sample whose activations overflow: the first;
 * the first two that are replayed; the epoch's last, which is short. */
static const int spiked[] = {1, 3, 4, 10};

static bool is_spiked(int step)
{
    for (size_t i = 0; i < sizeof spiked / sizeof spiked[0]; i++) {
        if (spiked[i] == (step - 1) % 10 + 1) {
            return true;
        }
    }
    return false;
}

/* Pixels become up to 524, but 67000 where they are white: more than fp16 holds. */
static void write_spiked(const char *name, bool always)
{
    size_t pixels = SIDE * SIDE;
    size_t bytes = 0;
    char *images = get_file(in_work("train-images"), &bytes);
    const char *how = always ? "always" : "spiked";
    const char *conf;

    for (size_t i = 16; i < bytes; i++) {
        images[i] = (char)((unsigned char)images[i] / 100);
    }
    support_write_file(in_work("mild-images"), images, bytes);
    for (size_t i = 0; i < TRAIN_SAMPLES; i++) {
        size_t step = i / SPIKE_BATCH + 1;

        if (always || (is_spiked((int)step) && i % SPIKE_BATCH == 7 * (step % 3))) {
            images[16 + i * pixels + 20] = (char)0xff;
        }
    }
    support_write_file(in_work("%s-images", how), images, bytes);
    free(images);
    conf = argument("data = { train_images = \"%s\"; train_labels = \"%s\"; test_images = \"%s\";"
                    " test_labels = \"%s\"; mean = 0.0; std = 1.5e-5; order = \"sequential\"; };\n"
                    "model = { hidden = [16]; };\n"
                    "train = { epochs = 100; batch_size = %d; eval_batch_size = 50; log_steps = 1;"
                    " checkpoint_seconds = 0.0; precision = \"fp16\"; accumulate = 2; };\n"
                    "optimizer = { type = \"adamw\"; lr = 1e-5; };\n",
                    in_work("%s-images", how), in_work("train-labels"), in_work("mild-images"),
                    in_work("train-labels"), SPIKE_BATCH);
    support_write_file(in_work("%s", name), conf, strlen(conf));
}

static int make_spikes(void **state)
{
    int failed = make_devices(state);

    if (failed == 0) {
        write_spiked("spiked.conf", false);
        write_spiked("always.conf", true);
    }
    return failed;
}

static void assert_says_not(const struct run *run, int rank, const char *words)
{
    char *text = output(run, "err", rank);

    assert_null(strstr(text, words));
    free(text);
}

/* That of the steps @p first to LAST_STEP those were skipped, told, and left out. */
static void assert_skips(const struct run *run, const char *name, int first, double scale)
{
    for (int step = first; step <= LAST_STEP; step++) {
        bool skipped = is_spiked(step);
        double loss = metric(name, (uint64_t)step, "loss");

        assert_float_equal(metric(name, (uint64_t)step, "skipped_steps"), skipped, 0);
        assert_true(isnan(loss) == skipped);
        assert_true(isnan(metric(name, (uint64_t)step, "accuracy")) == skipped);
        assert_true(isnan(metric(name, (uint64_t)step, "grad_norm")) == skipped);
        assert_true(metric(name, (uint64_t)step, "samples_per_s") > 0);
        scale = skipped ? scale / 2 : scale;
        if (skipped) {
            assert_says(run, "err", 0, argument("warning: step %d was skipped: ", step));
            assert_says(run, "err", 0, argument(" overflowed; the loss scale is %g now\n", scale));
        } else {
            assert_says_not(run, 0, argument("step %d was skipped", step));
        }
    }
}

/* Also where gradients are sent in bf16 (f16 overflows earlier). */
static void a_sample_that_overflows_skips_the_step_on_all_ranks(void **state)
{
    static const char *const wires[] = {"ddp.wire=f32", "ddp.wire=bf16", "ddp.wire=f32"};

    (void)state;
    NEEDS_DEVICE();
    for (int ranks = 1; ranks <= ranks_up_to(3); ranks++) {
        for (int shards = 0; shards <= 1; shards++) {
            const char *arguments[] = {NEVER, argument("train.max_steps=%d", LAST_STEP),
                                       shards ? "ddp.shard_optimizer=true"
                                              : "ddp.shard_optimizer=false",
                                       wires[shards ? 0 : ranks - 1], NULL};
            char *plain = argument("spiked%d-%d", ranks, shards);
            char *always = argument("spiked-always%d-%d", ranks, shards);
            struct run run = run_named("spiked.conf", ranks, plain, CUDA, arguments);

            assert_skips(&run, plain, 1, 65536);
            assert_float_equal(saved_number(plain, LAST_STEP, "loss_scale.skipped"), 6, 0);
            assert_float_equal(saved_number(plain, LAST_STEP, "step"), LAST_STEP - 6, 0);
            assert_true(isfinite(metric(plain, 10, "eval_loss")));
            if (gpu_is_real() && ranks > gpu_count()) {
                continue; /* ranks that share one cannot record */
            }
            arguments[0] = ALWAYS;
            run = run_named("spiked.conf", ranks, always, CUDA, arguments);
            assert_skips(&run, always, 1, 65536);
            assert_same_checkpoint(plain, always, LAST_STEP);
        }
    }
}

static void means_leave_out_the_steps_that_were_skipped(void **state)
{
    const char *const each[] = {"train.max_steps=9", NULL};
    const char *const seldom[] = {"train.max_steps=9", "train.log_steps=9", NULL};
    double sum = 0;
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("spiked.conf", 2, "each", CUDA, each);
    run = run_named("spiked.conf", 2, "seldom", CUDA, seldom);
    for (uint64_t step = 2; step <= 9; step++) { /* the first has a line of its own */
        sum += is_spiked((int)step) ? 0 : metric("each", step, "loss");
    }
    assert_true(isnan(metric("seldom", 1, "loss")));
    assert_float_equal(metric("seldom", 9, "skipped_steps"), 2, 0);
    assert_float_equal(metric("seldom", 9, "loss"), sum / 6, 1e-6 * sum);
    assert_says(&run, "err", 0, "step 1/9 (1 skipped)  loss -  ");
}

static void a_run_goes_on_between_skipped_steps_with_the_same_bits(void **state)
{
    static const char *const ways[] = {NEVER, ALWAYS};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i < 2; i++) {
        char *name = argument("spiked-parts%d", i);
        const char *const half[] = {ways[i], "train.max_steps=3", "ddp.shard_optimizer=true", NULL};
        const char *const rest[] = {ways[1 - i], argument("train.max_steps=%d", LAST_STEP),
                                    "ddp.shard_optimizer=true", "train.resume=auto", NULL};
        struct run run;

        run_named("spiked.conf", 3, name, CUDA, half);
        assert_float_equal(saved_number(name, 3, "loss_scale.good_steps"), -1, 0);
        run = run_named("spiked.conf", 3, name, CUDA, rest);
        assert_skips(&run, name, 4, 65536 / 4);
        assert_same_checkpoint("spiked3-1", name, LAST_STEP);
    }
}

static struct run run_hopeless(const char *name, int ranks, const char *way, const char *more)
{
    struct run_options options = {.ranks = ranks,
                                  .conf = "always.conf",
                                  .arguments = {run_dir_argument(name), CUDA, way, more}};

    return run_badly(&options);
}

static void assert_all_end(const struct run *run)
{
    for (int rank = 0; rank < run->ranks; rank++) {
        assert_says(
            run, "err", rank,
            ": step 50 is the 50th in a row that was skipped because it overflowed, and the "
            "loss scale is down to 1: the learning rate may be too high, or activations "
            "are larger than fp16 holds (65504): bf16 holds them\n");
    }
}

static void assert_ended(const struct run *run, const char *name)
{
    assert_all_end(run);
    assert_float_equal(metric(name, 49, "skipped_steps"), 1, 0);
    assert_true(isnan(metric(name, 50, "skipped_steps")));
    assert_says(run, "err", 0, "step 49 was skipped: activations overflowed; the loss scale is 1 ");
}

/* 16 times it halves, then 34 times it stays 1. */
static void a_run_of_which_all_steps_are_skipped_ends_on_all_ranks(void **state)
{
    const char *const half[] = {"train.max_steps=20", ALWAYS, NULL};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int ranks = 1; ranks <= 2; ranks++) {
        run = run_hopeless(argument("hopeless%d", ranks), ranks, NEVER, NULL);
        assert_ended(&run, argument("hopeless%d", ranks));
    }
    run = run_hopeless("hopeless-always", 3, ALWAYS, NULL);
    assert_ended(&run, "hopeless-always");
    for (int i = 0; i < 2; i++) { /* found in the middle of the next step */
        run = run_hopeless(argument("hopeless-seldom%d", i), 3, i ? ALWAYS : NEVER,
                           "train.log_steps=1000");
        assert_all_end(&run);
    }
    run_named("always.conf", 2, "hopeless-parts", CUDA, half);
    assert_float_equal(saved_number("hopeless-parts", 20, "loss_scale"), 1, 0);
    assert_float_equal(saved_number("hopeless-parts", 20, "loss_scale.good_steps"), -20, 0);
    run = run_hopeless("hopeless-parts", 2, NEVER, "train.resume=auto");
    assert_ended(&run, "hopeless-parts");
}

static void in_other_precisions_a_loss_that_is_no_number_ends_the_run(void **state)
{
    static const char *const precisions[] = {"f32", "bf16"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i < 2; i++) {
        for (int way = 0; way < 2; way++) {
            struct run_options options = {
                .ranks = 2,
                .arguments = {run_dir_argument("far"), CUDA, way ? ALWAYS : NEVER,
                              argument("train.precision=%s", precisions[i]), "optimizer.lr=1e6",
                              "data.std=1e-6", "model.loss=mse"}};
            struct run run = run_badly(&options);

            assert_says(&run, "err", 0, ": the learning rate may be too high\n");
            assert_says_not(&run, 0, "skipped");
            assert_true(isnan(metric("far", 5, "loss")));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_that_overflows_skips_the_step_everywhere),
        cmocka_unit_test(a_loss_scale_that_fell_is_taken_up_again),
        cmocka_unit_test(a_sample_that_overflows_skips_the_step_on_all_ranks),
        cmocka_unit_test(means_leave_out_the_steps_that_were_skipped),
        cmocka_unit_test(a_run_goes_on_between_skipped_steps_with_the_same_bits),
        cmocka_unit_test(a_run_of_which_all_steps_are_skipped_ends_on_all_ranks),
        cmocka_unit_test(in_other_precisions_a_loss_that_is_no_number_ends_the_run),
        cmocka_unit_test(fp16_is_not_for_the_processor),
    };

    return cmocka_run_group_tests(tests, make_spikes, remove_work);
}
