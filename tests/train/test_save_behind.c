/* test_save_behind.c - checkpoints that are written in the background (train.checkpoint_async):
 * they have the bytes of others, training goes on meanwhile, and whatever happens before one is
 * whole costs nothing but that one. */
#include "support/gan.h"
#include "support/held_save.h"

static const struct {
    const char *name;
    int ranks;
    const char *conf;
    const char *extra[5];
    const char *hosts; /* as of run_options */
} ways[] = {
    {"one", 1, NULL, {"train.batch_size=32"}, NULL},
    {"two", 2, NULL, {"optimizer.type=adamw"}, NULL},
    {"equal", 3, NULL, {"optimizer.type=adamw", "ddp.shard_optimizer=false"}, NULL},
    {"three", 3, NULL, {"optimizer.type=adamw", "ddp.shard_optimizer=true"}, NULL},
    {"plain", 3, NULL, {"optimizer.momentum=0", "ddp.shard_optimizer=true"}, NULL},
    {"five", 5, NULL, {"ddp.shard_optimizer=true"}, NULL},
    {"normalised",
     2,
     NULL,
     {"model.type=layers",
      "model.layers=({type=\"conv2d\";units=2;kernel=3;},{type=\"batch_norm\";},"
      "{type=\"flatten\";},{type=\"linear\";units=4;})"},
     NULL},
    {"hosts", 3, NULL, {"optimizer.type=adamw", "ddp.shard_optimizer=false"}, "001"},
    {"hosts-sharded", 3, NULL, {"ddp.shard_optimizer=true"}, "001"},
    {"far", 3, NULL, {"ddp.shard_optimizer=false"}, "011"},
    {"stages", 2, NULL, {"parallel.pipeline=2", "optimizer.type=adamw"}, NULL},
    {"stages-of-two",
     4,
     NULL,
     {"parallel.pipeline=2", "optimizer.type=adamw", "ddp.shard_optimizer=true"},
     NULL},
    {"placed",
     2,
     NULL,
     {"train.devices=[\"cpu\",\"cpu\"]", "parallel.type=model_parallel",
      "parallel.stages=[\"fc2\"]"},
     NULL},
    {"replicated",
     1,
     NULL,
     {"train.devices=[\"cpu\",\"cpu\"]", "parallel.type=data_parallel"},
     NULL},
    {"gan", 2, "gan.conf", {NULL}, NULL},
};

static void checkpoints_have_the_same_bytes_as_others(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char *names[2];

        for (int behind = 0; behind < 2; behind++) {
            struct run_options options = {
                .ranks = ways[w].ranks, .conf = ways[w].conf, .hosts = ways[w].hosts};
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
            assert_int_equal(lines_of_saves(names[behind], "\"async\":true"), behind != 0 ? 2 : 0);
            assert_int_equal(lines_of_saves(names[behind], "\"async\":false"), behind != 0 ? 1 : 3);
        }
        for (int step = 1; step <= 3; step++) {
            assert_same_checkpoint(names[0], names[1], step);
        }
    }
}

/* Whether file @p name of a thread of process @p pid, or of the process, has @p text. */
static bool proc_says(pid_t pid, const char *name, const char *text)
{
    char path[96];
    char *found;
    bool says;

    snprintf(path, sizeof path, "%d/%s", (int)pid, name);
    found = launcher_read("/proc", path);
    says = found != NULL && strstr(found, text) != NULL;
    free(found);
    return says;
}

static bool has_thread(pid_t pid, const char *name)
{
    char path[64];
    DIR *threads;
    const struct dirent *entry;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads != NULL && !found && (entry = readdir(threads)) != NULL) {
        snprintf(path, sizeof path, "task/%.20s/comm", entry->d_name);
        found = proc_says(pid, path, name);
    }
    if (threads != NULL) {
        closedir(threads);
    }
    return found;
}

/* A thread names itself once it runs. */
static void await_thread(pid_t pid, const char *name)
{
    for (long waited_ms = 0; !has_thread(pid, name); waited_ms += 2) {
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(2);
    }
}

/* Rank 0 has created no file yet: the copy is in memory that all ranks have, and all are ready. */
static void ranks_share_out_a_checkpoint(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "shared", "3", "model.safetensors");
    for (int rank = 0; rank < 3; rank++) {
        pid_t pid = find_rank("shared", rank);

        assert_true(pid > 0);
        assert_true(proc_says(pid, "maps", "/memfd:cddp-checkpoint"));
        await_thread(pid, rank > 0 ? "cddp-save-part\n" : "cddp-save\n");
        assert_false(has_thread(pid, rank > 0 ? "cddp-save\n" : "cddp-save-part\n"));
    }
    held_release();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    launcher_end(&job);
    assert_true(is_whole("shared", 5));
}

