/* gpu_slot.c - owns the layout of a batch on a GPU from forward to backward, and in the pinned
 * memory that mirrors it: the batch's items, then the edges, each with a value and its gradient. */
#include "base/error.h"
#include "parallel/device_model/device_model_state.h"

#include <string.h>

size_t cddpi_gpu_slot_item(const struct cddpi_gpu_side *gpu, int item, int room)
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
    size_t place = cddpi_gpu_slot_item(gpu, CDDPI_BATCH_ITEMS, room) +
                   edges_bytes(edges, index, room);

    if (edges == &gpu->out) {
        place += edges_bytes(&gpu->in, gpu->in.count, room);
    }
    *out_grad = place + cddpi_mirror_align(edge_bytes(&edges->items[index], room));
    return place;
}

cddp_status cddpi_gpu_slot_make_room(const struct cddpi_device_model *part, int samples)
{
    struct cddpi_gpu_side *gpu = part->gpu;
    struct cddpi_device_slot *slot = &gpu->slots[gpu->slot];
    size_t bytes = cddpi_gpu_slot_item(gpu, CDDPI_BATCH_ITEMS, samples) +
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

void cddpi_gpu_slot_bind(const struct cddpi_device_model *part, enum cddpi_edge_side side)
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

cddp_status cddpi_gpu_slot_put(const struct cddpi_device_model *part, size_t place,
                               const void *from, size_t bytes)
{
    const struct cddpi_mirror *memory = &part->gpu->slots[part->gpu->slot].memory;

    if (bytes > 0) {
        memcpy(memory->pinned + place, from, bytes);
    }
    return cddpi_gpu_side_copy(part, memory->there + place, memory->pinned + place, bytes);
}

/* Start copying the values (or the gradients) of edges to the device. */
cddp_status cddpi_gpu_slot_put_edges(const struct cddpi_device_model *part,
                                     const struct cddpi_device_edges *edges, bool grads,
                                     int samples)
{
    for (size_t k = 0; k < edges->count; k++) {
        size_t grad;
        size_t data = edge_place(part->gpu, edges, k, &grad);
        const float *from = grads ? edges->bound[k].grad : edges->bound[k].data;

        if (from != NULL) {
            CDDPI_TRY(cddpi_gpu_slot_put(part, grads ? grad : data, from,
                                         edge_bytes(&edges->items[k], samples)));
        }
    }
    return CDDP_OK;
}

/* Copy values (or gradients) of edges to the caller: if @p arrived, from pinned memory; if not,
 * only start the copy from the device to pinned memory. */
cddp_status cddpi_gpu_slot_take_edges(const struct cddpi_device_model *part,
                                      const struct cddpi_device_edges *edges, bool grads,
                                      int samples, bool arrived)
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
            CDDPI_TRY(
                cddpi_gpu_side_copy(part, memory->pinned + place, memory->there + place, bytes));
        }
    }
    return CDDP_OK;
}
