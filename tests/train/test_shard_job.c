/* test_shard_job.c - jobs with ddp.shard_optimizer: the same files as without it, on any number of
 * ranks, and checkpoints that resume with another number of ranks, sharded or not. */
#include "support/job.h"

/* Layers enough for several spans of each rank. */
#define ADAMW                                                                                      \
    "model.hidden=[48, 40]", "optimizer.type=\"adamw\"", "optimizer.lr=0.002",                     \
        "optimizer.weight_decay=0.01"

/* And bytes enough for several buckets. */
#define LARGE                                                                                      \
    "model.hidden=[500, 1200, 300]", "optimizer.type=\"adamw\"", "optimizer.lr=0.002",             \
        "train.clip_norm=0.5"

static void shards_change_no_bit_of_a_run(void **state)
{
    static const char *const ranks[] = {"1", "2", "3", "5"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        char *whole = argument("whole-%s", ranks[i]);
        char *shards = argument("shards-%s", ranks[i]);
        struct launched job = {0};

        JOB_RUN_WELL(&job, "--nproc", ranks[i], in_work("small.conf"), run_dir_argument(whole),
                     "ddp.shard_optimizer=false", "train.clip_norm=0.5", ADAMW);
        launcher_end(&job);
        JOB_RUN_WELL(&job, "--nproc", ranks[i], in_work("small.conf"), run_dir_argument(shards),
                     "ddp.shard_optimizer=true", "train.clip_norm=0.5", ADAMW,
                     "ddp.first_bucket_bytes=512", "ddp.bucket_bytes=1024");
        launcher_end(&job);
        for (uint64_t step = 1; step <= 30; step++) {
            assert_true(metric(shards, step, "loss") == metric(whole, step, "loss"));
            assert_true(metric(shards, step, "grad_norm") == metric(whole, step, "grad_norm"));
        }
        assert_same_checkpoint(whole, shards, 30);
    }
}

/* Half of the steps one way, the rest another way. */
static void go_on(const char *run_dir, const char *ranks, const char *sharded, const char *steps)
{
    struct launched job = {0};

    JOB_RUN_WELL(&job, "--nproc", ranks, in_work("small.conf"), run_dir_argument(run_dir), sharded,
                 argument("train.max_steps=%s", steps), "train.resume=auto", ADAMW);
    launcher_end(&job);
}

static void a_checkpoint_goes_on_sharded_or_not(void **state)
{
    (void)state;
    go_on("plain", "2", "ddp.shard_optimizer=false", "15");
    go_on("plain", "2", "ddp.shard_optimizer=false", "30");
    go_on("into", "2", "ddp.shard_optimizer=false", "15");
    go_on("into", "2", "ddp.shard_optimizer=true", "30");
    assert_same_checkpoint("plain", "into", 30);
    go_on("from", "2", "ddp.shard_optimizer=true", "15");
    go_on("from", "2", "ddp.shard_optimizer=false", "30");
    assert_same_checkpoint("plain", "from", 30);
}

static void a_sharded_checkpoint_goes_on_at_another_number_of_ranks(void **state)
{
    (void)state;
    go_on("fewer", "3", "ddp.shard_optimizer=true", "15");
    go_on("fewer-too", "3", "ddp.shard_optimizer=false", "15");
    assert_same_checkpoint("fewer", "fewer-too", 15);
    go_on("fewer", "2", "ddp.shard_optimizer=true", "30");
    go_on("fewer-too", "2", "ddp.shard_optimizer=false", "30");
    assert_same_checkpoint("fewer", "fewer-too", 30);
}

static void checkpoints_on_the_way_hold_the_state_of_all_ranks(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        JOB_RUN_WELL(&job, "--nproc", "3", in_work("small.conf"),
                     run_dir_argument(sharded ? "way-shards" : "way"),
                     argument("ddp.shard_optimizer=%s", sharded ? "true" : "false"),
                     "train.checkpoint_steps=10", "train.keep=0", ADAMW);
        launcher_end(&job);
    }
    assert_same_checkpoint("way", "way-shards", 10);
    assert_same_checkpoint("way", "way-shards", 20);
    assert_same_checkpoint("way", "way-shards", 30);
}

/* Each rank is a host of its own, so the plan is chosen, and chosen again after the first backward:
 * which one it is depends on the machine, and must not show. */
static void a_plan_that_follows_the_link_changes_no_bit_of_a_run(void **state)
{
    static const char each_a_host[] = "#!/bin/sh\n"
                                      "export CDDP_HOST_ID=$CDDP_RANK CDDP_CARRIER=tcp\n"
                                      "exec \"$CDDP_TEST_BUILD/src/cddp-train\" \"$@\"\n";
    static const char *const dirs[] = {"hosts", "hosts-whole", "hosts-on"};
    struct launched job = {0};
    char *folder = support_mkdtemp();
    char script[4200];

    (void)state;
    launcher_write(folder, "host", each_a_host);
    snprintf(script, sizeof script, "%s/host", folder);
    JOB_RUN_WELL(&job, "--nproc", "2", in_work("small.conf"), run_dir_argument("one-host"), LARGE);
    launcher_end(&job);
    for (int i = 0; i < 4; i++) { /* the last begins with a part of the steps */
        setenv("CDDP_LOG", "info", 1);
        JOB_RUN_WELL(&job, "--nproc", "2", "--", script, in_work("small.conf"),
                     run_dir_argument(dirs[i < 3 ? i : 2]), LARGE,
                     argument("ddp.shard_optimizer=%s", i == 1 ? "false" : "true"),
                     argument("train.max_steps=%s", i == 2 ? "4" : "30"), "train.resume=auto");
        unsetenv("CDDP_LOG");
        assert_int_equal(launcher_count(job.err, "from the arrivals in the first backward"), i < 3);
        launcher_end(&job);
    }
    for (int i = 0; i < 3; i++) {
        assert_same_checkpoint("one-host", dirs[i], 30);
    }
    support_rmdir(folder);
}