static void training_goes_on_while_one_is_written(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    run_unheld("plain", "2");
    start_held(&job, "on", "2", "model.safetensors");
    launcher_await_text(in_work("on"), "metrics.jsonl", "\"step\":10,"); /* and it waits for 5 */
    assert_int_equal(lines_of_saves("on", "\"step\":5"), 0);
    held_release();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    launcher_end(&job);
    for (int step = 5; step <= 10; step += 5) {
        assert_same_checkpoint("plain", "on", step);
    }
    assert_same_checkpoint("plain", "on", 12);
    assert_int_equal(lines_of_saves("on", "\"async\":true"), 2);
}

static void a_run_that_ends_waits_for_it(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "ended", "3", "model.safetensors");
    kill(job.pid, SIGTERM);
    launcher_await_text(job.dir, "err",
                        "warning: the run waits with its end until the checkpoint "
                        "of step 5 is written\n");
    assert_false(is_whole("ended", 5));
    held_release();
    assert_true(await_stop(&job, "ended") >= 9);
    launcher_end(&job);
    assert_true(is_whole("ended", 5));
}

static void one_that_is_due_by_time_comes_after_the_one_that_is_written(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold("model.safetensors");
    JOB_START(&job, "--nproc", "2", LONG_RUN, "train.checkpoint_async=true", "train.keep=0",
              "train.checkpoint_seconds=1e-6", "train.log_steps=1", run_dir_argument("timed"));
    launcher_await_text(in_work("timed"), "metrics.jsonl", "\"step\":20,");
    disturb_no_more();
    assert_int_equal(lines_of_saves("timed", ""), 0);
    held_release();
    for (int waited_ms = 0; lines_of_saves("timed", "\"async\":true") < 2; waited_ms += 5) {
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
    hold("model.safetensors");
    JOB_START(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=1000",
              "train.checkpoint_seconds=1e-6", "train.log_steps=1", run_dir_argument("asked"));
    launcher_await_text(in_work("asked"), "metrics.jsonl", "\"step\":8,");
    disturb_no_more();
    ask_for_checkpoint(&ctl, "asked");
    assert_false(is_whole("asked", 1));
    held_release();
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
    hold("model.safetensors");
    JOB_START(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=5", "train.keep=0",
              "train.log_steps=1", run_dir_argument("waits"));
    launcher_await_text(in_work("waits"), "metrics.jsonl", "\"step\":10,");
    disturb_no_more();
    ask_for_checkpoint(&ctl, "waits");
    assert_false(is_whole("waits", 5));
    held_release();
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
    start_held(&job, "moved", "2", "model.safetensors");
    assert_int_equal(rename(in_work("moved"), in_work("kept")), 0);
    launcher_await_text(in_work("kept"), "metrics.jsonl", "\"step\":10,"); /* nothing waits yet */
    assert_false(is_whole("kept", 5));
    held_release();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "was removed or moved while the run was writing there");
    launcher_end(&job);
    assert_true(is_whole("kept", 5));
    assert_true(is_whole("moved", 12));
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
    setenv("CDDP_WORLD_SIZE", "4", 1);
    launcher_start_program(&job, launcher_path("src/cddp-train"),
                           (const char *const[]){"--dry-run", in_work("small.conf"), NULL});
    unsetenv("CDDP_WORLD_SIZE");
    launcher_wait(&job);
    assert_out(&job, " on the machine of rank 0: ");
    assert_out(&job, " of each of 4 ranks there, on GPUs all of rank 0's, from the first one on");
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
        cmocka_unit_test(ranks_share_out_a_checkpoint),
        cmocka_unit_test(training_goes_on_while_one_is_written),
        cmocka_unit_test(a_run_that_ends_waits_for_it),
        cmocka_unit_test(one_that_is_due_by_time_comes_after_the_one_that_is_written),
        cmocka_unit_test(who_asks_for_a_checkpoint_gets_a_later_one),
        cmocka_unit_test(who_asks_while_a_checkpoint_waits_gets_a_later_one),
        cmocka_unit_test(a_folder_that_is_moved_away_keeps_what_is_written_there),
        cmocka_unit_test(the_dry_run_says_what_a_copy_takes),
    };

    return cmocka_run_group_tests(tests, make_gan_work, remove_work);
}
