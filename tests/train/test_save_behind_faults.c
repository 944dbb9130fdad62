/* test_save_behind_faults.c - what happens before a checkpoint in the background is whole costs
 * nothing but that one: kills, errors of the disk, a disk that hangs, and no memory for the copy.
 */
#include "support/held_save.h"

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

/* Another rank dies: rank 0 completes what it is writing before it ends. */
static void a_failing_run_completes_it(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    start_held(&job, "failing", "2", "model.safetensors");
    kill(find_rank("failing", 1), SIGKILL);
    launcher_await_text(job.dir, "err", "rank 1");
    held_release();
    launcher_wait(&job);
    assert_true(job.exit_status != 0);
    launcher_end(&job);
    assert_true(is_whole("failing", 5));
    assert_int_equal(lines_of_saves("failing", "\"async\":true"), 1);
}

static void a_failure_is_told_and_costs_only_that_one(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_HELD_CALLS();
    disturb("FAILING_PATH", "model.safetensors");
    disturb("FAILING_CALLS", "1");
    support_setenv_number("FAILING_ERRNO", EIO);
    JOB_RUN_WELL(&job, "--nproc", "2", LONG_RUN, BEHIND, "train.checkpoint_steps=5",
                 "train.max_steps=12", run_dir_argument("failed"));
    disturb_no_more();
    assert_err(&job, "cddp-train: warning: checkpoint of step 5: ");
    assert_err(&job, "Input/output error; training goes on\n");
    launcher_end(&job);
    assert_false(is_whole("failed", 5));
    assert_true(is_whole("failed", 10) && is_whole("failed", 12));
    assert_int_equal(lines_of_saves("failed", "\"async\":true"), 1);
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

/* A rank, or all, at any moment: the run goes on from what is whole, to the same end. */
static void ranks_can_be_killed_at_any_moment(void **state)
{
    struct launched job = {0};
    int rounds = 0;

    (void)state;
    run_unheld("calm", "3");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_takes_nothing_ends_the_run_after_its_limit),
        cmocka_unit_test(a_failing_run_does_not_wait_for_ever),
        cmocka_unit_test(a_crash_leaves_the_one_before),
        cmocka_unit_test(a_failing_run_completes_it),
        cmocka_unit_test(a_failure_is_told_and_costs_only_that_one),
        cmocka_unit_test(a_parameter_that_is_not_finite_is_told_and_not_written),
        cmocka_unit_test(ranks_can_be_killed_at_any_moment),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
