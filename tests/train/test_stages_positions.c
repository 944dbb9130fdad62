/* test_stages_positions.c - pipelines whose batches are cut by position (train.micro_batch): runs
 * of the real program write the bytes of one undivided rank, for all schedules, numbers of stages
 * and replicas, with replicas that have more micro-batches than others or none, and with a table
 * that the first and the last stage share. */
#include "support/train.h"

#include <cddp/checkpoint.h>

#define ADAMW "optimizer.type=adamw", "optimizer.lr=0.002", "optimizer.weight_decay=0.01"

/* A kind of model, and how many steps its runs have. */
struct kind {
    const char *conf;
    const char *arguments[8];
    int steps;
};

/* 10 steps, the last of 24 samples. */
static const struct kind mlp = {
    "small.conf", {"model.hidden=[24,20,16]", "model.dropout=0.2", ADAMW, "train.epochs=1"}, 10};
static const struct kind cnn = {
    "small.conf", {"model.type=cnn", "model.dropout=0.2", ADAMW, "train.max_steps=4"}, 4};
static const struct kind resnet = {"small.conf", {"model.type=resnet20", "train.max_steps=3"}, 3};
/* Step 23 has 15 sequences, and ends an epoch with an evaluation. */
static const struct kind gpt2 = {
    "text.conf",
    {"model.dropout=0.1", "train.clip_norm=0.5", "train.epochs=2", "train.max_steps=26"},
    26};
static const struct kind lstm = {
    "text.conf",
    {"model.type=lstm_lm", "model.hidden=[16]", "model.tied=true", "model.dropout=0.1"},
    23};

static void run(const struct kind *kind, const char *name, int ranks, const char *micro_batch,
                const char *const more[6])
{
    struct run_options options = {
        .ranks = ranks, .conf = kind->conf, .arguments = {run_dir_argument(name)}};
    int count = 1;

    for (int i = 0; i < 8 && kind->arguments[i] != NULL; i++) {
        options.arguments[count++] = kind->arguments[i];
    }
    options.arguments[count++] = "train.log_steps=1";
    options.arguments[count++] = micro_batch;
    for (int i = 0; i < 6 && more[i] != NULL; i++) {
        options.arguments[count++] = more[i];
    }
    run_well(&options);
}

/* Metrics are the same numbers, to the bit. */
static void expect_same_run(const struct kind *kind, const char *a, const char *b)
{
    static const char *const names[] = {"loss",      "accuracy",      "grad_norm",
                                        "eval_loss", "eval_accuracy", "eval_samples"};

    assert_same_checkpoint(a, b, kind->steps);
    for (int step = 1; step <= kind->steps; step++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            double x = metric(a, (uint64_t)step, names[i]);
            double y = metric(b, (uint64_t)step, names[i]);

            if (x != y && !(isnan(x) && isnan(y))) {
                fail_msg("%s of step %d is %.17g in %s, and %.17g in %s", names[i], step, x, a, y,
                         b);
            }
        }
    }
}

/* Runs of @p kind: the words of an undivided one, and of pipelines that write the same bytes. */
struct division {
    const char *name;
    int ranks;
    const char *arguments[6];
};

static void expect_bytes_of_one(const struct kind *kind, const char *whole, const char *micro_batch,
                                const struct division *divisions, size_t count)
{
    static const char *const none[6];

    run(kind, whole, 1, micro_batch, none);
    for (size_t i = 0; i < count; i++) {
        run(kind, divisions[i].name, divisions[i].ranks, micro_batch, divisions[i].arguments);
        expect_same_run(kind, whole, divisions[i].name);
    }
}

#define PIPELINE(n) "parallel.pipeline=" #n
#define SCHEDULE(name) "parallel.schedule=" #name
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* 7 micro-batches, in the last step 3. */
static void every_schedule_writes_the_bytes_of_one_rank(void **state)
{
    static const struct division divisions[] = {
        {"two", 2, {PIPELINE(2)}},
        {"gpipe", 3, {PIPELINE(3), SCHEDULE(gpipe)}},
        {"four", 4, {PIPELINE(4)}},
        {"bubble", 4, {PIPELINE(4), SCHEDULE(zero_bubble)}},
        {"chunks", 2, {PIPELINE(2), SCHEDULE(interleaved), "parallel.chunks=2"}},
    };

    (void)state;
    expect_bytes_of_one(&mlp, "one", "train.micro_batch=10", divisions, COUNT(divisions));
}

