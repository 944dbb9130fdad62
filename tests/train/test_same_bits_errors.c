/* test_same_bits_errors.c - what makes bits depend on the number of ranks is refused together with
 * train.micro_batch, by the name of the key and the reason; a run that goes on with another
 * micro_batch is warned. */
#include "support/train.h"

#include <inttypes.h>

struct refused {
    int ranks;
    const char *arguments[4];
    const char *key;
    const char *reason;
};

static const struct refused table[] = {
    {3,
     {"train.micro_batch=32"},
     "train.micro_batch: train.batch_size = 64 has 2 micro-batches of 32 samples, too few for ",
     " of 3: use at most 2, or a micro_batch of at most 31 (then results have other bits)"},
    {2,
     {"train.micro_batch=65"},
     "train.micro_batch: ",
     "is more than train.batch_size, the samples of a step: use at most as many"},
    {2,
     {"train.micro_batch=8", "train.accumulate=2"},
     "train.accumulate: ",
     "cuts each rank's share, and train.micro_batch the whole batch: leave out one of the two"},
    {2,
     {"train.micro_batch=8", "ddp.wire=bf16"},
     "ddp.wire: ",
     "rounds what each rank sends, so bits depend on their number"},
    {1, /* on the processor, the order of sums is always the same */
     {"train.micro_batch=8", "ddp.deterministic=false", "train.cuda_graph=always"},
     "train.cuda_graph: ",
     "steps are not replayed with train.micro_batch: leave this out"},
    {2,
     {"train.micro_batch=8", "parallel.type=model_parallel", "parallel.micro_batches=2"},
     "parallel.micro_batches: ",
     "cuts each replica's share, and train.micro_batch the whole batch"},
    {2,
     {"train.micro_batch=8", "parallel.pipeline=2", "ddp.allow_unused=true"},
     "ddp.allow_unused: ",
     "a model that is divided has a gradient of each parameter in each micro-batch"},
    {2,
     {"train.micro_batch=8", "train.cuda_graph=always"},
     "train.cuda_graph: ",
     "steps are not replayed with train.micro_batch: leave this out"},
    {2,
     {"train.micro_batch=8", "model.type=resnet20", "model.sync_batch_norm=true"},
     "model.sync_batch_norm: ",
     "takes statistics over all ranks, so bits depend on their number, and each needs equally many "
     "micro-batches: leave out this or train.micro_batch"},
    {1, {"train.micro_batch=-1"}, "train.micro_batch: ", "-1"},
};

static void what_bits_would_depend_on_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct run_options options = {.ranks = table[i].ranks};
        struct run run;

        for (int k = 0; k < 4; k++) {
            options.arguments[k] = table[i].arguments[k];
        }
        run = run_badly(&options);
        for (int rank = 0; rank < table[i].ranks; rank++) {
            assert_says(&run, "err", rank, table[i].key);
            assert_says(&run, "err", rank, table[i].reason);
        }
    }
}

static void a_layer_with_sync_is_refused(void **state)
{
    static const char conf[] =
        "data = { type = \"synthetic\"; samples = 64; image = [1, 8, 8]; };\n"
        "model = { type = \"layers\"; layers = ({ type = \"conv2d\"; units = 4; kernel = 3; },"
        " { type = \"batch_norm\"; sync = true; }, { type = \"flatten\"; },"
        " { type = \"linear\"; units = 10; }); };\n"
        "train = { batch_size = 16; micro_batch = 4; };\n";
    struct run_options options = {.ranks = 2, .conf = "sync.conf"};
    struct run run;

    (void)state;
    support_write_file(in_work("sync.conf"), conf, sizeof conf - 1);
    run = run_badly(&options);
    assert_says(&run, "err", 1, "model.layers: takes statistics over all ranks");
}

/* Go on in @p run_dir as far as step @p steps. */
static struct run go_on(const char *run_dir, int micro_batch, int steps)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument(run_dir), argument("train.micro_batch=%d", micro_batch),
                      argument("train.max_steps=%d", steps), "train.resume=auto"}};

    return run_well(&options);
}

