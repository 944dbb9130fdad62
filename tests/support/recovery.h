/* recovery.h - jobs that are killed again and again, and go on from what their ranks have kept in
 * memory: from which step, and to which end. */
#ifndef CDDP_TESTS_SUPPORT_RECOVERY_H
#define CDDP_TESTS_SUPPORT_RECOVERY_H

#include "support/job.h"
#include "support/same_bits.h"

/* A run of same_bits_models that goes on until it is ended, and saves only then. */
#define RECOVERY_RUN(model)                                                                        \
    argument("%s", in_work("%s.conf", (model))), "train.epochs=1000000",                           \
        "train.eval_epochs=1000000", "train.keep=100"

/* The last step in the metrics; 0: there is none. */
unsigned long long recovery_last_metric(const char *run_dir);
/* Wait until @p job has done a few steps more: what is killed before this call does not. */
void recovery_await_steps(struct launched *job, const char *run_dir);

/* How often the job of which @p job is a part has gone on from memory so far. */
int recovery_count(const struct launched *job);
/* Wait for the @p count th time that it does. Returns the step. */
unsigned long long recovery_step(const struct launched *job, int count);

/* The rank is found, and killed, and is gone. False: it is not there. */
bool recovery_kill(const char *run_dir, int rank);

/* Kill ranks by @p kill, and wait until the job has gone on from memory, from the last step that
 * its metrics have or the one before. Returns the step. */
unsigned long long recovery_lose(struct launched *job, const char *run_dir,
                                 void (*kill)(const char *run_dir));

/* End @p job, and compare what it leaves with a run that nobody disturbs: on one rank, with the
 * same @p arguments. */
void recovery_compare(struct launched *job, const char *run_dir, const char *const *arguments);
/* The same, with a run on @p ranks ranks. */
void recovery_compare_by(struct launched *job, const char *run_dir, int ranks,
                         const char *const *arguments);
#define RECOVERY_COMPARE(job, run_dir, ...)                                                        \
    recovery_compare((job), (run_dir), (const char *const[]){__VA_ARGS__, NULL})

#endif
