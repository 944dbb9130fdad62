/* gpu_passes.c - owns forward and backward of a part on a GPU: the layout of a batch there and in
 * the pinned memory that mirrors it (the batch's items, then the edges, each with a value and its
 * gradient), what is copied when, and what waits for it. */
#include "base/error.h"
#include "base/shape.h"
#include "parallel/device_model/device_model_state.h"

#include <string.h>

/* Enqueue a copy of @p bytes in the copy stream; 0 bytes: nothing. */
static cddp_status copy_async(const struct cddpi_device_model *part, void *to, const void *from,
                              size_t bytes)
{
    return bytes > 0 ? part->device->ops->copy(part->device, CDDPI_STREAM_COPY, to, from, bytes)
                     : CDDP_OK;
}

/* --- the current slot --- */

/* The offset of item @p item of a batch in a slot for @p room samples. */
static size_t slot_item(const struct cddpi_gpu_side *gpu, int item, int room)
{
    size_t place = 0;

    for (int i = 0; i < item; i++) {
        place += cddpi_mirror_align(gpu->item_bytes[i] * (size_t)room);
    }
    return place;
}

static size_t edge_bytes(const struct cddpi_edge *edge, int samples)
{
    return edge->elements * sizeof(float) * (size_t)samples;
}

/* Bytes of the edges in @p edges before edge @p index. */
static size_t edges_bytes(const struct cddpi_device_edges *edges, size_t index, int room)
{
    size_t bytes = 0;

    for (size_t k = 0; k < index; k++) {
        bytes += cddpi_mirror_align(edge_bytes(&edges->items[k], room)) *
                 (edges->items[k].has_grad ? 2 : 1);
    }
    return bytes;
}

/* The offset of edge @p index's value; @p out_grad: the offset of its gradient. */
static size_t edge_place(const struct cddpi_gpu_side *gpu, const struct cddpi_device_edges *edges,
                         size_t index, size_t *out_grad)
{
    int room = gpu->slots[gpu->slot].room;
    size_t place = slot_item(gpu, CDDPI_BATCH_ITEMS, room) + edges_bytes(edges, index, room);

    if (edges == &gpu->out) {
        place += edges_bytes(&gpu->in, gpu->in.count, room);
    }
    *out_grad = place + cddpi_mirror_align(edge_bytes(&edges->items[index], room));
    return place;
}

static cddp_status slot_make_room(const struct cddpi_device_model *part, int samples)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    struct cddpi_device_slot *slot = &gpu->slots[gpu->slot];
    size_t bytes = slot_item(gpu, CDDPI_BATCH_ITEMS, samples) +
                   edges_bytes(&gpu->in, gpu->in.count, samples) +
                   edges_bytes(&gpu->out, gpu->out.count, samples);
    cddp_status status;

    if (samples <= slot->room) {
        return CDDP_OK;
    }
    slot->room = 0;
    status = cddpi_mirror_grow(part->device, &slot->memory, bytes, "a batch and its edges");
    slot->room = status == CDDP_OK ? samples : 0;
    return status;
}

/* The device address of offset @p place; NULL if @p there is false. */
static float *address(const struct cddpi_gpu_side *gpu, size_t place, bool there)
{
    return there ? (float *)(void *)(gpu->slots[gpu->slot].memory.there + place) : NULL;
}

/* Bind the edges at @p side of the model to the slot's memory. */
static void slot_bind(const struct cddpi_device_model *part, enum cddpi_edge_side side)
{
    const struct cddpi_gpu_side *gpu = part->gpu;
    const struct cddpi_device_edges *edges = side == CDDPI_EDGE_IN ? &gpu->in : &gpu->out;

    for (size_t k = 0; k < edges->count; k++) {
        size_t grad;
        size_t data = edge_place(gpu, edges, k, &grad);

        cddpi_model_bind_edge(part->model, side, k, address(gpu, data, true),
                              address(gpu, grad, edges->items[k].has_grad));
    }
}

