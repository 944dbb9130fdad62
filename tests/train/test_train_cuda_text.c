/* test_train_cuda_text.c - 50 steps on real text, in 16 bits on a device and in float32 on the CPU:
 * losses and gradient norms stay together. Random tokens would hide a wrong gradient, since there
 * is nothing in them to learn. */
#include "support/train_cuda.h"

enum { STEPS = 50 };

static int make_text(void **state)
{
    char conf[6000];
    int bytes;

    if (make_devices(state) != 0) {
        return 1;
    }
    bytes = snprintf(
        conf, sizeof conf,
        "data = { type = \"text\"; train = \"%s/tests/vectors/genesis.txt\"; };\n"
        "model = { type = \"gpt2\"; blocks = 2; heads = 2; embed = 16; context = 16; };\n"
        "train = { epochs = 100; max_steps = %d; batch_size = 8; clip_norm = 1.0;"
        " eval_batch_size = 8; eval_batches = 1; log_steps = 1; generate_steps = 0;"
        " checkpoint_seconds = 0.0; checkpoint_at_end = false; };\n"
        "optimizer = { type = \"adamw\"; lr = 0.002; weight_decay = 0.1; };\n"
        "ddp = { deterministic = false; };\n",
        getenv("CDDP_TEST_SOURCE"), STEPS);
    support_write_file(in_work("text.conf"), conf, (size_t)bytes);
    return 0;
}

/* Losses are near in each step, norms in the mean over steps: a window of tokens that are nearly
 * the same has a layer norm that magnifies roundings, so a single norm may be some percent away. */
static void assert_near_on_average(const char *name)
{
    double away = 0;

    for (uint64_t step = 1; step <= STEPS; step++) {
        assert_close("f32", name, step, "loss", 3e-3);
        away += fabs(metric(name, step, "grad_norm") / metric("f32", step, "grad_norm") - 1);
    }
    print_message("%s: norms are %.2g away in the mean\n", name, away / STEPS);
    assert_true(away / STEPS < (gpu_is_real() ? 0.02 : 0.01));
}

static void sixteen_bits_learn_from_text_as_float32_does(void **state)
{
    static const char *const precisions[] = {"bf16", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    run_named("text.conf", 1, "f32", CPU, NULL);
    assert_true(metric("f32", 1, "loss") > 5.4); /* log(257) = 5.55 */
    assert_true(metric("f32", STEPS, "loss") < 4.2);
    for (int i = 0; i < 2; i++) {
        const char *name = precisions[i];
        const char *const arguments[] = {argument("train.precision=%s", name), NULL};

        run_named("text.conf", 1, name, CUDA, arguments);
        assert_true(metric(name, STEPS, "loss") != metric("f32", STEPS, "loss"));
        assert_near_on_average(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_learn_from_text_as_float32_does),
    };

    return cmocka_run_group_tests(tests, make_text, remove_work);
}
