/* copies.h - what cddp-train uses of a cddp_ddp besides the public header: on a device a sharded
 * optimizer with copies of parameters, and captured steps; on the CPU gradients that are reduced
 * only when the optimizer reads them; and the steps of pipelines. Everything here belongs to the
 * thread that drives compute.
 *
 * 1. A sharded optimizer for models whose matrix products read 16-bit copies of the parameters. An
 * update also writes this rank's part of the copies. Then ranks send each
 * other the copies instead of the parameters, which are twice as large.
 *
 *     cddpi_ddp_create_with_copies()
 *     cast all parameters to cddpi_ddp_param_copy(), and again after parameters were loaded
 *     each step:
 *         update parameters and copies inside this rank's spans
 *         cddp_ddp_params_start()
 *         cddp_ddp_param_wait(i)      the copy of parameter i is complete
 *     cddpi_ddp_params_whole()        for a checkpoint: the parameters are complete, too
 *
 * Parameters without a copy are sent as they are.
 *
 * 2. Capturing a step once and then replaying it, for a trainer whose steps are all alike.
 *
 *     cddpi_ddp_capture_begin()
 *         forward, cddp_ddp_begin(), gradients that become ready, cddp_ddp_wait(), the update
 *     cddpi_ddp_capture_end()
 *     cddpi_ddp_replay(), cddp_ddp_params_start()     for this step and each later one
 *
 * A capture keeps the step's kind and samples. Replays do not check what the other ranks do: all
 * ranks must capture and replay the same steps. Replayed steps are not timed, so statistics do not
 * contain them.
 *
 * 3. A sum over micro-batches in a pipeline, where a rank's parameters are at different
 * micro-batches at the same time.
 *
 *     cddpi_ddp_begin_run()
 *         passes of the rank's micro-batches, in any order in which each parameter has them in
 *         theirs; after each gradient cddpi_ddp_run_grad_ready(), before it is overwritten
 *     cddp_ddp_wait() */
#ifndef CDDPI_DDP_COPIES_H
#define CDDPI_DDP_COPIES_H

#include "group/device/group_device.h"

#include <cddp/ddp.h>

#include <stdbool.h>

struct cddpi_ddp_copies {
    cddp_type type;       /* CDDP_BF16 or CDDP_F16 */
    const size_t *counts; /* by parameter: elements of its copy, zeros after the parameter's; 0: it
                             has no copy. NULL: no copies */
    bool follows;         /* the caller updates nothing before the first cddp_ddp_wait(). If
                             cddpi_ddp_has_moved() is true then, it sets up again what depends on
                             spans and on the addresses of sharded parameters and gradients */
    bool reduce_late;     /* with options.shard: the caller promises to read gradients only with
                             cddpi_ddp_mean(). That call may then reduce them, if that is faster
                             (never on a device) */
};

/** Like cddp_ddp_create(). There are copies only with a sharded optimizer, on a device, with
 * several ranks.
 *  @param copies  The same on all ranks, borrowed for the call; NULL: no copies, and nothing is
 *                 reduced late. */
CDDP_CHECKED cddp_status cddpi_ddp_create_with_copies(cddp_group *group, const cddp_param *params,
                                                      size_t param_count, const cddp_param *buffers,
                                                      size_t buffer_count,
                                                      const cddp_ddp_options *options,
                                                      const struct cddpi_ddp_copies *copies,
                                                      cddp_ddp **out);
/** The mean over ranks of elements [first, first + count) of the gradient of parameter @p index.
 *  They have to be inside one of this rank's spans. Call it between wait and params_start. With
 *  `reduce_late` this call may do the reduction, reading other ranks' memory; so ask for pieces
 *  that fit into the cache.
 *  @param scratch  Room for @p count elements, 64-byte aligned, which the call may use.
 *  @return The mean, in the gradient itself or in @p scratch; NULL if there is no such gradient. */
const void *cddpi_ddp_mean(cddp_ddp *ddp, size_t index, size_t first, size_t count, void *scratch);
/** Whether the last cddp_ddp_wait() has given a sharded optimizer another plan, which suits the
 *  times at which gradients became ready. If so, parameters and gradients have other addresses,
 *  every rank has all of them, and ranks have other spans. The same on all ranks. */
bool cddpi_ddp_has_moved(const cddp_ddp *ddp);
/** Keep the plan, since the caller has state for its spans. Call it on all ranks, before the first
 *  backward. */
void cddpi_ddp_keep_plan(cddp_ddp *ddp);
/** The memory of the copy of parameter @p index: 256-byte aligned, zeros at first; NULL: it has no
 *  copy. */
void *cddpi_ddp_param_copy(const cddp_ddp *ddp, size_t index);
/** How long this rank has waited for communication so far: total_exposed_ns, and on the CPU also
 * what it has waited for updates since the last cddp_ddp_wait(). */
uint64_t cddpi_ddp_exposed_ns(const cddp_ddp *ddp);
/** Wait until every rank has all parameters. Collective. Without copies this is
 *  cddp_ddp_params_wait(); without a sharded optimizer it does nothing. */
CDDP_CHECKED cddp_status cddpi_ddp_params_whole(cddp_ddp *ddp);

/* ddp_capture.c */
/** Capture the work that enters the compute stream from now on, like cddpi_group_capture_begin().
 *  CDDP_ERR_UNAVAILABLE: the backend cannot capture, the hook is the caller's, or no step is
 * complete yet. */
CDDP_CHECKED cddp_status cddpi_ddp_capture_begin(cddp_ddp *ddp);
/** End the capture. Call it after each successful begin, whatever failed since. The handle is then
 * as before the begin, and can do the same step at once.
 *  @param out  Set on success; release its `work` with the device's graph_destroy.
 *  @return as cddpi_group_capture_end(). */
CDDP_CHECKED cddp_status cddpi_ddp_capture_end(cddp_ddp *ddp, struct cddpi_group_capture *out);
/** Replay @p captured as the backward of @p step, which has the same kind and samples, and is this
 *  rank's last micro-batch exactly if the captured one was. */
CDDP_CHECKED cddp_status cddpi_ddp_replay(cddp_ddp *ddp, const struct cddpi_group_capture *captured,
                                          const cddp_step *step);

/* ddp_begin.c, reducer.c */
/** Begin one backward for all of this rank's micro-batches of @p step, which is of the kind
 *  CDDP_STEP_BY_MICRO_BATCHES (its micro_batch is not read). The result has the same bits as with a
 *  backward for each. A rank without a micro-batch goes on to cddp_ddp_wait().
 *  @return as cddp_ddp_begin(); CDDP_ERR_UNAVAILABLE: the handle has allow_unused. */
CDDP_CHECKED cddp_status cddpi_ddp_begin_run(cddp_ddp *ddp, const cddp_step *step);
/** In that backward, gradient @p index is that of its next micro-batch, alone. It is added to the
 *  sums before the call returns (on a device, in the compute stream), so its memory can be
 *  overwritten. With the run's last micro-batch the gradient is ready, as with
 *  cddp_ddp_grad_ready(), and its memory is cddp's until cddp_ddp_wait(). A gradient that does not
 *  come for all of them is CDDP_ERR_INCOMPLETE there. */
CDDP_CHECKED cddp_status cddpi_ddp_run_grad_ready(cddp_ddp *ddp, size_t index);

#endif
