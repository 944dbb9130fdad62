/* bench_cli.c - runs the real cddp-bench under the real cddp-run. */
#include "support/bench_cli.h"

#include "support/tokenize.h"

enum { BENCH_ARGUMENTS = 24 };

const char *bench_path(void)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s", launcher_path("src/cddp-bench"));
    return path;
}

void bench_run(struct launched *job, int ranks, const char *const *arguments)
{
    const char *words[BENCH_ARGUMENTS + 6] = {"--nproc"};
    char number[16];
    int count = 4;

    snprintf(number, sizeof number, "%d", ranks);
    words[1] = number;
    words[2] = "--";
    words[3] = bench_path();
    for (int i = 0; arguments[i] != NULL; i++) {
        assert_true(count < BENCH_ARGUMENTS);
        words[count++] = arguments[i];
    }
    forget_output(job);
    launcher_start(job, words);
    launcher_wait(job);
}

void bench_found_nothing_wrong(const struct launched *job, const char *what)
{
    if (job->exit_status != 0) {
        fail_msg("%s: exit status %d: %s%s", what, job->exit_status, job->err, job->out);
    }
    assert_out(job, "# wrong elements: 0\n");
}
