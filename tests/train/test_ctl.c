/* test_ctl.c - cddp-ctl and the socket of a job that trains: what it shows, checkpoints, the end,
 * and clients that are not cddp-ctl. */
#include "launcher/ctl/ctl_message.h"
#include "launcher/ctl/ctl_socket.h"
#include "support/ctl_run.h"

#include <dirent.h>
#include <pty.h>
#include <sys/socket.h>

enum { CROWD = 20, LIMIT_MS = 1000 * SUPPORT_LIMIT_S };

static int connect_to(const char *run_dir)
{
    int fd = -1;

    assert_int_equal(cddpi_ctl_socket_connect(in_work("%s", run_dir), LIMIT_MS, &fd), CDDP_OK);
    return fd;
}

/* Read the answer to what was sent to @p fd, and close it. Returns whether there was one. */
static bool read_answer(int fd, struct cddpi_ctl_answer *out)
{
    static uint8_t data[CDDPI_CTL_ANSWER_BYTES];
    ssize_t got = recv(fd, data, sizeof data, 0);

    close(fd);
    assert_true(got >= 0); /* no client waits for ever */
    return got > 0 &&
           cddpi_message_decode(&cddpi_ctl_answer_form, data, (size_t)got, out) == CDDP_OK;
}

static void a_user_sees_and_stops_a_job(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    struct stat info;
    json_t *status;

    (void)state;
    START_TRAINING(&job, "seen", "--nproc", "2");
    assert_int_equal(stat(in_work("seen/ctl.sock"), &info), 0);
    assert_true(S_ISSOCK(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0600);
    CTL_GIVES(&ctl, 0, in_work("seen"), "status");
    assert_out(&ctl, "generation 0  2 ranks on 1 node");
    assert_out(&ctl, "ranks 0 to 1");
    assert_out(&ctl, "step ");
    assert_out(&ctl, "checkpoint: none yet");
    launcher_end(&ctl);
    status = read_status("seen");
    assert_int_equal(json_integer_value(json_object_get(status, "world_size")), 2);
    assert_true(json_is_number(json_object_get(json_object_get(status, "metrics"), "loss")));
    assert_true(json_is_null(json_object_get(status, "checkpoint")));
    json_decref(status);
    CTL_GIVES(&ctl, 1, in_work("seen"), "add", "1");
    assert_err(&ctl, "is fixed");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("seen"), "stop");
    assert_out(&ctl, "status 3");
    assert_out(&ctl, "/checkpoints/step-");
    launcher_end(&ctl);
    assert_true(await_stop(&job, "seen") >= 1);
    launcher_end(&job);
    assert_int_equal(access(in_work("seen/ctl.sock"), F_OK), -1);
    CTL_GIVES(&ctl, 3, in_work("seen"), "status");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 3, in_work("no_such_run"), "stop");
    launcher_end(&ctl);
}

static void a_checkpoint_is_written_and_the_run_goes_on(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    unsigned long long steps[2] = {0, 0};

    (void)state;
    START_TRAINING(&job, "saved", "--nproc", "3");
    for (int i = 0; i < 2; i++) {
        char *name;

        CTL_GIVES(&ctl, 0, in_work("saved"), "checkpoint");
        name = strstr(ctl.out, "/checkpoints/step-");
        assert_non_null(name);
        assert_int_equal(sscanf(name, "/checkpoints/step-%llu", &steps[i]), 1);
        ctl.out[strcspn(ctl.out, "\n")] = '\0';
        assert_int_equal(access(argument("%s/state.json", ctl.out), F_OK), 0);
        launcher_end(&ctl);
    }
    assert_true(steps[1] > steps[0]);
    assert_true(stop(&job, "saved", SIGTERM) > steps[1]);
    launcher_end(&job);
}

static void a_full_disk_is_told_to_who_asks_for_a_checkpoint(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};

    (void)state;
    START_TRAINING(&job, "full", "--nproc", "1", "--max-restarts", "0");
    support_write_file(in_work("full/checkpoints"), "a file, so no folder", 20);
    CTL_GIVES(&ctl, 1, in_work("full"), "checkpoint");
    assert_err(&ctl, "could not be written");
    launcher_end(&ctl);
    assert_int_equal(unlink(in_work("full/checkpoints")), 0);
    CTL_GIVES(&ctl, 0, in_work("full"), "checkpoint");
    launcher_end(&ctl);
    (void)stop(&job, "full", SIGTERM);
    launcher_end(&job);
}

