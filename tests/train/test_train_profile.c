/* test_train_profile.c - $CDDP_PROFILE: a run whose kernels are timed learns the same, and the file
 * has every kernel of a step with the bytes and operations that it needs by design. */
#include "support/train_cuda.h"

enum { STEPS = 5, MICRO_BATCHES = 2, BLOCKS = 1 };

struct total {
    long calls;
    double flops, bytes;
};

/* All rows of the profile @p text whose operation begins with @p op. */
static struct total total_of(const char *text, const char *op)
{
    struct total total = {0, 0, 0};
    char start[64];

    snprintf(start, sizeof start, "{\"op\":\"%s", op);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        const char *calls;
        const char *bytes;
        const char *flops;
        double count;

        line += *line == '\n';
        if (strncmp(line, start, strlen(start)) != 0) {
            continue;
        }
        calls = strstr(line, "\"calls\":");
        bytes = strstr(line, "\"bytes\":");
        flops = strstr(line, "\"flops\":");
        assert_true(calls != NULL && bytes != NULL && flops != NULL);
        count = strtod(calls + 8, NULL);
        total.calls += (long)count;
        total.bytes += count * strtod(bytes + 8, NULL);
        total.flops += count * strtod(flops + 8, NULL);
    }
    return total;
}

static struct run run_profiled(const char *name, int ranks, const char *graphs, const char *path)
{
    const char *const arguments[] = {graphs, "train.generate_steps=0", NULL};
    struct run run;

    setenv("CDDP_PROFILE", path, 1);
    run = run_named("text.conf", ranks, name, CUDA, arguments);
    unsetenv("CDDP_PROFILE");
    return run;
}

static void a_profile_has_every_kernel_of_a_step_and_changes_nothing(void **state)
{
    static const char *const never[] = {"train.cuda_graph=never", "train.generate_steps=0", NULL};
    const char *others[] = {"attention\"", "attention_grad\"", "embedding\"", "embedding_grad\"",
                            "cross_entropy + gradient\""};
    struct total forward;
    struct total weight;
    struct total input;
    char path[4096];
    char *text;

    (void)state;
    NEEDS_DEVICE();
    snprintf(path, sizeof path, "%s", in_work("profile.jsonl"));
    run_named("text.conf", 1, "plain", CUDA, never);
    run_profiled("profiled", 1, never[0], path);
    for (uint64_t step = 1; step <= STEPS + 1; step++) {
        assert_true(metric("plain", step, "loss") == metric("profiled", step, "loss"));
    }
    text = get_file(path, NULL);
    assert_non_null(text);
    assert_memory_equal(text, "{\"steps\":5,", 11); /* but the first */
    assert_non_null(strstr(text, "\"missed\":0}"));

    forward = total_of(text, "linear\"");
    weight = total_of(text, "linear_weight");
    input = total_of(text, "linear_input");
    assert_int_equal(forward.calls, STEPS * MICRO_BATCHES * (4 * BLOCKS + 1));
    assert_int_equal(weight.calls, forward.calls);
    assert_int_equal(input.calls, forward.calls);
    assert_true(forward.flops > 0 && weight.flops == forward.flops);
    assert_true(input.flops == forward.flops);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct total total = total_of(text, others[i]);

        assert_int_equal(total.calls, STEPS * MICRO_BATCHES);
        assert_true(total.bytes > 0);
    }
    assert_true(total_of(text, "attention_grad").flops ==
                2.5 * total_of(text, "attention\"").flops);
    assert_int_equal(total_of(text, "update").calls, STEPS);
    assert_int_equal(total_of(text, "squares").calls, STEPS);
    assert_true(total_of(text, "update").bytes == 7 * total_of(text, "squares").bytes);
    free(text);
}

static void each_rank_has_a_profile_and_recordings_have_none(void **state)
{
    char path[4096];
    char *text;

    (void)state;
    NEEDS_DEVICE();
    snprintf(path, sizeof path, "%s", in_work("ranks.jsonl"));
    run_profiled("ranks", 2, "train.cuda_graph=never", path);
    for (int rank = 0; rank < 2; rank++) {
        text = get_file(rank == 0 ? in_work("ranks.jsonl") : in_work("ranks.jsonl.%d", rank), NULL);
        assert_non_null(text);
        assert_int_equal(total_of(text, "update").calls, STEPS);
        free(text);
    }
    snprintf(path, sizeof path, "%s", in_work("replayed.jsonl"));
    run_profiled("replayed", 1, "train.cuda_graph=always", path);
    text = get_file(path, NULL);
    assert_non_null(text); /* of the steps before the first capture alone */
    assert_true(total_of(text, "update").calls < STEPS);
    free(text);
}

static void a_profile_that_cannot_be_written_is_told_and_the_run_goes_on(void **state)
{
    struct run run;

    (void)state;
    NEEDS_DEVICE();
    run = run_profiled("nowhere", 1, "train.cuda_graph=never", "absent/profile.jsonl");
    assert_says(&run, "err", 0,
                "the profile could not be written to absent/profile.jsonl ($CDDP_PROFILE)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_has_every_kernel_of_a_step_and_changes_nothing),
        cmocka_unit_test(each_rank_has_a_profile_and_recordings_have_none),
        cmocka_unit_test(a_profile_that_cannot_be_written_is_told_and_the_run_goes_on),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
