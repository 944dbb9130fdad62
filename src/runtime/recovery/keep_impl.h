/* keep_impl.h - what copying a state (keep.c) and restoring it (keep_restore.c) share: the form of
 * a part.
 *
 *     head      struct cddpi_kept_head
 *     pieces    struct cddpi_keep_piece
 *     calls     what functions have written
 *     data      of each piece
 *     checksum  of all before: who damages its memory may damage this, too
 *
 * Each item begins at a multiple of CDDPI_KEPT_BLOCK bytes; zeros fill the gaps. */
#ifndef CDDPI_RECOVERY_KEEP_IMPL_H
#define CDDPI_RECOVERY_KEEP_IMPL_H

#include "recovery/keep.h"
#include "recovery/kept_sum.h"

struct cddpi_kept_head {
    uint64_t pieces; /* their number */
};

/* At the end of a part: as much as a block, though only the sum is read. */
enum { CDDPI_KEPT_CHECKSUM_BYTES = CDDPI_KEPT_BLOCK };

/** The owner warns: its name, and a text. */
void cddpi_keep_warn(const struct cddpi_keep *keep, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Bytes that all functions write, in a part. */
uint64_t cddpi_keep_calls_bytes(const struct cddpi_keep_contents *state);
/** What an item of @p bytes bytes takes in a part. */
static inline uint64_t cddpi_keep_padded(uint64_t bytes)
{
    return (bytes + CDDPI_KEPT_BLOCK - 1) / CDDPI_KEPT_BLOCK * CDDPI_KEPT_BLOCK;
}

/** Forget all that was kept of this run, but what was restored. */
void cddpi_keep_forget(struct cddpi_keep *keep);

/** How many ranks this rank's launcher has. */
int cddpi_keep_local_ranks(void);
/** Before one more of a rank's slots is used for the first time: find out whether all ranks are
 *  ready, choose with whom this rank exchanges copies, and take memory for the other's. Sets
 *  keep->is_off, sends, to, from and other_bytes. Collective.
 *  @param mine  Whether this rank is ready; else its last error says why not. */
CDDP_CHECKED cddp_status cddpi_keep_introduce(struct cddpi_keep *keep, cddp_status mine);
/** Send this rank's newest copy, in @p slot, to another rank, and get one. Both are complete when
 *  this returns, so what other ranks get from this rank later says that it has kept its copy. */
CDDP_CHECKED cddp_status cddpi_keep_exchange(struct cddpi_keep *keep, int slot,
                                             const struct cddpi_kept_stamp *stamp);

#endif
