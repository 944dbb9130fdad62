/* test_placed_cuda.c - runs of the real program whose ranks have several GPUs each, or a GPU and
 * the CPU: the files of a run with one GPU, or the CPU's results; and what is refused. */
#include "support/train_cuda.h"

#define THREE_LAYERS "model.hidden=[24,20]"
#define PLACED "parallel.type=model_parallel"
#define COPIED "parallel.type=data_parallel"
#define TWO "train.devices=[\"cuda:0\",\"cuda:1\"]"
#define SECOND_HALF "parallel.stages=[\"fc2\"]"

/* Eight arguments are possible. */
#define OF_MLP                                                                                     \
    THREE_LAYERS, "train.max_steps=12", "train.accumulate=3", "model.dropout=0.2",                 \
        "train.clip_norm=0.5", "optimizer.type=adamw", "optimizer.lr=0.01"

/* A run with three arguments of its own, then @p more. */
static void run_with(const char *conf, int ranks, const char *name, const char *a, const char *b,
                     const char *c, const char *const *more)
{
    struct run_options options = {
        .ranks = ranks, .conf = conf, .arguments = {run_dir_argument(name), a, b, c}};

    for (int i = 0; more != NULL && more[i] != NULL; i++) {
        options.arguments[4 + i] = more[i];
    }
    run_well(&options);
}

static void expect_same(const char *a, const char *b, uint64_t steps)
{
    assert_same_checkpoint(a, b, (int)steps);
    assert_same_steps(a, b, 1, steps, 1e-6);
    assert_close(a, b, steps, "eval_loss", 1e-6);
    assert_float_equal(metric(a, steps, "eval_accuracy"), metric(b, steps, "eval_accuracy"), 0);
}

/* Each has one of its own. */
static int ranks_with_a_gpu(void)
{
    return gpu_is_real() && gpu_count() < 2 ? 1 : 2;
}

/* The step behind the first epoch, which ends in step 10, has fewer samples. */
static void layers_on_two_gpus_write_the_files_of_one(void **state)
{
    const char *const mlp[] = {OF_MLP, NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 1, "one", CUDA, mlp);
    run_with("small.conf", 1, "halves", PLACED, TWO, SECOND_HALF, mlp);
    expect_same("one", "halves", 12);
}

static void micro_batches_on_two_gpus_at_once_write_the_files_of_one(void **state)
{
    const char *const mlp[] = {OF_MLP, "parallel.micro_batches=3", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 1, "f1b", PLACED, TWO, SECOND_HALF, mlp);
    expect_same("one", "f1b", 12);
    run_with("small.conf", 1, "gpipe", PLACED,
             "parallel.placement=fc1=cuda:1, fc2=cuda:0, fc3=cuda:1", "parallel.schedule=gpipe",
             mlp);
    expect_same("one", "gpipe", 12);
}

/* The second GPU has no images, which the first one converts: to 16 bits, or to channels last. */
static void a_gpu_without_the_first_layer_reads_no_images(void **state)
{
    const char *const half[] = {OF_MLP, "train.precision=bf16", NULL};
    const char *const coloured[] = {"data.type=synthetic",
                                    "data.image=[3,8,8]",
                                    "model.type=resnet20",
                                    "train.max_steps=2",
                                    "train.batch_size=8",
                                    "train.eval_batches=1",
                                    NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 1, "half", CUDA, half);
    run_with("small.conf", 1, "half-two", PLACED, TWO, SECOND_HALF, half);
    assert_same_steps("half", "half-two", 1, 12, 1e-3);
    run_named("small.conf", 1, "coloured", CUDA, coloured);
    run_with("small.conf", 1, "coloured-two", PLACED, TWO, "parallel.stages=[\"layer2\"]",
             coloured);
    assert_same_steps("coloured", "coloured-two", 1, 2, 1e-5);
}

/* A table of 257 x 10 on the processor, which forward only reads here and there; what follows it on
 * a GPU. Each rank has both. */
