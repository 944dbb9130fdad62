/* test_recovery_back.c - when a job goes on from its checkpoint, and not from what its ranks have
 * kept in memory: it is told to, the checkpoint is newer, the state may be the cause of the
 * failure, or there is no memory. */
#include "support/flipping.h"
#include "support/recovery.h"

static const char by_itself[] =
    "going back to the newest checkpoint: the run failed by itself, so its last state is not used";

static int make_failing_work(void **state)
{
    return make_same_bits_work(state) != 0 ? 1 : make_flipping();
}

static void kill_last_of_two(const char *run_dir)
{
    assert_true(recovery_kill(run_dir, 1));
}

#define RUN RECOVERY_RUN("mlp")
#define RESTARTED "--nproc", "2", "--max-restarts", "1000"

static void by_default_some_steps_at_most_are_lost(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, RESTARTED, RUN, run_dir_argument("default"));
    for (int i = 1; i <= 3; i++) {
        recovery_await_steps(&job, "default");
        kill_last_of_two("default");
        assert_true(recovery_step(&job, i) > 0);
    }
    recovery_await_steps(&job, "default");
    RECOVERY_COMPARE(&job, "default", RUN);
    launcher_end(&job);
}

static void who_wants_it_goes_on_from_a_checkpoint(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, RESTARTED, RUN, "train.recovery=checkpoint", "train.checkpoint_steps=10",
              run_dir_argument("checkpoint"));
    for (int i = 0; i < 2; i++) {
        wait_for_checkpoint(&job, "checkpoint");
        recovery_await_steps(&job, "checkpoint");
        kill_last_of_two("checkpoint");
        recovery_await_steps(&job, "checkpoint");
    }
    RECOVERY_COMPARE(&job, "checkpoint", RUN);
    assert_int_equal(launcher_count(job.err, "/checkpoints/step-"), 2);
    assert_no_err(&job, "from memory");
    assert_no_err(&job, "going back");
    launcher_end(&job);
}

static void without_a_checkpoint_it_begins_anew(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, RESTARTED, RUN, "train.recovery=checkpoint", run_dir_argument("anew"));
    recovery_await_steps(&job, "anew");
    kill_last_of_two("anew");
    launcher_await_text(job.dir, "err", "under generation 1");
    launcher_await_text(in_work("anew"), "metrics.jsonl", "\"generation\":1");
    recovery_await_steps(&job, "anew");
    RECOVERY_COMPARE(&job, "anew", RUN);
    assert_no_err(&job, "continuing from");
    launcher_end(&job);
}

/* A program that is cddp-train, in generation 1 with @p argument. */
static const char *changing_program(const char *argument_of_1)
{
    static int number;
    const char *name = argument("changing-%d", number++);

    launcher_write(in_work("."), name,
                   argument("#!/bin/sh\n[ $CDDP_GENERATION != 1 ] || set -- \"$@\" %s\n"
                            "exec %s \"$@\"\n",
                            argument_of_1, launcher_path("src/cddp-train")));
    return argument("%s", in_work("%s", name));
}

/* Generation 1 goes on from the checkpoint, keeps nothing and saves: what generation 0 has kept is
 * older when generation 2 comes. */
static void a_newer_checkpoint_wins(void **state)
{
    struct launched job = {0};
    unsigned long long kept, saved;

    (void)state;
    JOB_START(&job, RESTARTED, "--", changing_program("train.recovery=checkpoint"), RUN,
              "train.recovery=memory", "train.checkpoint_steps=50", "train.log_steps=1",
              run_dir_argument("newer"));
    wait_for_checkpoint(&job, "newer");
    recovery_await_steps(&job, "newer");
    kill_last_of_two("newer");
    kept = recovery_last_metric("newer");
    launcher_await_text(job.dir, "err", "/checkpoints/step-");
    do {
        recovery_await_steps(&job, "newer");
        saved = (unsigned long long)last_step("newer");
    } while (saved <= kept + 1);
    kill_last_of_two("newer");
    recovery_await_steps(&job, "newer");
    RECOVERY_COMPARE(&job, "newer", RUN);
    assert_int_equal(launcher_count(job.err, "/checkpoints/step-"), 2);
    assert_no_err(&job, "from memory");
    assert_no_err(&job, "going back");
    launcher_end(&job);
}

