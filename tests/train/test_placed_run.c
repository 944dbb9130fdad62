/* test_placed_run.c - runs of the real program whose ranks have several devices each: the files of
 * a run with one device, for any placement; checkpoints that resume with any other placement; what
 * is refused. */
#include "support/train.h"

#include <cddp/checkpoint.h>

#define ADAMW "optimizer.type=adamw", "optimizer.lr=0.002", "optimizer.weight_decay=0.01"
#define THREE_LAYERS "model.hidden=[24,20]"
#define PLACED "parallel.type=model_parallel"
/* "cpu" and "cpu:0" are there on any machine. */
#define BOTH "train.devices=[\"cpu:0\",\"cpu\"]"

static void run_one(const char *name, int ranks, const char *micro_batches, const char *extra)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument(name), THREE_LAYERS,
                                                "model.dropout=0.2", "train.epochs=1",
                                                argument("train.accumulate=%s", micro_batches),
                                                "train.log_steps=1", ADAMW, extra}};

    run_well(&options);
}

static void run_placed(const char *name, int ranks, const char *where, const char *micro_batches,
                       const char *schedule, const char *extra)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument(name), THREE_LAYERS,
                                                "model.dropout=0.2", "train.epochs=1", PLACED, BOTH,
                                                where, micro_batches, schedule, "train.log_steps=1",
                                                ADAMW, extra}};

    run_well(&options);
}

/* What a run wrote down as its configuration. */
static void run_again(const char *name, const char *again)
{
    struct run_options options = {.ranks = 1,
                                  .conf = argument("%s/train.conf", name),
                                  .arguments = {run_dir_argument(again)}};

    run_well(&options);
}

static void expect_same_run(const char *a, const char *b, uint64_t steps)
{
    assert_same_checkpoint(a, b, (int)steps);
    for (uint64_t step = 1; step <= steps; step++) {
        assert_float_equal(metric(a, step, "loss"), metric(b, step, "loss"), 1e-12);
        assert_float_equal(metric(a, step, "grad_norm"), metric(b, step, "grad_norm"), 1e-12);
    }
    assert_float_equal(metric(a, steps, "eval_loss"), metric(b, steps, "eval_loss"), 0);
    assert_float_equal(metric(a, steps, "eval_samples"), metric(b, steps, "eval_samples"), 0);
}

/* The last step has 24 samples, in fewer micro-batches. */
static void any_placement_writes_the_files_of_one_device(void **state)
{
    (void)state;
    run_one("one", 1, "4", "train.clip_norm=0.5");
    run_placed("halves", 1, "parallel.stages=([\"input\",\"fc1\"],[\"fc2\",\"fc3\"])",
               "train.accumulate=4", "train.tensorboard=false", "train.clip_norm=0.5");
    expect_same_run("one", "halves", 10);
    run_again("halves", "again");
    expect_same_run("one", "again", 10);
    run_placed("back", 1, "parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0", "train.accumulate=4",
               "train.tensorboard=false", "train.clip_norm=0.5");
    expect_same_run("one", "back", 10);
    run_placed("measured", 1, "train.accumulate=4", "train.tensorboard=false",
               "train.clip_norm=0.5", NULL);
    expect_same_run("one", "measured", 10);
}

static void micro_batches_on_several_devices_write_the_same_files(void **state)
{
    (void)state;
    run_placed("f1b", 1, "parallel.stages=[\"fc2\"]", "parallel.micro_batches=4",
               "parallel.schedule=1f1b", "train.clip_norm=0.5");
    expect_same_run("one", "f1b", 10);
    run_placed("bubble", 1, "parallel.stages=[\"fc2\"]", "parallel.micro_batches=4",
               "parallel.schedule=zero_bubble", "train.clip_norm=0.5");
    expect_same_run("one", "bubble", 10);
    run_placed("gpipe", 1, "parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0",
               "parallel.micro_batches=4", "parallel.schedule=gpipe", "train.clip_norm=0.5");
    expect_same_run("one", "gpipe", 10);
}

static void ranks_with_several_devices_each_write_the_files_of_ranks(void **state)
{
    (void)state;
    run_one("ranks", 2, "3", NULL);
    run_placed("ranks-placed", 2, "parallel.stages=[\"fc2\"]", "train.accumulate=3",
               "train.tensorboard=false", NULL);
    expect_same_run("ranks", "ranks-placed", 10);
    run_placed("ranks-at-once", 2, "parallel.stages=[\"fc2\"]", "parallel.micro_batches=3",
               "parallel.schedule=1f1b", "ddp.shard_optimizer=false");
    expect_same_run("ranks", "ranks-at-once", 10);
    run_placed("ranks-shards", 2, "parallel.stages=[\"fc2\"]", "parallel.micro_batches=3",
               "parallel.schedule=gpipe", "ddp.shard_optimizer=true");
    expect_same_run("ranks", "ranks-shards", 10);
}

