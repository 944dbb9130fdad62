/* test_placed_positions.c - ranks with several devices each, in steps that are cut by position: the
 * same bytes of checkpoints, and the same metrics, on any number of ranks. */
#include "support/train.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define BOTH "train.devices=[\"cpu:0\",\"cpu\"]"

enum { STEPS = 10 };

/* Steps of 64 samples in 7 micro-batches, but the last of an epoch of 24 in 3: of 5 ranks, two have
 * none of them. */
static void run_cut(const char *name, int ranks, const char *const *more)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument(name), "train.micro_batch=10",
                                                "train.epochs=1", "train.log_steps=1",
                                                "optimizer.type=adamw", "optimizer.lr=0.002"}};

    for (int i = 6; *more != NULL; i++) {
        options.arguments[i] = *more++;
    }
    run_well(&options);
}

static void expect_same_run(const char *a, const char *b)
{
    static const char *const names[] = {"loss", "accuracy", "grad_norm", "eval_loss",
                                        "eval_accuracy"};

    assert_same_checkpoint(a, b, STEPS);
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < (step < STEPS ? 3 : COUNT_OF(names)); i++) {
            double is = metric(b, step, names[i]);

            if (!(is == metric(a, step, names[i]))) {
                fail_msg("%s, step %u: %s is %.17g, %s has %.17g", b, (unsigned)step, names[i], is,
                         a, metric(a, step, names[i]));
            }
        }
    }
}

static void compare_ranks(const char *of, const char *const *more)
{
    static const int sizes[] = {1, 2, 3, 5};

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        run_cut(argument("%s-%d", of, sizes[i]), sizes[i], more);
        if (i > 0) {
            expect_same_run(argument("%s-1", of), argument("%s-%d", of, sizes[i]));
        }
    }
}

static void layers_on_several_devices_have_the_bits_of_one_device_and_any_ranks(void **state)
{
    static const char *const one[] = {"model.hidden=[24,20]", "model.dropout=0.2", NULL};
    static const char *const placed[] = {"model.hidden=[24,20]",         "model.dropout=0.2",
                                         "parallel.type=model_parallel", BOTH,
                                         "parallel.stages=[\"fc2\"]",    NULL};

    (void)state;
    run_cut("one", 1, one);
    compare_ranks("placed", placed);
    expect_same_run("one", "placed-1");
}

/* With other schedules, too, where several micro-batches are under way at once. */
static void any_schedule_and_placement_has_the_same_bits(void **state)
{
    static const char *const ways[][6] = {
        {"model.hidden=[24,20]", "model.dropout=0.2", "parallel.type=model_parallel",
         "parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0", "parallel.schedule=gpipe", NULL},
        {"model.hidden=[24,20]", "model.dropout=0.2", "parallel.type=model_parallel",
         "parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0", "ddp.shard_optimizer=false", NULL},
        {"model.hidden=[24,20]", "model.dropout=0.2", "parallel.type=model_parallel", BOTH,
         "parallel.schedule=zero_bubble", NULL}};

    (void)state;
    for (int way = 0; way < 3; way++) {
        const char *name = argument("way-%d", way);

        run_cut(name, 3, ways[way]);
        expect_same_run("one", name);
    }
}

static void running_statistics_are_those_of_one_device(void **state)
{
    static const char net[] =
        "model.layers=({type=\"conv2d\";units=4;kernel=3;},{type=\"batch_norm\";},"
        "{type=\"relu\";},{type=\"conv2d\";name=\"c\";units=6;kernel=3;},{type=\"batch_norm\";},"
        "{type=\"flatten\";},{type=\"linear\";units=4;})";
    static const char *const one[] = {"model.type=layers", net, NULL};
    static const char *const placed[] = {
        "model.type=layers",       net, "parallel.type=model_parallel", BOTH,
        "parallel.stages=[\"c\"]", NULL};

    (void)state;
    run_cut("norm", 1, one);
    compare_ranks("norm-placed", placed);
    expect_same_run("norm", "norm-placed-1");
}

/* GPT-2's table is read by the first layer and by the last. */
static void a_table_of_two_devices_has_the_bits_of_one_device(void **state)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zero_bubble"};
    struct run_options options = {
        .ranks = 1,
        .conf = "text.conf",
        .arguments = {run_dir_argument("table"), "data.type=synthetic", "model.type=gpt2",
                      "model.blocks=2", "model.heads=2", "model.embed=16", "model.context=8",
                      "model.vocab=37", "data.samples=90", "train.batch_size=24",
                      "train.micro_batch=5", NULL}};

    (void)state;
    support_write_file(in_work("text.conf"), "", 0);
    run_well(&options);
    options.arguments[11] = "parallel.type=model_parallel";
    options.arguments[12] = BOTH;
    options.arguments[13] = "parallel.stages=[\"h.1\"]";
    for (int i = 0; i < 3; i++) {
        const char *name = argument("table-%s", schedules[i]);

        options.ranks = 1 + i;
        options.arguments[0] = run_dir_argument(name);
        options.arguments[14] = argument("parallel.schedule=%s", schedules[i]);
        run_well(&options);
        assert_same_checkpoint("table", name, 4);
    }
}

static void copies_on_several_devices_have_the_same_bits_on_any_number_of_ranks(void **state)
{
    static const char *const copied[] = {"model.hidden=[24,20]", "model.dropout=0.2",
                                         "parallel.type=data_parallel",
                                         "parallel.devices=[\"cpu\",\"cpu:0\",\"cpu\"]", NULL};

    (void)state;
    compare_ranks("copied", copied);
}

static void they_go_on_with_other_ranks_and_other_devices(void **state)
{
    static const char *const ways[][7] = {
        {"train.resume=auto", "train.max_steps=3", "model.hidden=[24,20]", "model.dropout=0.2",
         NULL},
        {"train.resume=auto", "train.max_steps=7", "model.hidden=[24,20]", "model.dropout=0.2",
         "parallel.type=model_parallel", "parallel.placement=fc1=cpu:0, fc2=cpu, fc3=cpu:0", NULL},
        {"train.resume=auto", "model.hidden=[24,20]", "model.dropout=0.2",
         "parallel.type=model_parallel", BOTH, "parallel.stages=[\"fc3\"]", NULL}};
    static const int ranks[] = {2, 5, 3};

    (void)state;
    for (int i = 0; i < 3; i++) {
        run_cut("parts", ranks[i], ways[i]);
    }
    assert_same_checkpoint("one", "parts", STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_on_several_devices_have_the_bits_of_one_device_and_any_ranks),
        cmocka_unit_test(any_schedule_and_placement_has_the_same_bits),
        cmocka_unit_test(running_statistics_are_those_of_one_device),
        cmocka_unit_test(a_table_of_two_devices_has_the_bits_of_one_device),
        cmocka_unit_test(copies_on_several_devices_have_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(they_go_on_with_other_ranks_and_other_devices),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
