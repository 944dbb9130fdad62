/* replicated.h - PyTorch's DataParallel over the devices of one process: in each forward the batch
 * is divided along its samples, the model is copied to each device, all of them compute, and their
 * outputs come together on one device, where the loss is; in backward the gradients are summed on
 * the first device. Or so with some layers only: then what these read is divided, what they make
 * comes together on the first device, and all others compute there.
 *
 * To its caller it is one model, that of the first device. It belongs to one thread, which waits
 * while the devices' threads compute. */
#ifndef CDDPI_PARALLEL_REPLICATED_REPLICATED_H
#define CDDPI_PARALLEL_REPLICATED_REPLICATED_H

#include "device/parallel.h"
#include "parallel/parallel_memory.h"

struct cddpi_replicated;

/** The layers that @p names name, one after the other; those without parameters between them and
 *  directly after them need no name.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: a name is no layer's, one is named twice, or one between them
 *          is not; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_replicated_layers(const struct cddpi_model_spec *spec,
                                                 char *const *names, int name_count,
                                                 struct cddpi_layer_range *out);

/** Make @p layers of the model on each of @p devices (borrowed, they outlive it), those before them
 *  on the first, and those after and the loss on device @p output_device.
 *  @param spec    Of the model, whose device is not read; batch_norm with sync is not possible.
 *  @param layers  Both 0: all of them.
 *  @return as cddpi_model_create(), the device's name before the text; CDDP_ERR_CONFIG: a weight is
 *          read by @p layers and others. */
CDDP_CHECKED cddp_status cddpi_replicated_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                                 const cddp_devices *devices, int output_device,
                                                 struct cddpi_layer_range layers,
                                                 struct cddpi_replicated **out);
void cddpi_replicated_destroy(struct cddpi_replicated *replicated);

/** Let the trace of @p traced (borrowed) get spans of what each device does. */
void cddpi_replicated_trace(struct cddpi_replicated *replicated, cddp_group *traced);

/** The models that together are one: what lies before the copies (if anything), the first copy, and
 *  the rest with the loss; tells how many. Their parameters are reached by what follows. */
int cddpi_replicated_models(const struct cddpi_replicated *replicated, struct cddpi_model *out[3]);

/** Add what each of the devices holds, @p out one a device, without the gradients that are bound.
 */
void cddpi_replicated_add_memory(const struct cddpi_replicated *replicated,
                                 struct cddpi_held_memory *out);

/* As the functions of a model (nn/model.h) that have these names. */

const cddp_param *cddpi_replicated_params(const struct cddpi_replicated *replicated,
                                          size_t *out_count);
const cddp_param *cddpi_replicated_buffers(const struct cddpi_replicated *replicated,
                                           size_t *out_count);
bool cddpi_replicated_param_decays(const struct cddpi_replicated *replicated, size_t index);
const uint32_t *cddpi_replicated_ready_order(const struct cddpi_replicated *replicated);
void cddpi_replicated_bind_params(struct cddpi_replicated *replicated, void *const *data);
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
/** As cddpi_placed_late(). */
struct cddpi_loss_result cddpi_replicated_late(const struct cddpi_replicated *replicated);

#endif
