/* held_save.c - jobs whose checkpoints in the background wait until the test lets them go on. */
#include "support/held_save.h"

#include <signal.h>

static const char *const variables[] = {"LD_PRELOAD",    "HELD_PATH",       "FAILING_PATH",
                                        "FAILING_CALLS", "FAILING_FLUSHES", "FAILING_ERRNO",
                                        "SPARED_CALLS",  "KILLED_CALL",     "REPLACED_PATH"};

void disturb(const char *variable, const char *value)
{
    setenv("LD_PRELOAD", launcher_path("tests/libfailing_calls.so"), 1);
    setenv(variable, value, 1);
}

void disturb_no_more(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        unsetenv(variables[i]);
    }
}

void hold(const char *file)
{
    static int number;

    disturb("HELD_PATH", file);
    setenv("HELD_UNTIL", in_work("released-%d", number++), 1);
}

void held_release(void)
{
    support_write_file(getenv("HELD_UNTIL"), "", 0);
}

bool is_whole(const char *run_dir, int step)
{
    return access(in_work("%s/checkpoints/step-%08d/state.json", run_dir, step), F_OK) == 0;
}

int lines_of_saves(const char *run_dir, const char *how)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    int count = 0;

    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, "\"kind\":\"checkpoint\"")) != NULL; at++) {
        size_t length = strcspn(at, "\n");
        const char *found = strstr(at, how);

        count += found != NULL && found < at + length;
    }
    free(text);
    return count;
}

void start_held(struct launched *job, const char *run_dir, const char *ranks, const char *file)
{
    hold(file);
    JOB_START(job, "--nproc", ranks, LONG_RUN, BEHIND, "train.checkpoint_steps=5",
              "train.log_steps=1", "train.max_steps=12", run_dir_argument(run_dir));
    launcher_await_text(in_work("%s", run_dir), "metrics.jsonl", "\"step\":8,");
    disturb_no_more();
    assert_false(is_whole(run_dir, 5));
}

void run_unheld(const char *run_dir, const char *ranks)
{
    struct launched job = {0};

    JOB_RUN_WELL(&job, "--nproc", ranks, LONG_RUN, "train.checkpoint_async=false",
                 "train.checkpoint_steps=5", "train.keep=0", "train.max_steps=12",
                 run_dir_argument(run_dir));
    launcher_end(&job);
}

/* Whether the signal by which cddp-run asks for a checkpoint waits for process @p pid. */
static bool is_asked(pid_t pid)
{
    char name[32];
    char *text;
    const char *line;
    unsigned long long signals;

    snprintf(name, sizeof name, "%d/status", (int)pid);
    text = launcher_read("/proc", name);
    assert_non_null(text);
    line = strstr(text, "ShdPnd:");
    assert_non_null(line);
    signals = strtoull(line + strlen("ShdPnd:"), NULL, 16);
    free(text);
    return (signals >> (SIGURG - 1) & 1) != 0;
}

static void await_asked(pid_t pid, bool wanted)
{
    for (int waited_ms = 0; is_asked(pid) != wanted; waited_ms++) {
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(1);
    }
}

/* While rank 0 is stopped, the signal waits for it, and can be seen. */
void ask_for_checkpoint(struct launched *ctl, const char *run_dir)
{
    pid_t pid = find_rank(run_dir, 0);

    assert_true(pid > 0);
    kill(pid, SIGSTOP);
    launcher_start_program(ctl, launcher_path("launcher/cddp-ctl"),
                           (const char *const[]){in_work("%s", run_dir), "checkpoint", NULL});
    await_asked(pid, true);
    kill(pid, SIGCONT);
    await_asked(pid, false);
}
