/* test_save_behind.c - checkpoints that are written in the background (train.checkpoint_async):
 * they have the bytes of others, training goes on meanwhile, and whatever happens before one is
 * whole costs nothing but that one. */
#include "support/gan.h"
#include "support/job.h"

#include <errno.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define NEED_HELD_CALLS()                                                                          \
    print_message("a sanitizer wants to be loaded before the calls that wait\n");                  \
    skip()
#else
#define NEED_HELD_CALLS()
#endif

#define BEHIND "train.checkpoint_async=true", "train.checkpoint_seconds=0", "train.keep=0"

/* From now on, who writes a model waits until release() is called. */
static void hold(void)
{
    static int number;
    const char *until = in_work("released-%d", number++);

    setenv("LD_PRELOAD", launcher_path("tests/libfailing_calls.so"), 1);
    setenv("HELD_PATH", "model.safetensors", 1);
    setenv("HELD_UNTIL", until, 1);
}

/* Programs that are started from now on do not wait. */
static void hold_no_more(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("HELD_PATH");
}

static void release(void)
{
    support_write_file(getenv("HELD_UNTIL"), "", 0);
}

static bool is_whole(const char *run_dir, int step)
{
    return access(in_work("%s/checkpoints/step-%08d/state.json", run_dir, step), F_OK) == 0;
}

/* How many checkpoints the metrics say were written, in the background or not. */
static int lines_of(const char *run_dir, const char *how)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    int count = 0;

    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, "\"kind\":\"checkpoint\"")) != NULL; at++) {
        size_t length = strcspn(at, "\n");
        const char *found = strstr(at, how);

        count += found != NULL && found < at + length;
    }
    free(text);
    return count;
}

/* A long run with a checkpoint every 5 steps, whose first one is being written, and not by more
 * than a few steps ahead of it. */
static void start_held(struct launched *job, const char *run_dir, const char *ranks)
{
    hold();
    JOB_START(job, "--nproc", ranks, LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.log_steps=1", "train.max_steps=12", run_dir_argument(run_dir));
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl", "\"step\":8,");
    hold_no_more();
    assert_false(is_whole(run_dir, 5));
}

/* The same run, undisturbed and without a thread. */
static void run_undisturbed(const char *run_dir, const char *ranks)
{
    struct launched job = {0};

    JOB_RUN_WELL(&job, "--nproc", ranks, LONG_RUN, "train.checkpoint_async=false",
                 "train.checkpoint_steps=5", "train.keep=0", "train.max_steps=12",
                 run_dir_argument(run_dir));
    launcher_end(&job);
}

static const struct {
    const char *name;
    int ranks;
    const char *conf;
    const char *extra[5];
} ways[] = {
    {"one", 1, NULL, {"train.batch_size=32"}},
    {"two", 2, NULL, {"optimizer.type=adamw"}},
    {"three", 3, NULL, {"optimizer.type=adamw", "ddp.shard_optimizer=true"}},
    {"stages", 2, NULL, {"parallel.pipeline=2", "optimizer.type=adamw"}},
    {"stages-of-two",
     4,
     NULL,
     {"parallel.pipeline=2", "optimizer.type=adamw", "ddp.shard_optimizer=true"}},
    {"placed",
     2,
     NULL,
     {"train.devices=[\"cpu\",\"cpu\"]", "parallel.type=model_parallel",
      "parallel.stages=[\"fc2\"]"}},
    {"replicated", 1, NULL, {"train.devices=[\"cpu\",\"cpu\"]", "parallel.type=data_parallel"}},
    {"gan", 2, "gan.conf", {NULL}},
};

static void checkpoints_have_the_same_bytes_as_others(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char *names[2];

        for (int behind = 0; behind < 2; behind++) {
            struct run_options options = {.ranks = ways[w].ranks, .conf = ways[w].conf};
            size_t next = 0;

            names[behind] = argument("%s-%d", ways[w].name, behind);
            options.arguments[next++] = run_dir_argument(names[behind]);
            options.arguments[next++] = "train.checkpoint_steps=1";
            options.arguments[next++] = "train.max_steps=3";
            options.arguments[next++] = "train.keep=0";
            options.arguments[next++] = behind != 0 ? "train.checkpoint_async=true"
                                                    : "train.checkpoint_async=false";
            for (int i = 0; i < 5 && ways[w].extra[i] != NULL; i++) {
                options.arguments[next++] = ways[w].extra[i];
            }
            run_well(&options);
            assert_int_equal(lines_of(names[behind], "\"async\":true"), behind != 0 ? 2 : 0);
            assert_int_equal(lines_of(names[behind], "\"async\":false"), behind != 0 ? 1 : 3);
        }
        for (int step = 1; step <= 3; step++) {
            assert_same_checkpoint(names[0], names[1], step);
        }
    }
}

