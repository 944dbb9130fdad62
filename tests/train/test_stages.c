/* test_stages.c - runs of the real program whose model is divided into stages: the files of an
 * undivided run with the same micro-batches; checkpoints that resume with any other division; what
 * is refused. */
#include "support/train.h"

#include <cddp/checkpoint.h>

#define ADAMW "optimizer.type=adamw", "optimizer.lr=0.002", "optimizer.weight_decay=0.01"
#define THREE_LAYERS "model.hidden=[24,20]"

static void run_whole(const char *name, int ranks, const char *micro_batches, const char *extra)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument(name), THREE_LAYERS,
                                                "model.dropout=0.2", "train.epochs=1",
                                                argument("train.accumulate=%s", micro_batches),
                                                "train.log_steps=1", ADAMW, extra}};

    run_well(&options);
}

static void run_stages(const char *name, int ranks, const char *stages, const char *micro_batches,
                       const char *schedule, const char *extra)
{
    struct run_options options = {
        .ranks = ranks,
        .arguments = {run_dir_argument(name), THREE_LAYERS, "model.dropout=0.2", "train.epochs=1",
                      argument("parallel.pipeline=%s", stages),
                      argument("parallel.micro_batches=%s", micro_batches),
                      argument("parallel.schedule=%s", schedule), "train.log_steps=1", ADAMW,
                      extra}};

    run_well(&options);
}

/* Norms are exact, and losses sums in another order. */
static void expect_same_run(const char *a, const char *b, uint64_t steps)
{
    assert_same_checkpoint(a, b, (int)steps);
    for (uint64_t step = 1; step <= steps; step++) {
        assert_float_equal(metric(a, step, "loss"), metric(b, step, "loss"), 1e-12);
        assert_true(metric(a, step, "grad_norm") == metric(b, step, "grad_norm"));
    }
    assert_float_equal(metric(a, steps, "eval_loss"), metric(b, steps, "eval_loss"), 1e-6);
    assert_float_equal(metric(a, steps, "eval_samples"), metric(b, steps, "eval_samples"), 0);
}

/* The last step has 24 samples, in fewer micro-batches. */
static void a_pipeline_writes_the_files_of_one_rank(void **state)
{
    (void)state;
    run_whole("one", 1, "4", "train.clip_norm=0.5");
    run_stages("two", 2, "2", "4", "1f1b", "train.clip_norm=0.5");
    expect_same_run("one", "two", 10);
    run_stages("three", 3, "3", "4", "gpipe", "train.clip_norm=0.5");
    expect_same_run("one", "three", 10);
    run_stages("bubble", 3, "3", "4", "zero_bubble", "train.clip_norm=0.5");
    expect_same_run("one", "bubble", 10);
}

static void interleaved_chunks_write_the_files_of_one_rank(void **state)
{
    (void)state;
    run_whole("plain", 1, "5", NULL); /* of 5 micro-batches the schedule makes 6 */
    run_stages("chunks", 2, "2", "5", "interleaved", "parallel.chunks=2");
    expect_same_run("plain", "chunks", 10);
}

static void replicas_of_a_pipeline_write_the_files_of_replicas(void **state)
{
    (void)state;
    run_whole("replicas", 2, "3", NULL);
    run_stages("mesh", 4, "2", "3", "1f1b", NULL);
    expect_same_run("replicas", "mesh", 10);
    run_stages("whole-state", 4, "2", "3", "1f1b", "ddp.shard_optimizer=false");
    expect_same_run("replicas", "whole-state", 10);
}

static void a_checkpoint_of_stages_goes_on_without_and_back(void **state)
{
    static const char *const ways[][2] = {{"parallel.pipeline=2", "parallel.pipeline=1"},
                                          {"parallel.pipeline=1", "parallel.pipeline=3"},
                                          {"parallel.pipeline=3", "parallel.pipeline=2"}};

    (void)state;
    run_whole("through", 1, "1", NULL);
    for (int way = 0; way < 3; way++) {
        const char *name = argument("parts%d", way);

        for (int half = 0; half < 2; half++) {
            const char *division = ways[way][half];
            struct run_options options = {
                .ranks = division[strlen(division) - 1] - '0',
                .arguments = {run_dir_argument(name), THREE_LAYERS, "model.dropout=0.2",
                              "train.epochs=1", division, ADAMW, "train.resume=auto",
                              half == 0 ? "train.max_steps=5" : "train.max_steps=10"}};

            run_well(&options);
        }
        assert_same_checkpoint("through", name, 10);
    }
}

