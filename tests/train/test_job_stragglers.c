/* test_job_stragglers.c - a rank of a real job is made slow: cddp-run names it, cddp-ctl shows it,
 * and it is replaced without any effect on what the run leaves behind. */
#include "support/fleet.h"
#include "support/job.h"
#include "support/same_bits.h"

#include <jansson.h>
#include <poll.h>
#include <sys/syscall.h>

/* A run that goes on until it is ended, with the same bits on any number of ranks. */
#define STRAGGLER_RUN LONG_RUN, "train.micro_batch=8", "train.checkpoint_seconds=0"

enum { STOPPED_MS = 90, RUNS_MS = 10 };

/* A process that lets a rank run for only a tenth of the time. */
struct brake {
    pid_t pid;
    int hold; /* closed: the process ends */
};

/* Stop the process and let it go on, until it has ended or nobody holds the other end of @p held.
 */
static void brake_process(int process, int held)
{
    struct pollfd end = {held, POLLIN, 0};
    bool is_over = false;

    while (!is_over && syscall(SYS_pidfd_send_signal, process, SIGSTOP, NULL, 0) == 0) {
        is_over = poll(&end, 1, STOPPED_MS) != 0;
        (void)syscall(SYS_pidfd_send_signal, process, SIGCONT, NULL, 0);
        is_over = is_over || poll(&end, 1, RUNS_MS) != 0;
    }
}

static struct brake start_brake(const char *run_dir, int rank)
{
    pid_t rank_pid = find_rank(run_dir, rank);
    int process = rank_pid > 0 ? (int)syscall(SYS_pidfd_open, rank_pid, 0) : -1;
    struct brake brake;
    int ends[2];

    assert_true(process >= 0);
    assert_int_equal(find_rank(run_dir, rank), rank_pid); /* the descriptor is that rank's */
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    brake.pid = fork();
    assert_true(brake.pid >= 0);
    if (brake.pid == 0) {
        close(ends[1]);
        brake_process(process, ends[0]);
        _exit(0);
    }
    close(process);
    close(ends[0]);
    brake.hold = ends[1];
    return brake;
}

static void end_brake(const struct brake *brake)
{
    close(brake->hold);
    assert_int_equal(waitpid(brake->pid, NULL, 0), brake->pid);
}

/* Whether this answer of cddp-ctl shows the rank as a straggler. */
static bool shows_text(const char *out, int rank)
{
    return strstr(out, argument("  straggler: rank %d, ", rank)) != NULL;
}

static bool shows_json(const char *out, int rank)
{
    json_t *status = json_loads(out, 0, NULL);
    json_t *first = json_array_get(json_object_get(status, "stragglers"), 0);
    bool is_shown = first != NULL;

    if (is_shown) {
        assert_int_equal(json_integer_value(json_object_get(first, "rank")), rank);
        assert_true(json_number_value(json_object_get(first, "factor")) >= 2);
        assert_true(json_integer_value(json_object_get(first, "seconds")) >= 2);
        assert_non_null(json_object_get(first, "cause"));
    }
    json_decref(status);
    return is_shown;
}

/* Ask cddp-ctl for the status until @p shows finds the rank in it. */
static void await_shown(const char *option, const char *run_dir, int rank,
                        bool (*shows)(const char *out, int rank))
{
    bool is_shown = false;

    for (int waited_ms = 0; !is_shown; waited_ms += 50) {
        struct launched ctl = {0};

        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        launcher_start_program(
            &ctl, launcher_path("launcher/cddp-ctl"),
            (const char *const[]){option, in_work("%s", run_dir), "status", NULL});
        launcher_wait(&ctl);
        assert_int_equal(ctl.exit_status, 0);
        is_shown = shows(ctl.out, rank);
        launcher_end(&ctl);
        support_sleep_ms(50);
    }
}