static void an_embedding_on_the_processor_trains_with_layers_on_a_gpu(void **state)
{
    const char *const words[] = {"model.type=layers",
                                 "model.layers=({type=\"embedding\";name=\"table\";units=10;},"
                                 "{type=\"layer_norm\";name=\"norm\";},"
                                 "{type=\"linear\";name=\"fc\";units=257;})",
                                 "train.generate_steps=0", NULL};
    const char *const where = "parallel.placement=table=cpu, norm=cuda:0, fc=cuda:0";

    (void)state;
    run_named("text.conf", 1, "words", CPU, words);
    for (int ranks = 1; ranks <= ranks_with_a_gpu(); ranks++) {
        char *mixed = argument("words-mixed%d", ranks);

        run_with("text.conf", ranks, mixed, PLACED, where, "train.tensorboard=false", words);
        assert_same_steps("words", mixed, 1, 6, 1e-5);
        assert_close("words", mixed, 6, "eval_loss", 1e-5);
    }
    run_with("text.conf", ranks_with_a_gpu(), "words-again", PLACED, where,
             "train.tensorboard=true", words);
    expect_same(argument("words-mixed%d", ranks_with_a_gpu()), "words-again", 6);
    run_with("text.conf", 1, "words-back", PLACED,
             "parallel.placement=table=cuda:0, norm=cpu, fc=cpu", "train.tensorboard=false", words);
    assert_same_steps("words", "words-back", 1, 6, 1e-5);
}

/* The table is the first layer's and the last one's. */
static void a_table_of_two_gpus_is_one(void **state)
{
    const char *const plain[] = {"train.generate_steps=0", "model.blocks=2", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("text.conf", 1, "table", CUDA, plain);
    run_with("text.conf", 2, "table-two", PLACED, TWO, "parallel.stages=[\"h.1\"]", plain);
    assert_same_steps("table", "table-two", 1, 6, 1e-5);
    run_with("text.conf", 1, "table-at-once", PLACED, TWO, "parallel.micro_batches=2", plain);
    assert_same_steps("table", "table-at-once", 1, 6, 1e-5);
    assert_close("table", "table-two", 6, "eval_loss", 1e-5);
}

/* Running statistics go on from the checkpoint, too, which a run on processors has written. */
static void statistics_and_checkpoints_go_on_at_any_devices(void **state)
{
    const char *const norm[] = {"model.type=layers",
                                "model.layers=({type=\"conv2d\";name=\"c1\";units=4;kernel=3;},"
                                "{type=\"batch_norm\";name=\"n1\";},{type=\"relu\";},"
                                "{type=\"flatten\";},{type=\"linear\";name=\"fc\";units=4;})",
                                "train.resume=auto", "ddp.shard_optimizer=false", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 1, "norm", "train.max_steps=6", CPU, "train.log_steps=1", norm);
    run_with("small.conf", 1, "norm-on", "train.max_steps=3", CPU, "train.log_steps=1", norm);
    run_with("small.conf", 1, "norm-on", "train.max_steps=6", PLACED,
             "parallel.placement=c1=cuda:0, n1=cuda:0, fc=cuda:1", norm);
    assert_same_steps("norm", "norm-on", 4, 6, 1e-4);
    assert_close("norm", "norm-on", 6, "eval_loss", 1e-4);
}

static void copies_on_two_gpus_train_as_one_does(void **state)
{
    const char *const mlp[] = {OF_MLP, NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int way = 0; way < 2; way++) {
        char *name = argument("copies%d", way);

        run_with("small.conf", 1, name, COPIED, "parallel.devices=[\"cuda:0\",\"cuda:1\"]",
                 "parallel.output_device=cuda:1", mlp);
        assert_same_steps("one", name, 1, 12, 1e-4);
        assert_close("one", name, 12, "eval_loss", 1e-4);
    }
    expect_same("copies0", "copies1", 12);
    run_with("small.conf", 2, "copies-named", COPIED,
             "parallel.devices=[\"cuda:0\",\"cpu\",\"cuda:1\"]", "parallel.layers=[\"fc2\"]", mlp);
    assert_same_steps("one", "copies-named", 1, 12, 1e-4);
}

/* And the GPU holds no moments; a checkpoint goes on with them there. */
static void an_optimizer_in_the_processors_memory_writes_the_same_files(void **state)
{
    const char *const mlp[] = {OF_MLP, "train.resume=auto", NULL};
    char *metrics;
    char *row;

    (void)state;
    for (int ranks = 1; ranks <= ranks_with_a_gpu(); ranks++) {
        char *there = argument("moments-there%d", ranks);
        char *here = argument("moments-here%d", ranks);

        run_with("small.conf", ranks, there, CUDA, "train.offload_optimizer=false",
                 "train.log_steps=1", mlp);
        run_with("small.conf", ranks, here, CUDA, "train.offload_optimizer=true",
                 "train.log_steps=1", mlp);
        expect_same(there, here, 12);
    }
    metrics = get_file(in_work("moments-here1/metrics.jsonl"), NULL);
    row = strstr(metrics, "\"device\":\"cuda\"");
    assert_non_null(row);
    assert_memory_equal(strstr(row, "\"optimizer_bytes\":"), "\"optimizer_bytes\":0,", 20);
    assert_non_null(strstr(row, "\"device\":\"process\""));
    free(metrics);
}

/* Rank 1 has its own GPU under the same name. */
static void the_log_says_which_card_a_device_is(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("told"), THREE_LAYERS, "train.max_steps=1", PLACED,
                      "parallel.placement=fc1=cpu, fc2=cuda:0, fc3=cuda:0"}};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_LOG", "info", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    run = run_well(&options);
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_says(&run, "err", 0,
                ": the machine's \"3\", as CUDA_VISIBLE_DEVICES=3,1 leaves 2 and numbers them in "
                "its order");
    assert_says(&run, "err", 1, "cuda:0 is cuda:1 of this process, as rank 1 of the 2");
    assert_says(&run, "err", 1, ": the machine's \"1\", as CUDA_VISIBLE_DEVICES=3,1");
    options.arguments[4] = "parallel.placement=fc1=cpu, fc2=cuda:7, fc3=cuda:0";
    run = run_well(&options);
    unsetenv("CDDP_LOG");
    assert_says(&run, "err", 1, "cuda:7 is ");
    assert_says(&run, "err", 1, "one of 8; CUDA_VISIBLE_DEVICES is not set");
}