/* Rank 0 has more samples than an equal share. */
static void a_log_of_samples_has_room_for_whole_micro_batches(void **state)
{
    char *log = in_work("uneven-log");
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("uneven"), "train.micro_batch=43",
                                                "train.max_steps=1",
                                                argument("train.sample_log=%s", log)}};
    int count = 0;
    FILE *file;

    (void)state;
    run_well(&options);
    file = fopen(argument("%s.0", log), "r");
    assert_non_null(file);
    for (uint64_t number; fscanf(file, "%" SCNu64, &number) == 1;) {
        count++;
    }
    fclose(file);
    assert_int_equal(count, 2 + 43); /* step, epoch, samples */
}

static bool is_warned(const struct run *run)
{
    char *text = output(run, "err", 0);
    bool warned = strstr(text, "train.micro_batch is ") != NULL;

    free(text);
    return warned;
}

static void another_micro_batch_goes_on_and_warns(void **state)
{
    struct run run = go_on("other", 8, 2);

    (void)state;
    assert_false(is_warned(&run));
    run = go_on("other", 8, 3);
    assert_false(is_warned(&run));
    run = go_on("other", 4, 5);
    assert_says(&run, "err", 0, "warning: train.micro_batch is 4, but ");
    assert_says(&run, "err", 0,
                " was made with 8: from here on, the bits differ from those of that run");
    run = go_on("other", 0, 7);
    assert_says(&run, "err", 0, "warning: train.micro_batch is 0, but ");
    run = go_on("other", 0, 8);
    assert_false(is_warned(&run));
    run = go_on("other", 2, 9);
    assert_says(&run, "err", 0, " was made without it: from here on, the bits differ");
}

static void a_checkpoint_says_its_micro_batch_if_it_has_one(void **state)
{
    char *text;

    (void)state;
    (void)go_on("with", 8, 1);
    (void)go_on("without", 0, 1);
    text = get_file(in_work("with/checkpoints/step-00000001/state.json"), NULL);
    assert_non_null(strstr(text, "\"micro_batch\": 8"));
    free(text);
    text = get_file(in_work("without/checkpoints/step-00000001/state.json"), NULL);
    assert_null(strstr(text, "micro_batch"));
    free(text);
}

/* What a dry run says, on as many ranks as @p job says. */
static char *dry_run(const char *job)
{
    int status = system(argument("cd %s && CDDP_RANK= %s %s/src/cddp-train --dry-run small.conf "
                                 "train.micro_batch=6 > dry 2>&1",
                                 work, job, getenv("CDDP_TEST_BUILD")));
    char *text = get_file(in_work("dry"), NULL);

    if (status != 0) {
        fail_msg("status %d: %s", status, text);
    }
    return text;
}

/* 64 samples are 11 micro-batches of 6. */
static void a_dry_run_says_what_numbers_of_ranks_cost(void **state)
{
    static const char head[] =
        "micro-batches: 11 of 6 samples in a step; the same bits on any number of ranks up to 11\n";
    char *text = dry_run("CDDP_WORLD_SIZE=");
    char *seven = dry_run("CDDP_WORLD_SIZE=7");

    (void)state;
    assert_non_null(strstr(text, head));
    assert_non_null(strstr(text, "         1           11       100 %  (this job)\n"
                                 "         2            6        92 %\n"
                                 "         3            4        92 %\n"
                                 "         4            3        92 %\n"
                                 "         6            2        92 %\n"
                                 "         8            2        69 %\n"
                                 "        11            1       100 %\n"));
    assert_non_null(strstr(seven, head));
    assert_non_null(strstr(seven, "         7            2        79 %  (this job)\n"));
    free(text);
    free(seven);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_bits_would_depend_on_is_refused),
        cmocka_unit_test(a_layer_with_sync_is_refused),
        cmocka_unit_test(another_micro_batch_goes_on_and_warns),
        cmocka_unit_test(a_log_of_samples_has_room_for_whole_micro_batches),
        cmocka_unit_test(a_checkpoint_says_its_micro_batch_if_it_has_one),
        cmocka_unit_test(a_dry_run_says_what_numbers_of_ranks_cost),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
