/* device_model.h - a part of a model on any device of a process, for callers that know only the
 * processor's memory: batches, edges, parameters, gradients and buffers are all there.
 *
 * On the processor that is the part itself. On a GPU what goes in is copied there, and what comes
 * out is copied back, through pinned memory and on the device's copy stream, while it computes:
 * parameters layer by layer as forward comes to them, if they may have changed since the last time,
 * and gradients as backward leaves them. A call returns when what it gives is there, so any thread
 * may go on with that. One thread at a time uses it: that of its device. */
#ifndef CDDPI_PARALLEL_DEVICE_MODEL_DEVICE_MODEL_H
#define CDDPI_PARALLEL_DEVICE_MODEL_DEVICE_MODEL_H

#include "device/device.h"
#include "parallel/parallel_memory.h"

struct cddpi_device_model;

/** @param spec  Its device says where: NULL is the processor.
 *  @return as cddpi_model_create(); CDDP_ERR_CONFIG also for what is not done on a GPU so: fp16. */
CDDP_CHECKED cddp_status cddpi_device_model_create(const struct cddpi_model_spec *spec,
                                                   uint64_t seed, cddp_group *group,
                                                   struct cddpi_device_model **out);
void cddpi_device_model_destroy(struct cddpi_device_model *part);

/** The part itself, wherever it is; what it has is memory of its device. NULL for NULL. */
struct cddpi_model *cddpi_device_model_inside(const struct cddpi_device_model *part);
bool cddpi_device_model_is_on_gpu(const struct cddpi_device_model *part);
/** Add what its device holds, the gradients with it only on a GPU: else they are those that are
 *  bound. */
void cddpi_device_model_add_memory(const struct cddpi_device_model *part,
                                   struct cddpi_held_memory *out);

/* As the functions of a model (nn/model.h) that have these names. */

const cddp_param *cddpi_device_model_params(const struct cddpi_device_model *part,
                                            size_t *out_count);
const cddp_param *cddpi_device_model_buffers(const struct cddpi_device_model *part,
                                             size_t *out_count);
void cddpi_device_model_bind_grads(struct cddpi_device_model *part, void *const *grads);
/** Several parts may be bound to the same memory. */
void cddpi_device_model_bind_params(struct cddpi_device_model *part, void *const *data);
void cddpi_device_model_on_param(struct cddpi_device_model *part, cddpi_param_wait_fn wait,
                                 void *context);
void cddpi_device_model_bind_edge(struct cddpi_device_model *part, enum cddpi_edge_side side,
                                  size_t index, float *data, float *grad);
/** @p shares_grad: only where both are on the processor.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the owner is on a GPU, but @p part is not. */
CDDP_CHECKED cddp_status cddpi_device_model_share_param(struct cddpi_device_model *part,
                                                        size_t index,
                                                        struct cddpi_device_model *owner,
                                                        size_t owner_index, bool shares_grad);
CDDP_CHECKED cddp_status cddpi_device_model_use_slots(struct cddpi_device_model *part,
                                                      const struct cddpi_model_slots *slots);
/** @param out  On a GPU only the count; in evaluation the sums stay for cddpi_model_collect(). */
CDDP_CHECKED cddp_status cddpi_device_model_forward(struct cddpi_device_model *part,
                                                    const struct cddpi_batch *batch, bool training,
                                                    struct cddpi_loss_result *out);
/** @param ready  If it is NULL, gradients need not have reached what is bound: only those of a pass
 *                with @p ready are there, with all that was accumulated. The parameters count as
 *                changed after that.
 *  @param late   What the loss adds that forward has not told: on a GPU it is made here. Zero on
 *                the processor. */
CDDP_CHECKED cddp_status cddpi_device_model_backward(struct cddpi_device_model *part, double scale,
                                                     bool accumulate, cddpi_grad_ready_fn ready,
                                                     void *context, struct cddpi_loss_result *late);
/** On the processor only. */
CDDP_CHECKED cddp_status cddpi_device_model_weights(struct cddpi_device_model *part,
                                                    bool accumulate, cddpi_grad_ready_fn ready,
                                                    void *context);

#endif
