/* rank_memory.h - memory that outlives the ranks of this machine: for each local rank one memfd,
 * which the supervising process holds over all generations of the job. What a rank writes there is
 * what the next generation can go on from, without a checkpoint. The launcher never reads it. */
#ifndef CDDPI_LAUNCHER_RANK_MEMORY_H
#define CDDPI_LAUNCHER_RANK_MEMORY_H

#include "base/machine.h"

#include <cddp/status.h>

#include <stddef.h>
#include <sys/resource.h>

/* Zeroed at first. */
struct cddpi_rank_memory {
    int *fds;     /* by local rank; close-on-exec; owned */
    int count;    /* as many as the most local ranks so far; 0: none */
    bool is_lost; /* there was no memory for all ranks, so there is none for any */
};

/** Have memory for @p ranks local ranks. What is there already stays, also that of more ranks.
 *  @param file_limit  How many descriptors a rank may open: they are few beside that.
 *  @return  After a failure, there is none for any rank, now and later; only the first failure
 *           returns other than CDDP_OK. */
CDDP_CHECKED cddp_status cddpi_rank_memory_hold(struct cddpi_rank_memory *memory, int ranks,
                                                rlim_t file_limit);
void cddpi_rank_memory_release(struct cddpi_rank_memory *memory);

enum { CDDPI_RANK_MEMORY_TEXT_BYTES = CDDPI_MACHINE_RANKS * 11 + 1 };
/** Write the descriptors as CDDP_KEEP_FDS has them, such as "7,8,9". */
void cddpi_rank_memory_text(const struct cddpi_rank_memory *memory,
                            char out[CDDPI_RANK_MEMORY_TEXT_BYTES]);

/** In a rank before its exec: let its program have all descriptors. Async-signal-safe. */
void cddpi_rank_memory_pass(const struct cddpi_rank_memory *memory);

#endif
