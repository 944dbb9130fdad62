/** @file
 *  spawn.h - ranks as forks of one program, as torch.multiprocessing.spawn has them: no launcher.
 */
#ifndef CDDP_SPAWN_H
#define CDDP_SPAWN_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a rank does: in a process of its own, with its rank and what cddp_spawn() got as @p arg.
 *  @return 0 for success. Otherwise the rank has failed, and this thread's last failed call of cddp
 *          (cddp_last_error()) is the reason that cddp_spawn() reports. */
typedef int (*cddp_spawn_fn)(int rank, void *arg);

/** Zero means default. */
typedef struct cddp_spawn_options {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** Ranks that run longer are ended, and named; 0: they may run as long as they like. */
    uint32_t timeout_ms;
    /** Between asking ranks to end (SIGTERM) and killing them; 0: 10000. */
    uint32_t grace_ms;

} cddp_spawn_options;
/** A cddp_spawn_options of defaults. */
#define CDDP_SPAWN_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_spawn_options), 0, 0                                                           \
    }

enum { CDDP_SPAWN_RANKS = 4096 /**< the most ranks of a call */ };

/** Run @p fn in @p nprocs forks of this process, ranks 0 to nprocs - 1, and wait until all have
 * ended. Each finds the environment that cddp-run gives (CDDP_RANK ..., RANK, WORLD_SIZE,
 * LOCAL_RANK, MASTER_ADDR, a free MASTER_PORT) and a store that this call serves on loopback, so
 * that cddp_group_create(NULL, &group) joins them.
 *
 * Forks have copies of the caller's memory and of its open files, but only the calling thread: call
 * it before threads, groups and CUDA. A rank that returns ends without the exit handlers (atexit())
 * of the caller, after its streams were flushed.
 *
 * When a rank fails, the others' pending joins fail, and they are asked to end (SIGTERM), and
 * killed after the grace period. When this process or the calling thread dies, the kernel kills the
 * ranks. The call waits for each rank itself (waitpid()): the caller's handlers of SIGCHLD may not
 * take them.
 *  @param fn       In the rank's process.
 *  @param nprocs   In [1, CDDP_SPAWN_RANKS].
 *  @param arg      Given to @p fn; what ranks write there the caller does not see.
 *  @param options  NULL for all defaults.
 *  @return CDDP_OK if every rank returned 0. Else what the first rank to fail failed with, the text
 *          beginning with "rank R: "; CDDP_ERR_PEER if that rank was ended by a signal (named),
 *          without an error of cddp, or before @p fn returned (exit(), pthread_exit(), also with
 *          status 0); CDDP_ERR_TIMEOUT: ranks (named) were ended at the deadline;
 *          CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY, CDDP_ERR_IO (a fork, a port): none has run fn. */
CDDP_CHECKED cddp_status cddp_spawn(cddp_spawn_fn fn, int nprocs, void *arg,
                                    const cddp_spawn_options *options);

#ifdef __cplusplus
}
#endif
#endif