static void other_clients_do_no_harm(void **state)
{
    static struct cddpi_ctl_answer answer;
    struct cddpi_ctl_request request = {.command = CDDPI_CTL_STATUS, .number = -1};
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    struct launched job = {0};
    struct launched ctl[CROWD] = {0};
    int silent[CROWD];
    char garbage[4000];

    (void)state;
    memset(garbage, 'x', sizeof garbage);
    START_TRAINING(&job, "odd", "--nproc", "2");
    assert_int_equal(cddpi_message_encode(&cddpi_ctl_request_form, &request, &message), CDDP_OK);
    for (size_t bytes = 1; bytes <= message.bytes; bytes++) {
        int fd = connect_to("odd");

        assert_true(send(fd, message.data, bytes, 0) == (ssize_t)bytes);
        assert_true(read_answer(fd, &answer));
        assert_int_equal(answer.is_done, bytes == message.bytes);
    }
    for (size_t bytes = 1; bytes <= sizeof garbage; bytes += 111) {
        int fd = connect_to("odd");

        assert_true(send(fd, garbage, bytes, 0) == (ssize_t)bytes);
        assert_true(read_answer(fd, &answer));
        assert_false(answer.is_done);
    }
    for (int i = 0; i < CROWD; i++) { /* more than it serves at once, with the next ones */
        silent[i] = connect_to("odd");
    }
    for (int i = 0; i < CROWD; i++) {
        launcher_start_program(&ctl[i], launcher_path("launcher/cddp-ctl"),
                               (const char *const[]){in_work("odd"), "status", NULL});
    }
    for (int i = 0; i < CROWD; i++) {
        launcher_wait(&ctl[i]);
        assert_int_equal(ctl[i].exit_status, 0);
        launcher_end(&ctl[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        assert_false(read_answer(silent[i], &answer)); /* dropped at their deadline */
    }
    cddpi_buffer_fini(&message);
    (void)stop(&job, "odd", SIGTERM);
    launcher_end(&job);
}

static void what_a_killed_job_has_left_is_replaced(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    pid_t pid;

    (void)state;
    START_TRAINING(&job, "killed", "--nproc", "2");
    pid = (pid_t)status_number("killed", "pid");
    assert_true(pid > 0);
    kill(pid, SIGKILL); /* the supervising process, which has the socket */
    launcher_wait(&job);
    launcher_end(&job);
    assert_no_orphan("killed");
    assert_int_equal(access(in_work("killed/ctl.sock"), F_OK), 0);
    CTL_GIVES(&ctl, 3, in_work("killed"), "status");
    launcher_end(&ctl);
    JOB_START(&job, "--nproc", "1", LONG_RUN, run_dir_argument("killed"));
    for (int waited = 0; waited < LIMIT_MS; waited += 20) {
        CTL(&ctl, in_work("killed"), "status");
        if (ctl.exit_status == 0) {
            break;
        }
        assert_int_equal(ctl.exit_status, 3);
        launcher_end(&ctl);
        usleep(20000);
    }
    assert_out(&ctl, "rank 0");
    launcher_end(&ctl);
    kill(job.pid, SIGTERM); /* perhaps before there is something to save */
    launcher_wait(&job);
    launcher_end(&job);
}

static void a_folder_may_have_any_length(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};
    char name[211];

    (void)state;
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    START_TRAINING(&job, name, "--nproc", "2");
    CTL_GIVES(&ctl, 0, in_work("%s", name), "checkpoint");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 0, in_work("%s", name), "stop");
    launcher_end(&ctl);
    (void)await_stop(&job, name);
    launcher_end(&job);
}

/* As it is on file systems that have no sockets. The name is taken by a folder. */
static void a_job_that_cannot_be_reached_says_why(void **state)
{
    struct launched job = {0};

    (void)state;
    assert_int_equal(mkdir(in_work("taken"), 0700), 0);
    assert_int_equal(mkdir(in_work("taken/ctl.sock"), 0700), 0);
    START_TRAINING(&job, "taken", "--nproc", "1");
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_err(&job, "cddp-run: cddp-ctl cannot reach this job: ");
    assert_err(&job, "/taken/ctl.sock is a folder, not cddp-run's socket\n");
    launcher_end(&job);
}

