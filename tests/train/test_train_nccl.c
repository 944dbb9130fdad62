/* test_train_nccl.c - which NCCL calls runs make, as the fake NCCL counts them: plain sums if all
 * ranks have equally many samples, 16-bit numbers if requested, memory that all ranks can access;
 * and how runs continue when NCCL fails where it is optional. */
#include "support/train_graphs.h"

/* How often rank @p rank of the last run called @p what; "": anything of that beginning. */
static unsigned long calls_of(const char *name, int rank, const char *what)
{
    size_t bytes = 0;
    char *text = get_file(in_work("%s.calls.%d", name, rank), &bytes);
    unsigned long sum = 0;

    if (text == NULL) {
        fail_msg("rank %d of %s tells no calls of NCCL", rank, name);
    }
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        sum += strncmp(line, what, strlen(what)) == 0 ? strtoul(strrchr(line, ' '), NULL, 10) : 0;
    }
    free(text);
    return sum;
}

static struct run run_counted(const char *name, const char *const *arguments)
{
    struct run run;

    setenv("CDDP_BACKEND", "nccl", 1);
    setenv("CDDP_FAKE_NCCL_CALLS", in_work("%s.calls", name), 1);
    run = run_named("small.conf", 2, name, CUDA, arguments);
    unsetenv("CDDP_FAKE_NCCL_CALLS");
    unsetenv("CDDP_BACKEND");
    return run;
}

static void equal_shares_are_plain_sums_in_the_type_of_the_wire(void **state)
{
    static const char *const wires[] = {"f32", "bf16", "f16"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_PRODUCTS", "first", 1);
    for (int i = 0; i < 3; i++) {
        const char *const fixed[] = {"train.max_steps=4", "ddp.shard_optimizer=false",
                                     "train.cuda_graph=never", argument("ddp.wire=%s", wires[i]),
                                     NULL};
        const char *const any[] = {"train.max_steps=4",       "ddp.shard_optimizer=false",
                                   "train.cuda_graph=never",  argument("ddp.wire=%s", wires[i]),
                                   "ddp.deterministic=false", NULL};
        char *name = argument("plain-%s", wires[i]);
        char *other = argument("fixed-%s", wires[i]);

        run_counted(other, fixed);
        run_counted(name, any);
        for (int rank = 0; rank < 2; rank++) {
            assert_true(calls_of(name, rank, argument("all_reduce %s sum", wires[i])) >= 4);
            assert_int_equal(calls_of(name, rank, "all_gather f64"), 0); /* weights */
            assert_int_equal(calls_of(name, rank, "send"), 0);
            assert_int_equal(calls_of(name, rank, "all_reduce f32 factor"), 0);
            assert_true(calls_of(name, rank, "window") > 0);
            assert_true(calls_of(other, rank, "send") > 0);
            assert_int_equal(calls_of(other, rank, "window"), 0);
        }
        assert_same_steps(other, name, 1, 4, i == 0 ? 1e-5 : 2e-2);
    }
    unsetenv("CDDP_PRODUCTS");
}

static void a_sharded_optimizer_has_plain_sums_too(void **state)
{
    const char *const arguments[] = {"train.max_steps=4", "ddp.shard_optimizer=true",
                                     "ddp.deterministic=false", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_counted("shards", arguments);
    assert_true(calls_of("shards", 0, "reduce_scatter f32 sum") >= 4);
    assert_int_equal(calls_of("shards", 0, "reduce_scatter f32 factor"), 0);
}

/* What forward reads, half of the parameters' bytes. Checkpoints have the parameters all the same.
 */
static void a_sharded_optimizer_sends_16_bits(void **state)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};
    static const char *const types[] = {"f32", "bf16", "f16"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i < 3; i++) {
        const char *arguments[] = {
            "train.max_steps=4", argument("train.precision=%s", precisions[i]),
            "train.checkpoint_seconds=0.0", "ddp.shard_optimizer=false", NULL};
        char *whole = argument("whole-%s", precisions[i]);
        char *name = argument("sends-%s", precisions[i]);

        run_counted(whole, arguments);
        arguments[3] = "ddp.shard_optimizer=true";
        run_counted(name, arguments);
        assert_same_steps(whole, name, 1, 4, 1e-6);
        assert_close(whole, name, 4, "eval_loss", 1e-6);
        for (int rank = 0; rank < 2; rank++) {
            assert_true(calls_of(name, rank, argument("all_gather %s", types[i])) >= 4);
            /* one for the last checkpoint */
            assert_true(i == 0 || calls_of(name, rank, "all_gather f32") <= 2);
        }
    }
}