static void a_checkpoint_goes_on_at_any_placement(void **state)
{
    static const char *const ways[][3] = {
        {PLACED, BOTH, "parallel.stages=[\"fc2\"]"},
        {NULL},
        {PLACED, BOTH, "parallel.stages=[\"auto\"]"},
        {PLACED, "parallel.placement=fc1=cpu, fc2=cpu:0, fc3=cpu"},
        {"parallel.pipeline=2"},
    };

    (void)state;
    run_one("through", 1, "1", NULL);
    for (int way = 0; way < 5; way++) {
        struct run_options options = {.ranks = way == 4 ? 2 : 1,
                                      .arguments = {run_dir_argument("parts"), THREE_LAYERS,
                                                    "model.dropout=0.2", "train.epochs=1", ADAMW,
                                                    "train.resume=auto",
                                                    argument("train.max_steps=%d", 2 * (way + 1)),
                                                    ways[way][0], ways[way][1], ways[way][2]}};

        run_well(&options);
    }
    assert_same_checkpoint("through", "parts", 10);
}

/* GPT-2's table is read by the first layer and by the last. */
static void a_table_of_two_devices_is_one_in_files(void **state)
{
    static const char *const model[] = {
        "data.type=synthetic", "model.type=gpt2", "model.blocks=2",
        "model.heads=2",       "model.embed=16",  "model.context=8",
        "model.vocab=37",      "data.samples=96", "train.batch_size=24"};
    struct run_options one = {.ranks = 1, .conf = "text.conf"};
    struct run_options two = {.ranks = 1, .conf = "text.conf"};
    int count = 0;

    (void)state;
    support_write_file(in_work("text.conf"), "", 0);
    one.arguments[count++] = run_dir_argument("table");
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        one.arguments[count++] = model[i];
    }
    memcpy(two.arguments, one.arguments, sizeof two.arguments);
    two.arguments[0] = run_dir_argument("table-placed");
    two.arguments[count++] = PLACED;
    two.arguments[count++] = BOTH;
    two.arguments[count++] = "parallel.stages=[\"h.1\"]";
    run_well(&one);
    run_well(&two);
    assert_same_checkpoint("table", "table-placed", 4);
}

static void a_dry_run_says_what_is_on_each_device(void **state)
{
    char *said;

    (void)state;
    assert_int_equal(system(argument("cd %s && CDDP_RANK= %s/src/cddp-train --dry-run small.conf "
                                     "'model.hidden=[24,20]' " PLACED
                                     " 'parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0' > dry",
                                     work, getenv("CDDP_TEST_BUILD"))),
                     0);
    said = get_file(in_work("dry"), NULL);
    assert_non_null(said);
    assert_non_null(strstr(said, "devices of each rank: 2\n  cpu:0: flatten to "));
    assert_non_null(strstr(said, "\n  cpu: fc2 to "));
    free(said);
    assert_int_equal(system(argument("cd %s && CDDP_RANK= %s/src/cddp-train --dry-run small.conf "
                                     "'model.hidden=[24,20]' parallel.type=data_parallel '" BOTH
                                     "' 'parallel.layers=[\"fc2\"]' > dry",
                                     work, getenv("CDDP_TEST_BUILD"))),
                     0);
    said = get_file(in_work("dry"), NULL);
    assert_non_null(said);
    assert_non_null(strstr(said, "devices of each rank: 2, each with a copy of fc2 to "));
    free(said);
}