/* What a dry run of small.conf with @p words says; free(). */
static char *dry_run(const char *words, int *out_status)
{
    int status = system(argument("cd %s && CDDP_RANK= %s/src/cddp-train --dry-run small.conf "
                                 "'model.hidden=[24,20]' parallel.pipeline=2 "
                                 "parallel.micro_batches=4 %s > dry 2>&1",
                                 work, getenv("CDDP_TEST_BUILD"), words));

    *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return get_file(in_work("dry"), NULL);
}

/* Of 2144 parameters 1560 are the first layer's. */
static void stages_can_be_chosen_by_memory_and_be_too_large(void **state)
{
    int status = -1;
    char *said = dry_run("'parallel.stages=\"auto\"' parallel.balance=memory", &status);

    (void)state;
    assert_int_equal(status, 0);
    assert_non_null(strstr(said, "stage 0 on rank 0: flatten to "));
    assert_non_null(strstr(said, "stage 1 on rank 1: fc2 to fc3, 584 parameters, "));
    assert_non_null(strstr(said, ", 1560 parameters, "));
    free(said);
    said = dry_run("parallel.balance=memory 'parallel.stages=[\"fc2\"]'", &status);
    assert_int_equal(status, 2);
    assert_non_null(strstr(said, "parallel.balance: is for stages that are chosen"));
    free(said);
    said = dry_run("parallel.balance=memory parallel.memory_bytes=20000", &status);
    assert_int_equal(status, 2);
    assert_non_null(strstr(said, "parallel.memory_bytes: stage 0, which begins with \"flatten\", "
                                 "alone takes "));
    free(said);
    said = dry_run("parallel.balance=memory parallel.memory_bytes=100000", &status);
    assert_int_equal(status, 0);
    free(said);
}

/* How many spans of that name the trace of @p rank has, numbered from 0. */
static int count_spans(const char *run_dir, int rank, const char *name)
{
    json_t *json = json_load_file(in_work("%s/trace/rank-%d.json", run_dir, rank), 0, NULL);
    json_t *span;
    size_t i;
    int count = 0;

    assert_non_null(json);
    json_array_foreach(json_object_get(json, "spans"), i, span)
    {
        if (strcmp(json_string_value(json_object_get(span, "name")), name) == 0) {
            assert_int_equal(json_integer_value(json_object_get(span, "number")), count);
            count++;
        }
    }
    json_decref(json);
    return count;
}

struct traced_span {
    const char *name;
    json_int_t begin_ns, end_ns;
};

static int compare_begins(const void *a, const void *b)
{
    const struct traced_span *x = a;
    const struct traced_span *y = b;

    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Check that no two parts of a rank's traced step share time. Returns how many of them are waits.
 */
static int count_waits(const char *run_dir, int rank)
{
    enum { MOST = 400 };
    static const char *const parts[] = {"data",    "forward", "backward",
                                        "weights", "wait",    "optimizer"};
    struct traced_span spans[MOST];
    json_t *json = json_load_file(in_work("%s/trace/rank-%d.json", run_dir, rank), 0, NULL);
    json_t *span;
    size_t count = 0;
    size_t i;
    int waits = 0;

    assert_non_null(json);
    json_array_foreach(json_object_get(json, "spans"), i, span)
    {
        const char *name = json_string_value(json_object_get(span, "name"));

        waits += strcmp(name, "wait") == 0;
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            if (strcmp(name, parts[p]) == 0 && count < MOST) {
                spans[count++] = (struct traced_span){
                    name, json_integer_value(json_object_get(span, "begin_ns")),
                    json_integer_value(json_object_get(span, "end_ns"))};
            }
        }
    }
    assert_in_range(count, 1, MOST - 1);
    qsort(spans, count, sizeof *spans, compare_begins);
    for (size_t s = 1; s < count; s++) {
        if (spans[s].begin_ns < spans[s - 1].end_ns) {
            fail_msg("%s, rank %d: %s and %s share %lld ns", run_dir, rank, spans[s - 1].name,
                     spans[s].name, (long long)(spans[s - 1].end_ns - spans[s].begin_ns));
        }
    }
    json_decref(json);
    return waits;
}

