/* test_train_copies.c - 16-bit copies of weights on CUDA devices: replayed steps read the copies
 * that the last update wrote, as other steps do, and never outdated ones. */
#include "support/train_graphs.h"

/* Copies of weights in 16 bits are of two kinds: plain ones are written by the update, those of
 * convolutions are made by the capture. Evaluations make the latter, too: before step 4, in which
 * the second place of the feed is captured that step 6 replays, and between others. */
static void copies_are_as_fresh_in_replayed_steps_with_evaluations_between(void **state)
{
    static const char *const precisions[] = {"bf16", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 2; i++) {
        char *kind = argument("copies%d", i);
        const char *const arguments[] = {"model.type=cnn",
                                         "train.max_steps=17",
                                         "train.batch_size=12",
                                         "train.eval_steps=3",
                                         "train.eval_batches=1",
                                         argument("train.precision=%s", precisions[i]),
                                         i == 0 ? NULL : "ddp.shard_optimizer=true",
                                         NULL};

        compare("small.conf", kind, 2, arguments, 17, 0);
        run_graphs("small.conf", 1, argument("%s-auto", kind), AUTO, arguments);
        assert_same_run(argument("%s-never1", kind), argument("%s-auto", kind), 17);
    }
}

/* How often kernels whose names have @p part in them ran on rank 0 of a run. */
static long kernel_runs(const char *name, const char *part)
{
    char *text = get_file(in_work("%s-kernels.0", name), NULL);
    char *rest = NULL;
    long runs = 0;

    assert_non_null(text);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        runs += strstr(line, part) != NULL ? atol(strrchr(line, ' ')) : 0;
    }
    free(text);
    return runs;
}

/* All steps but the first find the copies that the update before has written, and ranks that update
 * a part each have sent: nothing is cast but each micro-batch's images. */
static void replayed_steps_cast_no_more_than_others(void **state)
{
    enum { STEPS = 9, MICRO_BATCHES = 2, PARAMS = 4, EVALUATIONS = 1 };
    static const char *const ways[] = {NEVER, ALWAYS};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i < 8; i++) {
        int ranks = i / 2 % 2 + 1;
        bool shards = i >= 4;
        char *name = argument("casts%d", i);
        const char *const arguments[] = {"train.max_steps=9",
                                         "train.accumulate=2",
                                         shards ? "ddp.shard_optimizer=true"
                                                : "ddp.shard_optimizer=false",
                                         "train.precision=bf16",
                                         "train.eval_batches=1",
                                         NULL};

        setenv("CDDP_FAKE_CUDA_KERNELS", in_work("%s-kernels", name), 1);
        run_graphs("small.conf", ranks, name, ways[i % 2], arguments);
        unsetenv("CDDP_FAKE_CUDA_KERNELS");
        assert_int_equal(replayed(name, STEPS), i % 2 == 0 ? -1 : STEPS - PLAIN_STEPS);
        assert_int_equal(kernel_runs(name, "update_piece"), STEPS);
        assert_int_equal(kernel_runs(name, "cast_all"),
                         STEPS * MICRO_BATCHES + EVALUATIONS + PARAMS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_as_fresh_in_replayed_steps_with_evaluations_between),
        cmocka_unit_test(replayed_steps_cast_no_more_than_others),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
