/* parallel_memory.c - owns the memory of edges between stages, and counts what models hold. */
#include "parallel/parallel_memory.h"

#include "base/error.h"
#include "base/shape.h"

#include <string.h>

size_t cddpi_tensors_find(const cddp_param *tensors, size_t count, const char *name)
{
    size_t i = 0;

    while (i < count && strcmp(tensors[i].name, name) != 0) {
        i++;
    }
    return i;
}

size_t cddpi_tensors_bytes(const cddp_param *tensors, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += cddpi_elements(tensors[i].dims, tensors[i].shape) *
                 cddp_type_bytes(tensors[i].type);
    }
    return bytes;
}

void cddpi_held_memory_add_model(struct cddpi_held_memory *memory, const struct cddpi_model *model)
{
    size_t count;
    const cddp_param *tensors = cddpi_model_params(model, &count);

    memory->parameters += cddpi_tensors_bytes(tensors, count);
    for (size_t i = 0; i < count; i++) {
        memory->parameters += cddpi_model_param_copy_count(model, i) *
                              cddp_type_bytes(cddpi_model_copy_type(model));
    }
    tensors = cddpi_model_buffers(model, &count);
    memory->parameters += cddpi_tensors_bytes(tensors, count);
    memory->activations += cddpi_model_arena_bytes(model);
}

void cddpi_batch_item_bytes(const struct cddpi_model *model, const struct cddpi_model_spec *spec,
                            size_t *out)
{
    size_t numbers = (size_t)cddpi_model_labels(model) * sizeof(int32_t);

    if (cddpi_model_reads_data(model)) {
        out[CDDPI_ITEM_INPUT] = spec->context > 0 ? 0
                                                  : (size_t)spec->channels * (size_t)spec->height *
                                                        (size_t)spec->width * sizeof(float);
        out[CDDPI_ITEM_TOKENS] = spec->context > 0 ? numbers : 0;
    }
    out[CDDPI_ITEM_LABEL] = cddpi_model_has_loss(model) ? numbers : 0;
    out[CDDPI_ITEM_DRAWS] = cddpi_model_draw_words(model, 1) * sizeof(uint32_t);
}

cddp_status cddpi_message_finish(cddp_work **work)
{
    cddp_status status = CDDP_OK;

    if (*work != NULL) {
        status = cddp_work_wait(*work);
        cddp_work_destroy(*work);
        *work = NULL;
    }
    return status;
}

void cddpi_edge_buffers_release(struct cddpi_device *device, struct cddpi_edge_buffer *buffers,
                                size_t count)
{
    for (size_t k = 0; buffers != NULL && k < count; k++) {
        device->ops->release(device, buffers[k].data);
        device->ops->release(device, buffers[k].grad);
        buffers[k].data = NULL;
        buffers[k].grad = NULL;
    }
}

size_t cddpi_edge_buffers_bytes(const struct cddpi_edge *edges, size_t count, int samples)
{
    size_t bytes = 0;

    for (size_t k = 0; k < count; k++) {
        bytes += (size_t)samples * edges[k].elements * cddp_type_bytes(edges[k].type) *
                 (edges[k].has_grad ? 2 : 1);
    }
    return bytes;
}

cddp_status cddpi_edge_buffers_allocate(struct cddpi_device *device,
                                        struct cddpi_edge_buffer *buffers,
                                        const struct cddpi_edge *edges, size_t count, int samples)
{
    for (size_t k = 0; k < count; k++) {
        size_t bytes = (size_t)samples * edges[k].elements * cddp_type_bytes(edges[k].type);
        void *memory = NULL;

        CDDPI_TRY(device->ops->alloc(device, bytes, "values between stages", &memory));
        buffers[k].data = memory;
        if (edges[k].has_grad) {
            CDDPI_TRY(device->ops->alloc(device, bytes, "gradients between stages", &memory));
            buffers[k].grad = memory;
        }
    }
    return CDDP_OK;
}
