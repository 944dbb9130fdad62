/* recovery_api.c - jobs of recovery_rank: which ranks end, and how the others go on. */
#include "support/recovery_api.h"

const char *recovery_rank(void)
{
    static char path[4300];

    snprintf(path, sizeof path, "%s", launcher_path("tests/recovery_rank"));
    return path;
}

void recovery_ends_well(struct launched *job, const char *const *lines)
{
    const char *at;

    launcher_wait(job);
    at = job->out;
    if (job->exit_status != 0 || strstr(job->out, "WRONG") != NULL) {
        fail_msg("exit status %d: %s%s", job->exit_status, job->out, job->err);
    }
    for (; *lines != NULL; lines++) {
        at = strstr(at, *lines);
        if (at == NULL) {
            fail_msg("it does not say '%s' there: %s%s", *lines, job->out, job->err);
        }
        at += strlen(*lines);
    }
}

void recovery_runs(struct launched *job, const char *ranks, const char *const *loops,
                   const char *const *lines)
{
    const char *words[16] = {"--nproc", ranks, "--max-restarts", "9", "--", recovery_rank()};
    struct launched own = {0};
    struct launched *used = job != NULL ? job : &own;
    int count = 6;

    while (*loops != NULL) {
        words[count++] = *loops++;
    }
    launcher_start(used, words);
    recovery_ends_well(used, lines);
    if (job == NULL) {
        launcher_end(used);
    }
}
