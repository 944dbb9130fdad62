/* gpu_side.c - owns the host memory of a part on a GPU, and the pinned memory through which
 * everything is copied. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/device_model/device_model_state.h"

static cddp_status no_memory(size_t bytes)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu bytes", bytes);
}

/* --- memory --- */

static void release_mirror(struct cddpi_device *device, struct cddpi_mirror *memory)
{
    device->ops->release(device, memory->there);
    device->ops->unpin(device, memory->pinned);
    *memory = (struct cddpi_mirror){NULL, NULL, 0};
}

static cddp_status pin_memory(struct cddpi_device *device, size_t bytes, char **out)
{
    void *memory = NULL;
    cddp_status status = device->ops->pin(device, bytes, &memory);

    *out = memory;
    return status;
}

cddp_status cddpi_mirror_grow(struct cddpi_device *device, struct cddpi_mirror *memory,
                              size_t bytes, const char *what)
{
    void *there = NULL;

    if (bytes <= memory->bytes) {
        return CDDP_OK;
    }
    release_mirror(device, memory);
    CDDPI_TRY(device->ops->alloc(device, bytes, what, &there));
    memory->there = there;
    CDDPI_TRY(pin_memory(device, bytes, &memory->pinned));
    memory->bytes = bytes;
    return CDDP_OK;
}

/* --- parameters and buffers --- */

static size_t bytes_of(const cddp_param *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * sizeof(float);
}

/* Copy the model's tensors to @p out, but place their values one after the other from @p at on. */
static size_t place_tensors(cddp_param *out, const cddp_param *from, size_t count, char *at)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        out[i] = from[i];
        out[i].data = at != NULL ? at + bytes : NULL;
        bytes += cddpi_mirror_align(bytes_of(&from[i]));
    }
    return bytes;
}

/* Copy the values that the model was created with from the device. */
static cddp_status fetch_tensors(struct cddpi_device_model *part, const cddp_param *to,
                                 const cddp_param *from, size_t count)
{
    struct cddpi_device *device = part->device;

    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to[i].data, from[i].data,
                                    bytes_of(&from[i])));
    }
    return device->ops->finish(device, part->gpu->timeout_ms);
}

static cddp_status make_params(struct cddpi_device_model *part)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    const cddp_param *params = cddpi_model_params(part->model, &gpu->param_count);
    size_t count = gpu->param_count;
    size_t bytes;

    gpu->params = cddpi_zalloc_array(count + 1, sizeof *gpu->params);
    gpu->stale = cddpi_zalloc_array(count + 1, sizeof *gpu->stale);
    gpu->grads = cddpi_zalloc_array(count + 1, sizeof *gpu->grads);
    gpu->theirs = cddpi_zalloc_array(count + 1, sizeof *gpu->theirs);
    gpu->offsets = cddpi_zalloc_array(count + 1, sizeof *gpu->offsets);
    gpu->arrived = cddpi_zalloc_array(count + 1, sizeof(struct cddpi_event *));
    gpu->arrivals = cddpi_zalloc_array(count + 1, sizeof *gpu->arrivals);
    if (gpu->params == NULL || gpu->stale == NULL || gpu->grads == NULL || gpu->theirs == NULL ||
        gpu->offsets == NULL || gpu->arrived == NULL || gpu->arrivals == NULL) {
        return no_memory(count * sizeof *gpu->params);
    }
    for (size_t i = 0; i < count; i++) {
        gpu->stale[i] = true; /* a checkpoint or another rank may change the value before forward */
    }
    bytes = place_tensors(gpu->params, params, count, NULL);
    gpu->own = cddpi_alloc_aligned(bytes + CDDPI_MIRROR_ALIGNMENT);
    if (gpu->own == NULL) {
        return no_memory(bytes);
    }
    (void)place_tensors(gpu->params, params, count, gpu->own);
    return fetch_tensors(part, gpu->params, params, count);
}

/* Allocate the gradients and zero them, because padding is never written. */
static cddp_status make_grads(struct cddpi_device_model *part)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    struct cddpi_device *device = part->device;
    size_t bytes = 0;

    for (size_t i = 0; i < gpu->param_count; i++) {
        gpu->offsets[i] = bytes;
        bytes += cddpi_mirror_align(bytes_of(&gpu->params[i]));
    }
    CDDPI_TRY(
        cddpi_mirror_grow(device, &gpu->params_way, bytes + CDDPI_MIRROR_ALIGNMENT, "gradients"));
    CDDPI_TRY(device->ops->clear(device, CDDPI_STREAM_COMPUTE, gpu->params_way.there,
                                 gpu->params_way.bytes));
    for (size_t i = 0; i < gpu->param_count; i++) {
        gpu->theirs[i] = gpu->params_way.there + gpu->offsets[i];
        CDDPI_TRY(device->ops->event_create(device, false, &gpu->arrived[i]));
    }
    cddpi_model_bind_grads(part->model, gpu->theirs);
    return CDDP_OK;
}

