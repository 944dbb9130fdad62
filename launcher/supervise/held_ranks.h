/* held_ranks.h - ranks' processes that stay when their generation ends, since they lost other ranks
 * or were asked to stop, and have failed at nothing themselves (base/rejoin_wire.h). To the state
 * machine (job_state.h) such a rank has ended. Each process gets a place in the next generation, or
 * is let go: it sees the end of its socket, and exits, or is killed. */
#ifndef CDDPI_LAUNCHER_HELD_RANKS_H
#define CDDPI_LAUNCHER_HELD_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cddpi_held_rank;
struct cddpi_job;
struct cddpi_job_state;
struct cddpi_output;
struct cddpi_wait;
struct cddpi_worker;

/* Zeroed at first. */
struct cddpi_held_ranks {
    struct cddpi_held_rank *list; /* by local rank; owned */
    int count;                    /* of the places */
    int memory_count; /* of the memories that outlive ranks, as all of these processes have them */
    struct cddpi_held_rank *leaving; /* let go, and not known to have exited; owned */
    int leaving_count;
};

/** Whether a process of a generation in this @p state may stay: its job may go on. */
bool cddpi_held_may_stay(const struct cddpi_job_state *state);

/** Whether @p pid runs the program file @p path, so that a new process would be the same. What a
 *  script has started with exec is not: the script may choose its words anew in each generation. */
bool cddpi_held_runs(pid_t pid, const char *path);

/** The generation of @p workers has ended: take those that are held. */
void cddpi_held_keep(struct cddpi_job *job, struct cddpi_worker *workers);

/** Whether @p pid is held. @p held may be NULL. */
bool cddpi_held_has(const struct cddpi_held_ranks *held, pid_t pid);

/** A generation begins: give held processes the places of its ranks, each its own if that exists,
 *  and let go those without a place. */
void cddpi_held_place(struct cddpi_job *job);

/** Start @p worker in the process that was held for its place. Returns false if there is none. */
bool cddpi_held_start(struct cddpi_job *job, struct cddpi_worker *worker,
                      struct cddpi_output *output);

/** Pass on what those print that were let go, and kill the ones whose time is over. Returns whether
 *  some are left: then call this again within a second. */
bool cddpi_held_look(struct cddpi_job *job);

/** The job is over: let all go, and wait until they have exited, or been killed. */
void cddpi_held_end(struct cddpi_job *job, struct cddpi_wait *wait);

#endif
