/* test_save_behind_faults.c - what happens before a checkpoint in the background is whole costs
 * nothing but that one: kills, errors of the disk, a disk that hangs, and no memory for the copy.
 */
#include "base/alloc.h"
#include "support/held_save.h"
#include "train/trainer.h"

#include <errno.h>

/* With one rank, no other wait of the run has this limit. */
static void a_disk_that_takes_nothing_ends_the_run_after_its_limit(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold("model.safetensors");
    JOB_START(&job, "--nproc", "1", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.max_steps=8", "train.timeout=3", run_dir_argument("hung"));
    disturb_no_more();
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "checkpoint of step 5: the disk has taken nothing for 3 s (train.timeout)");
    launcher_end(&job);
    assert_false(is_whole("hung", 5) || is_whole("hung", 8));
}

/* Rank 0 does not hang because of a checkpoint: others wait for its end. */
static void a_failing_run_does_not_wait_for_ever(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold("model.safetensors");
    JOB_START(&job, "--nproc", "2", "--grace", "300", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.log_steps=1", run_dir_argument("left"));
    launcher_await_text(in_work("left"), "metrics.jsonl", "\"step\":8,");
    disturb_no_more();
    kill(find_rank("left", 1), SIGKILL);
    launcher_wait(&job);
    assert_true(job.exit_status != 0);
    assert_err(&job, "warning: the run waits with its end until the checkpoint of step 5 is ");
    assert_no_err(&job, "did not end within");
    launcher_end(&job);
    assert_false(is_whole("left", 5));
}

/* The others keep their processes, but the thread that writes must not reach the next generation.
 */
static void a_process_whose_thread_still_writes_does_not_stay(void **state)
{
    struct launched job = {0};
    pid_t rank_0, rank_2;

    (void)state;
    NEED_HELD_CALLS();
    hold("model.safetensors");
    JOB_START(&job, "--nproc", "3", "--max-restarts", "1", "--grace", "300", LONG_RUN, BEHIND,
              "train.recovery=memory", "train.checkpoint_steps=5", "train.log_steps=1",
              run_dir_argument("thread"));
    launcher_await_text(in_work("thread"), "metrics.jsonl", "\"step\":8,");
    disturb_no_more();
    rank_0 = find_rank("thread", 0);
    rank_2 = find_rank("thread", 2);
    kill(find_rank("thread", 1), SIGKILL);
    launcher_await_text_after(in_work("thread"), "metrics.jsonl", "\"generation\":1", "\"loss\"");
    assert_true(launcher_is_gone(rank_0));
    assert_int_equal(find_rank("thread", 2), rank_2);
    held_release();
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    launcher_end(&job);
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

        run_unheld(plain, ranks[i]);
        JOB_RUN_WELL(&job, "--nproc", ranks[i], LONG_RUN, "train.max_steps=3",
                     run_dir_argument(name));
        launcher_end(&job);
        hold("model.safetensors");
        JOB_START(&job, "--nproc", ranks[i], LONG_RUN, BEHIND, "train.checkpoint_steps=5",
                  "train.log_steps=1", "train.resume=auto", "train.max_steps=12",
                  run_dir_argument(name));
        launcher_await_text(in_work("%s", name), "metrics.jsonl", "\"step\":8,");
        disturb_no_more();
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

/* Rank 0 learns of the death of another one when its thread may go on, not seconds before. */
static void kill_rank_and_release(const char *run_dir, int rank)
{
    pid_t writer = find_rank(run_dir, 0);
    pid_t pid = find_rank(run_dir, rank);

    assert_true(writer > 0 && pid > 0);
    kill(writer, SIGSTOP);
    kill(pid, SIGKILL);
    if (rank != 0) {
        held_release();
        kill(writer, SIGCONT);
    }
}

/* Another rank dies: rank 0 completes what it is writing before it ends. */
static void a_failing_run_completes_it(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "failing", "2", "model.safetensors");
    kill_rank_and_release("failing", 1);
    launcher_wait(&job);
    assert_true(job.exit_status != 0);
    launcher_end(&job);
    assert_true(is_whole("failing", 5));
    assert_int_equal(lines_of_saves("failing", "\"async\":true"), 1);
}

static void a_failure_is_told_and_costs_only_that_one(void **state)
{
    static const struct {
        const char *path;
        int error;
        const char *flushes; /* NULL: it cannot be opened, or not get that name */
    } faults[] = {
        {"model.safetensors", EIO, NULL},     {"optimizer.safetensors", ENOSPC, NULL},
        {"state.json", EACCES, NULL},         {"step-00000005", EROFS, NULL},
        {"model.safetensors", ENOSPC, "yes"}, {"optimizer.safetensors", EIO, "yes"},
    };
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    run_unheld("sound", "2");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const char *name = argument("failed-%zu", i);

        disturb("FAILING_PATH", faults[i].path);
        disturb("FAILING_CALLS", "1");
        support_setenv_number("FAILING_ERRNO", faults[i].error);
        if (faults[i].flushes != NULL) {
            disturb("FAILING_FLUSHES", faults[i].flushes);
        }
        JOB_RUN_WELL(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
                     "train.max_steps=12", run_dir_argument(name));
        disturb_no_more();
        assert_err(&job, "cddp-train: warning: checkpoint of step 5: ");
        assert_err(&job, strerror(faults[i].error));
        assert_err(&job, "; training goes on\n");
        launcher_end(&job);
        assert_false(is_whole(name, 5));
        assert_int_equal(lines_of_saves(name, "\"async\":true"), 1);
        assert_same_checkpoint("sound", name, 10);
        assert_same_checkpoint("sound", name, 12);
    }
}

