/* ctl_run.h - runs the real cddp-ctl on a job that trains. */
#ifndef CDDP_TESTS_SUPPORT_CTL_RUN_H
#define CDDP_TESTS_SUPPORT_CTL_RUN_H

#include "support/job.h"

/* Run cddp-ctl to its end. */
#define CTL(ctl, ...)                                                                              \
    do {                                                                                           \
        launcher_start_program((ctl), launcher_path("launcher/cddp-ctl"),                          \
                               (const char *const[]){__VA_ARGS__, NULL});                          \
        launcher_wait((ctl));                                                                      \
    } while (0)

/* The same; assert its exit status. */
#define CTL_GIVES(ctl, status, ...)                                                                \
    do {                                                                                           \
        CTL(ctl, __VA_ARGS__);                                                                     \
        if ((ctl)->exit_status != (status)) {                                                      \
            fail_msg("exit status %d: %s%s", (ctl)->exit_status, (ctl)->out, (ctl)->err);          \
        }                                                                                          \
    } while (0)

/* Start a long job, and wait until it trains. */
#define START_TRAINING(job, run_dir, ...)                                                          \
    do {                                                                                           \
        JOB_START(job, __VA_ARGS__, LONG_RUN, "train.checkpoint_seconds=0",                        \
                  run_dir_argument(run_dir));                                                      \
        launcher_await_text(in_work("%s", run_dir), "metrics.jsonl", "\"step\":1,");               \
    } while (0)

/* What cddp-ctl shows of the job in @p run_dir; the caller releases it. */
json_t *read_status(const char *run_dir);
/* The number @p name of it. */
int status_number(const char *run_dir, const char *name);

#endif
