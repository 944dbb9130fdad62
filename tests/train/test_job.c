/* test_job.c - whole jobs as a user runs them: stopped, resumed, restarted, started by launchers
 * other than cddp-run, and the same for any number of ranks. */
#include "support/job.h"

enum { EPOCH_STEPS = 10 };

/* The same run without interruption, as far as step @p steps. Returns its folder. */
static const char *make_whole(unsigned long long steps)
{
    const char *run_dir = argument("whole-%llu", steps);
    struct launched job = {0};

    if (access(in_work("%s", run_dir), F_OK) != 0) {
        JOB_RUN_WELL(&job, "--nproc", "2", LONG_RUN, run_dir_argument(run_dir),
                     argument("train.max_steps=%llu", steps));
        launcher_end(&job);
    }
    return run_dir;
}

/* Start @p job on 2 ranks and stop it by @p number in the middle, after *out_step. Returns the
 * command that it says to go on with; release with free(). */
static char *stop_in_the_middle(struct launched *job, const char *run_dir, int number,
                                unsigned long long *out_step)
{
    static const char words[] = "; to continue: ";
    char *command;

    JOB_START(job, "--nproc=2", "--log-dir", "a folder of logs", LONG_RUN,
              run_dir_argument(run_dir),
              argument("train.sample_log=%s-log", in_work("%s", run_dir)));
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl", "\"step\":1,");
    *out_step = stop(job, run_dir, number);
    assert_out(job, words);
    command = strdup(strstr(job->out, words) + sizeof words - 1);
    command[strcspn(command, "\n")] = '\0';
    return command;
}

/* Run @p command by a shell in the folder of @p job, as far as step @p steps. */
static void run_command(struct launched *job, const char *command, unsigned long long steps)
{
    free(job->out);
    free(job->err);
    launcher_start_program(
        job, "sh",
        (const char *const[]){"-c", argument("%s train.max_steps=%llu", command, steps), NULL});
    launcher_wait(job);
    if (job->exit_status != 0) {
        fail_msg("%s: exit status %d: %s", command, job->exit_status, job->err);
    }
    assert_err(job, "continuing from ");
    assert_out(job, argument("after %llu steps", steps));
}

static void a_stopped_job_goes_on_by_the_command_it_prints(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1};
    static const char *const names[] = {"term it", "int it", "hup it", "quit it", "usr1 it"};

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct launched job = {0};
        unsigned long long step;
        char *command = stop_in_the_middle(&job, names[i], numbers[i], &step);

        run_command(&job, command, step + 25);
        assert_same_checkpoint(make_whole(step + 25), names[i], (int)step + 25);
        free(command);
        launcher_end(&job);
    }
}

/* Every sample of the first @p epochs epochs stands in the logs of three ranks once. */
static void assert_each_sample_once(const char *run_dir, int epochs)
{
    int *seen = calloc((size_t)epochs * TRAIN_SAMPLES, sizeof *seen);

    (void)count_samples(argument("%s-log", run_dir), 3, epochs, seen);
    for (int i = 0; i < epochs * TRAIN_SAMPLES; i++) {
        if (seen[i] != 1) {
            fail_msg("epoch %d: sample %d was taken %d times", i / TRAIN_SAMPLES, i % TRAIN_SAMPLES,
                     seen[i]);
        }
    }
    free(seen);
}

static void another_number_of_ranks_goes_on_with_the_same_samples(void **state)
{
    struct launched job = {0};
    unsigned long long step;
    char *command = stop_in_the_middle(&job, "three", SIGTERM, &step);
    char *nproc = strstr(command, "--nproc=2");
    int epochs = (int)step / EPOCH_STEPS + 3;
    int steps = epochs * EPOCH_STEPS;
    double whole;

    (void)state;
    assert_non_null(nproc);
    nproc[strlen("--nproc=")] = '3';
    run_command(&job, command, (unsigned long long)steps);
    assert_each_sample_once("three", epochs);
    whole = metric(make_whole((unsigned long long)steps), (uint64_t)steps, "eval_loss");
    assert_false(isnan(whole));
    assert_float_equal(metric("three", (uint64_t)steps, "eval_loss"), whole, 0.02 * whole + 1e-4);
    free(command);
    launcher_end(&job);
}

/* Kill rank 1 of a job that may be restarted, and wait until it trains again. Returns the rank. */
static pid_t kill_and_await_steps(struct launched *job, const char *run_dir)
{
    unsigned long long step = 0;
    char *text;
    pid_t pid;

    wait_for_checkpoint(job, run_dir);
    pid = find_rank(run_dir, 1);
    assert_true(pid > 0);
    kill(pid, SIGKILL);
    launcher_await_text(job->dir, "err", ": step "); /* where it goes on */
    text = launcher_read(job->dir, "err");
    assert_int_equal(sscanf(strstr(text, ": step "), ": step %llu", &step), 1);
    free(text);
    launcher_await_text_after(in_work("%s", run_dir), "metrics.jsonl", "\"generation\":1",
                              argument("\"step\":%llu,", step + 25));
    return pid;
}

static void a_job_whose_worker_dies_once_is_restarted_and_finishes(void **state)
{
    struct launched job = {0};
    unsigned long long step;
    pid_t pid;

    (void)state;
    JOB_START(&job, "--nproc", "2", "--max-restarts", "1", LONG_RUN, run_dir_argument("again"),
              "train.checkpoint_steps=20", "train.resume=auto");
    pid = kill_and_await_steps(&job, "again");
    step = stop(&job, "again", SIGTERM);
    assert_err(&job, argument("rank 1 (pid %d) was killed by signal 9 (SIGKILL)\n", (int)pid));
    assert_err(&job, "cddp-run: restarting (1 of 1)");
    assert_err(&job, "continuing from ");
    assert_same_checkpoint(make_whole(step), "again", (int)step);
    launcher_end(&job);
}