/* Those of steps 10 and 11 fail: who asked while that of step 5 was written wants that of 11. */
static void who_asks_for_one_that_fails_is_told_so(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};

    (void)state;
    NEED_HELD_CALLS();
    hold("model.safetensors");
    disturb("FAILING_PATH", "model.safetensors");
    disturb("SPARED_CALLS", "1");
    disturb("FAILING_CALLS", "2");
    support_setenv_number("FAILING_ERRNO", EIO);
    JOB_START(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.log_steps=1", run_dir_argument("unsaved"));
    launcher_await_text(in_work("unsaved"), "metrics.jsonl", "\"step\":10,");
    disturb_no_more();
    ask_for_checkpoint(&ctl, "unsaved");
    assert_false(is_whole("unsaved", 5));
    held_release();
    launcher_wait(&ctl);
    assert_int_equal(ctl.exit_status, 1);
    assert_err(&ctl, "the checkpoint could not be written: the job has printed why, and goes on");
    launcher_end(&ctl);
    (void)stop(&job, "unsaved", SIGTERM);
    assert_int_equal(launcher_count(job.err, "Input/output error; training goes on\n"), 2);
    launcher_end(&job);
    assert_true(is_whole("unsaved", 5));
    assert_false(is_whole("unsaved", 10) || is_whole("unsaved", 11));
}

/* The whole copy is larger than what is left. */
static void without_memory_for_a_copy_training_waits(void **state)
{
    static const char *const modes[] = {"train.checkpoint_async=true",
                                        "train.checkpoint_async=auto"};
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    support_write_file(in_work("meminfo"), "MemAvailable: 100 kB\n", 21);
    setenv("REPLACED_BY", in_work("meminfo"), 1);
    run_unheld("rich", "2");
    for (int i = 0; i < 2; i++) {
        const char *name = argument("poor-%d", i);

        disturb("REPLACED_PATH", "/proc/meminfo");
        JOB_RUN_WELL(&job, "--nproc", "2", LONG_RUN, modes[i], "train.checkpoint_seconds=0",
                     "train.keep=0", "train.checkpoint_steps=5", "train.max_steps=12",
                     run_dir_argument(name));
        disturb_no_more();
        assert_int_equal(launcher_count(job.err, "so training waits until each checkpoint is "
                                                 "written"),
                         i == 0);
        launcher_end(&job);
        assert_int_equal(lines_of_saves(name, "\"async\":false"), 3);
        for (int step = 5; step <= 10; step += 5) {
            assert_same_checkpoint("rich", name, step);
        }
        assert_same_checkpoint("rich", name, 12);
    }
}