/* Losses and parameters round otherwise than one device's, and are the same in every run. */
static void copies_on_several_devices_train_as_one_does(void **state)
{
    static const char *const ways[] = {"parallel.devices=[\"cpu:0\",\"cpu\"]",
                                       "parallel.devices=[\"cpu\",\"cpu:0\",\"cpu\"]"};

    (void)state;
    for (int way = 0; way < 2; way++) {
        for (int again = 0; again < 2; again++) {
            struct run_options options = {
                .ranks = 1 + way,
                .arguments = {run_dir_argument(argument("copies-%d-%d", way, again)), THREE_LAYERS,
                              "model.dropout=0.2", "train.epochs=1", "parallel.type=data_parallel",
                              ways[way], "parallel.output_device=cpu", "train.accumulate=2",
                              "train.log_steps=1", "train.clip_norm=0.5",
                              "ddp.shard_optimizer=true", ADAMW}};

            run_well(&options);
        }
        assert_same_checkpoint(argument("copies-%d-0", way), argument("copies-%d-1", way), 10);
    }
    run_one("alone", 1, "2", "train.clip_norm=0.5");
    for (int way = 0; way < 2; way++) {
        const char *name = argument("copies-%d-0", way);

        for (uint64_t step = 1; step <= 10; step++) {
            assert_float_equal(metric("alone", step, "loss"), metric(name, step, "loss"), 1e-4);
        }
        assert_float_equal(metric("alone", 10, "eval_loss"), metric(name, 10, "eval_loss"), 1e-4);
        assert_float_equal(metric("alone", 10, "eval_samples"), metric(name, 10, "eval_samples"),
                           0);
    }
}

/* Checkpoints are those of one device, too: a run with another division goes on from them. */
static void copies_of_named_layers_train_as_one_device_does(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("named"), THREE_LAYERS, "model.dropout=0.2",
                      "train.epochs=1", "parallel.type=data_parallel",
                      "parallel.devices=[\"cpu\",\"cpu:0\",\"cpu\"]", "parallel.layers=[\"fc2\"]",
                      "train.accumulate=2", "train.log_steps=1", "train.clip_norm=0.5",
                      "train.max_steps=5", "train.resume=auto", ADAMW}};

    (void)state;
    run_well(&options);
    options.ranks = 1;
    options.arguments[6] = "parallel.layers=[\"fc2\",\"fc3\"]";
    options.arguments[10] = "train.max_steps=10";
    run_well(&options);
    for (uint64_t step = 1; step <= 10; step++) {
        assert_float_equal(metric("alone", step, "loss"), metric("named", step, "loss"), 1e-4);
    }
    assert_float_equal(metric("alone", 10, "eval_loss"), metric("named", 10, "eval_loss"), 1e-4);
}