static cddp_status make_buffers(struct cddpi_device_model *part)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    const cddp_param *buffers = cddpi_model_buffers(part->model, &gpu->buffer_count);
    size_t bytes;

    gpu->buffers = cddpi_zalloc_array(gpu->buffer_count + 1, sizeof *gpu->buffers);
    if (gpu->buffers == NULL) {
        return no_memory(gpu->buffer_count * sizeof *gpu->buffers);
    }
    bytes = place_tensors(gpu->buffers, buffers, gpu->buffer_count, NULL);
    CDDPI_TRY(pin_memory(part->device, bytes + CDDPI_MIRROR_ALIGNMENT, &gpu->buffers_way.pinned));
    (void)place_tensors(gpu->buffers, buffers, gpu->buffer_count, gpu->buffers_way.pinned);
    return fetch_tensors(part, gpu->buffers, buffers, gpu->buffer_count);
}

/* --- life --- */

static cddp_status make_edges(const struct cddpi_device_model *part, enum cddpi_edge_side side,
                              struct cddpi_device_edges *out)
{
    out->items = cddpi_model_edges(part->model, side, &out->count);
    out->bound = cddpi_zalloc_array(out->count + 1, sizeof *out->bound);
    return out->bound != NULL ? CDDP_OK : no_memory(out->count * sizeof *out->bound);
}

cddp_status cddpi_gpu_side_create(struct cddpi_device_model *part,
                                  const struct cddpi_model_spec *spec, uint32_t timeout_ms)
{
    struct cddpi_device *device = part->device;
    struct cddpi_gpu_side *gpu = cddpi_zalloc(sizeof *gpu);

    part->gpu = gpu;
    if (gpu == NULL) {
        return no_memory(sizeof *gpu);
    }
    gpu->timeout_ms = timeout_ms;
    if (spec->precision == CDDPI_PRECISION_FP16) {
        return cddpi_fail(CDDP_ERR_CONFIG, "fp16 needs a loss scale, which there is only where a "
                                           "rank has one device: bf16 needs none");
    }
    gpu->slots = cddpi_zalloc_array(CDDPI_MODEL_SLOTS, sizeof *gpu->slots);
    if (gpu->slots == NULL) {
        return no_memory(CDDPI_MODEL_SLOTS * sizeof *gpu->slots);
    }
    CDDPI_TRY(make_params(part));
    CDDPI_TRY(make_grads(part));
    CDDPI_TRY(make_buffers(part));
    CDDPI_TRY(make_edges(part, CDDPI_EDGE_IN, &gpu->in));
    CDDPI_TRY(make_edges(part, CDDPI_EDGE_OUT, &gpu->out));
    CDDPI_TRY(device->ops->event_create(device, false, &gpu->from));
    CDDPI_TRY(device->ops->event_create(device, false, &gpu->to));
    cddpi_batch_item_bytes(part->model, spec, gpu->item_bytes);
    cddpi_model_on_param(part->model, cddpi_gpu_side_put_param, part);
    return CDDP_OK;
}

/* Wait before memory is released that enqueued work may still use. If a failure led here, it stays
 * the last failure. */
static void finish(struct cddpi_device *device, uint32_t timeout_ms)
{
    struct cddpi_failure failure = *cddpi_last_failure();

    if (device->ops->finish(device, timeout_ms) != CDDP_OK) {
        (void)cddpi_fail_again((cddp_status)failure.status, &failure);
    }
}

void cddpi_gpu_side_destroy(struct cddpi_device_model *part)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    struct cddpi_device *device = part->device;

    if (gpu == NULL) {
        return;
    }
    finish(device, gpu->timeout_ms);
    for (size_t i = 0; gpu->arrived != NULL && i < gpu->param_count; i++) {
        device->ops->event_destroy(device, gpu->arrived[i]);
    }
    device->ops->event_destroy(device, gpu->from);
    device->ops->event_destroy(device, gpu->to);
    for (int i = 0; gpu->slots != NULL && i < CDDPI_MODEL_SLOTS; i++) {
        release_mirror(device, &gpu->slots[i].memory);
    }
    release_mirror(device, &gpu->params_way);
    release_mirror(device, &gpu->buffers_way);
    cddpi_free(gpu->own);
    cddpi_free(gpu->params);
    cddpi_free(gpu->buffers);
    cddpi_free(gpu->stale);
    cddpi_free(gpu->grads);
    cddpi_free(gpu->theirs);
    cddpi_free(gpu->offsets);
    cddpi_free(gpu->arrived);
    cddpi_free(gpu->arrivals);
    cddpi_free(gpu->in.bound);
    cddpi_free(gpu->out.bound);
    cddpi_free(gpu->slots);
    cddpi_free(gpu);
    part->gpu = NULL;
}