static void an_allocation_that_fails_leaves_it_to_the_caller(void **state)
{
    static float data[300];
    const cddp_tensor tensor = {.name = "w", .dims = 1, .shape = {300}, .data = data};
    const struct cddpi_config config = {.train.checkpoint_async = CDDPI_ASYNC_TRUE};
    struct cddpi_trainer trainer = {.config = &config};
    cddp_snapshot snapshot = CDDP_SNAPSHOT_INIT;
    bool has_begun = false;
    unsigned nth = 0;

    (void)state;
    trainer.folder.checkpoints = (char *)(uintptr_t)in_work("allocations");
    snapshot.model = &tensor;
    snapshot.model_count = 1;
    snapshot.state_json = "{}";
    while (!has_begun) {
        cddp_status status;

        cddpi_snapshot_copy_release(&trainer.behind.copy);
        cddpi_alloc_fail_nth(++nth);
        status = cddpi_save_behind_begin(&trainer, &snapshot, NULL, 0, 1, &has_begun);
        cddpi_alloc_fail_nth(0);
        assert_int_equal(status, CDDP_OK);
        assert_int_equal(has_begun, trainer.behind.saving != NULL);
        assert_true(nth < 100);
    }
    assert_true(nth > 3); /* the copy, the handle, and a name have failed */
    cddp_saving_destroy(trainer.behind.saving);
    cddpi_snapshot_copy_release(&trainer.behind.copy);
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

/* Start or go on with a run of 12 steps. */
static void go_on(struct launched *job, const char *run_dir, const char *ranks)
{
    JOB_START(job, "--nproc", ranks, LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.resume=auto", "train.max_steps=12", run_dir_argument(run_dir));
}

/* In each call of the thread that changes files: the run goes on from what is whole, to the same
 * end. */
static void rank_0_can_be_killed_at_any_moment(void **state)
{
    struct launched job = {0};
    int kills = 0;

    (void)state;
    NEED_HELD_CALLS();
    run_unheld("calm", "2");
    for (bool is_done = false; !is_done;) {
        disturb("KILLED_CALL", argument("%d", kills + 1));
        go_on(&job, "killed", "2");
        disturb_no_more();
        launcher_wait(&job);
        assert_no_err(&job, "passed over");
        is_done = job.exit_status == 0;
        if (!is_done) {
            assert_int_equal(job.exit_status, 128 + SIGKILL);
            kills++;
        }
        launcher_end(&job);
        assert_true(kills < 100);
    }
    assert_true(kills > 10); /* two folders, three files: made, written, flushed, and named */
    for (int step = 5; step <= 10; step += 5) {
        assert_same_checkpoint("calm", "killed", step);
    }
    assert_same_checkpoint("calm", "killed", 12);
}

/* While each of the files is written. If it was not rank 0, the checkpoint becomes whole. */
static void any_rank_can_be_killed_meanwhile(void **state)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    run_unheld("quiet", "3");
    for (int file = 0; file < 3; file++) {
        for (int rank = 0; rank < 3; rank++) {
            const char *name = argument("meanwhile-%d-%d", file, rank);

            start_held(&job, name, "3", files[file]);
            kill_rank_and_release(name, rank);
            launcher_wait(&job);
            assert_int_equal(job.exit_status, 128 + SIGKILL);
            launcher_end(&job);
            assert_int_equal(is_whole(name, 5), rank != 0);
            go_on(&job, name, "3");
            launcher_wait(&job);
            assert_int_equal(job.exit_status, 0);
            assert_no_err(&job, "passed over");
            launcher_end(&job);
            assert_same_checkpoint("quiet", name, 5);
            assert_same_checkpoint("quiet", name, 12);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_takes_nothing_ends_the_run_after_its_limit),
        cmocka_unit_test(a_failing_run_does_not_wait_for_ever),
        cmocka_unit_test(a_process_whose_thread_still_writes_does_not_stay),
        cmocka_unit_test(a_crash_leaves_the_one_before),
        cmocka_unit_test(a_failing_run_completes_it),
        cmocka_unit_test(a_failure_is_told_and_costs_only_that_one),
        cmocka_unit_test(who_asks_for_one_that_fails_is_told_so),
        cmocka_unit_test(without_memory_for_a_copy_training_waits),
        cmocka_unit_test(an_allocation_that_fails_leaves_it_to_the_caller),
        cmocka_unit_test(a_parameter_that_is_not_finite_is_told_and_not_written),
        cmocka_unit_test(rank_0_can_be_killed_at_any_moment),
        cmocka_unit_test(any_rank_can_be_killed_meanwhile),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
