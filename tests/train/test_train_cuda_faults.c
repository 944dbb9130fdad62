/* test_train_cuda_faults.c - how a run on CUDA devices ends when a rank, a device or the data
 * fails, when memory runs out, and when there is no device. */
#include "support/tokens.h"
#include "support/train_cuda.h"

#define LONG(name)                                                                                 \
    "--nproc", "3", in_work("small.conf"), run_dir_argument(name), CUDA, "train.epochs=100000",    \
        "train.checkpoint_steps=5"

static void a_killed_rank_ends_all(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    JOB_START(&job, LONG("killed"));
    kill_rank(&job, "killed", 1);
    launcher_end(&job);
}

static struct run run_with_odd_device(const char *name, const char *setting,
                                      const char *const *arguments)
{
    struct run_options options = {
        .ranks = 3, .odd_setting = setting, .arguments = {run_dir_argument(name), CUDA}};

    for (int i = 0; arguments[i] != NULL; i++) {
        options.arguments[2 + i] = arguments[i];
    }
    return run_badly(&options);
}

/* What cddp-train says itself. Warnings beside it are not counted: on a busy machine the work that
 * was under way may not end before the device is closed, which is worth a line. */
static int count_own_lines(const char *text)
{
    static const char own[] = "cddp-train: ";
    int count = 0;

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        count += strncmp(line, own, sizeof own - 1) == 0;
    }
    return count;
}

static void a_device_that_fails_in_the_middle_ends_all(void **state)
{
    const char *const arguments[] = {"train.epochs=100000", NULL};
    struct run run;
    char *text;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_with_odd_device("illegal", "CDDP_FAKE_CUDA_FAIL_LAUNCH=1500", arguments);
    assert_true(metric("illegal", 2, "loss") > 0); /* it had begun */
    assert_says(&run, "err", 2, "an illegal memory access was encountered");
    assert_says(&run, "err", 0, "rank 2");
    text = output(&run, "err", 1);
    assert_non_null(strstr(text, "cddp-train: rank 1: "));
    assert_non_null(strstr(text, "rank 2"));
    assert_int_equal(count_own_lines(text), 1);
    free(text);
}

/* The device of the last rank fails anywhere in a step, so those of the others go on with a
 * reduction that was ended early. What they wrote is what they write when nothing fails. */
static void no_checkpoint_holds_a_step_that_was_ended_early(void **state)
{
    enum { STEPS = 24 };
    static const char *const backends[] = {"nccl", "nccl", "ipc", "staged"};
    int checked = 0;

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i <= 12; i++) {
        const char *const arguments[] = {"train.checkpoint_steps=1",
                                         "train.keep=0",
                                         "train.max_steps=24",
                                         "train.log_steps=1000",
                                         "ddp.shard_optimizer=false",
                                         i % 4 == 1 ? "train.cuda_graph=always"
                                                    : "train.cuda_graph=never",
                                         NULL};
        char *name = argument("early%d", i);

        if (i == 0) {
            run_named("small.conf", 3, name, CUDA, arguments);
            continue;
        }
        setenv("CDDP_BACKEND", backends[i % 4], 1);
        (void)run_with_odd_device(name, argument("CDDP_FAKE_CUDA_FAIL_LAUNCH=%d", 80 + 19 * i),
                                  arguments);
        unsetenv("CDDP_BACKEND");
        for (int step = 1; step <= STEPS; step++) {
            if (access(in_work("%s/checkpoints/step-%08d/state.json", name, step), F_OK) == 0) {
                assert_same_checkpoint("early0", name, step);
                checked++;
            }
        }
    }
    assert_true(checked > 24);
}

/* All steps but the first are skipped, until that is enough. */
static void losses_that_are_no_numbers_in_fp16_are_told_with_what_it_may_be(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("far"), CUDA,
                                                "train.precision=fp16", "optimizer.lr=1e6",
                                                "train.epochs=100"}};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_badly(&options);
    for (int rank = 0; rank < 2; rank++) {
        assert_says(&run, "err", rank,
                    ": the learning rate may be too high, or activations are larger than fp16 "
                    "holds (65504): bf16 holds them\n");
    }
}

/* A file of tokens below 32, but for token @p odd. */
static void write_tokens(const char *name, uint32_t count, uint32_t odd)
{
    size_t bytes = 0;
    unsigned char *data = support_shard(1, count, 2, &bytes);

    for (uint32_t i = 0; i < count; i++) {
        data[SHARD_HEADER_BYTES + 2 * i] = (unsigned char)(i % 20);
        data[SHARD_HEADER_BYTES + 2 * i + 1] = i == odd;
    }
    support_write_file(in_work("%s", name), data, bytes);
    free(data);
}

