/* recovery_api.h - jobs of recovery_rank, a program that registers the state of its loops with
 * cddp/recovery.h: which ranks end, and how the others go on. */
#ifndef CDDP_TESTS_SUPPORT_RECOVERY_API_H
#define CDDP_TESTS_SUPPORT_RECOVERY_API_H

#include "support/launcher.h"

/* Loops of a few steps: all kinds of what can be registered, of odd sizes. */
#define ARRAYS_ALL "whole=31 part=33 whole=1 part=2 whole=32 part=1 whole=4097 part=100001 "
#define STATE_ALL "every=1 steps=9 calls=33 " ARRAYS_ALL

/* Run a job with @p ranks ranks, a digit, whose lost ranks are replaced. Its rank 0 says all of
 * @p lines, in this order, no rank finds anything wrong, and it ends well. @p job, if not NULL, is
 * the caller's then. */
void recovery_runs(struct launched *job, const char *ranks, const char *const *loops,
                   const char *const *lines);
#define LOOPS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define RECOVERS(ranks, words, ...) recovery_runs(NULL, ranks, LOOPS(words), LOOPS(__VA_ARGS__))
#define RECOVERS_AS(job, ranks, words, ...)                                                        \
    recovery_runs(job, ranks, LOOPS(words), LOOPS(__VA_ARGS__))

/* The same for a job that was started with other options. */
void recovery_ends_well(struct launched *job, const char *const *lines);
/* Where the program is. */
const char *recovery_rank(void);

#endif