/* A step of sharded replicas begins with a wait for the parameters that other replicas have
 * updated, which is one of its parts. */
static void parts_of_a_traced_step_are_complete_and_share_no_time(void **state)
{
    (void)state;
    run_stages("sharded", 4, "2", "3", "1f1b", "train.trace=3");
    setenv("CDDP_TRACE", "3", 1);
    run_stages("whole", 4, "2", "3", "1f1b", "ddp.shard_optimizer=false");
    unsetenv("CDDP_TRACE");
    for (int rank = 0; rank < 4; rank++) {
        assert_true(count_waits("sharded", rank) > count_waits("whole", rank));
    }
}

static void metrics_and_traces_tell_what_a_stage_does(void **state)
{
    (void)state;
    run_stages("traced", 2, "2", "4", "1f1b", "train.trace=2");
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(count_spans("traced", rank, "forward"), 4);
        assert_int_equal(count_spans("traced", rank, "backward"), 4);
        assert_int_equal(count_spans("traced", rank, "weights"), 0);
    }
    assert_true(metric("traced", 5, "forward_ms") > 0);
    assert_true(metric("traced", 5, "backward_ms") > 0);
    assert_true(metric("traced", 5, "exposed_comm_ms") > 0); /* stages wait for each other */
    assert_true(metric("traced", 5, "forward_ms") + metric("traced", 5, "backward_ms") <
                metric("traced", 5, "step_ms"));
    run_stages("traced-bubble", 2, "2", "4", "zero_bubble", "train.trace=2");
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(count_spans("traced-bubble", rank, "backward"), 4);
        assert_int_equal(count_spans("traced-bubble", rank, "weights"), 4);
    }
    assert_same_checkpoint("traced", "traced-bubble", 10);
}

static void weights_go_to_the_stages_that_have_them(void **state)
{
    const char *weights = argument("model.weights=%s",
                                   in_work("one/checkpoints/step-00000010/model.safetensors"));
    struct run_options one = {
        .ranks = 1,
        .arguments = {run_dir_argument("tuned"), THREE_LAYERS, weights, "train.max_steps=2"}};
    struct run_options two = {.ranks = 2,
                              .arguments = {run_dir_argument("tuned-stages"), THREE_LAYERS, weights,
                                            "train.max_steps=2", "parallel.pipeline=2"}};

    (void)state;
    run_well(&one);
    run_well(&two);
    assert_same_checkpoint("tuned", "tuned-stages", 2);
}

static void a_dry_run_says_which_layers_each_stage_has(void **state)
{
    int status;
    char *said = dry_run("'parallel.stages=[\"fc2\"]'", &status);

    (void)state;
    assert_int_equal(status, 0);
    assert_non_null(strstr(said, "pipeline: 2 stages, 4 micro-batches; ranks wait 20 % of the "));
    assert_non_null(strstr(said, "stage 1 on rank 1: fc2 to "));
    assert_non_null(strstr(said, "keeps 2 micro-batches\n"));
    free(said);
    said = dry_run("'parallel.stages=[\"fc2\"]' parallel.schedule=zero_bubble", &status);
    assert_int_equal(status, 0);
    assert_non_null(strstr(said, "ranks wait 8 % of the ")); /* 1 / (3 x 4 + 1) */
    assert_non_null(strstr(said, "keeps 2 micro-batches\n"));
    assert_non_null(strstr(said, "keeps 1 micro-batch, and what gradients are made of for 2\n"));
    free(said);
}

/* Two micro-batches a step; a stage may begin in the middle of a block. */
static void run_resnet(const char *name, int ranks, const char *a, const char *b, const char *c,
                       const char *d)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument(name), "model.type=resnet20",
                                                "train.max_steps=3", "train.log_steps=1", a, b, c,
                                                d}};

    run_well(&options);
}