static void data_that_fail_on_one_rank_end_all(void **state)
{
    struct run_options options = {
        .ranks = 3,
        .conf = "text.conf",
        .arguments = {run_dir_argument("bad-data"), CUDA, "data.type=tokens",
                      argument("data.train=\"%s\"", in_work("bad.bin")),
                      argument("data.test=\"%s\"", in_work("good.bin")), "model.vocab=32",
                      "data.order=sequential", "train.accumulate=1", "train.generate_steps=0",
                      "train.max_steps=0"}};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    write_tokens("good.bin", 700, UINT32_MAX);
    write_tokens("bad.bin", 700, 30 * 7 + 3); /* window 30: in step 3, of rank 1 */
    run = run_badly(&options);
    assert_true(metric("bad-data", 1, "loss") > 0);
    assert_says(&run, "err", 1, "bad.bin");
    assert_says(&run, "err", 0, "rank 1");
    assert_says(&run, "err", 2, "rank 1");
}

static void memory_that_runs_out_is_told_with_what_would_fit(void **state)
{
    static const char about[] = "(for 200 samples at once; about ";
    const char *const arguments[] = {"model.hidden=[32768, 4]", "train.batch_size=600", NULL};
    struct run_options options = {.ranks = 3,
                                  .odd_setting = "CDDP_FAKE_CUDA_MEMORY=60000000",
                                  .arguments = {run_dir_argument("fits"), CUDA, arguments[0],
                                                "train.max_steps=1", "train.eval_batch_size=3"}};
    struct run run;
    char *text;
    int fits;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_with_odd_device("memory", options.odd_setting, arguments);
    assert_says(&run, "err", 2, "cddp-train: rank 2: cuda:2: no memory for activations: ");
    assert_says(&run, "err", 2, " bytes (");
    assert_says(&run, "err", 2, about);
    assert_says(&run, "err", 2,
                " would fit, so make micro-batches smaller); a larger "
                "train.accumulate (now 1) makes micro-batches smaller (now 200 "
                "samples)\n");
    assert_says(&run, "err", 0, "rank 2");
    assert_says(&run, "err", 1, "rank 2");
    text = output(&run, "err", 2); /* the workspace of products, which comes later, fits as well */
    fits = atoi(strstr(text, about) + strlen(about));
    free(text);
    assert_in_range(fits, 1, 199);
    options.arguments[5] = argument("train.batch_size=%d", 3 * fits);
    run_well(&options);
}

static void a_failure_for_want_of_memory_names_the_key_that_helps(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .odd_setting = "CDDP_FAKE_CUDA_MEMORY=30000000",
                                  .arguments = {run_dir_argument("key"), CUDA,
                                                "model.hidden=[8192]", "train.max_steps=2",
                                                "train.accumulate=2"}};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_badly(&options);
    assert_says(&run, "err", 0, "no memory for workspace of products: ");
    assert_says(&run, "err", 0,
                "; a larger train.accumulate (now 2) makes micro-batches smaller (now 32 "
                "samples)\n");
    options.odd_setting = "CDDP_FAKE_CUDA_MEMORY=44000000"; /* enough for a sample */
    options.arguments[4] = "train.batch_size=1";
    options.arguments[5] = "train.eval_batch_size=150";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "no memory for activations: ");
    assert_says(&run, "err", 0, "(for 150 samples ");
    assert_says(&run, "err", 0, "; a smaller train.eval_batch_size needs less\n");
}

static void memory_that_ends_at_any_moment_is_told_on_all_ranks(void **state)
{
    /* less and less than products take as their workspace */
    static const long bytes[] = {30000000, 3000000, 600000, 300000, 200000, 100000, 30000, 1000};
    const char *const arguments[] = {"train.max_steps=2", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        struct run run = run_with_odd_device(argument("bytes%ld", bytes[i]),
                                             argument("CDDP_FAKE_CUDA_MEMORY=%ld", bytes[i]),
                                             arguments);

        for (int rank = 0; rank < 3; rank++) {
            assert_says(&run, "err", rank, "rank 2: ");
            assert_says(&run, "err", rank, "cuda:2: ");
            assert_says(&run, "err", rank, " memory");
        }
    }
}

static void without_a_device_it_says_why_and_auto_goes_on(void **state)
{
    struct run_options options = {
        .ranks = 2, .arguments = {run_dir_argument("none"), CUDA, "train.max_steps=1"}};
    const char *const steps[] = {"train.max_steps=1", NULL};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DEVICES", "0", 1);
    run = run_badly(&options);
    assert_says(&run, "err", 0, "no CUDA device");
    run_named("small.conf", 2, "auto", "train.device=auto", steps);
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
    setenv("CDDP_FAKE_CUDA_DRIVER", "0", 1);
    run = run_badly(&options);
    assert_says(&run, "err", 0, "no CUDA driver");
    unsetenv("CDDP_FAKE_CUDA_DRIVER");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_ends_all),
        cmocka_unit_test(a_device_that_fails_in_the_middle_ends_all),
        cmocka_unit_test(no_checkpoint_holds_a_step_that_was_ended_early),
        cmocka_unit_test(losses_that_are_no_numbers_in_fp16_are_told_with_what_it_may_be),
        cmocka_unit_test(data_that_fail_on_one_rank_end_all),
        cmocka_unit_test(memory_that_runs_out_is_told_with_what_would_fit),
        cmocka_unit_test(a_failure_for_want_of_memory_names_the_key_that_helps),
        cmocka_unit_test(memory_that_ends_at_any_moment_is_told_on_all_ranks),
        cmocka_unit_test(without_a_device_it_says_why_and_auto_goes_on),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
