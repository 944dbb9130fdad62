/* job.h - whole jobs for tests: the real cddp-run starts the real cddp-train on small data, and the
 * test watches the processes from outside, as a user would. */
#ifndef CDDP_TESTS_SUPPORT_JOB_H
#define CDDP_TESTS_SUPPORT_JOB_H

#include "support/launcher.h"
#include "support/train.h"

#include <dirent.h>
#include <stdbool.h>

/* The pid of @p rank of the job in @p run_dir; @p rank -1: any process of the job. 0: not found. */
pid_t find_rank(const char *run_dir, int rank);

/* Assert that no process of the job remains. */
void assert_no_orphan(const char *run_dir);

/* Wait until the run has a checkpoint. Fails at once if the job ends before. */
void wait_for_checkpoint(struct launched *job, const char *run_dir);

/* Kill a rank of @p job, a long run, once it has a checkpoint. Assert that cddp-run names the rank,
 * the others end by themselves, and no process is left. */
void kill_rank(struct launched *job, const char *run_dir, int rank);

/* Use a new folder for temporary files, to see what is left there. */
void set_tmpdir(void);
void assert_tmpdir_is_empty(void);

/* The number of lines in @p text. */
int count_lines(const char *text);

/* Start cddp-run with these options; the caller includes small.conf. */
#define JOB_START(job, ...) launcher_start((job), (const char *const[]){__VA_ARGS__, NULL})

/* Run cddp-run to its end; assert that it succeeded. */
#define JOB_RUN_WELL(job, ...)                                                                     \
    do {                                                                                           \
        JOB_START(job, __VA_ARGS__);                                                               \
        launcher_wait((job));                                                                      \
        if ((job)->exit_status != 0) {                                                             \
            fail_msg("exit status %d: %s", (job)->exit_status, (job)->err);                        \
        }                                                                                          \
    } while (0)

/* A run that continues until it is ended, so that a test cannot be too late to interrupt it. */
#define LONG_RUN                                                                                   \
    in_work("small.conf"), "train.epochs=1000000", "train.eval_epochs=1000000",                    \
        "optimizer.schedule.type=constant", "model.hidden=[192,192]"

/* Wait for @p job, which was asked to stop. Returns the step after which it stopped, with a
 * checkpoint. */
unsigned long long await_stop(struct launched *job, const char *run_dir);

/* End @p job with signal @p number; it saves its state. Returns its last step. */
unsigned long long stop(struct launched *job, const char *run_dir, int number);

#endif
