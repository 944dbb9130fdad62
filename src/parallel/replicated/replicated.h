/* replicated.h - PyTorch's DataParallel over the devices of one process: in each forward the batch
 * is divided along its samples, the model is copied to each device, all of them compute, and their
 * outputs come together on one device, where the loss is; in backward the gradients are summed on
 * the first device.
 *
 * To its caller it is one model, that of the first device. It belongs to one thread, which waits
 * while the devices' threads compute. */
#ifndef CDDPI_PARALLEL_REPLICATED_REPLICATED_H
#define CDDPI_PARALLEL_REPLICATED_REPLICATED_H

#include "device/parallel.h"
#include "parallel/memory.h"

struct cddpi_replicated;

/** Make the model on each of @p devices (borrowed, they outlive it), and its loss on device
 *  @p output_device.
 *  @param spec  Of the model, for the processor; batch_norm with sync is not possible.
 *  @return as cddpi_model_create(), the device's name before the text. */
CDDP_CHECKED cddp_status cddpi_replicated_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                                 const cddp_devices *devices, int output_device,
                                                 struct cddpi_replicated **out);
void cddpi_replicated_destroy(struct cddpi_replicated *replicated);

/** Let the trace of @p traced (borrowed) get spans of what each device does. */
void cddpi_replicated_trace(struct cddpi_replicated *replicated, cddp_group *traced);

/** The first device's model, which has the parameters; it has no loss. */
struct cddpi_model *cddpi_replicated_model(const struct cddpi_replicated *replicated);
/** The loss, on the output device. */
struct cddpi_model *cddpi_replicated_loss(const struct cddpi_replicated *replicated);

/** Add what each of the devices holds, @p out one a device, without the gradients that are bound.
 */
void cddpi_replicated_add_memory(const struct cddpi_replicated *replicated,
                                 struct cddpi_held_memory *out);

/* As the functions of a model (nn/model.h) that have these names. */

void cddpi_replicated_bind_grads(struct cddpi_replicated *replicated, void *const *grads);
/** @p wait is called for every parameter before the model is copied, by the caller's thread. */
void cddpi_replicated_on_param(struct cddpi_replicated *replicated, cddpi_param_wait_fn wait,
                               void *context);
/** Statistics of batch_norm are each device's own, of its samples; those of the first move on. */
CDDP_CHECKED cddp_status cddpi_replicated_forward(struct cddpi_replicated *replicated,
                                                  const struct cddpi_batch *batch, bool training,
                                                  struct cddpi_loss_result *out);
/** The devices' gradients are added in their order, and the sum to what is bound. @p ready: called
 *  by the caller's thread when all are there. */
CDDP_CHECKED cddp_status cddpi_replicated_backward(struct cddpi_replicated *replicated,
                                                   double scale, bool accumulate,
                                                   cddpi_grad_ready_fn ready, void *context);

#endif