/* The second GPU begins in the middle of a block. */
static void blocks_on_two_gpus_are_recomputed_with_the_files_of_one(void **state)
{
    const char *const kept[] = {"model.type=resnet20",  "train.batch_size=8",
                                "train.max_steps=3",    "train.eval_batch_size=8",
                                "train.eval_batches=1", NULL};
    const char *const recomputed[] = {"model.type=resnet20",
                                      "train.batch_size=8",
                                      "train.max_steps=3",
                                      "train.eval_batch_size=8",
                                      "train.eval_batches=1",
                                      "model.recompute=true",
                                      NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_named("small.conf", 1, "blocks", CUDA, kept);
    run_named("small.conf", 1, "blocks-again", CUDA, recomputed);
    expect_same("blocks", "blocks-again", 3);
    run_with("small.conf", 1, "blocks-two", PLACED, TWO, "parallel.stages=[\"layer2.0.conv2\"]",
             recomputed);
    expect_same("blocks", "blocks-two", 3);
}

/* At its full width, so two small steps. */
static void each_tower_of_alexnet_trains_on_a_gpu(void **state)
{
    const char *const alexnet[] = {
        "data.type=synthetic",     "data.image=[3,67,67]", "model.type=alexnet", "model.towers=2",
        "train.eval_batch_size=4", "train.eval_batches=1", "train.max_steps=2",  NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("small.conf", 1, "towers", CPU, "train.batch_size=4", "train.checkpoint_at_end=false",
             alexnet);
    run_with("small.conf", 1, "towers-apart", PLACED,
             "parallel.placement=a1=cuda:0, b1=cuda:1, a3=cuda:0, b3=cuda:1, a6=cuda:0, b6=cuda:1, "
             "a7=cuda:0, b7=cuda:1, fc8=cuda:0",
             "train.batch_size=4", alexnet);
    assert_same_steps("towers", "towers-apart", 1, 2, 1e-4);
    assert_close("towers", "towers-apart", 2, "eval_loss", 1e-4);
}

static void expect_refused(const char *a, const char *b, const char *c, const char *words)
{
    struct run_options options = {
        .ranks = 1, .arguments = {run_dir_argument("refused"), THREE_LAYERS, PLACED, a, b, c}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void what_gpus_cannot_do_so_is_refused_in_one_sentence(void **state)
{
    char *module;

    (void)state;
    NEEDS_EMULATED_MODULE();
    module = strdup(getenv("CDDP_CUDA_MODULE"));
    expect_refused("train.devices=[\"cuda:0\",\"cuda:9\"]", NULL, NULL,
                   "train.devices: rank 0: device \"cuda:9\": this process sees 8 CUDA devices, "
                   "numbered from 0");
    expect_refused(TWO, "parallel.placement=fc1=cuda:0, fc2=cuda:2, fc3=cuda:1", NULL,
                   "parallel.placement: cuda:2, ");
    expect_refused(TWO, CUDA, NULL, "train.device: with parallel.type = ");
    expect_refused(TWO, SECOND_HALF, "train.precision=fp16",
                   "parallel.type: cuda:0: fp16 needs a loss scale");
    expect_refused(TWO, "train.offload_optimizer=true", NULL, "train.offload_optimizer: ");
    expect_refused("parallel.placement=fc1=cuda:x, fc2=cpu, fc3=cpu", NULL, NULL,
                   "parallel.placement: devices: \"cuda:x\" is not a device: use cuda or cuda:N");
    expect_refused("parallel.placement=fc1=cpu, fc2=cuda, fc3=cuda", "parallel.micro_batches=2",
                   "parallel.schedule=zero_bubble", "parallel.schedule: zero_bubble is for CPUs");
    setenv("CDDP_CUDA_MODULE", "nowhere/libcddp-cuda.so", 1);
    expect_refused("parallel.placement=fc1=cpu, fc2=cuda:0, fc3=cpu", NULL, NULL,
                   "parallel.placement: $CDDP_CUDA_MODULE: ");
    setenv("CDDP_CUDA_MODULE", module, 1);
    free(module);
}

/* Of @p conf with @p arguments alone. */
static void expect_sentence(const char *conf, const char *const *arguments, const char *words)
{
    struct run_options options = {
        .ranks = 1, .conf = conf, .arguments = {run_dir_argument("refused")}};
    struct run run;

    for (int i = 0; arguments[i] != NULL; i++) {
        options.arguments[1 + i] = arguments[i];
    }
    run = run_badly(&options);
    assert_says(&run, "err", 0, words);
}

#define SAYS(conf, words, ...)                                                                     \
    expect_sentence(conf, (const char *const[]){__VA_ARGS__, NULL}, words)

static void statistics_over_ranks_are_not_taken_on_several_gpus(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    SAYS("small.conf",
         "parallel.type: several devices of a rank, of which one is a GPU, cannot take statistics "
         "of batch_norm over all ranks (sync)",
         PLACED, TWO, "model.type=resnet20", "model.sync_batch_norm=true");
    SAYS("small.conf",
         "parallel.type: \"data_parallel\" cannot take statistics of batch_norm over all devices "
         "(sync): start a rank for each device",
         COPIED, "parallel.devices=[\"cuda:0\",\"cuda:1\"]", "model.type=resnet20",
         "model.sync_batch_norm=true");
}

/* The table of a gpt2 is its last layer's weight, too. */
static void a_weight_that_goes_from_a_gpu_to_the_processor_is_refused(void **state)
{
    static const char words[] = "the weight wte.weight is read first on a GPU, and later on the "
                                "CPU: place both layers on the same kind of device";

    (void)state;
    NEEDS_EMULATED_MODULE();
    SAYS("text.conf", argument("parallel.type: %s", words), PLACED,
         "train.devices=[\"cuda:0\",\"cpu:0\"]", "parallel.stages=[\"h.1\"]", "model.blocks=2",
         "train.generate_steps=0");
    SAYS("text.conf", argument("parallel.schedule (its default): %s", words), PLACED,
         "train.devices=[\"cuda:0\",\"cpu:0\"]", "parallel.stages=[\"h.1\"]", "model.blocks=2",
         "train.generate_steps=0", "parallel.micro_batches=2");
    SAYS("text.conf",
         "parallel.layers: the weight wte.weight is read before and after the layers that have "
         "copies, which GPUs do not support yet: copy all layers",
         COPIED, "parallel.devices=[\"cuda:0\",\"cuda:1\"]", "parallel.layers=[\"h.0\"]",
         "train.generate_steps=0");
}

static void an_optimizer_is_not_offloaded_where_it_is_said_why(void **state)
{
    const char *const offload = "train.offload_optimizer=true";

    (void)state;
    NEEDS_EMULATED_MODULE();
    SAYS("small.conf",
         "train.offload_optimizer: if a rank has several devices, the optimizer is always in CPU "
         "memory: leave this out",
         offload, COPIED, "parallel.devices=[\"cuda:0\",\"cuda:1\"]");
    SAYS("small.conf",
         "train.offload_optimizer: stages over ranks (parallel.pipeline) update on their own "
         "devices: leave this out",
         offload, "parallel.pipeline=2");
    SAYS("small.conf",
         "train.offload_optimizer: is for ranks with a GPU each: it needs train.device = \"cuda\"",
         offload);
    SAYS("small.conf",
         "train.offload_optimizer: is for ranks with a GPU each: it needs train.device = \"cuda\"",
         offload, CPU);
    SAYS("small.conf",
         "train.offload_optimizer: dcgan's two optimizers are on its device: leave this out",
         offload, CUDA, "model.type=dcgan");
    SAYS("small.conf",
         "train.offload_optimizer: leaves ranks no exchange of statistics of batch_norm (sync): "
         "leave this out",
         offload, CUDA, "model.type=resnet20", "model.sync_batch_norm=true");
    SAYS("text.conf",
         "train.generate_steps: a model on several devices, or with its optimizer not on its GPU, "
         "cannot generate text during training. Use cddp-train --generate with a checkpoint",
         offload, CUDA);
}

/* Steps of 64 samples in 7 micro-batches, but the last of an epoch has 24 in 3. Losses that a GPU
 * has only after backward are those of its micro-batch. */
static void steps_that_are_cut_by_position_have_the_same_bits_on_any_number_of_ranks(void **state)
{
    static const char *const cut[] = {THREE_LAYERS,           "train.max_steps=11",
                                      "train.micro_batch=10", "model.dropout=0.2",
                                      "train.log_steps=1",    NULL};
    static const char *const ways[][3] = {
        {PLACED, TWO, SECOND_HALF},
        {PLACED, "parallel.placement=fc1=cpu, fc2=cuda:0, fc3=cuda:0", "train.clip_norm=0"},
        {COPIED, "parallel.devices=[\"cuda:0\",\"cpu\"]", "train.clip_norm=0"},
        {CUDA, "train.offload_optimizer=true", "train.clip_norm=0"}};
    static const int sizes[] = {1, 3, 5};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        const char *first = argument("cut%zu-1", way);

        for (size_t i = 0; i < (way == 0 ? 3 : 2); i++) {
            const char *name = argument("cut%zu-%d", way, sizes[i]);

            run_with("small.conf", sizes[i], name, ways[way][0], ways[way][1], ways[way][2], cut);
            assert_same_checkpoint(first, name, 11);
            for (uint64_t step = 1; step <= 11; step++) {
                assert_true(metric(first, step, "loss") == metric(name, step, "loss"));
            }
        }
    }
    assert_same_checkpoint("cut0-1", "cut3-1", 11);
}

/* The shared table goes through the GPUs with one micro-batch after another. */
static void so_has_a_table_of_two_gpus(void **state)
{
    static const char *const plain[] = {"train.generate_steps=0", "model.blocks=2",
                                        "train.accumulate=1", "train.micro_batch=3", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with("text.conf", 1, "cut-table", PLACED, TWO, "parallel.stages=[\"h.1\"]", plain);
    run_with("text.conf", 3, "cut-table-3", PLACED, TWO, "parallel.stages=[\"h.1\"]", plain);
    assert_same_checkpoint("cut-table", "cut-table-3", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_are_cut_by_position_have_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(so_has_a_table_of_two_gpus),
        cmocka_unit_test(layers_on_two_gpus_write_the_files_of_one),
        cmocka_unit_test(micro_batches_on_two_gpus_at_once_write_the_files_of_one),
        cmocka_unit_test(a_gpu_without_the_first_layer_reads_no_images),
        cmocka_unit_test(an_embedding_on_the_processor_trains_with_layers_on_a_gpu),
        cmocka_unit_test(a_table_of_two_gpus_is_one),
        cmocka_unit_test(statistics_and_checkpoints_go_on_at_any_devices),
        cmocka_unit_test(copies_on_two_gpus_train_as_one_does),
        cmocka_unit_test(an_optimizer_in_the_processors_memory_writes_the_same_files),
        cmocka_unit_test(blocks_on_two_gpus_are_recomputed_with_the_files_of_one),
        cmocka_unit_test(each_tower_of_alexnet_trains_on_a_gpu),
        cmocka_unit_test(the_log_says_which_card_a_device_is),
        cmocka_unit_test(what_gpus_cannot_do_so_is_refused_in_one_sentence),
        cmocka_unit_test(statistics_over_ranks_are_not_taken_on_several_gpus),
        cmocka_unit_test(a_weight_that_goes_from_a_gpu_to_the_processor_is_refused),
        cmocka_unit_test(an_optimizer_is_not_offloaded_where_it_is_said_why),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