/* Copy @p bytes of the caller's memory to offset @p place of the slot, in the copy stream. */
static cddp_status slot_put(const struct cddpi_device_model *part, size_t place, const void *from,
                            size_t bytes)
{
    const struct cddpi_mirror *memory = &part->gpu->slots[part->gpu->slot].memory;

    if (bytes > 0) {
        memcpy(memory->pinned + place, from, bytes);
    }
    return copy_async(part, memory->there + place, memory->pinned + place, bytes);
}

/* Start copying the values (or the gradients) of edges to the device. */
static cddp_status slot_put_edges(const struct cddpi_device_model *part,
                                  const struct cddpi_device_edges *edges, bool grads, int samples)
{
    for (size_t k = 0; k < edges->count; k++) {
        size_t grad;
        size_t data = edge_place(part->gpu, edges, k, &grad);
        const float *from = grads ? edges->bound[k].grad : edges->bound[k].data;

        if (from != NULL) {
            CDDPI_TRY(
                slot_put(part, grads ? grad : data, from, edge_bytes(&edges->items[k], samples)));
        }
    }
    return CDDP_OK;
}

/* Copy values (or gradients) of edges to the caller: if @p arrived, from pinned memory; if not,
 * only start the copy from the device to pinned memory. */
static cddp_status slot_take_edges(const struct cddpi_device_model *part,
                                   const struct cddpi_device_edges *edges, bool grads, int samples,
                                   bool arrived)
{
    const struct cddpi_mirror *memory = &part->gpu->slots[part->gpu->slot].memory;

    for (size_t k = 0; k < edges->count; k++) {
        size_t grad;
        size_t data = edge_place(part->gpu, edges, k, &grad);
        size_t place = grads ? grad : data;
        float *to = grads ? edges->bound[k].grad : edges->bound[k].data;
        size_t bytes = edge_bytes(&edges->items[k], samples);

        if (to != NULL && bytes > 0 && arrived) {
            memcpy(to, memory->pinned + place, bytes);
        } else if (to != NULL && !arrived) {
            CDDPI_TRY(copy_async(part, memory->pinned + place, memory->there + place, bytes));
        }
    }
    return CDDP_OK;
}

/* --- streams --- */

/* Make @p stream wait for the work that is in stream @p before now. */
static cddp_status follow_stream(const struct cddpi_device_model *part, enum cddpi_stream stream,
                                 enum cddpi_stream before)
{
    const struct cddpi_device_ops *ops = part->device->ops;

    CDDPI_TRY(ops->record(part->device, part->gpu->from, before));
    return ops->order(part->device, stream, part->gpu->from);
}

static size_t bytes_of(const cddp_param *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * sizeof(float);
}

/* --- parameters and gradients --- */

cddp_status cddpi_gpu_side_put_param(void *context, size_t index)
{
    struct cddpi_device_model *part = context;
    struct cddpi_gpu_side *gpu = part->gpu;
    const cddp_param *param = &gpu->params[index];
    char *pinned = gpu->params_way.pinned + gpu->offsets[index];
    size_t count;
    cddp_status status = gpu->wait != NULL ? gpu->wait(gpu->wait_context, index) : CDDP_OK;

    if (status != CDDP_OK || !gpu->stale[index]) {
        return status;
    }
    memcpy(pinned, param->data, bytes_of(param));
    status = copy_async(part, cddpi_model_params(part->model, &count)[index].data, pinned,
                        bytes_of(param));
    gpu->stale[index] = status != CDDP_OK;
    return status == CDDP_OK ? follow_stream(part, CDDPI_STREAM_COMPUTE, CDDPI_STREAM_COPY)
                             : status;
}

/* Called when the work that computes this gradient is in the compute stream: enqueues the copy
 * after it. */
