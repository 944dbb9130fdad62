/* recovery.c - jobs that are killed again and again, and go on from what their ranks have kept in
 * memory: from which step, and to which end. */
#include "support/recovery.h"

static const char from_memory[] = "continuing from memory: step ";

static void fail_if_ended(struct launched *job, long waited_ms)
{
    siginfo_t ended = {.si_pid = 0};

    assert_int_equal(waitid(P_PID, (id_t)job->pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    if (ended.si_pid != 0 || waited_ms >= SUPPORT_TIMEOUT_MS) {
        launcher_wait(job);
        fail_msg("what should come did not; status %d: %s", job->exit_status, job->err);
    }
}

/* The last place of @p part in @p text; NULL: it is not there. */
static const char *find_last(const char *text, const char *part)
{
    const char *found = NULL;

    for (const char *at = text; at != NULL && (at = strstr(at, part)) != NULL; at++) {
        found = at;
    }
    return found;
}

unsigned long long recovery_last_metric(const char *run_dir)
{
    char *text = launcher_read(in_work("%s", run_dir), "metrics.jsonl");
    char *end = text != NULL ? strrchr(text, '\n') : NULL; /* the last line may be half there */
    unsigned long long step = 0;
    const char *line;

    if (end != NULL) {
        *end = '\0';
        line = find_last(text, "\n{\"step\":");
        if (line != NULL) {
            assert_int_equal(sscanf(line, "\n{\"step\":%llu", &step), 1);
        }
    }
    free(text);
    return step;
}

void recovery_await_steps(struct launched *job, const char *run_dir)
{
    unsigned long long before = recovery_last_metric(run_dir);

    for (long waited_ms = 0; recovery_last_metric(run_dir) < before + 3; waited_ms += 2) {
        fail_if_ended(job, waited_ms);
        support_sleep_ms(2);
    }
}

int recovery_count(const struct launched *job)
{
    char *text = launcher_read(job->dir, "err");
    int count = launcher_count(text, from_memory);

    free(text);
    return count;
}

unsigned long long recovery_step(const struct launched *job, int count)
{
    unsigned long long step = 0;
    const char *at;
    char *text;

    for (long waited_ms = 0; recovery_count(job) < count; waited_ms += 2) {
        text = launcher_read(job->dir, "err");
        if (waited_ms >= SUPPORT_TIMEOUT_MS || strstr(text, "continuing from /") != NULL ||
            strstr(text, "going back") != NULL) {
            fail_msg("it did not go on from memory: %s", text);
        }
        free(text);
        support_sleep_ms(2);
    }
    text = launcher_read(job->dir, "err"); /* lines are printed whole */
    at = text;
    for (int i = 0; i < count; i++) {
        at = strstr(at, from_memory) + strlen(from_memory);
    }
    assert_int_equal(sscanf(at, "%llu, epoch", &step), 1);
    free(text);
    return step;
}

bool recovery_kill(const char *run_dir, int rank)
{
    pid_t pid = find_rank(run_dir, rank);

    return pid > 0 && kill(pid, SIGKILL) == 0 && launcher_is_gone(pid);
}

unsigned long long recovery_lose(struct launched *job, const char *run_dir,
                                 void (*kill)(const char *run_dir))
{
    int before = recovery_count(job);
    unsigned long long last = recovery_last_metric(run_dir);
    unsigned long long step;

    assert_true(last > 0);
    kill(run_dir);
    step = recovery_step(job, before + 1);
    if (step + 1 < last) {
        fail_msg("the metrics had step %llu, and it goes on from step %llu", last, step);
    }
    return step;
}

void recovery_compare_by(struct launched *job, const char *run_dir, int ranks,
                         const char *const *arguments)
{
    const char *words[32] = {"--nproc", argument("%d", ranks)};
    struct launched whole = {0};
    const char *whole_dir = argument("whole-%s", run_dir);
    int count = 2;

    kill(job->pid, SIGTERM);
    launcher_wait(job);
    if (job->exit_status != 3) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
    assert_no_orphan(run_dir);
    while (*arguments != NULL) {
        words[count++] = *arguments++;
    }
    words[count++] = run_dir_argument(whole_dir);
    words[count++] = argument("train.max_steps=%d", last_step(run_dir));
    launcher_start(&whole, words);
    launcher_wait(&whole);
    if (whole.exit_status != 0) {
        fail_msg("exit status %d: %s", whole.exit_status, whole.err);
    }
    assert_same_end_files(run_dir, whole_dir);
    launcher_end(&whole);
}

void recovery_compare(struct launched *job, const char *run_dir, const char *const *arguments)
{
    recovery_compare_by(job, run_dir, 1, arguments);
}
