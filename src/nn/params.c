/* params.c - owns the registration of parameters and buffers, and their first values.
 *
 * A parameter's values are a function of the seed and its number alone. Element e comes from word
 * e % 4 of Philox counter e / 4 in the stream (seed, CDDPI_RANDOM_INIT, number). Uniform: (2 u - 1)
 * x bound with u = 24 bits of the word. Normal: Box and Muller's transform in float64, words 0 and
 * 1 giving elements 0 (cosine) and 1 (sine), words 2 and 3 the other two. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/normal.h"
#include "base/philox.h"
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

static cddp_status append(struct cddpi_tensors *tensors, const char *layer, const char *suffix,
                          int dims, const int64_t *shape)
{
    cddp_param *item;
    double elements = 1;

    if (tensors->count == tensors->capacity) {
        size_t capacity = tensors->capacity > 0 ? 2 * tensors->capacity : 32;
        void *grown = cddpi_realloc(tensors->items, capacity * sizeof *tensors->items);

        if (grown == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %s", suffix);
        }
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
    tensors->count++; /* destroy releases what of it there is */
    if (item->name == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the name of %s", suffix);
    }
    for (size_t i = 0; i + 1 < tensors->count; i++) {
        if (strcmp(tensors->items[i].name, item->name) == 0) {
            return cddpi_fail(CDDP_ERR_CONFIG, "two parameters would be called %s", item->name);
        }
    }
    return CDDP_OK;
}

static void fill(const cddp_param *tensor, float value)
{
    float *data = tensor->data;
    size_t count = cddpi_tensor_elements(tensor);

    for (size_t i = 0; i < count; i++) {
        data[i] = value;
    }
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
    cddp_status status = append(&model->params, layer, suffix, dims, shape);
    void *grown;

    if (status != CDDP_OK) {
        return status;
    }
    grown = cddpi_realloc(model->infos, model->params.capacity * sizeof *model->infos);
    if (grown == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %s", suffix);
    }
    model->infos = grown;
    model->infos[index] = info;
    op->params[k] = (int)index;
    return CDDP_OK;
}

cddp_status cddpi_model_add_buffer(struct cddpi_model *model, struct cddpi_op *op, int k,
                                   const char *suffix, int64_t count, float value)
{
    size_t index = model->buffers.count;
    cddp_status status = append(&model->buffers, op->layer.name, suffix, 1, &count);
    float *grown;

    if (status != CDDP_OK) {
        return status;
    }
    grown = cddpi_realloc(model->first_values, model->buffers.capacity * sizeof *grown);
    if (grown == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %s", suffix);
    }
    model->first_values = grown;
    model->first_values[index] = value;
    op->buffers[k] = (int)index;
    return CDDP_OK;
}

static void uniform4(const uint32_t words[4], double bound, float out[4])
{
    for (int i = 0; i < 4; i++) {
        out[i] = (float)((2.0 * (double)cddpi_uniform01(words[i]) - 1.0) * bound);
    }
}

static void draw(const cddp_param *tensor, const struct cddpi_param_info *info, uint64_t seed,
                 uint32_t index)
{
    struct cddpi_philox stream = cddpi_philox_stream(seed, CDDPI_RANDOM_INIT, index);
    size_t count = cddpi_tensor_elements(tensor);
    float *data = tensor->data;

    for (size_t i = 0; i < count; i += 4) {
        size_t left = count - i < 4 ? count - i : 4;
        uint32_t words[4];
        float values[4];

        cddpi_philox4(&stream, i / 4, words);
        if (info->init == CDDPI_INIT_UNIFORM) {
            uniform4(words, info->spread, values);
        } else {
            cddpi_normal4(words, info->init == CDDPI_INIT_NORMAL_AROUND_ONE ? 1 : 0, info->spread,
                          values);
        }
        memcpy(data + i, values, left * sizeof *values);
    }
}

static cddp_status allocate(struct cddpi_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        cddp_param *item = &tensors->items[i];
        size_t elements = cddpi_tensor_elements(item);

        item->data = cddpi_alloc_aligned(elements * sizeof(float));
        if (item->data == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for the %zu elements of %s",
                              elements, item->name);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_model_init_params(struct cddpi_model *model)
{
    cddp_status status = allocate(&model->params);

    if (status == CDDP_OK) {
        status = allocate(&model->buffers);
    }
    if (status != CDDP_OK) {
        return status;
    }
    for (size_t i = 0; i < model->buffers.count; i++) {
        fill(&model->buffers.items[i], model->first_values[i]);
    }
    for (size_t i = 0; i < model->params.count; i++) {
        switch (model->infos[i].init) {
        case CDDPI_INIT_ZERO:
            fill(&model->params.items[i], 0);
            break;
        case CDDPI_INIT_ONE:
            fill(&model->params.items[i], 1);
            break;
        case CDDPI_INIT_UNIFORM:
        case CDDPI_INIT_NORMAL:
        case CDDPI_INIT_NORMAL_AROUND_ONE:
            draw(&model->params.items[i], &model->infos[i], model->seed,
                 cddpi_model_param_number(model, i));
            break;
        }
    }
    return CDDP_OK;
}
