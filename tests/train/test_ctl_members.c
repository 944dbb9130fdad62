/* test_ctl_members.c - cddp-ctl changes the ranks and the nodes of a job that trains, also from
 * another machine, and while cddp-train is asked whether its configuration allows that. */
#include "support/ctl_run.h"
#include "support/fleet.h"

static void the_number_of_ranks_changes(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    json_t *status;

    (void)state;
    START_TRAINING(&job, "elastic", "--nproc", "2", "--elastic", "1:3");
    CTL_GIVES(&ctl, 0, in_work("elastic"), "add", "1");
    assert_out(&ctl, "generation 1: 3 ranks");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, in_work("elastic"), "add", "1");
    assert_err(&ctl, "1 to 3");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("elastic"), "remove", "2");
    assert_out(&ctl, "generation 2: 2 ranks");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, in_work("elastic"), "remove", "2");
    assert_err(&ctl, "no rank 2");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("elastic"), "remove", "0");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, in_work("elastic"), "remove", "0");
    launcher_end(&ctl);
    status = read_status("elastic");
    assert_int_equal(json_integer_value(json_object_get(status, "world_size")), 1);
    assert_int_equal(json_integer_value(json_object_get(status, "restarts")), 0);
    assert_string_equal(json_string_value(json_object_get(status, "reason")), "from 2 to 1 ranks");
    json_decref(status);
    CTL_GIVES(&ctl, 0, in_work("elastic"), "checkpoint");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("elastic"), "stop");
    launcher_end(&ctl);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3);
    launcher_end(&job);
}

static void a_configuration_that_cannot_have_more_ranks_keeps_its_job(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};

    (void)state;
    JOB_START(&job, "--nproc", "2", "--elastic", "1:3", LONG_RUN, "train.batch_size=2",
              "optimizer.lr=0.00001", run_dir_argument("narrow"));
    launcher_await_text(in_work("narrow"), "metrics.jsonl", "\"step\":1,");
    CTL_GIVES(&ctl, 1, in_work("narrow"), "add", "1");
    assert_err(&ctl, "does not allow 3 ranks");
    launcher_end(&ctl);
    assert_int_equal(status_number("narrow", "generation"), 0);
    (void)stop(&job, "narrow", SIGTERM);
    launcher_end(&job);
}

/* Start a job of two ranks, and ask for a third one. cddp-train, which is asked whether that is
 * possible, waits for the configuration, which is a pipe by now; the ranks have read it. Returns
 * the pipe's other end. */
static int begin_slow_check(struct launched *job, struct launched *ctl, const char *run_dir)
{
    const char *path = argument("%s.conf", in_work("%s", run_dir));
    char *text = launcher_read(in_work("."), "small.conf");
    int pipe = -1;

    assert_non_null(text);
    support_write_file(path, text, strlen(text));
    free(text);
    JOB_START(job, "--nproc", "2", "--elastic", "1:3", path, "train.epochs=1000000",
              "train.eval_epochs=1000000", "optimizer.schedule.type=constant",
              "train.checkpoint_seconds=0", run_dir_argument(run_dir));
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl", "\"step\":1,");
    assert_int_equal(rename(path, in_work("%s.kept", run_dir)), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    launcher_start_program(ctl, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){in_work("%s", run_dir), "add", "1", NULL});
    for (int waited = 0; pipe < 0; waited += 20) { /* until cddp-train reads it */
        siginfo_t ended = {.si_pid = 0};

        (void)waitid(P_PID, (id_t)ctl->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid != 0 || waited >= 1000 * SUPPORT_LIMIT_S) {
            fail_msg("cddp-ctl %s: %s", ended.si_pid != 0 ? "has ended" : "waits",
                     launcher_read(ctl->dir, "err"));
        }
        support_sleep_ms(20);
        pipe = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    assert_int_equal(rename(in_work("%s.kept", run_dir), path), 0);
    return pipe;
}

