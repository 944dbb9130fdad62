/* kept_state.h - what a run keeps in memory that outlives its ranks (train.recovery): the rules are
 * those of recovery/keep.h. */
#ifndef CDDPI_TRAIN_KEPT_STATE_H
#define CDDPI_TRAIN_KEPT_STATE_H

#include "recovery/keep.h"

#include <cddp/ddp.h>

struct cddpi_trainer;

/* Bytes on a device that this rank keeps, and where they come to in host memory. */
struct cddpi_kept_copy {
    const unsigned char *from;
    unsigned char *to;
    size_t bytes;
};

struct cddpi_kept_state {
    struct cddpi_keep keep;
    struct cddpi_keep_owner owner;
    cddp_param *model; /* parameters, then running statistics; on a device, their copies in host
                          memory. NULL: not listed */
    struct cddpi_kept_copy *copies;
    size_t copy_count, copy_room;
};

/** Whether train.recovery lets a run keep its state; the same on all ranks. */
bool cddpi_kept_state_is_possible(const struct cddpi_trainer *trainer);

/** Open the memory that the launcher holds for this rank, if that is possible. Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_kept_state_open(struct cddpi_trainer *trainer);
/** The run begins, from what was restored, if anything. Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_kept_state_begin(struct cddpi_trainer *trainer);
void cddpi_kept_state_close(struct cddpi_kept_state *state);

/** Whether rank 0 wants the state to be kept at the end of the step that begins: as often as
 *  train.recovery says. Other ranks: false. */
bool cddpi_kept_state_is_due(const struct cddpi_trainer *trainer);
/** Keep the state at the end of a step in which all ranks have agreed on it. Collective.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_kept_state_step(struct cddpi_trainer *trainer);

/** Restore the newest state that is kept, with trainer->cursor, if it is not older than a
 * checkpoint at step @p checkpoint. Collective.
 *  @param out_found  Whether it was restored; the same on all ranks.
 *  @return as cddpi_keep_restore(). */
CDDP_CHECKED cddp_status cddpi_kept_state_restore(struct cddpi_trainer *trainer,
                                                  uint64_t checkpoint, bool *out_found);

#endif
