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

/* A stage's time contains its waiting for others. */
static void expect_no_slow_rank(const char *name)
{
    char *metrics = get_file(in_work("%s/metrics.jsonl", name), NULL);

    assert_non_null(strstr(metrics, "forward_ms"));
    assert_null(strstr(metrics, "slowest_rank"));
    free(metrics);
}

static void statistics_over_replicas_of_a_stage_are_those_over_ranks(void **state)
{
    const char *const resnet[] = {"model.type=resnet20",  "model.sync_batch_norm=true",
                                  "train.batch_size=16",  "train.max_steps=3",
                                  "train.eval_batches=1", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 2, "sync", "train.accumulate=2", NULL, NULL, resnet);
    run_with("small.conf", 4, "sync-mesh", "parallel.pipeline=2", "parallel.micro_batches=2", NULL,
             resnet);
    expect_same("sync", "sync-mesh", 3);
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
    expect_no_slow_rank("mesh");
    run_with("small.conf", 2, "whole", "train.accumulate=3", NULL, NULL, whole);
    run_with("small.conf", 4, "whole-mesh", "parallel.pipeline=2", "parallel.micro_batches=3", NULL,
             whole);
    expect_same("whole", "whole-mesh", 12);
    run_with("small.conf", 2, "sharded", "train.accumulate=3", "train.precision=bf16", NULL, mlp);
    run_with("small.conf", 4, "sharded-mesh", "parallel.pipeline=2", "parallel.micro_batches=3",
             "train.precision=bf16", mlp);
    expect_same("sharded", "sharded-mesh", 12);
}

/* Also running statistics, and images with channels last: what crosses a cut has several readers,
 * and is recomputed or kept. */
static void residual_blocks_in_stages_write_the_files_of_one_gpu(void **state)
{
    static const char *const types[] = {"f32", "bf16"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int t = 0; t < 2; t++) {
        char *one = argument("resnet-%s", types[t]);
        char *two = argument("resnet-two-%s", types[t]);
        const char *const resnet[] = {"data.type=synthetic",
                                      "data.image=[3,8,8]",
                                      "model.type=resnet20",
                                      "train.batch_size=16",
                                      "train.max_steps=3",
                                      "train.eval_batches=1",
                                      argument("train.precision=%s", types[t]),
                                      NULL};

        run_with("small.conf", 1, one, "train.accumulate=4", NULL, NULL, resnet);
        run_with("small.conf", 2, two, "parallel.pipeline=2", "parallel.micro_batches=4",
                 t == 0 ? "parallel.recompute=[0]" : "parallel.stages=[\"layer2.0.conv2\"]",
                 resnet);
        expect_same(one, two, 3);
    }
}

/* Each half of a run has another division, or other devices; fp16 has a loss scale, too. */
static void a_checkpoint_of_stages_goes_on_with_any_other_division(void **state)
{
    static const char *const ways[][2] = {
        {"parallel.pipeline=1", "parallel.pipeline=2"},
        {"parallel.pipeline=2", "parallel.pipeline=3"},
        {"parallel.pipeline=3", "parallel.pipeline=1"},
    };

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int half = 0; half < 2; half++) {
        const char *precision = half == 0 ? "train.precision=f32" : "train.precision=fp16";
        char *through = argument("through%d", half);
        const char *const mlp[] = {OF_MLP, precision, "train.accumulate=4", NULL};

        run_with("small.conf", 1, through, NULL, NULL, NULL, mlp);
        for (int way = 0; way < 3; way++) {
            char *name = argument("parts%d-%d", half, way);

            for (int part = 0; part < 2; part++) {
                const char *division = ways[way][part];

                run_with("small.conf", division[strlen(division) - 1] - '0', name, division,
                         "train.resume=auto", NULL,
                         (const char *const[]){
                             OF_MLP, precision, "train.accumulate=4",
                             part == 0 ? "train.max_steps=5" : "train.max_steps=12", NULL});
            }
            assert_same_checkpoint(through, name, 12);
        }
    }
}

/* Steps so large that gradients overflow, in a stage or in both, and the loss scale falls; a stage
 * that goes on takes it up again. */
static void a_step_that_overflows_in_a_stage_is_skipped_by_all(void **state)
{
    const char *const large[] = {"train.precision=fp16",
                                 "optimizer.lr=2",
                                 "optimizer.momentum=0",
                                 "train.batch_size=2",
                                 "train.accumulate=2",
                                 "train.resume=auto",
                                 NULL};
    double skipped = 0;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 1, "large", "train.max_steps=9", NULL, NULL, large);
    run_with("small.conf", 2, "large-two", "parallel.pipeline=2", "train.max_steps=9", NULL, large);
    assert_same_checkpoint("large", "large-two", 9);
    for (uint64_t step = 1; step <= 9; step++) {
        double one = metric("large", step, "skipped_steps");

        assert_float_equal(metric("large-two", step, "skipped_steps"), one, 0);
        skipped += one;
    }
    assert_true(skipped >= 2 && skipped < 8);
    for (int steps = 5; steps <= 9; steps += 4) {
        run_with("small.conf", 2, "large-again", "parallel.pipeline=2",
                 argument("train.max_steps=%d", steps), NULL, large);
    }
    assert_same_checkpoint("large", "large-again", 9);
}

