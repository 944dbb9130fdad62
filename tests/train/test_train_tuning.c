/* test_train_tuning.c - what one run has measured on its devices, later ones take: another run, one
 * that goes on, and other ranks. Checkpoints have the same bytes either way. */
#include "support/cuda.h"
#include "support/train_graphs.h"

/* How often cuBLASLt's heuristics were asked since the last call. */
static size_t asked(void)
{
    FILE *file = fopen(in_work("calls"), "re");
    size_t lines = 0;

    if (file == NULL) {
        return 0;
    }
    for (int letter; (letter = fgetc(file)) != EOF;) {
        lines += letter == '\n';
    }
    fclose(file);
    unlink(in_work("calls"));
    return lines;
}

static int make_devices_and_cache(void **state)
{
    int failed = make_devices(state);

    setenv("CDDP_CACHE", in_work("cache"), 1);
    setenv("CDDP_FAKE_CUDA_NAME", "a card", 1); /* all ranks have the same */
    setenv("CDDP_FAKE_CUBLASLT_CALLS", in_work("calls"), 1);
    return failed;
}

static void a_second_run_measures_nothing(const char *kind, const char *const *arguments)
{
    char *cold = argument("%s-cold", kind);
    char *warm = argument("%s-warm", kind);
    char *alone = argument("%s-alone", kind);

    setenv("CDDP_CACHE", "off", 1);
    run_named("small.conf", 2, alone, CUDA, arguments);
    assert_true(asked() > 0);
    setenv("CDDP_CACHE", in_work("cache"), 1);
    run_named("small.conf", 2, cold, CUDA, arguments);
    assert_true(asked() > 0);
    run_named("small.conf", 2, warm, CUDA, arguments);
    assert_int_equal(asked(), 0);
    assert_same_run(alone, cold, 6);
    assert_same_run(alone, warm, 6);
}

static void a_second_run_measures_nothing_and_has_the_same_bytes(void **state)
{
    static const char *const arguments[] = {"train.max_steps=6", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    a_second_run_measures_nothing("same", arguments);
}

/* With train.micro_batch, bits depend on nothing of that, nor on the number of ranks. */
static void who_has_measured_decides_no_bits(void **state)
{
    static const char *const arguments[] = {"train.max_steps=6", "train.micro_batch=8", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 1, "one-cold", CUDA, arguments);
    assert_true(asked() > 0);
    run_named("small.conf", 3, "three-warm", CUDA, arguments);
    assert_int_equal(asked(), 0);
    setenv("CDDP_CACHE", "off", 1);
    run_named("small.conf", 2, "two-off", CUDA, arguments);
    assert_true(asked() > 0);
    setenv("CDDP_CACHE", in_work("cache"), 1);
    assert_same_run("one-cold", "three-warm", 6);
    assert_same_run("one-cold", "two-off", 6);
}

static void a_run_that_goes_on_measures_nothing(void **state)
{
    static const char *const half[] = {"train.max_steps=3", NULL};
    static const char *const whole[] = {"train.max_steps=6", "train.resume=auto", NULL};
    static const char *const once[] = {"train.max_steps=6", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 2, "once", CUDA, once);
    asked();
    run_named("small.conf", 2, "halves", CUDA, half);
    run_named("small.conf", 2, "halves", CUDA, whole);
    assert_int_equal(asked(), 0);
    assert_same_checkpoint("once", "halves", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_run_measures_nothing_and_has_the_same_bytes),
        cmocka_unit_test(who_has_measured_decides_no_bits),
        cmocka_unit_test(a_run_that_goes_on_measures_nothing),
    };

    return cmocka_run_group_tests(tests, make_devices_and_cache, remove_work);
}
