/* placed.h - a model whose layers are on several devices of one process: segments, each a part of
 * the model on one device, whose thread computes it.
 *
 * What goes from segment to segment, values forward and gradients back, lies in memory that both
 * have: the processor's, from which a GPU copies and to which it copies back. To its caller it is
 * one model: the parameters of the whole in its order, each once, so that a reducer, an optimizer
 * and checkpoints are those of a model on one device, and so are the bits. It belongs to one
 * thread, which waits while the devices' threads compute. */
#ifndef CDDPI_PARALLEL_PLACED_PLACED_H
#define CDDPI_PARALLEL_PLACED_PLACED_H

#include "device/parallel.h"
#include "parallel/parallel_memory.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/placed/placement.h"

struct cddpi_placed;

struct cddpi_placed_options {
    const cddp_devices *devices;          /* borrowed, outlive it */
    const struct cddpi_segment *segments; /* in order, together the model */
    int segment_count;
    enum cddpi_pipeline_schedule schedule; /* of several micro-batches */
    int micro_batches;   /* of cddpi_placed_step(): 1, or as many as are on their way at once */
    cddp_group *group;   /* for batch_norm with sync, and spans in its trace; may be NULL */
    uint32_t timeout_ms; /* that one device waits for another */
};

/** Make the segments, each by its device's thread.
 *  @param spec  Of the whole model; its part and its device are not read.
 *  @return as cddpi_model_create() and cddpi_pipeline_plan(), the device's name before the text;
 *          CDDP_ERR_CONFIG: the schedule does not fit the placement. */
CDDP_CHECKED cddp_status cddpi_placed_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                             const struct cddpi_placed_options *options,
                                             struct cddpi_placed **out);
void cddpi_placed_destroy(struct cddpi_placed *placed);

/** The part that segment @p index is; its parameters are reached by what follows. */
struct cddpi_model *cddpi_placed_model(const struct cddpi_placed *placed, int index);
int cddpi_placed_count(const struct cddpi_placed *placed);

/** Add what each of the devices holds, @p out one a device, without the gradients that are bound:
 *  those lie where the parameters are. */
void cddpi_placed_add_memory(const struct cddpi_placed *placed, struct cddpi_held_memory *out);
/** The device whose memory has parameter @p index. */
int cddpi_placed_param_device(const struct cddpi_placed *placed, size_t index);

/* As the functions of a model (nn/model.h) that have these names. */

const cddp_param *cddpi_placed_params(const struct cddpi_placed *placed, size_t *out_count);
const cddp_param *cddpi_placed_buffers(const struct cddpi_placed *placed, size_t *out_count);
bool cddpi_placed_param_decays(const struct cddpi_placed *placed, size_t index);
const uint32_t *cddpi_placed_ready_order(const struct cddpi_placed *placed);
void cddpi_placed_bind_grads(struct cddpi_placed *placed, void *const *grads);
void cddpi_placed_bind_params(struct cddpi_placed *placed, void *const *data);
/** @p wait is called by the devices' threads, by one at a time. */
void cddpi_placed_on_param(struct cddpi_placed *placed, cddpi_param_wait_fn wait, void *context);

CDDP_CHECKED cddp_status cddpi_placed_forward(struct cddpi_placed *placed,
                                              const struct cddpi_batch *batch, bool training,
                                              struct cddpi_loss_result *out);
/** @p ready is called by the devices' threads, by one at a time, or by the caller's when all is
 *  done. With @p ready NULL, gradients of segments on a GPU need not have reached what is bound. */
CDDP_CHECKED cddp_status cddpi_placed_backward(struct cddpi_placed *placed, double scale,
                                               bool accumulate, cddpi_grad_ready_fn ready,
                                               void *context);

/** What that backward adds to the losses that its forward told: where the loss is on a GPU, all.
 *  In evaluation they stay for cddpi_model_collect() of the last segment there. */
struct cddpi_loss_result cddpi_placed_late(const struct cddpi_placed *placed);

/** Forward and backward of all @p count micro-batches of a step, several of which are on their way
 *  at once; gradients are replaced.
 *  @param batches  Borrowed for the call. One may have no samples.
 *  @param scales   One a micro-batch: as the scale of cddpi_model_backward().
 *  @param out      The sum over all. */
CDDP_CHECKED cddp_status cddpi_placed_step(struct cddpi_placed *placed,
                                           const struct cddpi_batch *batches, const double *scales,
                                           int count, cddpi_grad_ready_fn ready, void *context,
                                           struct cddpi_loss_result *out);

#endif