/* 7 micro-batches over 2 and 3 replicas. */
static void replicas_may_have_unequal_runs(void **state)
{
    static const struct division divisions[] = {
        {"mesh", 4, {PIPELINE(2)}},
        {"mesh-whole", 4, {PIPELINE(2), "ddp.shard_optimizer=false"}},
        {"mesh-bubble", 6, {PIPELINE(2), SCHEDULE(zero_bubble)}},
        {"mesh-chunks", 4, {PIPELINE(2), SCHEDULE(interleaved), "parallel.chunks=2"}},
    };

    (void)state;
    expect_bytes_of_one(&mlp, "one-clipped", "train.micro_batch=10", divisions, COUNT(divisions));
}

/* In the last step, 24 samples are one micro-batch. */
static void replicas_without_a_micro_batch_take_part(void **state)
{
    static const struct division divisions[] = {
        {"idle", 4, {PIPELINE(2)}},
        {"idle-whole", 6, {PIPELINE(2), "ddp.shard_optimizer=false"}},
        {"idle-chunks", 4, {PIPELINE(2), SCHEDULE(interleaved), "parallel.chunks=2"}},
    };

    (void)state;
    expect_bytes_of_one(&mlp, "large", "train.micro_batch=24", divisions, COUNT(divisions));
}

static void convolutions_write_the_bytes_of_one_rank(void **state)
{
    static const struct division divisions[] = {
        {"cnn-two", 2, {PIPELINE(2)}},
        {"cnn-three", 3, {PIPELINE(3), SCHEDULE(zero_bubble)}},
        {"cnn-mesh", 4, {PIPELINE(2), SCHEDULE(gpipe)}},
    };

    (void)state;
    expect_bytes_of_one(&cnn, "cnn", "train.micro_batch=9", divisions, COUNT(divisions));
}

/* Running statistics have one update a step, of each chunk. */
static void batch_norm_writes_the_bytes_of_one_rank(void **state)
{
    static const struct division divisions[] = {
        {"resnet-two", 2, {PIPELINE(2), "parallel.recompute=[0,1]"}},
        {"resnet-three", 3, {PIPELINE(3), SCHEDULE(zero_bubble)}},
        {"resnet-chunks", 2, {PIPELINE(2), SCHEDULE(interleaved), "parallel.chunks=2"}},
        {"resnet-mesh", 6, {PIPELINE(2), "ddp.shard_optimizer=false"}},
    };

    (void)state;
    expect_bytes_of_one(&resnet, "resnet", "train.micro_batch=13", divisions, COUNT(divisions));
}

/* Parts of the table's gradient are added in each micro-batch, as the whole model does. */
static void a_table_of_two_stages_has_the_bytes_of_one(void **state)
{
    static const struct division divisions[] = {
        {"gpt2-two", 2, {PIPELINE(2)}},
        {"gpt2-gpipe", 3, {PIPELINE(3), SCHEDULE(gpipe)}},
        {"gpt2-four", 4, {PIPELINE(4), SCHEDULE(zero_bubble)}},
        {"gpt2-bubble", 2, {PIPELINE(2), SCHEDULE(zero_bubble), "parallel.recompute=[0]"}},
        {"gpt2-chunks", 2, {PIPELINE(2), SCHEDULE(interleaved), "parallel.chunks=2"}},
        {"gpt2-mesh", 4, {PIPELINE(2)}},
        {"gpt2-whole", 6, {PIPELINE(2), "ddp.shard_optimizer=false"}},
        {"gpt2-replicas", 3, {"parallel.pipeline=1"}},
    };

    (void)state;
    expect_bytes_of_one(&gpt2, "gpt2", "train.micro_batch=4", divisions, COUNT(divisions));
    assert_true(metric("gpt2", 1, "grad_norm") > 0.5); /* it is clipped */
}

static void so_has_that_of_an_lstm(void **state)
{
    static const struct division divisions[] = {
        {"lstm-two", 2, {PIPELINE(2)}},
        {"lstm-bubble", 4, {PIPELINE(2), SCHEDULE(zero_bubble)}},
    };

    (void)state;
    expect_bytes_of_one(&lstm, "lstm", "train.micro_batch=4", divisions, COUNT(divisions));
}

