/* test_full_disk.c - jobs whose disk is full when they end lose the least possible. */
#include "support/disk.h"
#include "support/job.h"

/* What is spared of a full disk: lines of metrics have room, and a checkpoint of 400 KiB has not.
 */
enum { SPARE_BYTES = 128 << 10 };

#define ON_DISK(name)                                                                              \
    "--nproc", "2", LONG_RUN, argument("train.run_dir=%s", in_work("%s/run", name)),               \
        "train.tensorboard=false", "train.log_steps=1000000", "train.resume=auto"

static void make_disk(const char *name, const char *size)
{
    assert_int_equal(mkdir(in_work("%s", name), 0700), 0);
    need_small_disk(in_work("%s", name), size);
}

/* A run on the disk @p name comes to step 10, with checkpoints of steps 5 and 10, as far as @p keep
 * lets them be; then the disk is full. */
static void fill_behind_ten_steps(const char *name, const char *keep)
{
    struct launched job = {0};

    make_disk(name, "4m");
    JOB_RUN_WELL(&job, ON_DISK(name), keep, "train.checkpoint_steps=5", "train.max_steps=10");
    launcher_end(&job);
    fill_disk(in_work("%s/filler", name), SPARE_BYTES);
}

static void end_disk(struct launched *job, const char *name)
{
    assert_no_orphan(name);
    launcher_end(job);
    assert_int_equal(umount2(in_work("%s", name), MNT_DETACH), 0);
}

static void a_full_disk_costs_no_older_checkpoint(void **state)
{
    struct launched job = {0};

    (void)state;
    fill_behind_ten_steps("once", "train.keep=1");
    JOB_START(&job, ON_DISK("once"), "train.keep=1", "train.checkpoint_steps=5");
    launcher_await_text(job.dir, "err", "No space left on device; a checkpoint takes about 0.4");
    launcher_await_text(job.dir, "err", " MiB are free; training goes on");
    kill(job.pid, SIGTERM);
    launcher_await_text(job.dir, "err", "Free disk space: retrying for 600 s");
    support_sleep_ms(1000); /* at once, it would be the same wish */
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_true(job.exit_status != 0 && job.exit_status != 3);
    launcher_end(&job);
    assert_int_equal(unlink(in_work("once/filler")), 0);
    JOB_RUN_WELL(&job, ON_DISK("once"), "train.max_steps=11");
    assert_err(&job, "checkpoints/step-00000010: step 10");
    assert_no_err(&job, "passed over");
    end_disk(&job, "once");
}

static void the_last_checkpoint_takes_the_room_of_an_older_one(void **state)
{
    struct launched job = {0};

    (void)state;
    fill_behind_ten_steps("older", "train.keep=3");
    JOB_RUN_WELL(&job, ON_DISK("older"), "train.keep=3", "train.max_steps=13");
    assert_err(&job, "checkpoints/step-00000005 is deleted for it\n");
    assert_int_equal(access(in_work("older/run/checkpoints/step-00000005"), F_OK), -1);
    assert_int_equal(access(in_work("older/run/checkpoints/step-00000010/state.json"), F_OK), 0);
    assert_int_equal(access(in_work("older/run/checkpoints/step-00000013/state.json"), F_OK), 0);
    end_disk(&job, "older");
}

static void the_last_checkpoint_waits_for_room(void **state)
{
    struct launched job = {0};

    (void)state;
    fill_behind_ten_steps("patient", "train.keep=1");
    JOB_START(&job, ON_DISK("patient"), "train.keep=1", "train.max_steps=13");
    launcher_await_text(job.dir, "err", "Free disk space: retrying for 600 s");
    assert_int_equal(unlink(in_work("patient/filler")), 0);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_int_equal(access(in_work("patient/run/checkpoints/step-00000013/state.json"), F_OK), 0);
    end_disk(&job, "patient");
}

static void a_signal_ends_the_waiting_for_room(void **state)
{
    struct launched job = {0};

    (void)state;
    make_disk("signal", "256k");
    JOB_START(&job, ON_DISK("signal"), "train.max_steps=3");
    launcher_await_text(job.dir, "err", "Free disk space: retrying for 600 s");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "cddp-train: rank 0: checkpoint of step 3: ");
    end_disk(&job, "signal");
}

static void who_does_not_want_to_wait_is_told_at_once(void **state)
{
    struct launched job = {0};

    (void)state;
    make_disk("hasty", "256k");
    JOB_START(&job, ON_DISK("hasty"), "train.max_steps=3", "train.full_disk_seconds=0");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_no_err(&job, "Make room");
    assert_err(&job, "cddp-train: rank 0: checkpoint of step 3: ");
    end_disk(&job, "hasty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_costs_no_older_checkpoint),
        cmocka_unit_test(the_last_checkpoint_takes_the_room_of_an_older_one),
        cmocka_unit_test(the_last_checkpoint_waits_for_room),
        cmocka_unit_test(a_signal_ends_the_waiting_for_room),
        cmocka_unit_test(who_does_not_want_to_wait_is_told_at_once),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
