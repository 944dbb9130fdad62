/* keep_impl.h - what copying the state (keep.c) and restoring it (keep_restore.c) share: the form
 * of a part.
 *
 *     number of pieces
 *     pieces              struct cddpi_kept_piece
 *     sums                struct cddpi_kept_sums
 *     whole tensors       the optimizer's counters, a loss scale, running statistics
 *     of each piece: its parameter's elements, then each moment's
 *     checksum            of all before: who damages its memory may damage this, too */
#ifndef CDDPI_TRAIN_KEEP_IMPL_H
#define CDDPI_TRAIN_KEEP_IMPL_H

#include "train/recovery/keep.h"
#include "train/trainer.h"

struct cddpi_kept_piece {
    uint64_t param, first, count;
};

/* What this rank has added up for the next line of metrics, and since when the newest checkpoint is
 * there. */
struct cddpi_kept_sums {
    struct cddpi_exact_sum loss;
    double correct, count, skipped_count;
    uint64_t skipped;
    int64_t unsaved_ns;
};

/** How many moments each parameter has. */
size_t cddpi_keep_moments(const struct cddpi_trainer *trainer);

/** List the tensors of the state. The optimizer has its final place; on a device, copies are made.
 *  @param out  Release with cddpi_keep_release_tensors(). */
CDDP_CHECKED cddp_status cddpi_keep_list_tensors(struct cddpi_trainer *trainer,
                                                 struct cddpi_kept_tensors *out);
void cddpi_keep_release_tensors(struct cddpi_kept_tensors *tensors);
/** Bytes of what precedes the pieces' elements, if there are @p pieces of them. */
uint64_t cddpi_keep_head_bytes(const struct cddpi_kept_tensors *tensors, uint64_t pieces);

enum { CDDPI_KEPT_CHECKSUM_BYTES = sizeof(uint32_t) };

/** Bring the state from the device, whose steps have ended, to the copies, or back. They do nothing
 *  on the CPU. Collective. */
CDDP_CHECKED cddp_status cddpi_keep_fetch(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_keep_send(struct cddpi_trainer *trainer);

/** Forget all that was kept of this run, but what was restored. */
void cddpi_keep_forget(struct cddpi_keep *keep);

/** How many ranks this rank's launcher has. */
int cddpi_keep_local_ranks(void);
/** Before one more of a rank's slots is used for the first time: find out whether all ranks are
 *  ready, choose with whom this rank exchanges copies, and take memory for the other's. Sets
 *  keep->is_off, sends, to, from and other_bytes. Collective.
 *  @param mine  Whether this rank is ready; else its last error says why not. */
CDDP_CHECKED cddp_status cddpi_keep_introduce(struct cddpi_trainer *trainer, cddp_status mine);
/** Send this rank's newest copy, in @p slot, to another rank, and get one. Both are complete when
 *  this returns, so what other ranks get from this rank later says that it has kept its copy. */
CDDP_CHECKED cddp_status cddpi_keep_exchange(struct cddpi_trainer *trainer, int slot,
                                             const struct cddpi_kept_stamp *stamp);

#endif
