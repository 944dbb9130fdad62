/* ctl.h - serves cddp-ctl within cddp-run: a socket in the run folder takes requests about the job.
 * It does not wait for clients: descriptors do not block, lengths are bounded, and a client that
 * does not send its request in time is dropped. To add ranks, it asks cddp-train whether the
 * configuration allows them, and goes on meanwhile. The supervising thread calls it whenever the
 * descriptor is readable. All functions accept NULL: a cddp-run that serves none. */
#ifndef CDDPI_LAUNCHER_CTL_H
#define CDDPI_LAUNCHER_CTL_H

#include <stdbool.h>
#include <sys/types.h>

struct cddpi_ctl;
struct cddpi_nodes;

/** Serve requests about the job of @p nodes: in the run folder, once rank 0 is here and the folder
 *  is known; and if this process serves the job's store, in the store.
 *  @param trains  The ranks are cddp-train.
 *  @return Release with cddpi_ctl_end(). NULL: neither can ever be here, or there is no memory for
 *          it, which is logged. */
struct cddpi_ctl *cddpi_ctl_begin(struct cddpi_nodes *nodes, bool trains);

/** The job ends with @p exit_status: tell the clients that wait for that. */
void cddpi_ctl_end(struct cddpi_ctl *ctl, int exit_status);

/** A descriptor that is readable while there is something to do; -1: none. */
int cddpi_ctl_fd(const struct cddpi_ctl *ctl);

/** Do what is due. */
void cddpi_ctl_serve(struct cddpi_ctl *ctl);

/** Something may have changed for the members: answer those that have waited for it. */
void cddpi_ctl_look(struct cddpi_ctl *ctl);

/** Rank 0 reports the run folder, and can write checkpoints from now on. */
void cddpi_ctl_take_folder(struct cddpi_ctl *ctl, const char *dir);

/** Rank 0 reports that a checkpoint is written, or (@p has_saved false) could not be written. */
void cddpi_ctl_take_saved(struct cddpi_ctl *ctl, bool has_saved);

/** The child @p pid, which is no rank, has ended with @p wait_status: the one that cddp-ctl waits
 *  for, or another. */
void cddpi_ctl_take_child(struct cddpi_ctl *ctl, pid_t pid, int wait_status);

/** The ranks of this machine have ended. */
void cddpi_ctl_take_ranks_end(struct cddpi_ctl *ctl);

#endif
