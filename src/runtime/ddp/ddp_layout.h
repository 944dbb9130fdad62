/* ddp_layout.h - owns the buckets' memory and their sizes. */
#ifndef CDDPI_DDP_LAYOUT_H
#define CDDPI_DDP_LAYOUT_H

#include "ddp/ddp.h"

/* ddp_layout.c */
/** Plan for slots that become ready in @p order (NULL: as the rule says). Local.
 *  @param out  Release with cddpi_layout_release(). */
cddp_status cddpi_layout_make(cddp_ddp *ddp, const uint32_t *order, struct cddpi_layout *out);
/** Give @p layout memory and replace the present layout by it. Gradients move to the new memory,
 * and the handle owns @p layout from then on. Collective. */
cddp_status cddpi_layout_install(cddp_ddp *ddp, struct cddpi_layout *layout);
void cddpi_layout_release(cddp_ddp *ddp, struct cddpi_layout *layout);
/** Rebuild the buckets in the order in which gradients became ready on rank 0, if all did there.
 *  Collective. */
cddp_status cddpi_layout_rebuild(cddp_ddp *ddp);
/** After the first backward in which all gradients became ready: warn if the first bucket had to
 *  wait long because of the order of gradients in the caller's block. */
void cddpi_layout_tell_late(cddp_ddp *ddp);

/** Set the rule's sizes to the caller's or the defaults, and decide whether rank 0 may replace them
 *  by sizes that suit the link. Local; all ranks decide the same. */
void cddpi_sizes_begin(cddp_ddp *ddp, const cddp_ddp_options *options);
/** Rank 0 chooses the sizes and sends them to all ranks. It assumes that gradients become ready in
 *  @p order (NULL: as the rule says) and, if @p measured, at the times of this backward.
 *  Collective. */
cddp_status cddpi_sizes_choose(cddp_ddp *ddp, const uint32_t *order, bool measured,
                               bool *out_changed);
/** Log the plan. @p measured: it was chosen from the times of a backward. */
void cddpi_sizes_tell(const cddp_ddp *ddp, bool measured);

#endif
