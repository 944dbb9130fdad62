/* test_train_bf16.c - train.precision = "bf16", and train.products, in the real program. */
#include "kernels/cpu/amx/amx_gemm.h"
#include "support/train.h"

#include <stdbool.h>

enum { STEPS = 30 };

static const char *bf16 = "train.precision=\"bf16\"";

static void losses_in_bf16_follow_those_of_f32_at_any_number_of_ranks(void **state)
{
    struct run_options plain = {.ranks = 1, .arguments = {run_dir_argument("f32")}};
    bool differ = false;

    (void)state;
    run_well(&plain);
    for (int ranks = 1; ranks <= 3; ranks++) {
        const char *name = argument("bf16-%d", ranks);
        /* whose parameters are compared bit by bit at the end */
        struct run_options options = {.ranks = ranks, .arguments = {run_dir_argument(name), bf16}};

        run_well(&options);
        for (uint64_t step = 1; step <= STEPS; step++) {
            double expected = metric("f32", step, "loss");
            double loss = metric(name, step, "loss");

            assert_true(fabs(loss - expected) <= 0.03 * expected + 0.002);
            differ = differ || loss != expected;
        }
        assert_true(metric(name, STEPS, "eval_accuracy") > 0.9);
    }
    assert_true(differ);
}

static void two_runs_in_bf16_give_identical_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run_options options = {
            .ranks = 2, .arguments = {run_dir_argument(argument("same-%d", i)), bf16}};

        run_well(&options);
    }
    for (int i = 0; i < 2; i++) {
        const char *file = i == 0 ? "model" : "optimizer";

        assert_same_file(in_work("same-0/checkpoints/step-%08d/%s.safetensors", STEPS, file),
                         in_work("same-1/checkpoints/step-%08d/%s.safetensors", STEPS, file));
    }
}

static int count_words(const struct run *run, int rank, const char *words)
{
    char *text = output(run, "err", rank);
    int count = 0;

    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        count++;
    }
    free(text);
    return count;
}

static void a_processor_without_bf16_is_told_of_once(void **state)
{
    struct run_options options = {.ranks = 2, .arguments = {run_dir_argument("slow"), bf16}};
    struct run run;

    (void)state;
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
    run = run_well(&options);
    unsetenv("DNNL_MAX_CPU_ISA");
    assert_int_equal(count_words(&run, 0, "train.precision: oneDNN has no bf16 instructions"), 1);
    assert_int_equal(count_words(&run, 1, "train.precision"), 0);
    assert_true(metric("slow", STEPS, "eval_accuracy") > 0.9);
}

/* Wide layers and many samples a rank: large enough for AMX, where there is one. */
static struct run_options wide_run(const char *name, const char *products)
{
    return (struct run_options){.ranks = 2,
                                .arguments = {run_dir_argument(name), "model.hidden=[128, 96]",
                                              "train.batch_size=200", products}};
}

static void losses_follow_each_other_however_products_are_made(void **state)
{
    struct run_options options[] = {wide_run("auto", "train.products=\"auto\""),
                                    wide_run("fma", "train.products=\"fma\"")};
    char *text;

    (void)state;
    run_well(&options[0]);
    run_well(&options[1]);
    for (uint64_t step = 1; step <= 5; step++) {
        double expected = metric("fma", step, "loss");

        assert_float_equal(metric("auto", step, "loss"), expected, 1e-4 * expected);
    }
    text = get_file(in_work("fma/metrics.jsonl"), NULL);
    assert_non_null(strstr(text, "\"products\":\"f32 factors: FMA\""));
    free(text);
    text = get_file(in_work("auto/metrics.jsonl"), NULL);
    assert_int_equal(strstr(text, "\"products\":\"f32 factors: AMX, ") != NULL,
                     cddpi_amx_gemm_available());
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_in_bf16_follow_those_of_f32_at_any_number_of_ranks),
        cmocka_unit_test(two_runs_in_bf16_give_identical_files),
        cmocka_unit_test(a_processor_without_bf16_is_told_of_once),
        cmocka_unit_test(losses_follow_each_other_however_products_are_made),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