static void blocks_of_a_resnet_that_are_recomputed_write_the_same_bytes(void **state)
{
    const char *const middle = "parallel.stages=[\"layer2.0.conv2\"]";

    (void)state;
    run_resnet("kept", 1, "train.accumulate=2", NULL, NULL, NULL);
    run_resnet("recomputed", 1, "train.accumulate=2", "model.recompute=true", NULL, NULL);
    expect_same_run("kept", "recomputed", 3);
    run_resnet("both", 2, "parallel.pipeline=2", "parallel.micro_batches=2",
               "parallel.recompute=[0,1]", middle);
    expect_same_run("kept", "both", 3);
    run_resnet("second", 2, "parallel.pipeline=2", "parallel.schedule=zero_bubble",
               "parallel.recompute=[1]", "parallel.micro_batches=2");
    expect_same_run("kept", "second", 3);
}

static void expect_refused(int ranks, const char *a, const char *b, const char *words)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument("refused"), THREE_LAYERS, a, b}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void what_cannot_be_divided_so_is_refused_in_one_sentence(void **state)
{
    (void)state;
    expect_refused(3, "parallel.pipeline=2", NULL,
                   "parallel.pipeline: 2 stages do not divide a world size of 3: start a multiple "
                   "of 2 ranks");
    expect_refused(2, "parallel.pipeline=2", "parallel.stages=[\"nowhere\"]",
                   "parallel.stages: no layer ");
    expect_refused(
        2, "parallel.pipeline=2", "parallel.stages=[\"fc2\",\"fc3\"]",
        "parallel.stages: names 2 layers that begin a stage, but 2 stages need 1 of them");
    expect_refused(2, "parallel.pipeline=2", "parallel.chunks=2",
                   "parallel.chunks: only parallel.schedule = \"interleaved\" has several chunks a "
                   "rank");
    expect_refused(1, "parallel.micro_batches=4", NULL,
                   "parallel.micro_batches: is for pipelines (parallel.pipeline); without one, "
                   "train.accumulate makes micro-batches");
    expect_refused(1, "parallel.schedule=gpipe", NULL,
                   "parallel.schedule: is for pipelines, but parallel.pipeline is 1");
    expect_refused(1, "parallel.chunks=2", NULL,
                   "parallel.chunks: is for pipelines, but parallel.pipeline is 1");
    expect_refused(1, "parallel.stages=[\"fc2\"]", NULL,
                   "parallel.stages: is for pipelines, but parallel.pipeline is 1");
    expect_refused(1, "parallel.balance=memory", NULL,
                   "parallel.balance: is for pipelines, but parallel.pipeline is 1");
    expect_refused(1, "parallel.memory_bytes=9", NULL,
                   "parallel.memory_bytes: is for pipelines, but parallel.pipeline is 1");
    expect_refused(1, "parallel.recompute=[0]", NULL,
                   "parallel.recompute: is for pipelines, but parallel.pipeline is 1");
    expect_refused(2, "parallel.pipeline=2", "parallel.recompute=[2]",
                   "parallel.recompute: there is no stage 2: stages are 0 to 1");
    expect_refused(2, "parallel.pipeline=2", "parallel.recompute=[0]",
                   "parallel.recompute: stage 0 has nothing that can be recomputed");
    expect_refused(2, "parallel.pipeline=2", "parallel.micro_batches=65",
                   "cannot be cut into 65 micro-batches");
    expect_refused(2, "parallel.pipeline=2", "parallel.micro_batches=25",
                   "parallel.micro_batches: a pipeline's share of train.batch_size = 64 is 64, "
                   "which makes 22 micro-batches of 3 samples, but not 25: let their number divide "
                   "the share");
    expect_refused(8, "parallel.pipeline=8", NULL, "parallel.pipeline: parallel: 8 stages ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_writes_the_files_of_one_rank),
        cmocka_unit_test(interleaved_chunks_write_the_files_of_one_rank),
        cmocka_unit_test(metrics_and_traces_tell_what_a_stage_does),
        cmocka_unit_test(parts_of_a_traced_step_are_complete_and_share_no_time),
        cmocka_unit_test(replicas_of_a_pipeline_write_the_files_of_replicas),
        cmocka_unit_test(a_checkpoint_of_stages_goes_on_without_and_back),
        cmocka_unit_test(weights_go_to_the_stages_that_have_them),
        cmocka_unit_test(a_dry_run_says_which_layers_each_stage_has),
        cmocka_unit_test(stages_can_be_chosen_by_memory_and_be_too_large),
        cmocka_unit_test(blocks_of_a_resnet_that_are_recomputed_write_the_same_bytes),
        cmocka_unit_test(what_cannot_be_divided_so_is_refused_in_one_sentence),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