static int count_threads(pid_t pid)
{
    char path[64];
    struct dirent *entry;
    DIR *folder;
    int count = 0;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    folder = opendir(path);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

/* As when the server of a network's file system is gone. Only the first generation has a thread
 * that waits for it. */
static void a_folder_that_does_not_answer_holds_nobody_up(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};

    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* they want to be loaded first */
#endif
    setenv("LD_PRELOAD", launcher_path("tests/libfailing_calls.so"), 1);
    setenv("HANGING_PATH", "/ctl.sock", 1);
    START_TRAINING(&job, "hung", "--nproc", "2", "--max-restarts", "2");
    unsetenv("LD_PRELOAD");
    unsetenv("HANGING_PATH");
    for (int generation = 1; generation <= 2; generation++) {
        kill(find_rank("hung", 1), SIGKILL);
        launcher_await_text_after(in_work("hung"), "metrics.jsonl",
                                  argument("\"generation\":%d", generation), "\"loss\"");
    }
    /* the one that supervises, the store's, and the one that waits */
    assert_int_equal(count_threads(launcher_child(job.pid)), 3);
    assert_true(stop(&job, "hung", SIGTERM) >= 1);
    assert_err(&job, "cddp-run: cddp-ctl cannot reach this job: the file system of ");
    assert_err(&job, "/hung does not answer\n");
    launcher_end(&job);
    CTL_GIVES(&ctl, 3, in_work("hung"), "status");
    launcher_end(&ctl);
}

static void a_view_leaves_the_terminal_as_it_was(void **state)
{
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    struct launched job = {0};
    struct launched ctl = {0};
    char *text = calloc(1, 1 << 20);
    size_t used = 0;
    ssize_t got;
    bool has_asked = false;
    int status;
    int fd;
    pid_t pid;

    (void)state;
    START_TRAINING(&job, "view", "--nproc", "2");
    fflush(NULL);
    pid = forkpty(&fd, NULL, NULL, &size);
    if (pid == 0) {
        alarm(SUPPORT_LIMIT_S);
        setenv("TERM", "xterm", 1);
        execl(launcher_path("launcher/cddp-ctl"), "cddp-ctl", in_work("view"), "top", (char *)NULL);
        _exit(98);
    }
    while (used < (1 << 20) - 1 && (got = read(fd, text + used, (1 << 20) - 1 - used)) > 0) {
        used += (size_t)got;
        if (!has_asked && strstr(text, "generation 0") != NULL) {
            assert_int_equal(write(fd, "q", 1), 1);
            has_asked = true;
        }
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
    launcher_need_text(text, "\033[?1049h", "the terminal");
    launcher_need_text(text, "\033[?1049l", "the terminal");
    launcher_need_text(text, "\033[?25h", "the terminal");
    free(text);
    CTL_GIVES(&ctl, 0, in_work("view"), "stop");
    launcher_end(&ctl);
    (void)await_stop(&job, "view");
    launcher_end(&job);
}

static void a_programs_job_has_no_checkpoints(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};

    (void)state;
    assert_int_equal(mkdir(in_work("program"), 0755), 0);
    JOB_START(&job, "--nproc", "2", "--run-dir", in_work("program"), "--", "sleep", "1000");
    for (int waited = 0; access(in_work("program/ctl.sock"), F_OK) != 0; waited += 20) {
        assert_true(waited < LIMIT_MS);
        usleep(20000);
    }
    CTL_GIVES(&ctl, 1, in_work("program"), "checkpoint");
    assert_err(&ctl, "another program than cddp-train");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 1, in_work("program"), "stop"); /* it has not saved */
    assert_out(&ctl, "status 143");
    launcher_end(&ctl);
    launcher_wait(&job);
    launcher_end(&job);
}

static void wrong_words_are_refused(void **state)
{
    struct launched ctl = {0};

    (void)state;
    CTL_GIVES(&ctl, 2, in_work("seen"));
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, in_work("seen"), "statsu");
    assert_err(&ctl, "statsu");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, in_work("seen"), "add");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, in_work("seen"), "add", "0");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, in_work("seen"), "stop", "now");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, in_work("seen"), "remove", "node:x");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, "--json", in_work("seen"), "stop");
    launcher_end(&ctl);
    CTL_GIVES(&ctl, 2, "--timeout", "0", in_work("seen"), "stop");
    launcher_end(&ctl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_sees_and_stops_a_job),
        cmocka_unit_test(a_checkpoint_is_written_and_the_run_goes_on),
        cmocka_unit_test(a_full_disk_is_told_to_who_asks_for_a_checkpoint),
        cmocka_unit_test(other_clients_do_no_harm),
        cmocka_unit_test(what_a_killed_job_has_left_is_replaced),
        cmocka_unit_test(a_folder_may_have_any_length),
        cmocka_unit_test(a_job_that_cannot_be_reached_says_why),
        cmocka_unit_test(a_folder_that_does_not_answer_holds_nobody_up),
        cmocka_unit_test(a_view_leaves_the_terminal_as_it_was),
        cmocka_unit_test(a_programs_job_has_no_checkpoints),
        cmocka_unit_test(wrong_words_are_refused),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
