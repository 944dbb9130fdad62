/* test_job_elastic.c - jobs on one machine that go on when ranks leave or die (cddp-run --elastic).
 * With train.micro_batch they end as a job that nobody disturbed, byte for byte. */
#include "support/job.h"
#include "support/same_bits.h"

#include <jansson.h>

/* A run that goes on until it is ended, with the same bits on any number of ranks. */
#define ELASTIC_RUN                                                                                \
    LONG_RUN, "train.micro_batch=8", "train.checkpoint_steps=10", "train.keep=100",                \
        "train.log_steps=1"

/* What metrics.jsonl says at the start of a generation. */
struct generation {
    int number, ranks;
    unsigned long long step; /* steps done before */
    char reason[256];
};

/* Find the line that begins generation @p number. */
static bool find_generation(const char *run_dir, int number, struct generation *out)
{
    char *text = launcher_read(in_work("%s", run_dir), "metrics.jsonl");
    char *rest = NULL;
    bool found = false;

    for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL; line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        const char *kind = json_string_value(json_object_get(object, "kind"));
        const char *reason = json_string_value(json_object_get(object, "reason"));

        if (kind != NULL && strcmp(kind, "run") == 0 &&
            json_integer_value(json_object_get(object, "generation")) == number) {
            found = true;
            out->number = number;
            out->ranks = (int)json_integer_value(json_object_get(object, "world_size"));
            out->step = (unsigned long long)json_integer_value(json_object_get(object, "step"));
            snprintf(out->reason, sizeof out->reason, "%s", reason != NULL ? reason : "");
        }
        json_decref(object);
    }
    free(text);
    return found;
}

/* Wait until generation @p number of @p job has done a step. */
static struct generation await_generation(struct launched *job, const char *run_dir, int number)
{
    struct generation generation = {.number = -1};

    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl",
                        argument("\"generation\":%d", number));
    while (!find_generation(run_dir, number, &generation)) { /* the line is being written */
        support_sleep_ms(2);
    }
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl",
                        argument("{\"step\":%llu,", generation.step + 1));
    assert_int_equal(waitpid(job->pid, NULL, WNOHANG), 0);
    return generation;
}

static void start_elastic(struct launched *job, const char *run_dir, const char *elastic,
                          const char *nproc)
{
    JOB_START(job, "--elastic", elastic, "--nproc", nproc, ELASTIC_RUN, run_dir_argument(run_dir));
    (void)await_generation(job, run_dir, 0);
}

static void signal_rank(const char *run_dir, int rank, int number)
{
    pid_t pid = find_rank(run_dir, rank);

    assert_true(pid > 0);
    assert_int_equal(kill(pid, number), 0);
}

/* The last step before generation @p number. */
static unsigned long long last_before(const char *run_dir, int number)
{
    char *text = launcher_read(in_work("%s", run_dir), "metrics.jsonl");
    char *end = strstr(text, argument("\"generation\":%d", number));
    unsigned long long step = 0;

    assert_non_null(end);
    *end = '\0';
    for (const char *at = text; (at = strstr(at, "\n{\"step\":")) != NULL; at++) {
        assert_int_equal(sscanf(at, "\n{\"step\":%llu", &step), 1);
    }
    free(text);
    return step;
}

/* End @p job, and compare what it leaves with a run of as many steps on 3 ranks that nobody
 * disturbed. */
static void assert_undisturbed(struct launched *job, const char *run_dir)
{
    struct launched whole = {0};
    const char *whole_dir = argument("whole-%s", run_dir);

    kill(job->pid, SIGTERM);
    launcher_wait(job);
    if (job->exit_status != 3) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
    assert_no_orphan(run_dir);
    JOB_RUN_WELL(&whole, "--nproc", "3", ELASTIC_RUN, run_dir_argument(whole_dir),
                 argument("train.max_steps=%d", last_step(run_dir)));
    assert_same_end_files(run_dir, whole_dir);
    launcher_end(&whole);
}

static void a_rank_that_leaves_costs_no_step(void **state)
{
    static const int numbers[] = {SIGTERM, SIGUSR1};
    struct launched job = {0};
    struct generation next;

    (void)state;
    start_elastic(&job, "leaves", "1:3", "3");
    for (int i = 0; i < 2; i++) {
        signal_rank("leaves", 1 - i, numbers[i]);
        next = await_generation(&job, "leaves", i + 1);
        assert_int_equal(next.ranks, 2 - i);
        assert_true(next.step == last_before("leaves", i + 1));
        launcher_need_text(next.reason, argument("rank %d leaves", 1 - i), "metrics.jsonl");
    }
    assert_undisturbed(&job, "leaves");
    assert_no_err(&job, "train.micro_batch");
    launcher_end(&job);
}

