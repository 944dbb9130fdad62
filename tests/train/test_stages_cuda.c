/* test_stages_cuda.c - runs of the real program whose model is divided into stages over ranks with
 * a GPU each: the files of an undivided run on GPUs with the same micro-batches, for every
 * schedule, type and number of stages; checkpoints that go on with any other division; what is
 * refused. */
#include "support/train_cuda.h"

#define THREE_LAYERS "model.hidden=[24,20]"

/* Arguments of both runs: at most 3 more. */
#define OF_MLP                                                                                     \
    THREE_LAYERS, "train.max_steps=12", "model.dropout=0.2", "train.clip_norm=0.5",                \
        "optimizer.type=adamw"

/* Run @p conf with up to three arguments of its own and then @p more. */
static void run_with(const char *conf, int ranks, const char *name, const char *a, const char *b,
                     const char *c, const char *const *more)
{
    struct run_options options = {
        .ranks = ranks, .conf = conf, .arguments = {run_dir_argument(name), CUDA, a, b, c}};
    int count = 2;

    while (count < 5 && options.arguments[count] != NULL) {
        count++;
    }
    for (int i = 0; more[i] != NULL; i++) {
        options.arguments[count++] = more[i];
    }
    run_well(&options);
}

/* Norms are exact, and losses exact sums. */
static void expect_same(const char *a, const char *b, uint64_t steps)
{
    assert_same_checkpoint(a, b, (int)steps);
    assert_same_steps(a, b, 1, steps, 1e-9);
    for (uint64_t step = 1; step <= steps; step++) {
        assert_true(metric(a, step, "grad_norm") == metric(b, step, "grad_norm"));
    }
    assert_close(a, b, steps, "eval_loss", 1e-9);
    assert_float_equal(metric(a, steps, "eval_samples"), metric(b, steps, "eval_samples"), 0);
    assert_float_equal(metric(a, steps, "eval_accuracy"), metric(b, steps, "eval_accuracy"), 0);
}

/* Step 10, which ends the epoch, has fewer samples. */
static void a_pipeline_writes_the_files_of_one_gpu(void **state)
{
    const char *const mlp[] = {OF_MLP, NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 1, "one", "train.accumulate=4", NULL, NULL, mlp);
    run_with("small.conf", 2, "f1b", "parallel.pipeline=2", "parallel.micro_batches=4", NULL, mlp);
    expect_same("one", "f1b", 12);
    run_with("small.conf", 2, "gpipe", "parallel.pipeline=2", "parallel.micro_batches=4",
             "parallel.schedule=gpipe", mlp);
    expect_same("one", "gpipe", 12);
}

/* Of 5 micro-batches the schedule makes 6. */
static void interleaved_chunks_write_the_files_of_one_gpu(void **state)
{
    const char *const mlp[] = {OF_MLP, "parallel.schedule=interleaved", "parallel.chunks=2", NULL};
    const char *const whole[] = {OF_MLP, NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 1, "five", "train.accumulate=5", NULL, NULL, whole);
    run_with("small.conf", 2, "chunks", "parallel.pipeline=2", "parallel.micro_batches=5", NULL,
             mlp);
    expect_same("five", "chunks", 12);
}

/* Values between stages have the model's own type, so they lose nothing on their way. */
static void four_stages_in_every_type_write_the_files_of_one_gpu(void **state)
{
    static const char *const types[] = {"f32", "bf16", "fp16"};
    static const char *const schedules[] = {"1f1b", "gpipe", "1f1b"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int t = 0; t < 3; t++) {
        char *one = argument("one-%s", types[t]);
        char *four = argument("four-%s", types[t]);
        const char *const deep[] = {"model.hidden=[24,20,16,12]", "train.max_steps=11",
                                    "train.clip_norm=0.5", argument("train.precision=%s", types[t]),
                                    NULL};

        run_with("small.conf", 1, one, "train.accumulate=6", NULL, NULL, deep);
        run_with("small.conf", 4, four, "parallel.pipeline=4", "parallel.micro_batches=6",
                 argument("parallel.schedule=%s", schedules[t]), deep);
        expect_same(one, four, 11);
    }
}

/* A gpt2's table is the first layer's and the last one's. Each stage adds up its part of the
 * gradient over micro-batches, and the first one adds the parts, so sums have another order than
 * without stages; but the same with any schedule. */
static void a_table_of_two_stages_is_one(void **state)
{
    static const char *const types[] = {"f32", "bf16", "fp16"};
    static const double tolerances[] = {1e-5, 1e-2, 1e-2};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int t = 0; t < 3; t++) {
        char *one = argument("table-%s", types[t]);
        char *four = argument("table-four-%s", types[t]);
        char *again = argument("table-again-%s", types[t]);
        const char *const gpt2[] = {"model.blocks=3", "train.generate_steps=0",
                                    "train.accumulate=4", argument("train.precision=%s", types[t]),
                                    NULL};

        run_with("text.conf", 1, one, NULL, NULL, NULL, gpt2);
        run_with("text.conf", 4, four, "parallel.pipeline=4",
                 "parallel.stages=[\"h.0\",\"h.1\",\"h.2\"]", NULL, gpt2);
        assert_same_steps(one, four, 1, 6, tolerances[t]);
        assert_close(one, four, 6, "eval_loss", tolerances[t]);
        run_with("text.conf", 2, again, "parallel.pipeline=2", "parallel.schedule=gpipe",
                 "ddp.shard_optimizer=false", gpt2);
        expect_same(four, again, 6);
    }
}

static void replicas_of_a_pipeline_write_the_files_of_replicas(void **state)
{
    const char *const mlp[] = {OF_MLP, NULL};
    const char *const whole[] = {OF_MLP, "train.precision=bf16", "ddp.shard_optimizer=false", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 2, "replicas", "train.accumulate=3", NULL, NULL, mlp);
    run_with("small.conf", 4, "mesh", "parallel.pipeline=2", "parallel.micro_batches=3", NULL, mlp);
    expect_same("replicas", "mesh", 12);
    run_with("small.conf", 2, "whole", "train.accumulate=3", NULL, NULL, whole);
    run_with("small.conf", 4, "whole-mesh", "parallel.pipeline=2", "parallel.micro_batches=3", NULL,
             whole);
    expect_same("whole", "whole-mesh", 12);
    run_with("small.conf", 2, "sharded", "train.accumulate=3", "train.precision=bf16", NULL, mlp);
    run_with("small.conf", 4, "sharded-mesh", "parallel.pipeline=2", "parallel.micro_batches=3",
             "train.precision=bf16", mlp);
    expect_same("sharded", "sharded-mesh", 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_writes_the_files_of_one_gpu),
        cmocka_unit_test(interleaved_chunks_write_the_files_of_one_gpu),
        cmocka_unit_test(four_stages_in_every_type_write_the_files_of_one_gpu),
        cmocka_unit_test(a_table_of_two_stages_is_one),
        cmocka_unit_test(replicas_of_a_pipeline_write_the_files_of_replicas),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
