/* worker.h - one rank as a process: its environment, its own process group, its cores. It is killed
 * when its parent dies. Only the supervising thread may start workers, because the kernel kills
 * them when the *thread* that forked them ends. */
#ifndef CDDPI_LAUNCHER_WORKER_H
#define CDDPI_LAUNCHER_WORKER_H

#include "launcher/output/relay.h"
#include "launcher/supervise/job.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

/** The variables that cddp-run sets for @p rank, as "NAME=value" strings ended by NULL.
 *  @param out  One block; release with cddp_free(). */
CDDP_CHECKED cddp_status cddpi_environment_own(const struct cddpi_job *job, int rank, char ***out);

/** This process's environment, with the variables in @p own, ended by NULL, in place of those of
 * the same name. The strings are borrowed from both.
 *  @param out  Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_environment_merge(char *const *own, char ***out);

/** The share of this machine's cores that @p rank of this generation gets, as --bind says. */
struct cddpi_core_share cddpi_worker_cores(const struct cddpi_job *job, int rank);

/** The same as a mask of @p out_bytes bytes; NULL: the rank is not bound.
 *  @param out  Release with CPU_FREE(). */
CDDP_CHECKED cddp_status cddpi_worker_mask(const struct cddpi_job *job, int rank, cpu_set_t **out,
                                           size_t *out_bytes);

struct cddpi_worker {
    int rank;
    pid_t pid;     /* also its process group; 0: not started */
    int pidfd;     /* -1: this kernel has no pidfds; SIGCHLD is used instead */
    int exec_fd;   /* readable with an errno if exec failed, at end of file if it succeeded; then
                      -1 */
    int rejoin_fd; /* through it, a process asks to stay (base/rejoin_wire.h); -1: none */
    int status;    /* from waitpid(); valid once has_ended */
    bool has_ended;
    bool is_held;      /* with has_ended: its process is still there, for the next generation */
    bool has_left;     /* it has reported that someone asked it to leave */
    bool must_go;      /* another process takes its place */
    bool awaits_ready; /* its process has stayed, and has not said that it is ready ... */
    int late_signal;   /* ... since when this was sent to it; 0: nothing */
    struct cddpi_relay out;
    struct cddpi_relay err;
    struct cddpi_tail tail;
    struct cddpi_rank_log log;
};

/** Fork and execute the job's command as worker->rank. Does not wait for the exec: see
 *  cddpi_worker_exec_error(). @p unblocked is the worker's signal mask. On failure nothing stays
 *  open. */
CDDP_CHECKED cddp_status cddpi_worker_start(struct cddpi_worker *worker,
                                            const struct cddpi_job *job,
                                            struct cddpi_output *output, const sigset_t *unblocked);

/** Call once exec_fd is readable. Returns 0 if the program runs, else the errno of the failed
 *  exec. */
int cddpi_worker_exec_error(struct cddpi_worker *worker);

/** Close the worker's descriptors. */
void cddpi_worker_close(struct cddpi_worker *worker);

#endif
