/* held_save.h - jobs whose checkpoints in the background wait until the test lets them go on. The
 * calls that wait are those of tests/train/failing_calls.c. */
#ifndef CDDP_TESTS_SUPPORT_HELD_SAVE_H
#define CDDP_TESTS_SUPPORT_HELD_SAVE_H

#include "support/job.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define NEED_HELD_CALLS()                                                                          \
    print_message("a sanitizer wants to be loaded before the calls that wait\n");                  \
    skip()
#else
#define NEED_HELD_CALLS()
#endif

#define BEHIND "train.checkpoint_async=true", "train.checkpoint_seconds=0", "train.keep=0"

/* Programs that are started from now on load these calls, until disturb_no_more(). */
void disturb(const char *variable, const char *value);
void disturb_no_more(void);

/* Who writes @p file, in a program that is started from now on, waits until held_release(). */
void hold(const char *file);
void held_release(void);

/* Whether the run has a whole checkpoint of @p step. */
bool is_whole(const char *run_dir, int step);

/* How many checkpoints the metrics tell of in a line with @p how. */
int lines_of_saves(const char *run_dir, const char *how);

/* Start a run of 12 steps with a checkpoint every 5 steps, whose first one waits in @p file.
 * Training has gone on, by a few steps. */
void start_held(struct launched *job, const char *run_dir, const char *ranks, const char *file);

/* The same run, undisturbed and without a thread. */
void run_unheld(const char *run_dir, const char *ranks);

/* Let cddp-ctl ask the run for a checkpoint. Returns when rank 0 has got the request. */
void ask_for_checkpoint(struct launched *ctl, const char *run_dir);

#endif
