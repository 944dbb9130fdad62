/* placed.h - owns a model whose layers are on several devices of one process. Each segment is a
 * part of the model on one device, whose thread computes it.
 *
 * Activations and gradients pass between segments through host memory, which a GPU copies from and
 * to. To its caller it is one model: all parameters in the model's order, without duplicates. So
 * reducer, optimizer and checkpoints work as for a model on one device, with the same bits. It
 * belongs to one thread, which waits while the devices' threads compute. */
#ifndef CDDPI_PARALLEL_PLACED_PLACED_H
#define CDDPI_PARALLEL_PLACED_PLACED_H

#include "device/parallel.h"
#include "parallel/parallel_memory.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/placed/placement.h"

struct cddpi_placed;

struct cddpi_placed_options {
    const cddp_devices *devices;          /* borrowed, they outlive the model */
    const struct cddpi_segment *segments; /* in order; together the model */
    int segment_count;
    enum cddpi_pipeline_schedule schedule; /* for several micro-batches */
    int micro_batches;   /* of cddpi_placed_step(): 1, or how many are under way at once */
    bool separate;       /* see struct cddpi_placed_work */
    cddp_group *group;   /* for batch_norm with sync and spans in its trace; may be NULL */
    uint32_t timeout_ms; /* how long one device waits for another */
};

/** Make the segments, each in its device's thread.
 *  @param spec  Of the whole model; its layer range and device are ignored.
 *  @return as cddpi_model_create() and cddpi_pipeline_plan(), the device's name before the text;
 *          CDDP_ERR_CONFIG: the schedule does not fit the placement. */
CDDP_CHECKED cddp_status cddpi_placed_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                             const struct cddpi_placed_options *options,
                                             struct cddpi_placed **out);
void cddpi_placed_destroy(struct cddpi_placed *placed);

/** Whether several segments share a weight. If one of them is on a GPU, or the schedule is
 *  zero_bubble, steps cannot be separate (struct cddpi_placed_work). */
bool cddpi_placed_is_tied(const struct cddpi_placed *placed);

/** The model part of segment @p index. The functions below reach its parameters, too. */
struct cddpi_model *cddpi_placed_model(const struct cddpi_placed *placed, int index);

/** Add the memory that each device holds; @p out has one entry per device. The bound gradients are
 *  not counted: they are where the parameters are. */
void cddpi_placed_add_memory(const struct cddpi_placed *placed, struct cddpi_held_memory *out);
/** The device whose memory holds parameter @p index. */
int cddpi_placed_param_device(const struct cddpi_placed *placed, size_t index);

/* These work as the functions of a model (nn/model.h) with the same names. */

const cddp_param *cddpi_placed_params(const struct cddpi_placed *placed, size_t *out_count);
const cddp_param *cddpi_placed_buffers(const struct cddpi_placed *placed, size_t *out_count);
bool cddpi_placed_param_decays(const struct cddpi_placed *placed, size_t index);
const size_t *cddpi_placed_ready_order(const struct cddpi_placed *placed);
void cddpi_placed_bind_grads(struct cddpi_placed *placed, void *const *grads);
void cddpi_placed_bind_params(struct cddpi_placed *placed, void *const *data);
/** @p wait is called in the devices' threads, in one at a time. */
void cddpi_placed_on_param(struct cddpi_placed *placed, cddpi_param_wait_fn wait, void *context);

CDDP_CHECKED cddp_status cddpi_placed_forward(struct cddpi_placed *placed,
                                              const struct cddpi_batch *batch, bool training,
                                              struct cddpi_loss_result *out);
/** @p ready is called in the devices' threads, in one at a time, or in the caller's thread when
 *  everything is done. NULL: the gradients of segments on a GPU may stay there. */
CDDP_CHECKED cddp_status cddpi_placed_backward(struct cddpi_placed *placed, double scale,
                                               bool accumulate, cddpi_grad_ready_fn ready,
                                               void *context);

/** The part of the loss that is known only after the last backward: all of it if the loss is on a
 *  GPU, else zero. In evaluation, a GPU keeps the loss for cddpi_model_collect() of the last
 *  segment. */
struct cddpi_loss_result cddpi_placed_late(const struct cddpi_placed *placed);

/* The micro-batches of a step, at least one. */
struct cddpi_placed_work {
    const struct cddpi_batch *batches; /* may have no samples, unless they are separate */
    const double *scales;              /* one for each: as the scale of cddpi_model_backward() */
    int count;
    /* The gradients of each micro-batch are reported, and the next one's replace them. Otherwise
     * they are added up, and reported when they are complete. */
    bool separate;
    cddpi_grad_ready_fn ready;
    /* A forward of segment @p index has run. It is called as ready. May be NULL. */
    cddp_status (*forwarded)(void *context, int index);
    void *context;
};

/** Run forward and backward of all micro-batches of a step, several at once. The first gradients
 *  replace those of earlier steps.
 *  @param work  Borrowed for the call, with all that it points to.
 *  @param out   One for each micro-batch. */
CDDP_CHECKED cddp_status cddpi_placed_step(struct cddpi_placed *placed,
                                           const struct cddpi_placed_work *work,
                                           struct cddpi_loss_result *out);

#endif