/* What is there is not the state of its own steps. */
static void a_run_with_another_seed_does_not_go_on_from_memory(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, RESTARTED, "--", changing_program("train.seed=5"), RUN, "train.recovery=memory",
              run_dir_argument("seed"));
    recovery_await_steps(&job, "seed");
    kill_last_of_two("seed");
    launcher_await_text(job.dir, "err", "under generation 1");
    launcher_await_text(in_work("seed"), "metrics.jsonl", "\"generation\":1");
    recovery_await_steps(&job, "seed");
    RECOVERY_COMPARE(&job, "seed", RUN, "train.seed=5");
    assert_no_err(&job, "from memory");
    assert_err(&job,
               "going back to the newest checkpoint: the run was configured anew, so its last "
               "state does not fit");
    launcher_end(&job);
}

/* There is no checkpoint, which would say what data it is of. */
static void nor_does_one_with_other_data(void **state)
{
    struct launched job = {0};
    size_t bytes;
    char *images = get_file(in_work("test-images"), &bytes);
    const char *other;

    (void)state;
    images[bytes - 1] ^= 64;
    support_write_file(in_work("other-images"), images, bytes);
    free(images);
    other = argument("data.train_images=\"%s\"", in_work("other-images"));
    JOB_START(&job, RESTARTED, "--", changing_program(argument("'%s'", other)),
              RECOVERY_RUN("augmented"), "train.recovery=memory", run_dir_argument("data"));
    recovery_await_steps(&job, "data");
    kill_last_of_two("data");
    launcher_await_text(in_work("data"), "metrics.jsonl", "\"generation\":1");
    recovery_await_steps(&job, "data");
    RECOVERY_COMPARE(&job, "data", RECOVERY_RUN("augmented"), other);
    assert_no_err(&job, "from memory");
    launcher_end(&job);
}

/* A bit flips after step 7, and the run fails by itself; restarted, it goes on from the checkpoint
 * of step @p saved, and ends as one in which no bit flips. */
static void fail_once(const char *name, const char *ranks, const char *flip, int saved,
                      const char *shards)
{
    struct launched job = {0};
    struct launched whole = {0};
    const char *whole_dir = argument("whole-%s", name);

    FLIP(&job, flip, name, "--nproc", ranks, "--max-restarts", "1", RUN, "train.recovery=memory",
         argument("train.checkpoint_steps=%d", saved), "train.max_steps=20",
         "train.check_replicas=3", "train.checkpoint_async=false", shards);
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_int_equal(launcher_count(job.err, by_itself), 1);
    assert_err(&job, argument("/checkpoints/step-%08d: step %d", saved, saved));
    assert_no_err(&job, "from memory");
    JOB_RUN_WELL(&whole, "--nproc", "1", RUN, "train.max_steps=20", run_dir_argument(whole_dir));
    assert_same_end_files(name, whole_dir);
    launcher_end(&whole);
    launcher_end(&job);
}

/* A weight becomes 1e38 or so. */
static void a_loss_that_is_no_number_goes_back_to_the_checkpoint(void **state)
{
    (void)state;
    fail_once("nan-alone", "1", "7 fc1.weight 5 30 0", 5, "ddp.shard_optimizer=true");
    fail_once("nan", "2", "7 fc1.weight 5 30 0,1", 5, "ddp.shard_optimizer=false");
    fail_once("nan-shards", "3", "7 fc1.weight 5 30 0,1,2", 5, "ddp.shard_optimizer=true");
}

/* The next comparison is that before the checkpoint of step 8. */
static void so_does_a_rank_whose_state_differs(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        fail_once(argument("differs-%d", rank), "3", argument("7 fc1.weight 5 22 %d", rank), 4,
                  "ddp.shard_optimizer=false");
    }
}

/* The loss is no number in each generation: there is no use in going on. */
static void a_run_that_always_fails_by_itself_is_given_up(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--nproc", "2", "--elastic", "1:2", RUN, "train.recovery=memory",
              "optimizer.lr=1e6", run_dir_argument("always"));
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "giving up");
    launcher_end(&job);
}

