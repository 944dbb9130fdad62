/* undisturbed.h - a run that is disturbed on its way, and the same run on one rank that nobody
 * disturbs: with micro-batches both leave the same bytes. */
#ifndef CDDP_TESTS_SUPPORT_UNDISTURBED_H
#define CDDP_TESTS_SUPPORT_UNDISTURBED_H

/* Write the configuration of such a run to @p folder. */
void undisturbed_write_conf(const char *folder);

/* Wait until the run in @p folder/run has its first checkpoint. */
void undisturbed_await_checkpoint(const char *folder);

/* The run in @p folder/run has ended: compare its last checkpoint with that of one rank. */
void undisturbed_compare(const char *folder);

#endif
