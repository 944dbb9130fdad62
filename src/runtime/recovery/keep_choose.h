/* keep_choose.h - decides from which of the states that ranks have kept a job goes on. A pure
 * function, so that all ranks decide the same from what they exchange. */
#ifndef CDDPI_RECOVERY_KEEP_CHOOSE_H
#define CDDPI_RECOVERY_KEEP_CHOOSE_H

#include "recovery/kept_memory.h"

enum { CDDPI_KEEP_STAMPS = 128 }; /* of a rank: those of all memory that it can read */

/* What a rank can read. */
struct cddpi_keep_offer {
    uint64_t run;        /* rank 0: which run the job goes on with */
    uint64_t layout;     /* of its run */
    uint64_t checkpoint; /* rank 0: the step of the checkpoint that is there; 0: none */
    uint64_t is_refused; /* the state may be the cause of the failure */
    struct cddpi_kept_stamp stamps[CDDPI_KEEP_STAMPS]; /* step 0: nothing */
};

/* Where a part of the chosen state is. */
struct cddpi_keep_place {
    int rank;  /* who can read it; the lowest, if several can */
    int stamp; /* which of its stamps */
};

/** Choose the greatest step of which every part is there, written by the same processes in this
 *  run with the same layout. It is not chosen if any rank refuses, if the layouts of the ranks
 * differ, or if the checkpoint is newer.
 *  @param offers  Of @p ranks ranks, as gathered.
 *  @param out     Its stamp; step 0: there is none.
 *  @param places  Of its parts, out->parts of them; room for @p room, and a state of more parts is
 *                 not chosen. */
void cddpi_keep_choose(const struct cddpi_keep_offer *offers, int ranks,
                       struct cddpi_kept_stamp *out, struct cddpi_keep_place *places, size_t room);

#endif