static void expect_copies_refused(const char *a, const char *b, const char *words)
{
    struct run_options options = {.ranks = 1,
                                  .arguments = {run_dir_argument("refused"), THREE_LAYERS,
                                                "parallel.type=data_parallel", a, b}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void copies_that_cannot_be_are_refused_in_one_sentence(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .arguments = {run_dir_argument("refused"), THREE_LAYERS, BOTH,
                                                "parallel.type=data_parallel",
                                                "parallel.layers=[\"fc1\"]",
                                                "parallel.output_device=cpu"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(
        &run, "err", 0,
        "parallel.output_device: is \"cpu\", but outputs of parallel.layers go to the other "
        "layers, which are on the first device: leave this out");
    expect_copies_refused(NULL, NULL, "parallel.type: \"data_parallel\" needs parallel.devices");
    expect_copies_refused("parallel.devices=[\"cpu\",\"cpu:9999\"]", NULL,
                          "parallel.devices: devices: there is no cpu:9999");
    expect_copies_refused("parallel.devices=[\"cpu:0\"]", "parallel.output_device=cpu",
                          "parallel.output_device: \"cpu\" is not one of parallel.devices");
    expect_copies_refused("parallel.devices=[\"cpu:0\"]", "train.devices=[\"cpu\"]",
                          "parallel.devices: \"cpu:0\" is not one of train.devices");
    expect_copies_refused("train.devices=[\"cpu:0\",\"cpu\"]", "parallel.stages=[\"fc2\"]",
                          "parallel.stages: with parallel.type = \"data_parallel\" each device has "
                          "all layers");
    expect_copies_refused("train.devices=[\"cpu:0\"]", "parallel.micro_batches=4",
                          "parallel.micro_batches: is for pipelines; with parallel.type = ");
    expect_copies_refused("train.devices=[\"cpu:0\"]", "parallel.layers=[\"fc1\",\"fc3\"]",
                          "parallel.layers: layer \"fc2\" ");
    expect_copies_refused("train.devices=[\"cpu:0\"]", "parallel.layers=[\"fc7\"]",
                          "parallel.layers: ");
    expect_copies_refused("train.devices=[\"cpu:0\"]", "parallel.placement=fc1=cpu",
                          "argument parallel.placement=fc1=cpu: parallel.placement: ");
}

static void expect_refused(const char *a, const char *b, const char *c, const char *words)
{
    struct run_options options = {
        .ranks = 1, .arguments = {run_dir_argument("refused"), THREE_LAYERS, PLACED, a, b, c}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void what_cannot_be_placed_so_is_refused_in_one_sentence(void **state)
{
    (void)state;
    expect_refused("parallel.placement=fc1=cpu, fc2=cpu:0, fc1=cpu:0, fc3=cpu", NULL, NULL,
                   "parallel.placement: layer \"fc1\" is placed twice");
    expect_refused("parallel.placement=fc1=cpu, fc3=cpu", NULL, NULL,
                   "parallel.placement: layer \"fc2\" is placed nowhere");
    expect_refused("parallel.placement=fc1=cpu, fc9=cpu", NULL, NULL,
                   "parallel.placement: no layer ");
    expect_refused("parallel.placement=fc1 on cpu", NULL, NULL,
                   "parallel.placement: \"fc1 on cpu\" is not LAYER=DEVICE");
    expect_refused("parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu", "train.devices=[\"cpu:0\"]",
                   NULL,
                   "parallel.placement: cpu, the device of \"fc2\", is not one of train.devices");
    expect_refused("train.devices=[\"cpu:0\",\"cpu:9999\"]", NULL, NULL,
                   "train.devices: devices: there is no cpu:9999: this process may use ");
    expect_refused("train.devices=[\"cpu:0\",\"cpu:9999\"]", NULL, NULL,
                   ": for several devices, use --nproc 1");
    expect_refused("train.devices=[\"cpu\",\"tpu:1\"]", NULL, NULL,
                   "train.devices: devices: \"tpu:1\" is not a device: use cpu or cpu:N");
    expect_refused(
        "train.devices=[\"cpu\",\"cpu\",\"cpu\",\"cpu\",\"cpu\",\"cpu\",\"cpu\",\"cpu\"]", NULL,
        NULL, "train.devices: parallel: 8 stages ");
    expect_refused(BOTH, "parallel.stages=([\"fc1\",\"fc2\"],[\"fc2\",\"fc3\"])", NULL,
                   "parallel.stages: layer \"fc2\" is placed twice");
    expect_refused(BOTH, "parallel.stages=([\"fc1\",\"fc3\"])", NULL,
                   "parallel.stages: are 1, but train.devices are 2: one stage a device");
    expect_refused(BOTH, "parallel.stages=([\"fc1\",\"fc2\",\"fc3\"])", NULL,
                   "parallel.stages: each stage is the names of its first and its last layer");
    expect_refused(NULL, NULL, NULL, "parallel.type: \"model_parallel\" needs train.devices");
    expect_refused(BOTH, "parallel.pipeline=2", NULL,
                   "parallel.pipeline: is for stages over ranks");
    expect_refused(BOTH, "parallel.balance=memory", NULL,
                   "parallel.balance: is for stages over ranks");
    expect_refused(BOTH, "parallel.memory_bytes=1000", NULL,
                   "parallel.memory_bytes: is for stages over ranks");
    expect_refused(BOTH, "parallel.recompute=[0]", NULL,
                   "parallel.recompute: is for stages over ranks");
    expect_refused("parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0", "parallel.micro_batches=4",
                   NULL, "parallel.schedule (its default): 1f1b ");
    expect_refused(BOTH, "parallel.micro_batches=65", NULL,
                   "argument parallel.micro_batches=65: parallel.micro_batches: ");
}

static void devices_without_model_parallel_are_refused(void **state)
{
    struct run_options options = {.ranks = 1, .arguments = {run_dir_argument("refused"), BOTH}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0, argument("argument %s: train.devices: ", BOTH));
    options.arguments[1] = "parallel.stages=([\"fc1\",\"fc2\"],[\"fc3\"])";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "parallel.stages: stages over ranks are given by the first layer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_placement_writes_the_files_of_one_device),
        cmocka_unit_test(micro_batches_on_several_devices_write_the_same_files),
        cmocka_unit_test(ranks_with_several_devices_each_write_the_files_of_ranks),
        cmocka_unit_test(a_checkpoint_goes_on_at_any_placement),
        cmocka_unit_test(a_table_of_two_devices_is_one_in_files),
        cmocka_unit_test(a_dry_run_says_what_is_on_each_device),
        cmocka_unit_test(what_cannot_be_placed_so_is_refused_in_one_sentence),
        cmocka_unit_test(devices_without_model_parallel_are_refused),
        cmocka_unit_test(copies_on_several_devices_train_as_one_does),
        cmocka_unit_test(copies_of_named_layers_train_as_one_device_does),
        cmocka_unit_test(copies_that_cannot_be_are_refused_in_one_sentence),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
