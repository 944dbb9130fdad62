/* test_train_graphs.c - steps that are captured and replayed: that they are, that they give the
 * same bits as other steps, and what happens to steps that cannot be captured. */
#include "support/train_graphs.h"

/* 9 batches of 64 and one of 24 in an epoch, in micro-batches of several sizes. */
static void replayed_steps_give_the_same_files_at_any_number_of_ranks(void **state)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};

    (void)state;
    NEEDS_DEVICE();
    for (int i = 0; i < 3; i++) {
        const char *const arguments[] = {"train.max_steps=23",
                                         "train.accumulate=3",
                                         "model.dropout=0.2",
                                         "train.clip_norm=0.5",
                                         "optimizer.type=adamw",
                                         "optimizer.lr=0.01",
                                         argument("train.precision=%s", precisions[i]),
                                         NULL};

        compare("small.conf", precisions[i], 3, arguments, 23, 2);
    }
}

static void so_do_convolutions_and_language_models(void **state)
{
    const char *const images[] = {"model.type=cnn", "train.max_steps=6", "train.batch_size=12",
                                  NULL};
    const char *const half[] = {"train.max_steps=8", "train.precision=bf16", NULL};

    (void)state;
    NEEDS_DEVICE();
    compare("small.conf", "cnn", 2, images, 6, 0);
    compare("text.conf", "text", 3, half, 8, 0); /* rank 0 writes texts on the way */
}

/* What is not reported has no norm. Either place of the feed comes with either kind of step. */
static void so_do_steps_that_are_not_reported(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        const char *const arguments[] = {"train.max_steps=20", "train.log_steps=3",
                                         argument("train.accumulate=%d", accumulate), NULL};

        compare("small.conf", argument("seldom%d", accumulate), 2, arguments, 20, 2);
    }
}

static void so_does_each_way_to_reduce(void **state)
{
    static const char *const ways[][4] = {
        {"ddp.shard_optimizer=false", "ddp.wire=bf16", "ddp.deterministic=true"},
        {"ddp.shard_optimizer=false", "ddp.wire=f32", "ddp.deterministic=false"},
        {"ddp.shard_optimizer=true", "ddp.wire=f16", "ddp.deterministic=true"},
        {"ddp.shard_optimizer=true", "ddp.wire=f32", "ddp.deterministic=false"}};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_PRODUCTS", "same", 1); /* else those of false are chosen by time, whatever bits */
    for (int i = 0; i < 4; i++) {
        const char *const arguments[] = {"train.max_steps=9",
                                         "ddp.first_bucket_bytes=512",
                                         "ddp.bucket_bytes=1024",
                                         "train.batch_size=60",
                                         ways[i][0],
                                         ways[i][1],
                                         ways[i][2],
                                         NULL};

        compare("small.conf", argument("way%d", i), 3, arguments, 9, 0);
    }
    unsetenv("CDDP_PRODUCTS");
}

/* Two samples a rank, but one on the last of three. */
static void so_do_ranks_with_unequal_shares(void **state)
{
    const char *const arguments[] = {"train.max_steps=8", "train.batch_size=5", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    compare("small.conf", "few", 3, arguments, 8, 0);
}

/* Evaluations whose batches need more memory than training's move it, also on one rank alone. */
static void recordings_are_made_again_when_memory_has_moved(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int batch = 7; batch <= 25; batch += 6) {
        const char *const arguments[] = {"train.max_steps=12", "train.eval_steps=5",
                                         "train.batch_size=6",
                                         argument("train.eval_batch_size=%d", batch), NULL};

        compare("small.conf", argument("moved%d", batch), 3, arguments, 12, 0);
        /* the step behind the first evaluation is one that is not replayed, to be timed */
        run_graphs("small.conf", 3, argument("moved-auto%d", batch), AUTO, arguments);
        assert_same_run(argument("moved%d-never3", batch), argument("moved-auto%d", batch), 12);
    }
}