static void training_goes_on_while_one_is_written(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    run_undisturbed("plain", "2");
    start_held(&job, "on", "2");
    launcher_await_text(in_work("on"), "metrics.jsonl", "\"step\":10,"); /* and it waits for 5 */
    assert_int_equal(lines_of("on", "\"step\":5"), 0);
    release();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    launcher_end(&job);
    for (int step = 5; step <= 10; step += 5) {
        assert_same_checkpoint("plain", "on", step);
    }
    assert_same_checkpoint("plain", "on", 12);
    assert_int_equal(lines_of("on", "\"async\":true"), 2);
}

static void a_run_that_ends_waits_for_it(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "ended", "3");
    kill(job.pid, SIGTERM);
    launcher_await_text(job.dir, "err",
                        "warning: the run waits with its end until the checkpoint "
                        "of step 5 is written\n");
    assert_false(is_whole("ended", 5));
    release();
    assert_true(await_stop(&job, "ended") >= 9);
    launcher_end(&job);
    assert_true(is_whole("ended", 5));
}

/* With one rank, no other wait of the run has this limit. */
static void a_disk_that_takes_nothing_ends_the_run_after_its_limit(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold();
    JOB_START(&job, "--nproc", "1", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.max_steps=8", "train.timeout=1", run_dir_argument("hung"));
    hold_no_more();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "checkpoint of step 5: the disk has taken nothing for 1 s (train.timeout)");
    launcher_end(&job);
    assert_false(is_whole("hung", 5) || is_whole("hung", 8));
}

/* Rank 0 does not hang because of a checkpoint: others wait for its end. */
static void a_failing_run_does_not_wait_for_ever(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold();
    JOB_START(&job, "--nproc", "2", "--grace", "300", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.log_steps=1", run_dir_argument("left"));
    launcher_await_text(in_work("left"), "metrics.jsonl", "\"step\":8,");
    hold_no_more();
    kill(find_rank("left", 1), SIGKILL);
    launcher_wait(&job);
    assert_true(job.exit_status != 0);
    assert_err(&job, "warning: the run waits with its end until the checkpoint of step 5 is ");
    assert_no_err(&job, "did not end within");
    launcher_end(&job);
    assert_false(is_whole("left", 5));
}

static void a_crash_leaves_the_one_before(void **state)
{
    static const char *const ranks[] = {"1", "2", "3"};
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    for (size_t i = 0; i < 3; i++) {
        const char *name = argument("crash-%s", ranks[i]);
        const char *plain = argument("whole-%s", ranks[i]);

        run_undisturbed(plain, ranks[i]);
        JOB_RUN_WELL(&job, "--nproc", ranks[i], LONG_RUN, "train.max_steps=3",
                     run_dir_argument(name));
        launcher_end(&job);
        hold();
        JOB_START(&job, "--nproc", ranks[i], LONG_RUN, BEHIND, "train.checkpoint_steps=5",
                  "train.log_steps=1", "train.resume=auto", "train.max_steps=12",
                  run_dir_argument(name));
        launcher_await_text(in_work("%s", name), "metrics.jsonl", "\"step\":8,");
        hold_no_more();
        kill(find_rank(name, 0), SIGKILL);
        launcher_wait(&job);
        launcher_end(&job);
        assert_false(is_whole(name, 5));
        JOB_RUN_WELL(&job, "--nproc", ranks[i], LONG_RUN, BEHIND, "train.checkpoint_steps=5",
                     "train.resume=auto", "train.max_steps=12", run_dir_argument(name));
        assert_err(&job, "checkpoints/step-00000003: step 3");
        launcher_end(&job);
        assert_same_checkpoint(plain, name, 10);
        assert_same_checkpoint(plain, name, 12);
    }
}

/* Another rank dies: rank 0 completes what it is writing before it ends. */
static void a_failing_run_completes_it(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "failing", "2");
    kill(find_rank("failing", 1), SIGKILL);
    launcher_await_text(job.dir, "err", "rank 1");
    release();
    launcher_wait(&job);
    assert_true(job.exit_status != 0);
    launcher_end(&job);
    assert_true(is_whole("failing", 5));
    assert_int_equal(lines_of("failing", "\"async\":true"), 1);
}