/* Wait until the metrics of @p run_dir name @p rank as the slowest. */
static void await_measured(const char *run_dir, int rank)
{
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl",
                        argument("\"slowest_rank\":%d.0,\"slowest_rank_ms\":", rank));
}

/* Compare what the run leaves behind with a run of as many steps that nobody disturbed. */
static void assert_undisturbed(const char *run_dir)
{
    const char *whole_dir = argument("whole-%s", run_dir);
    struct launched whole = {0};

    JOB_RUN_WELL(&whole, "--nproc", "3", STRAGGLER_RUN, run_dir_argument(whole_dir),
                 argument("train.max_steps=%d", last_step(run_dir)));
    assert_same_end_files(run_dir, whole_dir);
    launcher_end(&whole);
}

static void a_slow_rank_is_named_and_replaced_and_costs_no_step(void **state)
{
    struct launched job = {0};
    struct brake brake;
    pid_t slow;

    (void)state;
    JOB_START(&job, "--elastic", "1:3", "--replace-stragglers", "2:2", STRAGGLER_RUN,
              run_dir_argument("slow"));
    launcher_await_text(in_work("slow"), "metrics.jsonl", "\"step\":1,");
    slow = find_rank("slow", 2);
    brake = start_brake("slow", 2);
    launcher_await_text(job.dir, "err", "cddp-run: rank 2 is slow: for ");
    launcher_await_text(job.dir, "err", "A new process takes its place\n");
    end_brake(&brake); /* it has a limited time to end */
    launcher_await_text(in_work("slow"), "metrics.jsonl", "\"generation\":1,");
    await_measured("slow", 2);
    assert_true(launcher_is_gone(slow));
    launcher_await_text(in_work("slow"), "metrics.jsonl",
                        "\"reason\":\"rank 2 leaves, and another takes its place\"");
    brake = start_brake("slow", 2); /* the new one is slow, too */
    launcher_await_text(job.dir, "err", "It stays: the rank there was replaced ");
    await_shown("--json", "slow", 2, shows_json);
    await_shown("--timeout=60", "slow", 2, shows_text);
    end_brake(&brake);
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    if (job.exit_status != 3) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_no_err(&job, "generation 2");
    assert_int_equal(launcher_failures(job.err, NULL), 0);
    assert_no_orphan("slow");
    assert_undisturbed("slow");
    launcher_end(&job);
}

static void the_node_of_a_slow_rank_leaves_and_costs_no_step(void **state)
{
    static const char *const numbers[] = {"0", "1", "2"};
    struct fleet fleet;
    struct brake brake;

    (void)state;
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    for (int i = 0; i < 3; i++) {
        START(&fleet, i, "2:3", numbers[i], "--nproc", "1", "--replace-stragglers", "2:2",
              STRAGGLER_RUN, run_dir_argument("nodes"));
    }
    launcher_await_text(in_work("nodes"), "metrics.jsonl", "\"world_size\":3");
    brake = start_brake("nodes", 2);
    launcher_await_text(fleet.nodes[0].dir, "err", "cddp-run: rank 2 of node 2 (");
    launcher_await_text(fleet.nodes[0].dir, "err",
                        "Its node leaves, and the others go on without it\n");
    end_brake(&brake);
    launcher_wait(&fleet.nodes[2]);
    assert_int_equal(fleet.nodes[2].exit_status, 3);
    launcher_await_text(in_work("nodes"), "metrics.jsonl", "\"world_size\":2");
    kill(fleet.nodes[0].pid, SIGINT);
    fleet_wait(&fleet, 3);
    assert_int_equal(fleet.nodes[0].exit_status, 3);
    assert_int_equal(fleet.nodes[1].exit_status, 3);
    assert_no_orphan("nodes");
    assert_undisturbed("nodes");
    fleet_end(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_is_named_and_replaced_and_costs_no_step),
        cmocka_unit_test(the_node_of_a_slow_rank_leaves_and_costs_no_step),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