static void streams_may_run_in_any_order(void **state)
{
    const char *const arguments[] = {"train.max_steps=12",         "train.accumulate=2",
                                     "ddp.first_bucket_bytes=512", "ddp.bucket_bytes=1024",
                                     "train.clip_norm=0.5",        NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_graphs("small.conf", 2, "order0", NEVER, arguments);
    for (int seed = 2; seed <= 6; seed++) {
        char *name = argument("order%d", seed);

        support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
        run_graphs("small.conf", 2, name, ALWAYS, arguments);
        assert_same_run("order0", name, 12);
    }
    unsetenv("CDDP_FAKE_CUDA_SEED");
}

#define OVERFLOWS                                                                                  \
    "train.precision=fp16", "optimizer.lr=2", "optimizer.momentum=0", "train.batch_size=2",        \
        "train.checkpoint_steps=1", "train.keep=0"

static void overflows_skip_steps_that_are_replayed(void **state)
{
    const char *const arguments[] = {OVERFLOWS, "train.max_steps=12", NULL};
    char *skipped = NULL;
    struct run plain;
    struct run always;

    (void)state;
    NEEDS_EMULATED_MODULE();
    plain = run_graphs("small.conf", 2, "over-never", NEVER, arguments);
    always = run_graphs("small.conf", 2, "over-always", ALWAYS, arguments);
    for (int step = 1; step <= 12; step++) {
        assert_same_checkpoint("over-never", "over-always", step);
        skipped = argument("warning: step %d was skipped: a gradient overflowed; ", step);
        if (step > PLAIN_STEPS && isnan(metric("over-never", (uint64_t)step, "grad_norm"))) {
            assert_says(&plain, "err", 0, skipped);
            assert_says(&always, "err", 0, skipped);
        }
    }
    assert_int_equal(replayed("over-always", 12), 12 - PLAIN_STEPS);
    assert_true(isnan(metric("over-never", 12, "grad_norm")) ||
                isnan(metric("over-never", 11, "grad_norm")) ||
                isnan(metric("over-never", 10, "grad_norm")) ||
                isnan(metric("over-never", 9, "grad_norm")) ||
                isnan(metric("over-never", 8, "grad_norm")) ||
                isnan(metric("over-never", 7, "grad_norm")) ||
                isnan(metric("over-never", 6, "grad_norm")) ||
                isnan(metric("over-never", 5, "grad_norm")));
}

static void run_part(const char *name, int ranks, const char *wish, const char *steps,
                     const char *precision)
{
    const char *const arguments[] = {"optimizer.type=adamw",
                                     "optimizer.lr=0.01",
                                     "model.dropout=0.2",
                                     "optimizer.schedule.total_steps=18",
                                     argument("train.max_steps=%s", steps),
                                     "train.resume=auto",
                                     argument("train.precision=%s", precision),
                                     NULL};

    run_graphs("small.conf", ranks, name, wish, arguments);
}

static void a_run_goes_on_with_either_kind_of_steps(void **state)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i < 3; i++) {
        char *straight = argument("straight-%s", precisions[i]);
        char *parts = argument("parts-%s", precisions[i]);

        run_part(straight, 2, NEVER, "18", precisions[i]);
        run_part(parts, 2, ALWAYS, "6", precisions[i]);
        run_part(parts, 2, NEVER, "9", precisions[i]);
        run_part(parts, 2, ALWAYS, "18", precisions[i]);
        assert_int_equal(replayed(parts, 18), 6 - 2 + 9 - 2 - 1); /* step 10 is an epoch's last */
        assert_same_steps(straight, parts, 1, 18, 0);
        assert_same_checkpoint(straight, parts, 18);
    }
}

/* Between two reports, with results that nobody has taken yet. */
static void a_signal_stops_replays_with_the_files_of_the_step(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int shards = 0; shards <= 1; shards++) {
        char *name = argument("signal%d", shards);
        char *plain = argument("signal-plain%d", shards);
        struct run_options options = {
            .ranks = 3,
            .arguments = {run_dir_argument(name), CUDA, ALWAYS, "train.epochs=100000",
                          "train.precision=fp16", "optimizer.schedule.type=constant",
                          "train.log_steps=1000", "train.accumulate=2",
                          shards ? "ddp.shard_optimizer=true" : "ddp.shard_optimizer=false"}};
        struct run run = start(&options);
        unsigned long long step = 0;
        char *text;

        wait_for_steps(name);
        support_sleep_ms(100);
        assert_int_equal(kill(run.pids[1], SIGTERM), 0);
        finish_stopped(&run);
        text = output(&run, "out", 0);
        assert_int_equal(sscanf(text, "stopped after step %llu; ", &step), 1);
        free(text);
        options.arguments[0] = run_dir_argument(plain);
        options.arguments[2] = NEVER;
        options.arguments[9] = argument("train.max_steps=%llu", step);
        run_well(&options);
        assert_same_checkpoint(plain, name, (int)step);
    }
}