static void nothing_waits_while_cddp_train_is_asked(void **state)
{
    struct launched job = {0};
    struct launched slow = {0};
    struct launched ctl = {0};
    int pipe = begin_slow_check(&job, &slow, "slow");
    char *text = launcher_read(in_work("."), "slow.conf");

    (void)state;
    CTL_GIVES(&ctl, 0, in_work("slow"), "status");
    assert_out(&ctl, "generation 0");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, in_work("slow"), "add", "1");
    assert_err(&ctl, "is checking another request: ask again");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("slow"), "checkpoint");
    launcher_end(&ctl);
    assert_int_equal(write(pipe, text, strlen(text)), strlen(text));
    close(pipe);
    free(text);
    launcher_wait(&slow);
    assert_int_equal(slow.exit_status, 0);
    assert_out(&slow, "generation 1: 3 ranks");
    launcher_end(&slow);
    CTL_GIVES(&ctl, 0, in_work("slow"), "checkpoint"); /* now it trains */
    launcher_end(&ctl);
    (void)stop(&job, "slow", SIGTERM);
    launcher_end(&job);
}

static void a_request_that_is_checked_ends_with_its_generation(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    int pipe = begin_slow_check(&job, &ctl, "broken");

    (void)state;
    kill(find_rank("broken", 1), SIGKILL);
    launcher_wait(&ctl);
    assert_int_equal(ctl.exit_status, 1);
    assert_err(&ctl, "the ranks have ended meanwhile: ask again");
    launcher_end(&ctl);
    close(pipe);
    launcher_await_text(job.dir, "err", "generation 1");
    CTL_GIVES(&ctl, 0, in_work("broken"), "add", "1");
    assert_out(&ctl, "generation 2: 3 ranks");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("broken"), "checkpoint"); /* now it trains */
    launcher_end(&ctl);
    (void)stop(&job, "broken", SIGTERM);
    launcher_end(&job);
}

/* The cddp-train that @p supervisor asks about its configuration. */
static pid_t find_checker(pid_t supervisor)
{
    char *list = launcher_read("/proc", argument("%d/task/%d/children", supervisor, supervisor));
    pid_t found = 0;

    assert_non_null(list);
    for (char *next = list; found == 0 && *next != '\0';) {
        pid_t pid = (pid_t)strtol(next, &next, 10);
        int fd = open(argument("/proc/%d/cmdline", pid), O_RDONLY | O_CLOEXEC);
        char words[4096];
        ssize_t bytes = fd >= 0 ? read(fd, words, sizeof words) : 0;

        if (bytes > 0 && memmem(words, (size_t)bytes, "--validate", 10) != NULL) {
            found = pid;
        }
        close(fd);
        next += strspn(next, " \n");
    }
    free(list);
    assert_true(found > 0);
    return found;
}

/* As by the kernel, for a lack of memory: nothing is said about the configuration then. */
static void a_checker_that_is_killed_refuses_no_configuration(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    int pipe = begin_slow_check(&job, &ctl, "unchecked");

    (void)state;
    kill(find_checker(launcher_child(job.pid)), SIGKILL);
    launcher_wait(&ctl);
    close(pipe);
    assert_int_equal(ctl.exit_status, 1);
    assert_err(&ctl, "could not check the configuration for 3 ranks (status 137): ask again");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("unchecked"), "add", "1");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("unchecked"), "checkpoint"); /* now it trains */
    launcher_end(&ctl);
    (void)stop(&job, "unchecked", SIGTERM);
    launcher_end(&job);
}

static void nodes_leave_when_they_are_asked_to(void **state)
{
    struct launched ctl = {0};
    struct fleet fleet;
    json_t *status;

    (void)state;
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    for (int i = 0; i < 3; i++) {
        const char *const ranks[] = {"1", "1", "2"};

        START(&fleet, i, "2:3", argument("%d", i), "--nproc", ranks[i], LONG_RUN,
              run_dir_argument("nodes"));
    }
    launcher_await_text(in_work("nodes"), "metrics.jsonl", "\"world_size\":4");
    launcher_await_text(in_work("nodes"), "metrics.jsonl", "\"step\":1,");
    status = read_status("nodes");
    assert_int_equal(json_array_size(json_object_get(status, "members")), 3);
    json_decref(status);
    CTL_GIVES(&ctl, 1, in_work("nodes"), "add", "1");
    assert_err(&ctl, "start cddp-run on another one");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, in_work("nodes"), "remove", "node:0");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("nodes"), "remove", "3"); /* one of node 2's two ranks */
    assert_out(&ctl, ": 3 ranks on 3 nodes");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("nodes"), "remove", "node:1");
    assert_out(&ctl, ": 2 ranks on 2 nodes");
    launcher_end(&ctl);
    launcher_wait(&fleet.nodes[1]);
    assert_int_equal(fleet.nodes[1].exit_status, 3);
    CTL_GIVES(&ctl, 1, in_work("nodes"), "remove", "node:2");
    assert_err(&ctl, "needs 2 nodes");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("nodes"), "checkpoint");
    launcher_end(&ctl);
    assert_int_equal(status_number("nodes", "restarts"), 0);
    CTL_GIVES(&ctl, 0, in_work("nodes"), "stop");
    launcher_end(&ctl);
    for (int i = 0; i < 3; i += 2) {
        launcher_wait(&fleet.nodes[i]);
        assert_int_equal(fleet.nodes[i].exit_status, 3);
    }
    fleet_end(&fleet);
}