/* A larger model: the files of its checkpoint have 200 KB each, and one rank keeps 400 KB twice. */
#define LARGER RUN, "model.hidden=[192,192]", "train.log_steps=10"

/* @p job was started with a checkpoint every 20 steps: its ranks have nothing, or too little, to go
 * on from but that. The first generation warns of it. */
static void assert_has_no_memory(struct launched *job, const char *run_dir, const char *warning)
{
    wait_for_checkpoint(job, run_dir);
    recovery_await_steps(job, run_dir);
    assert_true(recovery_kill(run_dir, 0));
    recovery_await_steps(job, run_dir);
    RECOVERY_COMPARE(job, run_dir, LARGER);
    assert_int_equal(launcher_count(job->err, warning), 1);
    assert_int_equal(launcher_count(job->err, "/checkpoints/step-"), 1);
    assert_no_err(job, "from memory");
    launcher_end(job);
}

/* The first copy fits, but the second does not. */
static void where_memory_is_limited_a_checkpoint_is_enough(void **state)
{
    static const char warning[] =
        "cddp-train: warning: train.recovery: rank 0: memory that outlives a rank: File too large";
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--nproc", "1", "--max-restarts", "1000", "--", "sh", "-c",
              "ulimit -f 1000; exec \"$0\" \"$@\"", argument("%s", launcher_path("src/cddp-train")),
              LARGER, "train.recovery=memory", "train.checkpoint_steps=20",
              run_dir_argument("limited"));
    assert_has_no_memory(&job, "limited", warning);
}

/* One rank alone has none: no rank keeps anything. */
static void where_one_rank_has_no_memory_a_checkpoint_is_enough(void **state)
{
    static const char warning[] = "train.recovery: rank 2: the launcher holds no memory for it; so "
                                  "a rank that is lost costs the steps since the newest checkpoint";
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--nproc", "3", "--max-restarts", "1000", "--", "sh", "-c",
              "[ $RANK != 2 ] || unset CDDP_KEEP_FDS; exec \"$0\" \"$@\"",
              argument("%s", launcher_path("src/cddp-train")), LARGER, "train.recovery=memory",
              "train.checkpoint_steps=20", run_dir_argument("one-without"));
    assert_has_no_memory(&job, "one-without", warning);
}

static void where_a_launcher_has_no_memory_a_checkpoint_is_enough(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(
        &job, launcher_path("tests/launcher_rank"),
        (const char *const[]){"no-memfd", argument("%s", launcher_path("launcher/cddp-run")),
                              "--nproc", "1", "--max-restarts", "1000", LARGER,
                              "train.recovery=memory", "train.checkpoint_steps=20",
                              run_dir_argument("without"), NULL});
    for (int waited_ms = 0; recovery_last_metric("without") == 0; waited_ms += 5) {
        siginfo_t ended = {.si_pid = 0};

        assert_int_equal(waitid(P_PID, (id_t)job.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        if (ended.si_pid != 0 && ended.si_status == 77) {
            launcher_end(&job);
            print_message("skipped: no program may filter its calls here\n");
            skip();
        }
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(5);
    }
    assert_has_no_memory(&job, "without", "no memory outlives the ranks here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_default_some_steps_at_most_are_lost),
        cmocka_unit_test(who_wants_it_goes_on_from_a_checkpoint),
        cmocka_unit_test(without_a_checkpoint_it_begins_anew),
        cmocka_unit_test(a_newer_checkpoint_wins),
        cmocka_unit_test(a_run_with_another_seed_does_not_go_on_from_memory),
        cmocka_unit_test(nor_does_one_with_other_data),
        cmocka_unit_test(a_loss_that_is_no_number_goes_back_to_the_checkpoint),
        cmocka_unit_test(so_does_a_rank_whose_state_differs),
        cmocka_unit_test(a_run_that_always_fails_by_itself_is_given_up),
        cmocka_unit_test(where_memory_is_limited_a_checkpoint_is_enough),
        cmocka_unit_test(where_one_rank_has_no_memory_a_checkpoint_is_enough),
        cmocka_unit_test(where_a_launcher_has_no_memory_a_checkpoint_is_enough),
    };

    return cmocka_run_group_tests(tests, make_failing_work, remove_work);
}