/* They are measured so that no time is in two of them. Evaluations and checkpoints between steps,
 * in which ranks wait for updated parameters, too, are in none. */
static void assert_parts_fit(const char *run_dir)
{
    static const char *const parts[] = {"data_ms", "forward_ms", "backward_ms", "exposed_comm_ms",
                                        "optimizer_ms"};

    for (uint64_t step = 1; step <= 30; step++) {
        double sum = 0;
        double whole = metric(run_dir, step, "step_ms");

        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            double part = metric(run_dir, step, parts[i]);

            assert_true(part >= 0);
            sum += part;
        }
        if (!(sum <= whole * (1 + 1e-6))) { /* JSON has 9 digits */
            fail_msg("step %llu of %s: parts of %g ms in %g ms", (unsigned long long)step, run_dir,
                     sum, whole);
        }
    }
}

static void the_parts_of_a_step_are_no_more_than_the_step(void **state)
{
    static const struct {
        const char *name, *ranks, *sharded, *other;
    } cases[] = {
        {"parts-whole", "3", "ddp.shard_optimizer=false", "train.accumulate=2"},
        {"parts-shards", "3", "ddp.shard_optimizer=true", "train.accumulate=2"},
        {"parts-stages", "4", "ddp.shard_optimizer=true", "parallel.pipeline=2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct launched job = {0};

        JOB_RUN_WELL(&job, "--nproc", cases[i].ranks, in_work("small.conf"),
                     run_dir_argument(cases[i].name), cases[i].sharded, cases[i].other,
                     "train.eval_steps=3", "train.checkpoint_steps=7", LARGE);
        launcher_end(&job);
        assert_parts_fit(cases[i].name);
    }
    for (uint64_t step = 1; step <= 30; step++) {
        assert_true(metric("parts-shards", step, "peer_wait_ms") <=
                    metric("parts-shards", step, "exposed_comm_ms") * (1 + 1e-6));
    }
}

struct traced {
    const char *name;
    json_int_t begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct traced *one = a;
    const struct traced *other = b;

    if (one->begin != other->begin) {
        return one->begin < other->begin ? -1 : 1;
    }
    return (one->end > other->end) - (one->end < other->end);
}

/* Take the spans of a rank's step that are parts of it. Returns how many. */
static size_t take_parts(const json_t *spans, struct traced *out, size_t room, int *out_param_waits)
{
    size_t count = 0;

    for (size_t i = 0; i < json_array_size(spans); i++) {
        const json_t *span = json_array_get(spans, i);
        const char *name = json_string_value(json_object_get(span, "name"));
        bool is_part = strcmp(name, "forward") == 0 || strcmp(name, "backward") == 0 ||
                       strcmp(name, "wait") == 0 || strcmp(name, "optimizer") == 0 ||
                       strcmp(name, "data") == 0;

        if (is_part && count < room) {
            out[count].name = name;
            out[count].begin = json_integer_value(json_object_get(span, "begin_ns"));
            out[count++].end = json_integer_value(json_object_get(span, "end_ns"));
            *out_param_waits += strcmp(name, "wait") == 0 &&
                                json_object_get(span, "number") != NULL;
        }
    }
    return count;
}

/* A rank that waits for updated parameters in its forward does not compute then. */
static void a_trace_of_a_sharded_run_has_no_time_twice(void **state)
{
    static struct traced parts[10000];
    struct launched job = {0};
    int param_waits = 0;
    json_t *trace;
    size_t count;

    (void)state;
    JOB_RUN_WELL(&job, "--nproc", "2", in_work("small.conf"), run_dir_argument("traced"),
                 "ddp.shard_optimizer=true", "train.trace=5-9", LARGE);
    launcher_end(&job);
    trace = json_load_file(in_work("traced/trace/rank-0.json"), 0, NULL);
    assert_non_null(trace);
    count = take_parts(json_object_get(trace, "spans"), parts, 10000, &param_waits);
    assert_true(param_waits >= 5); /* each step has at least one bucket */
    qsort(parts, count, sizeof *parts, by_begin);
    for (size_t i = 1; i < count; i++) {
        if (parts[i].begin < parts[i - 1].end) {
            fail_msg("%s, which lasts until %lld, and %s, which begins at %lld", parts[i - 1].name,
                     (long long)parts[i - 1].end, parts[i].name, (long long)parts[i].begin);
        }
    }
    json_decref(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_change_no_bit_of_a_run),
        cmocka_unit_test(a_checkpoint_goes_on_sharded_or_not),
        cmocka_unit_test(a_sharded_checkpoint_goes_on_at_another_number_of_ranks),
        cmocka_unit_test(a_plan_that_follows_the_link_changes_no_bit_of_a_run),
        cmocka_unit_test(checkpoints_on_the_way_hold_the_state_of_all_ranks),
        cmocka_unit_test(the_parts_of_a_step_are_no_more_than_the_step),
        cmocka_unit_test(a_trace_of_a_sharded_run_has_no_time_twice),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