/* --- the choice --- */

/* The line of metrics about the choice, of which there is at most one. */
static json_t *choice(const char *run_dir)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    json_t *found = NULL;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        const char *kind = json_string_value(json_object_get(object, "kind"));

        if (kind != NULL && strcmp(kind, "cuda_graph") == 0) {
            assert_null(found);
            found = json_incref(object);
        }
        json_decref(object);
    }
    free(text);
    return found;
}

static void both_ways_are_timed_and_the_faster_one_stays(void **state)
{
    enum { STEPS = 29, UNEVEN = 2, CHOSEN_AFTER = 15, TRIED = 7 };
    const char *const arguments[] = {"train.max_steps=29", "train.accumulate=2", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int ranks = 1; ranks <= 3; ranks++) {
        char *name = argument("auto%d", ranks);
        char *plain = argument("auto-never%d", ranks);
        struct run run = run_graphs("small.conf", ranks, name, AUTO, arguments);
        json_t *told = choice(name);
        double plain_ms;
        double replayed_ms;
        bool replay;

        assert_non_null(told);
        plain_ms = json_real_value(json_object_get(told, "plain_ms"));
        replayed_ms = json_real_value(json_object_get(told, "replayed_ms"));
        replay = json_is_true(json_object_get(told, "replayed"));
        json_decref(told);
        assert_true(plain_ms > 0 && replayed_ms > 0);
        assert_true(replay == (replayed_ms < plain_ms));
        assert_says(&run, "err", 0,
                    argument("a step takes %.3f ms replayed as CUDA graphs, %.3f ms otherwise: "
                             "steps are %s",
                             replayed_ms, plain_ms, replay ? "replayed" : "not replayed"));
        assert_int_equal(replayed(name, STEPS),
                         replay ? TRIED + STEPS - UNEVEN - CHOSEN_AFTER : TRIED);
        run_graphs("small.conf", ranks, plain, NEVER, arguments);
        assert_same_run(plain, name, STEPS);
        told = choice(plain);
        assert_null(told);
    }
}

static void times_of_parts_are_null_where_steps_were_replayed(void **state)
{
    static const char *const parts[] = {"forward_ms", "backward_ms", "exposed_comm_ms",
                                        "optimizer_ms"};
    const char *const arguments[] = {"train.max_steps=5", NULL};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_graphs("small.conf", 2, "parts-of", ALWAYS, arguments);
    for (int i = 0; i < 4; i++) {
        assert_true(metric("parts-of", 2, parts[i]) >= 0);
        assert_true(isnan(metric("parts-of", 3, parts[i])));
        assert_true(isnan(metric("parts-of", 5, parts[i])));
    }
    assert_true(metric("parts-of", 5, "step_ms") > 0);
    assert_says(&run, "err", 0, "exposed comm"); /* of the first step */
}

/* --- where it cannot be --- */

static void assert_refused(const char *name, const char *device, const char *why)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument(name), device, ALWAYS}};
    struct run run = run_badly(&options);

    for (int rank = 0; rank < 2; rank++) {
        assert_says(&run, "err", rank, argument("train.cuda_graph = \"always\": %s", why));
    }
}