/* A checkpoint has the table, its moments and its count once, whoever updates it. */
static void a_run_goes_on_with_other_stages_and_replicas(void **state)
{
    static const struct division parts[] = {
        {"parts", 4, {PIPELINE(2), "train.max_steps=9"}},
        {"parts", 3, {PIPELINE(3), "train.resume=auto", "train.max_steps=17"}},
        {"parts", 1, {PIPELINE(1), "train.resume=auto", "train.max_steps=21"}},
        {"parts", 2, {PIPELINE(2), "train.resume=auto", "train.max_steps=26"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(parts); i++) {
        run(&gpt2, parts[i].name, parts[i].ranks, "train.micro_batch=4", parts[i].arguments);
    }
    assert_same_checkpoint("gpt2", "parts", gpt2.steps);
}

static void expect_refused(const struct kind *kind, int ranks, const char *a, const char *b,
                           const char *words)
{
    struct run_options options = {
        .ranks = ranks, .conf = kind->conf, .arguments = {run_dir_argument("refused"), a, b}};
    int count = b != NULL ? 3 : 2;
    struct run run;

    for (int i = 0; i < 8 && kind->arguments[i] != NULL; i++) {
        options.arguments[count++] = kind->arguments[i];
    }
    run = run_badly(&options);
    assert_says(&run, "err", 0, words);
}

static void what_a_pipeline_cannot_do_is_refused(void **state)
{
    static const struct kind long_batch = {
        "small.conf", {PIPELINE(2), "train.batch_size=300", SCHEDULE(gpipe)}, 0};
    static const struct kind stages = {"small.conf", {PIPELINE(2)}, 0};
    static const struct kind head = {"text.conf", {PIPELINE(2)}, 0};

    (void)state;
    expect_refused(&long_batch, 2, "train.micro_batch=1", NULL,
                   "train.micro_batch: gpipe keeps all 300 micro-batches of a replica at once, and "
                   "at most 256 are possible: use 1f1b");
    expect_refused(&stages, 2, "train.micro_batch=8", "parallel.micro_batches=8",
                   "parallel.micro_batches: cuts each replica's share, and train.micro_batch the "
                   "whole batch: leave out one of the two");
    expect_refused(&stages, 4, "train.micro_batch=64", NULL,
                   "train.micro_batch: train.batch_size = 64 has 1 micro-batches of 64 samples");
    expect_refused(&head, 2, "train.micro_batch=8", "parallel.stages=[\"head\"]",
                   "parallel.stages: with train.micro_batch, an earlier stage updates the table "
                   "that is all that rank 1 has");
}

/* Nearly all of the model is its table, and nearly all of the time its last layer's; where stages
 * are chosen, the last one has another layer that learns. */
static void a_chosen_stage_has_more_than_the_table(void **state)
{
    struct run_options options = {.ranks = 4,
                                  .conf = "text.conf",
                                  .arguments = {run_dir_argument("chosen"), PIPELINE(4),
                                                "train.micro_batch=8", "model.vocab=20000",
                                                "model.blocks=1", "train.max_steps=1"}};

    (void)state;
    run_well(&options);
}

static void a_dry_run_says_how_many_micro_batches_a_replica_has(void **state)
{
    int status = system(
        argument("cd %s && CDDP_RANK= CDDP_WORLD_SIZE=6 %s/src/cddp-train --dry-run small.conf "
                 "parallel.pipeline=2 train.micro_batch=10 > dry 2>&1",
                 work, getenv("CDDP_TEST_BUILD")));
    char *said = get_file(in_work("dry"), NULL);

    (void)state;
    assert_int_equal(status, 0);
    assert_non_null(strstr(said, "pipeline: 2 stages, 7 micro-batches over 3 replicas, at most 3 "
                                 "on each; ranks wait "));
    free(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_writes_the_bytes_of_one_rank),
        cmocka_unit_test(replicas_may_have_unequal_runs),
        cmocka_unit_test(replicas_without_a_micro_batch_take_part),
        cmocka_unit_test(convolutions_write_the_bytes_of_one_rank),
        cmocka_unit_test(batch_norm_writes_the_bytes_of_one_rank),
        cmocka_unit_test(a_table_of_two_stages_has_the_bytes_of_one),
        cmocka_unit_test(a_run_goes_on_with_other_stages_and_replicas),
        cmocka_unit_test(so_has_that_of_an_lstm),
        cmocka_unit_test(what_a_pipeline_cannot_do_is_refused),
        cmocka_unit_test(a_chosen_stage_has_more_than_the_table),
        cmocka_unit_test(a_dry_run_says_how_many_micro_batches_a_replica_has),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