static void a_rank_that_dies_is_replaced(void **state)
{
    struct launched job = {0};
    struct generation next;

    (void)state;
    start_elastic(&job, "dies", "1:3", "3");
    wait_for_checkpoint(&job, "dies");
    signal_rank("dies", 2, SIGKILL);
    next = await_generation(&job, "dies", 1);
    assert_int_equal(next.ranks, 3);
    launcher_need_text(next.reason, "a rank failed", "metrics.jsonl");
    assert_undisturbed(&job, "dies");
    launcher_end(&job);
}

static void where_too_few_would_be_left_another_rank_comes(void **state)
{
    struct launched job = {0};
    struct generation next;

    (void)state;
    start_elastic(&job, "few", "2:3", "2");
    signal_rank("few", 0, SIGTERM);
    next = await_generation(&job, "few", 1);
    assert_int_equal(next.ranks, 2);
    assert_true(next.step == last_before("few", 1));
    launcher_need_text(next.reason, "rank 0 leaves, and another takes its place", "metrics.jsonl");
    assert_undisturbed(&job, "few");
    launcher_end(&job);
}

/* No rank can save while rank 0 stands still. */
static void two_ranks_leave_at_once(void **state)
{
    struct launched job = {0};

    (void)state;
    start_elastic(&job, "two", "1:3", "3");
    signal_rank("two", 0, SIGSTOP);
    signal_rank("two", 1, SIGTERM);
    support_sleep_ms(250); /* while members change, for which cddp-run has asked all ranks */
    signal_rank("two", 2, SIGTERM);
    signal_rank("two", 0, SIGCONT);
    assert_int_equal(await_generation(&job, "two", 1).ranks, 1);
    assert_undisturbed(&job, "two");
    launcher_end(&job);
}

static void a_rank_dies_while_another_leaves(void **state)
{
    struct launched job = {0};

    (void)state;
    start_elastic(&job, "both", "1:3", "3");
    wait_for_checkpoint(&job, "both");
    signal_rank("both", 0, SIGSTOP);
    signal_rank("both", 1, SIGTERM);
    signal_rank("both", 2, SIGKILL);
    signal_rank("both", 0, SIGCONT);
    assert_int_equal(await_generation(&job, "both", 1).ranks, 2);
    assert_undisturbed(&job, "both");
    launcher_end(&job);
}

static void a_job_that_is_asked_to_end_while_a_rank_leaves_saves_and_ends(void **state)
{
    struct launched job = {0};

    (void)state;
    start_elastic(&job, "end", "1:3", "3");
    signal_rank("end", 0, SIGSTOP);
    signal_rank("end", 1, SIGTERM);
    support_sleep_ms(300);
    kill(job.pid, SIGTERM);
    support_sleep_ms(50);
    if (find_rank("end", 0) > 0) {
        signal_rank("end", 0, SIGCONT);
    }
    assert_true(await_stop(&job, "end") >= 1);
    assert_no_orphan("end");
    launcher_end(&job);
}

/* Of two replicas of a pipeline, three ranks are not left. */
static void a_pipeline_leaves_as_a_whole(void **state)
{
    struct launched job = {0};
    struct launched whole = {0};

    (void)state;
    JOB_START(&job, "--elastic", "2:4", "--nproc", "4", ELASTIC_RUN, run_dir_argument("pipeline"),
              "parallel.pipeline=2");
    (void)await_generation(&job, "pipeline", 0);
    signal_rank("pipeline", 3, SIGTERM);
    assert_int_equal(await_generation(&job, "pipeline", 1).ranks, 2);
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    JOB_RUN_WELL(&whole, "--nproc", "4", ELASTIC_RUN, run_dir_argument("whole-pipeline"),
                 "parallel.pipeline=2", argument("train.max_steps=%d", last_step("pipeline")));
    assert_same_end_files("pipeline", "whole-pipeline");
    launcher_end(&whole);
    launcher_end(&job);
}

/* Without train.micro_batch, the job says what that means, once. */
static void a_job_says_once_that_bits_depend_on_ranks(void **state)
{
    struct launched job = {0};

    (void)state;
    JOB_START(&job, "--elastic", "1:3", "--nproc", "3", LONG_RUN, run_dir_argument("depends"));
    (void)await_generation(&job, "depends", 0);
    for (int i = 0; i < 2; i++) {
        signal_rank("depends", 0, SIGTERM);
        (void)await_generation(&job, "depends", i + 1);
    }
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    assert_err(&job, "the run goes on with 2 ranks instead of 3: without train.micro_batch, its "
                     "bits depend on the number of ranks");
    assert_int_equal(launcher_count(job.err, "train.micro_batch"), 1);
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_leaves_costs_no_step),
        cmocka_unit_test(a_rank_that_dies_is_replaced),
        cmocka_unit_test(where_too_few_would_be_left_another_rank_comes),
        cmocka_unit_test(two_ranks_leave_at_once),
        cmocka_unit_test(a_rank_dies_while_another_leaves),
        cmocka_unit_test(a_job_that_is_asked_to_end_while_a_rank_leaves_saves_and_ends),
        cmocka_unit_test(a_pipeline_leaves_as_a_whole),
        cmocka_unit_test(a_job_says_once_that_bits_depend_on_ranks),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