static void a_token_is_enough_on_another_machine(void **state)
{
    struct launched ctl = {0};
    struct fleet fleet;
    const char *token;

    (void)state;
    fleet_begin_tcp(&fleet);
    token = argument("--token-file=%s", in_work("token"));
    support_write_file(in_work("token"), getenv("CDDP_TOKEN"), 32);
    assert_int_equal(chmod(in_work("token"), 0600), 0);
    fleet_await_all();
    for (int i = 0; i < 2; i++) {
        START(&fleet, i, "1:2", argument("%d", i), "--nproc", "1", LONG_RUN,
              run_dir_argument("remote"));
    }
    launcher_await_text(in_work("remote"), "metrics.jsonl", "\"step\":1,");
    CTL_GIVES(&ctl, 0, token, fleet.url, "status");
    assert_out(&ctl, "generation 0  2 ranks on 2 nodes");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, token, fleet.url, "checkpoint");
    assert_int_equal(access(in_work("remote/checkpoints/latest"), F_OK), 0);
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, token, fleet.url, "remove", "node:1");
    assert_out(&ctl, ": 1 rank on 1 node");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, token, fleet.url, "remove", "node:0");
    launcher_end(&ctl);
    support_write_file(in_work("token"), "another-secret-which-is-long-too", 32);
    CTL_GIVES(&ctl, 1, token, fleet.url, "stop");
    launcher_end(&ctl);
    support_write_file(in_work("token"), getenv("CDDP_TOKEN"), 32);
    CTL_GIVES(&ctl, 0, token, fleet.url, "stop");
    assert_out(&ctl, "status 3");
    launcher_end(&ctl);
    for (int i = 0; i < 2; i++) {
        launcher_wait(&fleet.nodes[i]);
        assert_int_equal(fleet.nodes[i].exit_status, 3);
    }
    CTL_GIVES(&ctl, 3, "--timeout=0.5", token, fleet.url, "status");
    launcher_end(&ctl);
    fleet_end(&fleet);
}

/* A checkpoint that another machine asks for while no ranks run, or only begin, is written later.
 */
static void a_checkpoint_waits_for_the_next_generation(void **state)
{
    struct launched ctl = {0};
    struct fleet fleet;

    (void)state;
    fleet_begin_tcp(&fleet);
    for (int i = 0; i < 2; i++) {
        START(&fleet, i, "2:2", argument("%d", i), "--nproc", "1", LONG_RUN,
              "train.checkpoint_seconds=0", run_dir_argument("later"));
    }
    launcher_await_text(in_work("later"), "metrics.jsonl", "\"step\":1,");
    kill(fleet.nodes[1].pid, SIGKILL);
    launcher_await_text(fleet.nodes[0].dir, "err", "and the job needs 2: waiting");
    launcher_start_program(&ctl, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){fleet.url, "checkpoint", NULL});
    support_sleep_ms(500); /* it may also be asked for later */
    START(&fleet, 2, "2:2", "1", "--nproc", "1", LONG_RUN, "train.checkpoint_seconds=0",
          run_dir_argument("later"));
    launcher_wait(&ctl);
    assert_int_equal(ctl.exit_status, 0);
    assert_out(&ctl, "a checkpoint is written");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, fleet.url, "stop");
    launcher_end(&ctl);
    fleet_wait(&fleet, 3);
    fleet_end(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_ranks_changes),
        cmocka_unit_test(a_configuration_that_cannot_have_more_ranks_keeps_its_job),
        cmocka_unit_test(nothing_waits_while_cddp_train_is_asked),
        cmocka_unit_test(a_request_that_is_checked_ends_with_its_generation),
        cmocka_unit_test(a_checker_that_is_killed_refuses_no_configuration),
        cmocka_unit_test(nodes_leave_when_they_are_asked_to),
        cmocka_unit_test(a_token_is_enough_on_another_machine),
        cmocka_unit_test(a_checkpoint_waits_for_the_next_generation),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
