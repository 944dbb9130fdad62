/* test_job_stop.c - jobs that are asked to end, in every way: the trained state is saved, and a
 * caller can tell that the run is not finished. */
#include "support/job.h"

#include <pty.h>

static void a_terminal_that_is_closed_costs_no_step(void **state)
{
    const char *program = launcher_path("launcher/cddp-run");
    struct launched job = {0};
    unsigned long long step = 0;
    char *latest;
    int status;
    int fd;

    (void)state;
    fflush(NULL);
    job.pid = forkpty(&fd, NULL, NULL, NULL);
    if (job.pid == 0) {
        signal(SIGHUP, SIG_DFL);
        alarm(SUPPORT_LIMIT_S); /* ends the launcher, and so all of them */
        execl(program, program, "--nproc", "2", LONG_RUN, run_dir_argument("terminal"),
              (char *)NULL);
        _exit(98);
    }
    assert_true(job.pid > 0);
    launcher_await_text(in_work("terminal"), "metrics.jsonl", "\"step\":1,");
    close(fd);
    assert_int_equal(waitpid(job.pid, &status, 0), job.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    latest = launcher_read(in_work("terminal/checkpoints"), "latest");
    assert_non_null(latest);
    assert_int_equal(sscanf(latest, "step-%llu", &step), 1);
    assert_true(step >= 1);
    free(latest);
    assert_no_orphan("terminal");
}

/* Start a run on 2 ranks that saves at its end only, with @p restarts, and send SIGTERM to rank 1
 * alone once it trains. */
static void start_and_term_rank(struct launched *job, const char *run_dir, const char *restarts)
{
    pid_t pid;

    JOB_START(job, "--nproc", "2", "--max-restarts", restarts, LONG_RUN, run_dir_argument(run_dir));
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl", "\"step\":1,");
    pid = find_rank(run_dir, 1);
    assert_true(pid > 0);
    kill(pid, SIGTERM);
}

static void a_signal_asks_for_a_checkpoint_and_the_run_goes_on(void **state)
{
    struct launched job = {0};
    unsigned long long step = 0;
    char *latest;
    pid_t pid;

    (void)state;
    JOB_START(&job, "--nproc", "2", LONG_RUN, "train.checkpoint_seconds=0",
              run_dir_argument("goes_on"));
    launcher_await_text(in_work("goes_on"), "metrics.jsonl", "\"step\":1,");
    pid = find_rank("goes_on", 0);
    assert_true(pid > 0);
    kill(pid, SIGURG);
    launcher_await_text(in_work("goes_on/checkpoints"), "latest", "step-");
    latest = launcher_read(in_work("goes_on/checkpoints"), "latest");
    assert_int_equal(sscanf(latest, "step-%llu", &step), 1);
    free(latest);
    assert_true(stop(&job, "goes_on", SIGTERM) > step);
    launcher_end(&job);
}

static void a_signal_to_one_rank_alone_is_no_success(void **state)
{
    struct launched job = {0};

    (void)state;
    start_and_term_rank(&job, "alone", "0");
    assert_true(await_stop(&job, "alone") >= 1);
    assert_err(&job,
               "cddp-run: the job stopped early, with a checkpoint: a signal asked a rank to end");
    launcher_end(&job);
}

static void a_signal_to_one_rank_alone_is_a_reason_to_restart(void **state)
{
    struct launched job = {0};
    unsigned long long first = 0;
    unsigned long long step;
    char *text;

    (void)state;
    start_and_term_rank(&job, "restarted", "1");
    launcher_await_text(job.dir, "err", ": step "); /* where the second generation goes on */
    text = launcher_read(job.dir, "err");
    assert_int_equal(sscanf(strstr(text, ": step "), ": step %llu", &first), 1);
    free(text);
    launcher_await_text(in_work("restarted"), "metrics.jsonl",
                        argument("\"step\":%llu,", first + 1));
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    text = strstr(job.out, "stopped after step ");
    assert_non_null(text); /* the second generation's; that of the first went on */
    assert_null(strstr(text + 1, "stopped after step "));
    assert_int_equal(sscanf(text, "stopped after step %llu", &step), 1);
    assert_true(step > first);
    assert_err(&job, "cddp-run: restarting (1 of 1)");
    launcher_end(&job);
}

/* Rank 0 cannot save, since rank 1 stands still, when it is asked again, with all others. */
static void a_rank_that_was_asked_alone_still_saves_when_all_are_asked(void **state)
{
    struct launched job = {0};
    pid_t ranks[2];

    (void)state;
    JOB_START(&job, "--nproc", "2", LONG_RUN, run_dir_argument("twice"));
    launcher_await_text(in_work("twice"), "metrics.jsonl", "\"step\":1,");
    for (int rank = 0; rank < 2; rank++) {
        ranks[rank] = find_rank("twice", rank);
        assert_true(ranks[rank] > 0);
    }
    assert_int_equal(kill(ranks[1], SIGSTOP), 0);
    assert_int_equal(kill(ranks[0], SIGTERM), 0);
    support_sleep_ms(300); /* so that it is no part of the same request */
    assert_true(stop(&job, "twice", SIGTERM) >= 1);
    launcher_end(&job);
}