static void what_cannot_be_recorded_is_an_error_or_left(void **state)
{
    const char *const arguments[] = {"train.max_steps=20", NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_refused("no-device", CPU, "the CPU has no CUDA graphs");
    setenv("CDDP_BACKEND", "ipc", 1);
    assert_refused("no-transport", CUDA, "operations of backend ipc cannot be captured");
    run_graphs("small.conf", 2, "no-graphs", AUTO, arguments);
    unsetenv("CDDP_BACKEND");
    assert_int_equal(replayed("no-graphs", 20), -1);
}

static struct run run_with_fault(const char *name, const char *wish, const char *fault,
                                 bool goes_well)
{
    struct run_options options = {.ranks = 3,
                                  .odd_setting = fault,
                                  .arguments = {run_dir_argument(name), CUDA, wish,
                                                "train.accumulate=2", "train.clip_norm=0.5",
                                                "train.max_steps=20"}};

    return goes_well ? run_well(&options) : run_badly(&options);
}

/* On the last rank alone; the others go on without captured graphs, too. */
static void a_rank_that_cannot_record_has_all_go_on_without(void **state)
{
    /* in each micro-batch, at its begin, in backward, while reducing, in the update, at the end */
    static const char *const faults[] = {
        "CDDP_FAKE_CUDA_REFUSE_CAPTURE=1",  "CDDP_FAKE_CUDA_REFUSE_CAPTURE=12",
        "CDDP_FAKE_CUDA_REFUSE_CAPTURE=20", "CDDP_FAKE_CUDA_REFUSE_CAPTURE=30",
        "CDDP_FAKE_CUDA_REFUSE_CAPTURE=38", "CDDP_FAKE_CUDA_REFUSE_CAPTURE=46",
        "CDDP_FAKE_CUDA_REFUSE_CAPTURE=54", "CDDP_FAKE_CUDA_REFUSE_CAPTURE=60",
        "CDDP_FAKE_CUDA_FAIL_GRAPH=1",      "CDDP_FAKE_CUDA_FAIL_GRAPH=2"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    run_with_fault("well", NEVER, NULL, true);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        char *name = argument("fault%zu", i);
        struct run run = run_with_fault(name, AUTO, faults[i], true);

        assert_says(&run, "err", 0,
                    "warning: CUDA graphs are not used: they cannot be captured: rank 2: ");
        assert_in_range(replayed(name, 20), 0, 4); /* behind an epoch's end places change roles */
        assert_same_run("well", name, 20);
    }
}

static void that_is_an_error_where_steps_are_always_to_be_replayed(void **state)
{
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_with_fault("fault-always", ALWAYS, "CDDP_FAKE_CUDA_FAIL_GRAPH=2", false);
    for (int rank = 0; rank < 3; rank++) {
        assert_says(&run, "err", rank,
                    "train.cuda_graph = \"always\", but a step cannot be captured: rank 2: ");
        assert_says(&run, "err", rank, "cudaGraphInstantiate");
    }
}

/* --- faults while steps are replayed --- */

static void a_device_that_fails_in_a_replay_ends_all(void **state)
{
    struct run_options options = {
        .ranks = 3,
        .odd_setting = "CDDP_FAKE_CUDA_FAIL_LAUNCH=1500",
        .arguments = {run_dir_argument("illegal"), CUDA, ALWAYS, "train.epochs=100000"}};
    struct run run;

    (void)state;
    NEEDS_EMULATED_MODULE();
    run = run_badly(&options);
    assert_true(metric("illegal", 4, "replayed_steps") == 1);
    assert_says(&run, "err", 2, "an illegal memory access was encountered");
    assert_says(&run, "err", 0, "rank 2");
    assert_says(&run, "err", 1, "rank 2");
}

static void a_killed_rank_ends_all(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    JOB_START(&job, "--nproc", "3", in_work("small.conf"), run_dir_argument("killed"), CUDA, ALWAYS,
              "train.epochs=100000", "train.checkpoint_steps=5");
    kill_rank(&job, "killed", 1);
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replayed_steps_give_the_same_files_at_any_number_of_ranks),
        cmocka_unit_test(so_do_convolutions_and_language_models),
        cmocka_unit_test(so_do_steps_that_are_not_reported),
        cmocka_unit_test(so_does_each_way_to_reduce),
        cmocka_unit_test(so_do_ranks_with_unequal_shares),
        cmocka_unit_test(recordings_are_made_again_when_memory_has_moved),
        cmocka_unit_test(streams_may_run_in_any_order),
        cmocka_unit_test(overflows_skip_steps_that_are_replayed),
        cmocka_unit_test(a_run_goes_on_with_either_kind_of_steps),
        cmocka_unit_test(a_signal_stops_replays_with_the_files_of_the_step),
        cmocka_unit_test(both_ways_are_timed_and_the_faster_one_stays),
        cmocka_unit_test(times_of_parts_are_null_where_steps_were_replayed),
        cmocka_unit_test(what_cannot_be_recorded_is_an_error_or_left),
        cmocka_unit_test(a_rank_that_cannot_record_has_all_go_on_without),
        cmocka_unit_test(that_is_an_error_where_steps_are_always_to_be_replayed),
        cmocka_unit_test(a_device_that_fails_in_a_replay_ends_all),
        cmocka_unit_test(a_killed_rank_ends_all),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
