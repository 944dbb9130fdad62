/* device_model.c - owns the life of a model part on a device. Each function either calls the part
 * on the processor directly, or the GPU side, which copies. */
#include "parallel/device_model/device_model.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "group/group_info.h"
#include "parallel/device_model/device_model_state.h"

#include <string.h>

cddp_status cddpi_device_model_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                      cddp_group *group, struct cddpi_device_model **out)
{
    struct cddpi_device_model *part = cddpi_zalloc(sizeof *part);
    cddp_status status;

    CDDPI_TRY_MEMORY(part != NULL, "parallel: no memory for %zu bytes", sizeof *part);
    part->device = cddpi_device_or_cpu(spec->device);
    CDDPI_TRY_GOTO(fail, status, cddpi_model_create(spec, seed, group, &part->model));
    if (cddpi_device_is_async(part->device)) {
        CDDPI_TRY_GOTO(fail, status,
                       cddpi_gpu_side_create(part, spec,
                                             group != NULL ? cddpi_group_timeout_ms(group)
                                                           : cddpi_env_timeout_ms()));
    }
    *out = part;
    return CDDP_OK;

fail:
    cddpi_device_model_destroy(part);
    return status;
}

void cddpi_device_model_destroy(struct cddpi_device_model *part)
{
    if (part == NULL) {
        return;
    }
    cddpi_gpu_side_destroy(part);
    cddpi_model_destroy(part->model);
    cddpi_free(part);
}

struct cddpi_model *cddpi_device_model_inside(const struct cddpi_device_model *part)
{
    return part != NULL ? part->model : NULL;
}

bool cddpi_device_model_is_on_gpu(const struct cddpi_device_model *part)
{
    return part->gpu != NULL;
}

void cddpi_device_model_add_memory(const struct cddpi_device_model *part,
                                   struct cddpi_held_memory *out)
{
    const struct cddpi_gpu_side *gpu = part->gpu;

    cddpi_held_memory_add_model(out, part->model);
    if (gpu == NULL) {
        return;
    }
    out->gradients += gpu->params_way.bytes;
    for (int i = 0; i < CDDPI_MODEL_SLOTS; i++) {
        out->edges += gpu->slots[i].memory.bytes;
    }
}

const cddp_param *cddpi_device_model_params(const struct cddpi_device_model *part,
                                            size_t *out_count)
{
    if (part->gpu == NULL) {
        return cddpi_model_params(part->model, out_count);
    }
    *out_count = part->gpu->param_count;
    return part->gpu->params;
}

const cddp_param *cddpi_device_model_buffers(const struct cddpi_device_model *part,
                                             size_t *out_count)
{
    if (part->gpu == NULL) {
        return cddpi_model_buffers(part->model, out_count);
    }
    *out_count = part->gpu->buffer_count;
    return part->gpu->buffers;
}

void cddpi_device_model_bind_grads(struct cddpi_device_model *part, void *const *grads)
{
    if (part->gpu == NULL) {
        cddpi_model_bind_grads(part->model, grads);
    } else {
        memcpy(part->gpu->grads, grads, part->gpu->param_count * sizeof *grads);
    }
}

void cddpi_device_model_bind_params(struct cddpi_device_model *part, void *const *data)
{
    struct cddpi_gpu_side *gpu = part->gpu;

    if (gpu == NULL) {
        cddpi_model_bind_params(part->model, data);
        return;
    }
    for (size_t i = 0; i < gpu->param_count; i++) {
        gpu->params[i].data = data[i];
        gpu->stale[i] = true;
    }
    cddpi_free(gpu->own);
    gpu->own = NULL;
}

void cddpi_device_model_on_param(struct cddpi_device_model *part, cddpi_param_wait_fn wait,
                                 void *context)
{
    if (part->gpu == NULL) {
        cddpi_model_on_param(part->model, wait, context);
    } else {
        part->gpu->wait = wait;
        part->gpu->wait_context = context;
    }
}

void cddpi_device_model_bind_edge(struct cddpi_device_model *part, enum cddpi_edge_side side,
                                  size_t index, float *data, float *grad)
{
    if (part->gpu == NULL) {
        cddpi_model_bind_edge(part->model, side, index, data, grad);
    } else {
        struct cddpi_device_edges *edges = side == CDDPI_EDGE_IN ? &part->gpu->in : &part->gpu->out;

        edges->bound[index] = (struct cddpi_bound_edge){data, grad};
    }
}

cddp_status cddpi_device_model_share_param(struct cddpi_device_model *part, size_t index,
                                           struct cddpi_device_model *owner, size_t owner_index,
                                           bool shares_grad)
{
    size_t count;

    if (part->gpu == NULL && owner->gpu != NULL) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "the weight %s is read first on a GPU, and later on the CPU: place both "
                          "layers on the same kind of device",
                          owner->gpu->params[owner_index].name);
    }
    if (part->gpu == NULL) {
        return cddpi_model_share_param(part->model, index, owner->model, owner_index, shares_grad);
    }
    part->gpu->params[index].data = cddpi_device_model_params(owner, &count)[owner_index].data;
    part->gpu->stale[index] = true;
    return CDDP_OK;
}

cddp_status cddpi_device_model_use_slots(struct cddpi_device_model *part,
                                         const struct cddpi_model_slots *slots)
{
    CDDPI_TRY(cddpi_model_use_slots(part->model, slots));
    if (part->gpu != NULL) {
        part->gpu->slot = slots->batch;
    }
    return CDDP_OK;
}

cddp_status cddpi_device_model_forward(struct cddpi_device_model *part,
                                       const struct cddpi_batch *batch, bool training,
                                       struct cddpi_loss_result *out)
{
    return part->gpu == NULL ? cddpi_model_forward(part->model, batch, training, out)
                             : cddpi_gpu_side_forward(part, batch, training, out);
}

cddp_status cddpi_device_model_backward(struct cddpi_device_model *part, double scale,
                                        bool accumulate, cddpi_grad_ready_fn ready, void *context,
                                        struct cddpi_loss_result *late)
{
    *late = (struct cddpi_loss_result){0};
    return part->gpu == NULL
               ? cddpi_model_backward(part->model, scale, accumulate, ready, context)
               : cddpi_gpu_side_backward(part, scale, accumulate, ready, context, late);
}

cddp_status cddpi_device_model_weights(struct cddpi_device_model *part, bool accumulate,
                                       cddpi_grad_ready_fn ready, void *context)
{
    return cddpi_model_weights(part->model, accumulate, ready, context);
}