static void a_failure_is_told_and_costs_only_that_one(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    setenv("LD_PRELOAD", launcher_path("tests/libfailing_calls.so"), 1);
    setenv("FAILING_PATH", "model.safetensors", 1);
    setenv("FAILING_CALLS", "1", 1);
    support_setenv_number("FAILING_ERRNO", EIO);
    JOB_RUN_WELL(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
                 "train.max_steps=12", run_dir_argument("failed"));
    hold_no_more();
    unsetenv("FAILING_PATH");
    unsetenv("FAILING_CALLS");
    assert_err(&job, "cddp-train: warning: checkpoint of step 5: ");
    assert_err(&job, "Input/output error; training goes on\n");
    launcher_end(&job);
    assert_false(is_whole("failed", 5));
    assert_true(is_whole("failed", 10) && is_whole("failed", 12));
    assert_int_equal(lines_of("failed", "\"async\":true"), 1);
}

/* Each step multiplies the weights by a million. */
static void a_parameter_that_is_not_finite_is_told_and_not_written(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("burst"), "model.type=layers",
                      "model.layers=({type=\"flatten\";},{type=\"linear\";units=4;})",
                      "optimizer.lr=1e4", "optimizer.schedule.type=constant",
                      "optimizer.momentum=0", "optimizer.weight_decay=1e2",
                      "train.checkpoint_steps=1", "train.keep=0", "train.max_steps=8",
                      "train.checkpoint_async=true"}};
    struct run run;

    (void)state;
    run = run_badly(&options);
    assert_says(&run, "err", 0, "warning: checkpoint of step 7: linear2.weight has become ");
    assert_says(&run, "err", 0, "so nothing is written: the learning rate may be too high");
    assert_true(is_whole("burst", 6));
    assert_false(is_whole("burst", 7));
}

static void one_that_is_due_by_time_comes_after_the_one_that_is_written(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold();
    JOB_START(&job, "--nproc", "2", LONG_RUN, "train.checkpoint_async=true", "train.keep=0",
              "train.checkpoint_seconds=1e-6", "train.log_steps=1", run_dir_argument("timed"));
    launcher_await_text(in_work("timed"), "metrics.jsonl", "\"step\":20,");
    hold_no_more();
    assert_int_equal(lines_of("timed", ""), 0);
    release();
    for (int waited_ms = 0; lines_of("timed", "\"async\":true") < 2; waited_ms += 5) {
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(5);
    }
    (void)stop(&job, "timed", SIGTERM);
    launcher_end(&job);
    assert_true(is_whole("timed", 1));
    for (int step = 2; step <= 20; step++) {
        assert_false(is_whole("timed", step));
    }
}

/* Whoever asks while one is being written is told of the next one. */
static void who_asks_for_a_checkpoint_gets_a_later_one(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    unsigned long long step = 0;
    const char *name;

    (void)state;
    NEED_HELD_CALLS();
    hold();
    JOB_START(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=1000",
              "train.checkpoint_seconds=1e-6", "train.log_steps=1", run_dir_argument("asked"));
    launcher_await_text(in_work("asked"), "metrics.jsonl", "\"step\":8,");
    launcher_start_program(&ctl, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){in_work("asked"), "checkpoint", NULL});
    hold_no_more();
    support_sleep_ms(200); /* if the request comes later, the test shows less */
    assert_false(is_whole("asked", 1));
    release();
    launcher_wait(&ctl);
    if (ctl.exit_status != 0) {
        fail_msg("exit status %d: %s%s", ctl.exit_status, ctl.out, ctl.err);
    }
    name = strstr(ctl.out, "/checkpoints/step-");
    assert_non_null(name);
    assert_int_equal(sscanf(name, "/checkpoints/step-%llu", &step), 1);
    assert_true(step >= 8 && is_whole("asked", (int)step) && is_whole("asked", 1));
    launcher_end(&ctl);
    (void)stop(&job, "asked", SIGTERM);
    launcher_end(&job);
}

