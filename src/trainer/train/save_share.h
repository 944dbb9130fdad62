/* save_share.h - owns the copies of checkpoints that are shared out among ranks
 * (train.checkpoint_async): those on the machine of rank 0 copy a part each, into memory that they
 * share, and threads of all of them write the files (checkpoint/shared_copy.h). A part of a sharded
 * optimizer's state is copied by the rank that has it, so nothing is gathered on rank 0.
 *
 * Where that is not possible, rank 0 copies and writes everything: on a GPU, in a pipeline, if a
 * rank owns several devices, if rank 0 is alone on its machine, if a sharded optimizer is on
 * several machines, or if a rank cannot open the memory. */
#ifndef CDDPI_TRAIN_SAVE_SHARE_H
#define CDDPI_TRAIN_SAVE_SHARE_H

#include "checkpoint/shared_copy.h"

struct cddpi_config;
struct cddpi_trainer;

struct cddpi_save_share {
    struct cddpi_shared_copy copy;
    uint64_t number;             /* of the memory, counted by rank 0; 0: none yet */
    struct cddpi_helper *helper; /* not on rank 0; NULL: none is at work */
    int part, parts;             /* of the ranks on rank 0's machine; part -1: on another one.
                                    parts 0: not known yet */
    bool is_taken;               /* the current checkpoint is in `copy` */
};

/** Whether @p config allows it; then it depends on the device, and on where the ranks are. */
bool cddpi_save_share_is_possible(const struct cddpi_config *config);

/** Agree on whether to share out the next checkpoint, and make and open memory for it; helpers of
 *  the one before it end. Collective.
 *  @param out  The same on all ranks.
 *  @return CDDP_OK, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_save_share_plan(struct cddpi_trainer *trainer, bool *out);
/** Copy this rank's part, and wait until all ranks have. Sets is_taken. Collective.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_save_share_take(struct cddpi_trainer *trainer);
/** Rank 0 has begun to write the copy, or not: help, or let helpers end. */
void cddpi_save_share_help(struct cddpi_trainer *trainer);
/** End helping, and release the memory. Returns false, and does not, if a thread of this process
 *  still writes it. */
bool cddpi_save_share_fini(struct cddpi_trainer *trainer);

#endif
