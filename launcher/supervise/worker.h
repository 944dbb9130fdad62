/* worker.h - one rank as a process: started in a process group of its own, bound to its cores,
 * dying with its parent. Only the thread that supervises may start workers: the kernel kills them
 * when the *thread* that forked them ends. */
#ifndef CDDPI_LAUNCHER_WORKER_H
#define CDDPI_LAUNCHER_WORKER_H

#include "launcher/output/relay.h"
#include "launcher/supervise/job.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

struct cddpi_worker {
    int rank;
    pid_t pid;   /* also its process group; 0: not started */
    int pidfd;   /* -1: this kernel has none, SIGCHLD must do */
    int exec_fd; /* gives an errno if the program could not be executed, else its end; -1 then */
    int status;  /* of waitpid(), once has_ended */
    bool has_ended;
    struct cddpi_relay out;
    struct cddpi_relay err;
    struct cddpi_tail tail;
    struct cddpi_rank_log log;
};

/** Fork and execute the job's command as worker->rank. Returns without waiting for the exec: see
 *  cddpi_worker_exec_error(). @p unblocked is the signal mask that the worker gets.
 *  On failure nothing stays open. */
CDDP_CHECKED cddp_status cddpi_worker_start(struct cddpi_worker *worker,
                                            const struct cddpi_job *job,
                                            struct cddpi_output *output, const sigset_t *unblocked);

/** Once exec_fd is readable: 0, the program runs, or the errno with which it could not
 *  be executed. */
int cddpi_worker_exec_error(struct cddpi_worker *worker);

/** Send @p number to its process group, if it has not ended. */
void cddpi_worker_signal(const struct cddpi_worker *worker, int number);

/** Close what is open. */
void cddpi_worker_close(struct cddpi_worker *worker);

#endif
