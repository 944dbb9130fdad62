/* device_model.h - owns a part of a model on any device of the process, for callers that use only
 * host memory: batches, edges, parameters, gradients and buffers are all there.
 *
 * On the processor, this is just the model part. On a GPU, inputs are copied to the device and
 * outputs back, through pinned memory and in the device's copy stream, while the device computes.
 * Parameters are copied layer by layer as forward reaches them, if they may have changed since the
 * last copy; gradients are copied as backward finishes them. A call returns when its results are in
 * host memory, so any thread may then use them. Only one thread at a time uses a part: its device's
 * thread. */
#ifndef CDDPI_PARALLEL_DEVICE_MODEL_DEVICE_MODEL_H
#define CDDPI_PARALLEL_DEVICE_MODEL_DEVICE_MODEL_H

#include "device/device.h"
#include "parallel/parallel_memory.h"

struct cddpi_device_model;

/** @param spec  Names the device; NULL is the processor.
 *  @return as cddpi_model_create(); CDDP_ERR_CONFIG also for fp16, which is not supported here on a
 *          GPU. */
CDDP_CHECKED cddp_status cddpi_device_model_create(const struct cddpi_model_spec *spec,
                                                   uint64_t seed, cddp_group *group,
                                                   struct cddpi_device_model **out);
void cddpi_device_model_destroy(struct cddpi_device_model *part);

/** The model part itself; its tensors are in its device's memory. Returns NULL for NULL. */
struct cddpi_model *cddpi_device_model_inside(const struct cddpi_device_model *part);
bool cddpi_device_model_is_on_gpu(const struct cddpi_device_model *part);
/** Add the memory that the device holds. Gradients are counted only on a GPU: on the processor they
 *  are the caller's bound memory. */
void cddpi_device_model_add_memory(const struct cddpi_device_model *part,
                                   struct cddpi_held_memory *out);

/* These work as the functions of a model (nn/model.h) with the same names. */

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
/** Make the part read a parameter of @p owner.
 *  @param shares_grad  Possible only if both are on the processor.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the owner is on a GPU, but @p part is not. */
CDDP_CHECKED cddp_status cddpi_device_model_share_param(struct cddpi_device_model *part,
                                                        size_t index,
                                                        struct cddpi_device_model *owner,
                                                        size_t owner_index, bool shares_grad);
CDDP_CHECKED cddp_status cddpi_device_model_use_slots(struct cddpi_device_model *part,
                                                      const struct cddpi_model_slots *slots);
/** @param out  On a GPU only the count is set. In evaluation, the sums stay on the device for
 *  cddpi_model_collect(). */
CDDP_CHECKED cddp_status cddpi_device_model_forward(struct cddpi_device_model *part,
                                                    const struct cddpi_batch *batch, bool training,
                                                    struct cddpi_loss_result *out);
/** @param ready  NULL: the gradients may stay on the device. A pass with @p ready copies all
 *  accumulated gradients to the bound memory; after it, the parameters count as changed.
 *  @param late   The loss that forward did not return: on a GPU it is known only now. Zero on the
 *                processor. */
CDDP_CHECKED cddp_status cddpi_device_model_backward(struct cddpi_device_model *part, double scale,
                                                     bool accumulate, cddpi_grad_ready_fn ready,
                                                     void *context, struct cddpi_loss_result *late);
/** Compute the gradients of parameters, separately from backward (zero_bubble). On the processor
 *  only. */
CDDP_CHECKED cddp_status cddpi_device_model_weights(struct cddpi_device_model *part,
                                                    bool accumulate, cddpi_grad_ready_fn ready,
                                                    void *context);

#endif
