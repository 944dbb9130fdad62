/* model_params.c - owns the registration of parameters and buffers, and their memory. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "nn/model_state.h"

#include <string.h>

enum { MAX_ELEMENTS = 1 << 30 };

size_t cddpi_tensor_elements(const cddp_param *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape);
}

void cddpi_tensors_fini(struct cddpi_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        cddpi_free((char *)tensors->items[i].name);
        cddpi_free(tensors->items[i].data);
    }
    cddpi_free(tensors->items);
    *tensors = (struct cddpi_tensors){0};
}

static cddp_status append_tensor(struct cddpi_tensors *tensors, const char *layer,
                                 const char *suffix, int dims, const int64_t *shape)
{
    cddp_param *item;
    double elements = 1;

    if (tensors->count == tensors->capacity) {
        size_t capacity = tensors->capacity > 0 ? 2 * tensors->capacity : 32;
        void *grown = cddpi_realloc(tensors->items, capacity * sizeof *tensors->items);

        CDDPI_TRY_MEMORY(grown != NULL, "no memory for %s", suffix);
        tensors->items = grown;
        tensors->capacity = capacity;
    }
    item = &tensors->items[tensors->count];
    *item = (cddp_param){.type = CDDP_F32, .dims = dims};
    for (int i = 0; i < dims; i++) {
        item->shape[i] = shape[i];
        elements *= (double)shape[i];
    }
    if (elements > MAX_ELEMENTS) {
        return cddpi_fail(CDDP_ERR_CONFIG, "its %s would have %.0f elements; %d are possible",
                          suffix, elements, MAX_ELEMENTS);
    }
    item->name = cddpi_format("%s.%s", layer, suffix);
    tensors->count++; /* from here on, destroy releases it, even if it is incomplete */
    CDDPI_TRY_MEMORY(item->name != NULL, "no memory for the name of %s", suffix);
    for (size_t i = 0; i + 1 < tensors->count; i++) {
        if (strcmp(tensors->items[i].name, item->name) == 0) {
            return cddpi_fail(CDDP_ERR_CONFIG, "two parameters would be called %s", item->name);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_model_add_param(struct cddpi_model *model, struct cddpi_op *op, int k,
                                  const char *suffix, int dims, const int64_t *shape,
                                  struct cddpi_param_info info)
{
    return cddpi_model_add_param_of(model, op, k, op->layer.name, suffix, dims, shape, info);
}

cddp_status cddpi_model_add_param_of(struct cddpi_model *model, struct cddpi_op *op, int k,
                                     const char *layer, const char *suffix, int dims,
                                     const int64_t *shape, struct cddpi_param_info info)
{
    size_t index = model->params.count;
    struct cddpi_param_state *grown = cddpi_realloc(model->param_states,
                                                    (index + 1) * sizeof *grown);

    CDDPI_TRY_MEMORY(grown != NULL, "no memory for %s", suffix);
    model->param_states = grown;
    grown[index] = (struct cddpi_param_state){.info = info};
    CDDPI_TRY(append_tensor(&model->params, layer, suffix, dims, shape));
    op->params[k] = (int)index;
    return CDDP_OK;
}

cddp_status cddpi_model_add_buffer(struct cddpi_model *model, struct cddpi_op *op, int k,
                                   const char *suffix, int64_t count, float value)
{
    size_t index = model->buffers.count;
    float *grown;

    CDDPI_TRY(append_tensor(&model->buffers, op->layer.name, suffix, 1, &count));
    grown = cddpi_realloc(model->first_values, model->buffers.capacity * sizeof *grown);
    CDDPI_TRY_MEMORY(grown != NULL, "no memory for %s", suffix);
    model->first_values = grown;
    model->first_values[index] = value;
    op->buffers[k] = (int)index;
    return CDDP_OK;
}

static cddp_status allocate(struct cddpi_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        cddp_param *item = &tensors->items[i];
        size_t elements = cddpi_tensor_elements(item);

        item->data = cddpi_alloc_aligned(elements * sizeof(float));
        CDDPI_TRY_MEMORY(item->data != NULL, "model: no memory for the %zu elements of %s",
                         elements, item->name);
    }
    return CDDP_OK;
}

cddp_status cddpi_model_alloc_params(struct cddpi_model *model)
{
    CDDPI_TRY(allocate(&model->params));
    return allocate(&model->buffers);
}
