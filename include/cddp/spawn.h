/** @file
 *  spawn.h - ranks as forks of one program, without a launcher, like torch.multiprocessing.spawn.
 */
#ifndef CDDP_SPAWN_H
#define CDDP_SPAWN_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The body of a rank. Runs in a process of its own. May call: anything.
 *  @param state  As passed to cddp_spawn().
 *  @param rank   In [0, nprocs).
 *  @return CDDP_OK. With any other status the rank has failed, and cddp_spawn() returns that
 *          status. If the last failed call (or cddp_fail()) of the thread that ran this function
 *          had the same status, its text is the error text. */
typedef cddp_status (*cddp_spawn_fn)(void *state, int rank);

/** Time limits of cddp_spawn(); zero means default. */
typedef struct cddp_spawn_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** Ranks that run longer are ended, and the error names them; 0: no limit. */
    uint32_t timeout_ms;
    /** Time between SIGTERM and SIGKILL when ranks have to end; 0: 10000. */
    uint32_t grace_ms;

} cddp_spawn_options;
/** The defaults of cddp_spawn_options. */
#define CDDP_SPAWN_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_spawn_options), 0, 0                                                           \
    }
CDDP_NO_TAIL(cddp_spawn_options, grace_ms);

enum { CDDP_MAX_SPAWN_RANKS = 4096 /**< the most ranks of a call */ };

/** Run @p fn in @p nprocs forks of this process, as ranks 0 to nprocs - 1, and wait until all have
 *  ended. In each of them, cddp_group_create(NULL, &group) joins all ranks: this call sets the
 *  environment that cddp-run sets (CDDP_RANK ..., RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, a free
 *  MASTER_PORT), and serves the store on loopback.
 *
 *  A fork has a copy of the caller's memory and of its open files, but only the calling thread. So
 *  call this function before you create threads or groups, or use CUDA. When @p fn returns, the
 *  rank flushes its streams and ends; it does not run the caller's exit handlers (atexit()).
 *
 *  When a rank fails, ranks that are joining a group fail, too. All other ranks get SIGTERM, and
 *  SIGKILL after the grace period. If this process or the calling thread dies, the kernel kills the
 *  ranks. This call reaps the ranks itself (waitpid()); the caller's SIGCHLD handler must not reap
 *  them.
 *
 *  Collective: no.
 *  @param nprocs   In [1, CDDP_MAX_SPAWN_RANKS].
 *  @param fn       Runs in each rank's process.
 *  @param state    Passed to @p fn. The caller does not see what a rank writes there.
 *  @param options  NULL for all defaults.
 *  @return CDDP_OK if every rank returned CDDP_OK. Otherwise the status of the rank that caused the
 *          failure, with a text that begins with "rank R: ". CDDP_ERR_PEER if that rank was ended
 *          by a signal (the text names it), or ended before @p fn returned (exit() or
 *          pthread_exit(), even with status 0); if it returned a number that is not an error: the
 *          status of its last failed call of cddp, or CDDP_ERR_PEER if there was none.
 *          CDDP_ERR_TIMEOUT if ranks were ended at the deadline (the text names them).
 *          CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY or CDDP_ERR_IO (a fork, a port): no rank has run
 *          @p fn. */
CDDP_CHECKED cddp_status cddp_spawn(int nprocs, cddp_spawn_fn fn, void *state,
                                    const cddp_spawn_options *options);

#ifdef __cplusplus
}
#endif
#endif
