/* mpirun.h - jobs that the real mpirun starts on this machine. */
#ifndef CDDP_TESTS_SUPPORT_MPIRUN_H
#define CDDP_TESTS_SUPPORT_MPIRUN_H

#include "support/launcher.h"

/* In a case: skip it if there is no Open MPI, or cddp was built without its MPI module. */
#define NEED_MPIRUN()                                                                              \
    do {                                                                                           \
        if (!mpirun_is_here()) {                                                                   \
            skip();                                                                                \
        }                                                                                          \
    } while (0)
/* Prints why not. */
int mpirun_is_here(void);

/* Start @p program with @p arguments on @p ranks ranks. @p hosts: NULL, or a list for --host such
 * as "a:2,b:1". mpirun takes these for several hosts, but all of them are this machine. */
void mpirun_start(struct launched *job, int ranks, const char *hosts, const char *program,
                  const char *const *arguments);

/* From now on, use the caller's script instead of mpirun's ssh. Its arguments are options, a host
 * of --host, and the words of a command. */
void mpirun_use_agent(const char *path);

/* Start the job and wait for its end. */
#define MPIRUN(job, ranks, hosts, program, ...)                                                    \
    do {                                                                                           \
        mpirun_start((job), (ranks), (hosts), (program),                                           \
                     (const char *const[]){__VA_ARGS__, NULL});                                    \
        launcher_wait((job));                                                                      \
    } while (0)

/* Assert that it exited with status 0. */
void assert_mpirun_ended_well(const struct launched *job);

#endif