static void processors_go_on_from_a_checkpoint_of_gpus_and_back(void **state)
{
    const char *const mlp[] = {OF_MLP, "parallel.pipeline=2", "train.accumulate=4",
                               "train.resume=auto", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 2, "there", NULL, NULL, NULL, mlp);
    run_with("small.conf", 2, "back", "train.max_steps=4", NULL, NULL, mlp);
    run_with("small.conf", 2, "back", CPU, "train.max_steps=8", NULL, mlp);
    run_with("small.conf", 2, "back", NULL, NULL, NULL, mlp);
    assert_same_steps("there", "back", 1, 12, 1e-4);
    assert_close("there", "back", 12, "eval_loss", 1e-4);
}

/* A learning rate of 0 leaves weights as they were. */
static void weights_of_a_gpt2_go_to_all_stages_and_back(void **state)
{
    const char *const gpt2[] = {"model.blocks=3", "train.generate_steps=0", "train.accumulate=2",
                                NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("text.conf", 1, "made", "train.max_steps=2", NULL, NULL, gpt2);
    run_with(
        "text.conf", 4, "taken", "parallel.pipeline=2", "optimizer.lr=0",
        argument("model.weights=%s", in_work("made/checkpoints/step-00000002/model.safetensors")),
        gpt2);
    assert_int_equal(
        system(argument("cmp %s %s", in_work("made/checkpoints/step-00000002/model.safetensors"),
                        in_work("taken/checkpoints/step-00000006/model.safetensors"))),
        0);
}

/* By TCP, through pinned memory. */
static void stages_on_several_hosts_write_the_same_files(void **state)
{
    static const struct {
        const char *hosts, *name, *same;
        const char *conf;
        const char *arguments[4];
    } ways[] = {
        {"01", "f1b-hosts", "f1b", "small.conf", {"parallel.micro_batches=4"}},
        {"01",
         "chunks-hosts",
         "chunks",
         "small.conf",
         {"parallel.micro_batches=5", "parallel.schedule=interleaved", "parallel.chunks=2"}},
        {"0101", "mesh-hosts", "mesh", "small.conf", {"parallel.micro_batches=3"}},
        {"01",
         "table-hosts",
         "table-again-bf16",
         "text.conf",
         {"train.precision=bf16", "model.blocks=3", "train.generate_steps=0",
          "train.accumulate=4"}},
    };

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        struct run_options options = {
            .ranks = (int)strlen(ways[way].hosts),
            .hosts = ways[way].hosts,
            .conf = ways[way].conf,
            .arguments = {run_dir_argument(ways[way].name), CUDA, "parallel.pipeline=2"}};
        bool is_text = strcmp(ways[way].conf, "text.conf") == 0;
        const char *const mlp[] = {OF_MLP};
        int count = 3;

        for (int i = 0; i < 4 && ways[way].arguments[i] != NULL; i++) {
            options.arguments[count++] = ways[way].arguments[i];
        }
        for (size_t i = 0; !is_text && i < sizeof mlp / sizeof *mlp; i++) {
            options.arguments[count++] = mlp[i];
        }
        run_well(&options);
        expect_same(ways[way].same, ways[way].name, is_text ? 6 : 12);
    }
}

static void expect_refused(const char *a, const char *b, const char *words)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("refused"), THREE_LAYERS, CUDA,
                                                "parallel.pipeline=2", a, b}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void what_stages_on_gpus_cannot_do_is_refused_in_one_sentence(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    expect_refused("parallel.schedule=zero_bubble", "parallel.micro_batches=2",
                   "parallel.schedule: zero_bubble is for CPUs: on GPUs, choose 1f1b, gpipe or "
                   "interleaved");
    expect_refused("train.micro_batch=8", NULL,
                   "train.micro_batch: pipelines on GPUs do not cut the batch by position: leave "
                   "this out; parallel.micro_batches makes micro-batches");
    expect_refused("train.cuda_graph=always", NULL,
                   "train.cuda_graph: steps of a pipeline are not captured, since messages "
                   "between stages cannot be: leave this out");
    expect_refused("train.offload_optimizer=true", NULL,
                   "train.offload_optimizer: stages over ranks (parallel.pipeline) update on "
                   "their own devices: leave this out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_writes_the_files_of_one_gpu),
        cmocka_unit_test(interleaved_chunks_write_the_files_of_one_gpu),
        cmocka_unit_test(four_stages_in_every_type_write_the_files_of_one_gpu),
        cmocka_unit_test(a_table_of_two_stages_is_one),
        cmocka_unit_test(replicas_of_a_pipeline_write_the_files_of_replicas),
        cmocka_unit_test(statistics_over_replicas_of_a_stage_are_those_over_ranks),
        cmocka_unit_test(residual_blocks_in_stages_write_the_files_of_one_gpu),
        cmocka_unit_test(a_checkpoint_of_stages_goes_on_with_any_other_division),
        cmocka_unit_test(a_step_that_overflows_in_a_stage_is_skipped_by_all),
        cmocka_unit_test(processors_go_on_from_a_checkpoint_of_gpus_and_back),
        cmocka_unit_test(weights_of_a_gpt2_go_to_all_stages_and_back),
        cmocka_unit_test(stages_on_several_hosts_write_the_same_files),
        cmocka_unit_test(what_stages_on_gpus_cannot_do_is_refused_in_one_sentence),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