/* With train.resume left out, too: but only with what this job itself has saved. */
static void a_restart_goes_on_with_its_own_job_and_no_earlier_one(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_RUN_WELL(&job, "--nproc", "2", in_work("small.conf"), run_dir_argument("mine"),
                 "train.max_steps=7");
    launcher_end(&job);
    JOB_RUN_WELL(&job, "--nproc", "2", "--max-restarts", "1", "--", "sh", "-c",
                 argument("test $TORCHELASTIC_RESTART_COUNT = 1 && exec %s %s %s train.max_steps=3",
                          launcher_path("src/cddp-train"), in_work("small.conf"),
                          run_dir_argument("mine")));
    assert_null(strstr(job.err, "continuing from"));
    assert_int_equal(access(in_work("mine/earlier-1/checkpoints/step-%08d", 7), F_OK), 0);
    launcher_end(&job);
    JOB_START(&job, "--nproc", "2", "--max-restarts", "1", LONG_RUN, run_dir_argument("own"),
              "train.checkpoint_steps=20");
    (void)kill_and_await_steps(&job, "own");
    (void)stop(&job, "own", SIGTERM);
    assert_err(&job, "cddp-run: restarting (1 of 1)");
    assert_int_not_equal(access(in_work("own/earlier-1"), F_OK), 0);
    launcher_end(&job);
}

static void one_two_and_four_ranks_agree_and_two_runs_are_identical(void **state)
{
    static const char *const ranks[] = {"1", "2", "4", "4"};
    static const char *const dirs[] = {"n1", "n2", "n4", "n4-twin"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct launched job = {0};

        JOB_RUN_WELL(&job, "--nproc", ranks[i], in_work("small.conf"), run_dir_argument(dirs[i]));
        launcher_end(&job);
        for (uint64_t step = 1; step <= 30; step++) {
            double expected = metric("n1", step, "loss");

            assert_float_equal(metric(dirs[i], step, "loss"), expected, 1e-4 * expected + 1e-6);
        }
    }
    assert_same_checkpoint("n4", "n4-twin", 30);
}

static void a_second_run_puts_the_first_aside_and_says_so(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        launcher_end(&job);
        JOB_RUN_WELL(&job, "--nproc", "2", in_work("small.conf"), "--run-dir", in_work("twice"),
                     "train.max_steps=3");
    }
    assert_err(&job, argument("the earlier run in %s is now in %s/earlier-1\n", in_work("twice"),
                              in_work("twice")));
    assert_same_checkpoint("twice", "twice/earlier-1", 3);
    launcher_end(&job);
}

static void mpirun_starts_ranks_without_any_setting(void **state)
{
    struct launched job = {0};

    (void)state;
    if (system("command -v mpirun >/dev/null") != 0) {
        skip();
    }
    set_tmpdir();
    launcher_start_program(
        &job, "mpirun",
        (const char *const[]){"--allow-run-as-root", "--oversubscribe", "-n", "2",
                              argument("%s", launcher_path("src/cddp-train")),
                              in_work("small.conf"), run_dir_argument("mpi"), NULL});
    launcher_wait(&job);
    if (job.exit_status != 0) {
        fail_msg("mpirun: exit status %d: %s", job.exit_status, job.err);
    }
    assert_out(&job, "after 30 steps");
    assert_int_equal(launcher_count(job.out, "test accuracy"), 1);
    assert_float_equal(metric("mpi", 0, "world_size"), 2, 0);
    launcher_end(&job);
    assert_tmpdir_is_empty();
}

static void variables_of_torchrun_will_do(void **state)
{
    struct launched jobs_of[2] = {{0}, {0}};
    int port = support_free_port();

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        launcher_start_program(
            &jobs_of[rank], "env",
            (const char *const[]){argument("RANK=%d", rank), "WORLD_SIZE=2",
                                  "MASTER_ADDR=127.0.0.1", argument("MASTER_PORT=%d", port),
                                  argument("%s", launcher_path("src/cddp-train")),
                                  in_work("small.conf"), run_dir_argument("torchrun"), NULL});
    }
    for (int rank = 0; rank < 2; rank++) {
        launcher_wait(&jobs_of[rank]);
        if (jobs_of[rank].exit_status != 0) {
            fail_msg("rank %d: %s", rank, jobs_of[rank].err);
        }
    }
    assert_out(&jobs_of[0], "after 30 steps");
    assert_string_equal(jobs_of[1].out, "");
    assert_float_equal(metric("torchrun", 0, "world_size"), 2, 0);
    launcher_end(&jobs_of[0]);
    launcher_end(&jobs_of[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_job_goes_on_by_the_command_it_prints),
        cmocka_unit_test(another_number_of_ranks_goes_on_with_the_same_samples),
        cmocka_unit_test(a_job_whose_worker_dies_once_is_restarted_and_finishes),
        cmocka_unit_test(a_restart_goes_on_with_its_own_job_and_no_earlier_one),
        cmocka_unit_test(one_two_and_four_ranks_agree_and_two_runs_are_identical),
        cmocka_unit_test(a_second_run_puts_the_first_aside_and_says_so),
        cmocka_unit_test(mpirun_starts_ranks_without_any_setting),
        cmocka_unit_test(variables_of_torchrun_will_do),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
