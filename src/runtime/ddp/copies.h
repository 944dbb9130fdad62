/* copies.h - a sharded optimizer on a device for models whose matrix products read 16-bit copies of
 * the parameters: an update writes this rank's part of the copies, too, and ranks then send each
 * other the copies, which are half as large as the parameters.
 *
 *     cddpi_ddp_create_with_copies()
 *     (each rank casts all parameters to cddpi_ddp_param_copy(); again after parameters were
 * loaded) (the update writes parameters and copies inside this rank's spans) cddp_ddp_updated()
 *     cddp_ddp_param_wait(i)      the copy of parameter i is whole
 *     cddpi_ddp_params_whole()    for a checkpoint: parameters are whole, too
 *
 * Parameters without a copy are sent as they are. Belongs to the thread that drives compute. */
#ifndef CDDPI_DDP_COPIES_H
#define CDDPI_DDP_COPIES_H

#include <cddp/ddp.h>

#include <stdbool.h>

struct cddpi_ddp_copies {
    cddp_type type;       /* CDDP_BF16 or CDDP_F16 */
    const size_t *counts; /* by parameter: elements of its copy, of which those behind the
                             parameter's are zeros; 0: it has none */
    bool follows;         /* the caller makes all anew that depends on where sharded parameters and
                             gradients lie, and on spans, if cddpi_ddp_has_moved() behind the first
                             cddp_ddp_wait(); nothing was updated before */
};

/** As cddp_ddp_create(). There are copies only with a sharded optimizer, on a device, with several
 *  ranks.
 *  @param copies  The same on all ranks, borrowed for the call; NULL: none. */
CDDP_CHECKED cddp_status cddpi_ddp_create_with_copies(cddp_group *group, const cddp_param *params,
                                                      size_t param_count, const cddp_param *buffers,
                                                      size_t buffer_count,
                                                      const cddp_ddp_options *options,
                                                      const struct cddpi_ddp_copies *copies,
                                                      cddp_ddp **out);
/** Whether the last cddp_ddp_wait() has given a sharded optimizer another plan, which suits the
 * times at which gradients were ready: parameters and gradients, all of which are whole now on
 * every rank, lie elsewhere, and ranks have other spans. The same on all ranks. */
bool cddpi_ddp_has_moved(const cddp_ddp *ddp);
/** The plan stays: there is state by its spans. On all ranks, before the first backward. */
void cddpi_ddp_keep_plan(cddp_ddp *ddp);
/** Where the copy of parameter @p index lives, 256-byte aligned, zeros at first; NULL: it has none.
 */
void *cddpi_ddp_param_copy(const cddp_ddp *ddp, size_t index);
/** Make all parameters whole on all ranks. Collective; without copies that is
 *  cddp_ddp_params_wait(), and without a sharded optimizer nothing. */
CDDP_CHECKED cddp_status cddpi_ddp_params_whole(cddp_ddp *ddp);

#endif