static cddp_status fetch_grad(void *context, size_t index)
{
    struct cddpi_device_model *part = context;
    struct cddpi_gpu_side *gpu = part->gpu;

    gpu->arrivals[gpu->arrival_count++] = (uint32_t)index;
    CDDPI_TRY(follow_stream(part, CDDPI_STREAM_COPY, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(copy_async(part, gpu->params_way.pinned + gpu->offsets[index], gpu->theirs[index],
                         bytes_of(&gpu->params[index])));
    return part->device->ops->record(part->device, gpu->arrived[index], CDDPI_STREAM_COPY);
}

/* Call @p ready for each copied gradient, while the device goes on. */
static cddp_status hand_out_grads(const struct cddpi_device_model *part, cddpi_grad_ready_fn ready,
                                  void *context)
{
    const struct cddpi_gpu_side *gpu = part->gpu;

    for (size_t i = 0; i < gpu->arrival_count; i++) {
        size_t index = gpu->arrivals[i];

        CDDPI_TRY(part->device->ops->wait(part->device, gpu->arrived[index], gpu->timeout_ms));
        memcpy(gpu->grads[index], gpu->params_way.pinned + gpu->offsets[index],
               bytes_of(&gpu->params[index]));
        CDDPI_TRY(ready(context, index));
    }
    return CDDP_OK;
}

/* --- passes --- */

/* Copy the batch to the device; @p out points there. Items that the part does not read stay
 * NULL. */
static cddp_status put_batch(const struct cddpi_device_model *part, const struct cddpi_batch *batch,
                             bool training, struct cddpi_batch *out)
{
    const struct cddpi_gpu_side *gpu = part->gpu;
    const struct cddpi_device_slot *slot = &gpu->slots[gpu->slot];
    const void *from[CDDPI_BATCH_ITEMS] = {
        [CDDPI_ITEM_INPUT] = batch->input,
        [CDDPI_ITEM_TOKENS] = batch->tokens,
        [CDDPI_ITEM_LABEL] = batch->label,
    };
    void *there[CDDPI_BATCH_ITEMS] = {NULL};
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && batch->count > 0 && i < CDDPI_BATCH_ITEMS; i++) {
        size_t place = slot_item(gpu, i, slot->room);
        size_t bytes = gpu->item_bytes[i] * (size_t)batch->count;
        char *pinned = slot->memory.pinned + place;

        if (bytes == 0 || (i == CDDPI_ITEM_DRAWS && !training)) {
            continue;
        }
        there[i] = slot->memory.there + place;
        if (i == CDDPI_ITEM_DRAWS) {
            cddpi_model_draws(part->model, batch->step, batch->sample_ids, batch->count,
                              (uint32_t *)(void *)pinned);
            status = copy_async(part, there[i], pinned, bytes);
        } else {
            status = slot_put(part, place, from[i], bytes);
        }
    }
    *out = (struct cddpi_batch){.input = there[CDDPI_ITEM_INPUT],
                                .tokens = there[CDDPI_ITEM_TOKENS],
                                .label = there[CDDPI_ITEM_LABEL],
                                .draws = there[CDDPI_ITEM_DRAWS],
                                .count = batch->count,
                                .step = batch->step,
                                .sample_ids = batch->sample_ids,
                                .weight = batch->weight};
    return status;
}

/* Copy the running statistics: to the device before each forward, and back after a training
 * forward. */
static cddp_status copy_buffers(const struct cddpi_device_model *part, bool back)
{
    size_t count;
    const cddp_param *theirs = cddpi_model_buffers(part->model, &count);

    for (size_t i = 0; i < count; i++) {
        void *own = part->gpu->buffers[i].data;

        CDDPI_TRY(copy_async(part, back ? own : theirs[i].data, back ? theirs[i].data : own,
                             bytes_of(&theirs[i])));
    }
    return CDDP_OK;
}

static void mark_params(struct cddpi_device_model *part, bool changed)
{
    bool any = false;

    for (size_t i = 0; i < part->gpu->param_count; i++) {
        part->gpu->stale[i] = part->gpu->stale[i] || changed;
        any = any || part->gpu->stale[i];
    }
    if (any) {
        cddpi_model_params_changed(part->model, false);
    }
}

/* Wait until all copies are done, at the end of a call. */
static cddp_status await_copies(const struct cddpi_device_model *part)
{
    const struct cddpi_device_ops *ops = part->device->ops;

    CDDPI_TRY(ops->record(part->device, part->gpu->to, CDDPI_STREAM_COPY));
    return ops->wait(part->device, part->gpu->to, part->gpu->timeout_ms);
}

static cddp_status begin_forward(struct cddpi_device_model *part, const struct cddpi_batch *batch,
                                 bool training, struct cddpi_batch *out)
{
    CDDPI_TRY(cddpi_model_check_batch(part->model, batch));
    CDDPI_TRY(slot_make_room(part, batch->count));
    /* after what still reads the memory to be overwritten */
    CDDPI_TRY(follow_stream(part, CDDPI_STREAM_COPY, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(put_batch(part, batch, training, out));
    CDDPI_TRY(slot_put_edges(part, &part->gpu->in, false, batch->count));
    CDDPI_TRY(copy_buffers(part, false));
    return follow_stream(part, CDDPI_STREAM_COMPUTE, CDDPI_STREAM_COPY);
}

cddp_status cddpi_gpu_side_forward(struct cddpi_device_model *part, const struct cddpi_batch *batch,
                                   bool training, struct cddpi_loss_result *out)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    struct cddpi_batch there;

    CDDPI_TRY(begin_forward(part, batch, training, &there));
    mark_params(part, false);
    slot_bind(part, CDDPI_EDGE_IN);
    slot_bind(part, CDDPI_EDGE_OUT);
    CDDPI_TRY(cddpi_model_forward(part->model, &there, training, out));
    CDDPI_TRY(follow_stream(part, CDDPI_STREAM_COPY, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(slot_take_edges(part, &gpu->out, false, batch->count, false));
    if (training) {
        CDDPI_TRY(copy_buffers(part, true));
    }
    CDDPI_TRY(await_copies(part));
    return slot_take_edges(part, &gpu->out, false, batch->count, true);
}

/* Enqueue the whole pass in the streams. */
static cddp_status begin_backward(struct cddpi_device_model *part, int samples, double scale,
                                  bool accumulate, bool wants_grads)
{
    struct cddpi_gpu_side *gpu = part->gpu;

    gpu->arrival_count = 0;
    CDDPI_TRY(slot_put_edges(part, &gpu->out, true, samples));
    CDDPI_TRY(follow_stream(part, CDDPI_STREAM_COMPUTE, CDDPI_STREAM_COPY));
    slot_bind(part, CDDPI_EDGE_IN);
    slot_bind(part, CDDPI_EDGE_OUT);
    CDDPI_TRY(cddpi_model_backward(part->model, scale, accumulate, wants_grads ? fetch_grad : NULL,
                                   part));
    CDDPI_TRY(follow_stream(part, CDDPI_STREAM_COPY, CDDPI_STREAM_COMPUTE));
    return slot_take_edges(part, &gpu->in, true, samples, false);
}

cddp_status cddpi_gpu_side_backward(struct cddpi_device_model *part, double scale, bool accumulate,
                                    cddpi_grad_ready_fn ready, void *context,
                                    struct cddpi_loss_result *late)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    int samples = cddpi_model_batch_count(part->model);
    bool has_loss = cddpi_model_has_loss(part->model);
    cddp_status status = CDDP_OK;

    CDDPI_TRY(begin_backward(part, samples, scale, accumulate, ready != NULL));
    if (has_loss) {
        CDDPI_TRY(cddpi_model_collect(part->model, 0));
    }
    if (ready != NULL) {
        status = hand_out_grads(part, ready, context);
        mark_params(part, true);
    }
    CDDPI_TRY(status);
    CDDPI_TRY(await_copies(part));
    CDDPI_TRY(slot_take_edges(part, &gpu->in, true, samples, true));
    return has_loss ? cddpi_model_result(part->model, late) : CDDP_OK;
}