/* Rank 0 waits with the checkpoint that is due until the one before it is whole. */
static void who_asks_while_a_checkpoint_waits_gets_a_later_one(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    unsigned long long step = 0;
    const char *name;

    (void)state;
    NEED_HELD_CALLS();
    hold();
    JOB_START(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=5", "train.keep=0",
              "train.log_steps=1", run_dir_argument("waits"));
    launcher_await_text(in_work("waits"), "metrics.jsonl", "\"step\":10,");
    hold_no_more();
    launcher_start_program(&ctl, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){in_work("waits"), "checkpoint", NULL});
    support_sleep_ms(200); /* if the request comes later, the test shows less */
    release();
    launcher_wait(&ctl);
    if (ctl.exit_status != 0) {
        fail_msg("exit status %d: %s%s", ctl.exit_status, ctl.out, ctl.err);
    }
    name = strstr(ctl.out, "/checkpoints/step-");
    assert_non_null(name);
    assert_int_equal(sscanf(name, "/checkpoints/step-%llu", &step), 1);
    assert_true(step >= 11 && is_whole("waits", (int)step));
    launcher_end(&ctl);
    (void)stop(&job, "waits", SIGTERM);
    launcher_end(&job);
}

static void a_folder_that_is_moved_away_keeps_what_is_written_there(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "moved", "2");
    assert_int_equal(rename(in_work("moved"), in_work("kept")), 0);
    launcher_await_text(in_work("kept"), "metrics.jsonl", "\"step\":10,"); /* nothing waits yet */
    assert_false(is_whole("kept", 5));
    release();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "was removed or moved while the run was writing there");
    launcher_end(&job);
    assert_true(is_whole("kept", 5));
    assert_true(is_whole("moved", 12));
}

/* A rank, or all, at any moment: the run goes on from what is whole, to the same end. */
static void ranks_can_be_killed_at_any_moment(void **state)
{
    struct launched job = {0};
    int rounds = 0;

    (void)state;
    run_undisturbed("calm", "3");
    for (int done = 0; done == 0; rounds++) {
        JOB_START(&job, "--nproc", "3", LONG_RUN, "train.checkpoint_async=true", "train.keep=2",
                  "train.checkpoint_steps=1", "train.resume=auto", "train.max_steps=12",
                  run_dir_argument("killed"));
        if (rounds < 12) {
            pid_t pid;

            wait_for_checkpoint(&job, "killed");
            support_sleep_ms(7 * rounds);
            pid = find_rank("killed", rounds % 3);
            if (pid > 0) {
                kill(pid, SIGKILL);
            }
        }
        launcher_wait(&job);
        done = job.exit_status == 0;
        assert_no_err(&job, "passed over");
        launcher_end(&job);
        assert_true(rounds < 20);
    }
    assert_same_checkpoint("calm", "killed", 12);
}

static void the_dry_run_says_what_a_copy_takes(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(&job, launcher_path("src/cddp-train"),
                           (const char *const[]){"--dry-run", in_work("small.conf"), NULL});
    launcher_wait(&job);
    assert_out(&job, "memory for a copy of a checkpoint: ");
    assert_out(&job, " on rank 0, from the first one on, if twice as much is left then: now ");
    launcher_end(&job);
    launcher_start_program(&job, launcher_path("src/cddp-train"),
                           (const char *const[]){"--dry-run", in_work("small.conf"),
                                                 "train.checkpoint_async=false", NULL});
    launcher_wait(&job);
    launcher_need_absence(job.out, "memory for a copy of a checkpoint", "stdout");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_have_the_same_bytes_as_others),
        cmocka_unit_test(training_goes_on_while_one_is_written),
        cmocka_unit_test(a_run_that_ends_waits_for_it),
        cmocka_unit_test(a_disk_that_takes_nothing_ends_the_run_after_its_limit),
        cmocka_unit_test(a_failing_run_does_not_wait_for_ever),
        cmocka_unit_test(a_crash_leaves_the_one_before),
        cmocka_unit_test(a_failing_run_completes_it),
        cmocka_unit_test(a_failure_is_told_and_costs_only_that_one),
        cmocka_unit_test(a_parameter_that_is_not_finite_is_told_and_not_written),
        cmocka_unit_test(one_that_is_due_by_time_comes_after_the_one_that_is_written),
        cmocka_unit_test(who_asks_for_a_checkpoint_gets_a_later_one),
        cmocka_unit_test(who_asks_while_a_checkpoint_waits_gets_a_later_one),
        cmocka_unit_test(a_folder_that_is_moved_away_keeps_what_is_written_there),
        cmocka_unit_test(ranks_can_be_killed_at_any_moment),
        cmocka_unit_test(the_dry_run_says_what_a_copy_takes),
    };

    return cmocka_run_group_tests(tests, make_gan_work, remove_work);
}