/* 10,000 batches of one sample on each rank, through a large model: nobody can be too late to stop
 * it. */
static void an_evaluation_is_abandoned_when_the_job_is_asked_to_stop(void **state)
{
    struct launched job = {0};
    char *metrics;

    (void)state;
    JOB_START(&job, "--nproc", "2", in_work("small.conf"), run_dir_argument("evaluates"),
              "data.type=synthetic", "data.samples=200000", "data.image=[1,8,8]",
              "model.hidden=[1536,1536]", "train.eval_steps=1", "train.eval_batch_size=2",
              "train.log_steps=1");
    launcher_await_text(in_work("evaluates"), "metrics.jsonl", "\"step\":1,");
    assert_int_equal(stop(&job, "evaluates", SIGTERM), 1);
    metrics = launcher_read(in_work("evaluates"), "metrics.jsonl");
    assert_null(strstr(metrics, "eval_loss"));
    free(metrics);
    launcher_end(&job);
}

/* Says every 50 ms that it is at work, until it has said so for longer than the others may take. */
static const char reporter[] =
    "trap 'asked=1' TERM; echo up; while [ -z \"$asked\" ]; do sleep 0.05; done; "
    "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
    "printf w >&$CDDP_REPORT_FD; sleep 0.05; done; echo saved; exit 3";

static void a_rank_that_says_that_it_saves_is_given_time(void **state)
{
    struct launched job = {0};

    (void)state;
    /* bash, since not every sh takes a descriptor's number from a variable */
    JOB_START(&job, "--nproc", "1", "--grace", "0.2", "--", "bash", "-c", reporter);
    launcher_await_text(job.dir, "out", "up");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    if (strstr(job.out, "saved") == NULL || job.exit_status != 3) {
        /* asleep for longer than three times the grace: then it is right to be killed */
        assert_err(&job, "did not end within");
        skip();
    }
    launcher_end(&job);
}

static void a_rank_that_ends_before_it_joins_is_told_to_the_others(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int early = 0; early < 3; early++) {
        JOB_START(&job, "--nproc", "3", "--timeout", "10000", "--", "sh", "-c",
                  argument("[ $CDDP_RANK = %d ] || exec %s %s %s", early,
                           launcher_path("src/cddp-train"), in_work("small.conf"),
                           run_dir_argument("early")));
        launcher_wait(&job);
        assert_int_equal(job.exit_status, 1);
        assert_err(&job, argument("rank %d ended", early));
        launcher_end(&job);
        memset(&job, 0, sizeof job);
    }
}

static void a_job_that_only_fails_is_given_up(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--nproc", "1", "--max-restarts", "100", "--", "false");
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_int_equal(launcher_count(job.err, "cddp-run: restarting ("), 4);
    assert_err(&job, "cddp-run: giving up, with 96 restarts left: 5 times in a row the job failed "
                     "within 20 s and without a checkpoint");
    launcher_end(&job);
}

static void a_stopped_supervisor_whose_launcher_is_killed_leaves_nothing(void **state)
{
    struct launched job = {0};
    siginfo_t ended;
    pid_t rank;
    char path[64];
    FILE *file;
    int supervisor = 0;

    (void)state;
    JOB_START(&job, "--nproc", "2", LONG_RUN, run_dir_argument("orphans"));
    launcher_await_text(in_work("orphans"), "metrics.jsonl", "\"step\":1,");
    rank = find_rank("orphans", 0);
    assert_true(rank > 0);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)rank);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %*c %d", &supervisor), 1);
    fclose(file);
    assert_int_equal(kill(supervisor, SIGSTOP), 0);
    kill(job.pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)job.pid, &ended, WEXITED | WNOWAIT), 0);
    assert_no_orphan("orphans");
    launcher_wait(&job);
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_that_is_closed_costs_no_step),
        cmocka_unit_test(a_signal_asks_for_a_checkpoint_and_the_run_goes_on),
        cmocka_unit_test(a_signal_to_one_rank_alone_is_no_success),
        cmocka_unit_test(a_signal_to_one_rank_alone_is_a_reason_to_restart),
        cmocka_unit_test(a_rank_that_was_asked_alone_still_saves_when_all_are_asked),
        cmocka_unit_test(an_evaluation_is_abandoned_when_the_job_is_asked_to_stop),
        cmocka_unit_test(a_rank_that_says_that_it_saves_is_given_time),
        cmocka_unit_test(a_rank_that_ends_before_it_joins_is_told_to_the_others),
        cmocka_unit_test(a_job_that_only_fails_is_given_up),
        cmocka_unit_test(a_stopped_supervisor_whose_launcher_is_killed_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
