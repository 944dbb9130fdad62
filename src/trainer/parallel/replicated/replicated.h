/* replicated.h - owns PyTorch's DataParallel over the devices of one process. Each forward splits
 * the batch along its samples, copies the model to each device, computes on all devices, and
 * gathers the outputs on one device, which computes the loss. Backward sums the gradients on the
 * first device. Only some layers may be copied: then their inputs are split, their outputs are
 * gathered on the first device, and all other layers compute there.
 *
 * To its caller it is one model, the first device's. It belongs to one thread, which waits while
 * the devices' threads compute. */
#ifndef CDDPI_PARALLEL_REPLICATED_REPLICATED_H
#define CDDPI_PARALLEL_REPLICATED_REPLICATED_H

#include "device/parallel.h"
#include "parallel/parallel_memory.h"

struct cddpi_replicated;

/** Copy @p layers of the model to each of @p devices (borrowed, they outlive it). The layers before
 *  them are on the first device, the layers after them and the loss on device @p output_device.
 *  @param spec    Of the model; its device is ignored. batch_norm with sync is not supported.
 *  @param layers  Both 0: all layers.
 *  @return as cddpi_model_create(), the device's name before the text; CDDP_ERR_CONFIG: a weight is
 *          used both by @p layers and by others. */
CDDP_CHECKED cddp_status cddpi_replicated_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                                 const cddp_devices *devices, int output_device,
                                                 struct cddpi_layer_range layers,
                                                 struct cddpi_replicated **out);
void cddpi_replicated_destroy(struct cddpi_replicated *replicated);

/** Record spans of what each device does in the trace of @p traced (borrowed). */
void cddpi_replicated_trace(struct cddpi_replicated *replicated, cddp_group *traced);

/** The models that make up the whole: the layers before the copies (if any), the first copy, and
 *  the rest with the loss (if any). Returns how many. The functions below reach all their
 *  parameters. */
int cddpi_replicated_models(const struct cddpi_replicated *replicated, struct cddpi_model *out[3]);

/** Add the memory that each device holds; @p out has one entry per device. The bound gradients are
 *  not counted. */
void cddpi_replicated_add_memory(const struct cddpi_replicated *replicated,
                                 struct cddpi_held_memory *out);

/* These work as the functions of a model (nn/model.h) with the same names. */

const cddp_param *cddpi_replicated_params(const struct cddpi_replicated *replicated,
                                          size_t *out_count);
const cddp_param *cddpi_replicated_buffers(const struct cddpi_replicated *replicated,
                                           size_t *out_count);
bool cddpi_replicated_param_decays(const struct cddpi_replicated *replicated, size_t index);
const size_t *cddpi_replicated_ready_order(const struct cddpi_replicated *replicated);
void cddpi_replicated_bind_params(struct cddpi_replicated *replicated, void *const *data);
void cddpi_replicated_bind_grads(struct cddpi_replicated *replicated, void *const *grads);
/** @p wait is called in the caller's thread, for every parameter, before the model is copied. */
void cddpi_replicated_on_param(struct cddpi_replicated *replicated, cddpi_param_wait_fn wait,
                               void *context);
/** Each device's batch_norm uses the statistics of its own samples; only those of the first device
 *  update the running statistics. */
CDDP_CHECKED cddp_status cddpi_replicated_forward(struct cddpi_replicated *replicated,
                                                  const struct cddpi_batch *batch, bool training,
                                                  struct cddpi_loss_result *out);
/** Add the devices' gradients in the order of the devices, and the sum to the bound memory. @p
 *  ready is called in the caller's thread when all gradients are complete. */
CDDP_CHECKED cddp_status cddpi_replicated_backward(struct cddpi_replicated *replicated,
                                                   double scale, bool accumulate,
                                                   cddpi_grad_ready_fn ready, void *context);
/** As cddpi_placed_late(). */
struct cddpi_loss_result cddpi_replicated_late(const struct cddpi_replicated *replicated);

#endif
