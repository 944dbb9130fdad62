/* job.c - whole jobs for tests: the real cddp-run starts the real cddp-train on small data, and the
 * test watches the processes from outside, as a user would. */
#include "support/job.h"

/* Whether the file /proc/PID/@p name, whose words end with NUL, has @p word. */
static bool proc_has(const char *pid, const char *name, const char *word)
{
    static char text[1 << 17];
    char path[300];
    size_t bytes = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    file = fopen(path, "re");
    if (file != NULL) {
        bytes = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[bytes] = '\0';
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1) {
        if (strcmp(text + at, word) == 0) {
            return true;
        }
    }
    return false;
}

pid_t find_rank(const char *run_dir, int rank)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    char variable[32];
    char argument[4600];
    pid_t found = 0;

    snprintf(argument, sizeof argument, "train.run_dir=%s", in_work("%s", run_dir));
    snprintf(variable, sizeof variable, "CDDP_RANK=%d", rank);
    assert_non_null(folder);
    while (found == 0 && (entry = readdir(folder)) != NULL) {
        pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid > 0 && proc_has(entry->d_name, "cmdline", argument) &&
            (rank < 0 || proc_has(entry->d_name, "environ", variable))) {
            found = pid;
        }
    }
    closedir(folder);
    return found;
}

void assert_no_orphan(const char *run_dir)
{
    for (int waited = 0; find_rank(run_dir, -1) != 0; waited += 50) {
        if (waited >= SUPPORT_TIMEOUT_MS) {
            fail_msg("process %d of %s is left", (int)find_rank(run_dir, -1), run_dir);
        }
        support_sleep_ms(50);
    }
}

void wait_for_checkpoint(struct launched *job, const char *run_dir)
{
    const char *folder = in_work("%s/checkpoints", run_dir);
    siginfo_t ended = {.si_pid = 0};

    for (long waited_ms = 0;; waited_ms += 2) {
        char *text = launcher_read(folder, "latest");
        bool found = text != NULL && strstr(text, "step-") != NULL;

        free(text);
        if (found) {
            return;
        }
        assert_int_equal(waitid(P_PID, (id_t)job->pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        if (ended.si_pid != 0 || waited_ms >= SUPPORT_TIMEOUT_MS) {
            launcher_wait(job);
            fail_msg("no checkpoint in %s; status %d: %s", folder, job->exit_status, job->err);
        }
        support_sleep_ms(2);
    }
}

void kill_rank(struct launched *job, const char *run_dir, int rank)
{
    char text[128];
    pid_t pid;

    wait_for_checkpoint(job, run_dir);
    pid = find_rank(run_dir, rank);
    assert_true(pid > 0);
    kill(pid, SIGKILL);
    launcher_wait(job);
    assert_int_equal(job->exit_status, 128 + SIGKILL);
    snprintf(text, sizeof text, "cddp-run: rank %d (pid %d) was killed by signal 9 (SIGKILL)\n",
             rank, (int)pid);
    launcher_need_text(job->err, text, "err");
    assert_null(strstr(job->err, "did not end within"));
    assert_no_orphan(run_dir);
}

void set_tmpdir(void)
{
    static int number;
    const char *path = in_work("tmp-%d", number++);

    assert_int_equal(mkdir(path, 0700), 0);
    setenv("TMPDIR", path, 1);
}

void assert_tmpdir_is_empty(void)
{
    assert_int_equal(rmdir(getenv("TMPDIR")), 0);
    unsetenv("TMPDIR");
}

int count_lines(const char *text)
{
    return launcher_count(text, "\n");
}

unsigned long long await_stop(struct launched *job, const char *run_dir)
{
    unsigned long long step = 0;

    launcher_wait(job);
    if (job->exit_status != 3) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
    assert_int_equal(sscanf(job->out, "stopped after step %llu", &step), 1);
    assert_true(step >= 1);
    assert_int_equal(access(in_work("%s/checkpoints/step-%08llu/state.json", run_dir, step), F_OK),
                     0);
    return step;
}

unsigned long long stop(struct launched *job, const char *run_dir, int number)
{
    kill(job->pid, number);
    return await_stop(job, run_dir);
}