/* Five samples on two ranks: each scales its own gradients, so that NCCL makes plain sums. */
static void unequal_shares_are_weighed(void **state)
{
    const char *const fixed[] = {"train.max_steps=4", "train.batch_size=5", NULL};
    const char *const any[] = {"train.max_steps=4", "train.batch_size=5", "ddp.deterministic=false",
                               "ddp.shard_optimizer=false", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_PRODUCTS", "first", 1);
    run_counted("uneven-fixed", fixed);
    run_counted("uneven-any", any);
    unsetenv("CDDP_PRODUCTS");
    assert_true(calls_of("uneven-any", 0, "all_gather f64") >= 4); /* weights */
    assert_true(calls_of("uneven-any", 0, "all_reduce f32 sum") >= 4);
    assert_int_equal(calls_of("uneven-any", 0, "all_reduce f32 factor"), 0);
    assert_same_steps("uneven-fixed", "uneven-any", 1, 4, 1e-5);
}

/* NCCL from 2.30.3 on lets them, if it is told to; an earlier one does not, and is not asked. */
static void ranks_share_a_gpu_where_nccl_lets_them(void **state)
{
    const char *const arguments[] = {"train.max_steps=4", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_BACKEND", "nccl", 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    setenv("CDDP_FAKE_NCCL_VERSION", "23003", 1);
    run_named("small.conf", 2, "two-gpus", CUDA, arguments);
    run_named("small.conf", 4, "four-gpus", CUDA, arguments);
    setenv("CDDP_FAKE_CUDA_DEVICES", "1", 1);
    run_named("small.conf", 2, "two-on-one", CUDA, arguments);
    run_named("small.conf", 4, "four-on-one", CUDA, arguments);
    assert_same_run("two-gpus", "two-on-one", 4);
    assert_same_run("four-gpus", "four-on-one", 4);
    setenv("CDDP_FAKE_NCCL_VERSION", "22809", 1);
    for (int i = 0; i < 2; i++) {
        struct run_options options = {
            .ranks = 2, .arguments = {run_dir_argument("refused"), CUDA, "train.max_steps=4"}};
        struct run run = run_badly(&options);

        assert_says(&run, "err", 0, i == 0 ? "NCCL 2.28.9 " : "CDDP_BACKEND=host");
        unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    }
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
    unsetenv("CDDP_FAKE_NCCL_VERSION");
    unsetenv("CDDP_BACKEND");
}

/* Memory that one rank cannot register is registered by none, and the run goes on with a
 * communicator of its own, for the failure has ended the first. */
static void what_one_rank_cannot_register_none_does(void **state)
{
    static const char *const settings[] = {"CDDP_FAKE_NCCL_WINDOW=fail", "NCCL_WIN_ENABLE=0"};
    static const char *const names[] = {"no-window", "switched-off"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_BACKEND", "nccl", 1);
    for (int i = 0; i < 2; i++) {
        struct run_options options = {.ranks = 3,
                                      .odd_setting = settings[i],
                                      .arguments = {run_dir_argument(names[i]), CUDA,
                                                    "train.max_steps=6",
                                                    "ddp.deterministic=false"}};
        struct run run;
        char *text;

        setenv("CDDP_FAKE_NCCL_CALLS", in_work("%s.calls", names[i]), 1);
        run = run_well(&options);
        text = output(&run, "err", 2);
        assert_int_equal(strstr(text, "memory is not registered with NCCL") != NULL, i == 0);
        free(text);
        if (i == 1) { /* no rank asks for one */
            for (int rank = 0; rank < 3; rank++) {
                assert_int_equal(calls_of(names[i], rank, "window"), 0);
                assert_true(calls_of(names[i], rank, "register") > 0);
            }
        }
        assert_true(metric(names[i], 6, "loss") > 0);
    }
    unsetenv("CDDP_FAKE_NCCL_CALLS");
    unsetenv("CDDP_BACKEND");
}

/* Windows came with 2.27, registration and memory for it with 2.19: earlier ones do without, and
 * that is nothing to be told. */
static void memory_is_registered_as_far_as_the_version_can(void **state)
{
    static const struct {
        const char *version;
        bool windows, registers;
    } cases[] = {{"22809", true, false},
                 {"23007", true, false}, /* windows are ready later than the call returns */
                 {"22703", true, false}, /* it says so */
                 {"22605", false, true},
                 {"21805", false, false}};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_PRODUCTS", "first", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const arguments[] = {"train.max_steps=4", "ddp.deterministic=false", NULL};
        char *name = argument("nccl-%s", cases[i].version);
        struct run run;
        char *text;

        setenv("CDDP_FAKE_NCCL_VERSION", cases[i].version, 1);
        run = run_counted(name, arguments);
        unsetenv("CDDP_FAKE_NCCL_VERSION");
        text = output(&run, "err", 0);
        assert_null(strstr(text, "NCCL"));
        free(text);
        assert_int_equal(calls_of(name, 1, "window") > 0, cases[i].windows);
        assert_int_equal(calls_of(name, 1, "register") > 0, cases[i].registers);
        /* no abort ends an all_gather of copy engines */
        assert_int_equal(calls_of(name, 1, "copy engines"), 0);
        assert_same_run("nccl-22809", name, 4);
    }
    unsetenv("CDDP_PRODUCTS");
}

/* Whatever the reason, a run that would be faster with NCCL says so once. */
static void nccl_that_is_passed_over_is_a_warning(void **state)
{
    const char *const arguments[] = {"train.max_steps=2", NULL};
    struct run run;
    char *text;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_WITHOUT", "nccl", 1);
    run = run_named("small.conf", 2, "no-nccl", CUDA, arguments);
    unsetenv("CDDP_FAKE_CUDA_WITHOUT");
    assert_says(
        &run, "err", 0,
        "warn: backend ipc carries the devices' memory, which may be slower, because of nccl: ");
    text = output(&run, "err", 1);
    assert_null(strstr(text, "carries"));
    free(text);
}

static struct run run_with_refusal(const char *name, const char *wish, int call, bool goes_well)
{
    struct run_options options = {.ranks = 3,
                                  .odd_setting = argument("CDDP_FAKE_NCCL_FAIL_CAPTURE=%d", call),
                                  .arguments = {run_dir_argument(name), CUDA, wish,
                                                "train.clip_norm=0.5", "ddp.first_bucket_bytes=512",
                                                "ddp.bucket_bytes=1024", "train.max_steps=12"}};

    return goes_well ? run_well(&options) : run_badly(&options);
}

/* In the first bucket and in a later one, of the first capture and of the second. */
static void nccl_that_fails_in_a_recording_has_all_go_on_without(void **state)
{
    static const int calls[] = {1, 5, 12};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_BACKEND", "nccl", 1);
    (void)run_with_refusal("captured", NEVER, 0, true);
    for (int i = 0; i < 3; i++) {
        char *name = argument("refused%d", i);

        run = run_with_refusal(name, AUTO, calls[i], true);
        assert_says(&run, "err", 0, ": rank 2: ");
        assert_says(&run, "err", 0, "unhandled cuda error");
        assert_same_run("captured", name, 12);
    }
    run = run_with_refusal("refused-always", ALWAYS, 1, false);
    for (int rank = 0; rank < 3; rank++) {
        assert_says(&run, "err", rank, ": rank 2: ");
    }
    unsetenv("CDDP_BACKEND");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shares_are_plain_sums_in_the_type_of_the_wire),
        cmocka_unit_test(a_sharded_optimizer_has_plain_sums_too),
        cmocka_unit_test(a_sharded_optimizer_sends_16_bits),
        cmocka_unit_test(unequal_shares_are_weighed),
        cmocka_unit_test(ranks_share_a_gpu_where_nccl_lets_them),
        cmocka_unit_test(what_one_rank_cannot_register_none_does),
        cmocka_unit_test(memory_is_registered_as_far_as_the_version_can),
        cmocka_unit_test(nccl_that_is_passed_over_is_a_warning),
        cmocka_unit_test(nccl_that_fails_in_a_recording_has_all_go_on_without),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
