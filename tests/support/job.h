/* job.h - whole jobs for tests: the real cddp-run starts the real cddp-train on small data,
 * and its processes are looked at from outside, as a user would. */
#ifndef CDDP_TESTS_SUPPORT_JOB_H
#define CDDP_TESTS_SUPPORT_JOB_H

#include "support/launcher.h"
#include "support/train.h"

#include <dirent.h>
#include <stdbool.h>

/* The process of the job in @p run_dir that is @p rank; -1: any of its processes. 0: there is none.
 */
pid_t find_rank(const char *run_dir, int rank);

/* No process of the job is left, or stays. */
void assert_no_orphan(const char *run_dir);

/* Wait until @p job's run has a checkpoint; that the job ends before is a failure at once. */
void wait_for_checkpoint(struct launched *job, const char *run_dir);

/* Kill a rank of @p job, a run that goes on for long, once there is a checkpoint: it is named, the
 * others end of themselves, and nothing is left. */
void kill_rank(struct launched *job, const char *run_dir, int rank);

/* Use a new folder for temporary files, so that one sees what is left there. */
void set_tmpdir(void);
void assert_tmpdir_is_empty(void);

/* How many lines @p text has. */
int count_lines(const char *text);

/* Start cddp-run; arguments are options, small.conf comes from the caller. */
#define JOB_START(job, ...) launcher_start((job), (const char *const[]){__VA_ARGS__, NULL})

/* Run cddp-run to its end, which must be good. */
#define JOB_RUN_WELL(job, ...)                                                                     \
    do {                                                                                           \
        JOB_START(job, __VA_ARGS__);                                                               \
        launcher_wait((job));                                                                      \
        if ((job)->exit_status != 0) {                                                             \
            fail_msg("exit status %d: %s", (job)->exit_status, (job)->err);                        \
        }                                                                                          \
    } while (0)

/* Goes on until it is ended, so that nobody can be too late to catch it in the middle. */
#define LONG_RUN                                                                                   \
    in_work("small.conf"), "train.epochs=1000000", "train.eval_epochs=1000000",                    \
        "optimizer.schedule.type=constant", "model.hidden=[192,192]"

/* Wait for @p job, which was asked to stop; returns after which step it did, with a checkpoint. */
unsigned long long await_stop(struct launched *job, const char *run_dir);

/* End @p job by @p number; it saves its state. Returns the last step that it did. */
unsigned long long stop(struct launched *job, const char *run_dir, int number);

#endif
