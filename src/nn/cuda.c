/* cuda.c - owns what a model holds on a CUDA device: parameters and buffers, copies of parameters
 * in the type of products, and results. */
#include "nn/cuda.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm.h"

static size_t aligned(size_t bytes)
{
    return (bytes + CDDPI_CUDA_ALIGNMENT - 1) / CDDPI_CUDA_ALIGNMENT * CDDPI_CUDA_ALIGNMENT;
}

cddp_type cddpi_model_type(const struct cddpi_model *model)
{
    return model->cuda != NULL ? model->cuda->type : CDDP_F32;
}

cddp_status cddpi_cuda_wait(const struct cddpi_model *model, struct cddpi_event *event)
{
    struct cddpi_device *device = model->cuda->device;

    return device->ops->wait(device, event, model->cuda->timeout_ms);
}

/* Move @p tensors, which lie on the host, into one new block of the device. */
static cddp_status move(const struct cddpi_model *model, struct cddpi_tensors *tensors,
                        const char *what, void **out)
{
    struct cddpi_device *device = model->cuda->device;
    size_t bytes = 0;
    size_t offset = 0;
    void *block = NULL;
    cddp_status status;

    for (size_t i = 0; i < tensors->count; i++) {
        bytes += aligned(cddpi_tensor_elements(&tensors->items[i]) * sizeof(float));
    }
    status = bytes > 0 ? device->ops->alloc(device, bytes, what, &block) : CDDP_OK;
    for (size_t i = 0; status == CDDP_OK && i < tensors->count; i++) {
        size_t length = cddpi_tensor_elements(&tensors->items[i]) * sizeof(float);

        status = device->ops->copy(device, CDDPI_STREAM_COMPUTE, (char *)block + offset,
                                   tensors->items[i].data, length);
        offset += aligned(length);
    }
    if (status == CDDP_OK) {
        status = device->ops->finish(device, model->cuda->timeout_ms); /* the host's memory goes */
    }
    if (status != CDDP_OK) {
        device->ops->release(device, block);
        return status;
    }
    offset = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        cddpi_free(tensors->items[i].data);
        tensors->items[i].data = (char *)block + offset;
        offset += aligned(cddpi_tensor_elements(&tensors->items[i]) * sizeof(float));
    }
    *out = block;
    return CDDP_OK;
}

static enum cddpi_copy form_of(const struct cddpi_model_cuda *cuda, const struct cddpi_op *op,
                               int k)
{
    enum cddpi_copy form = op->ops->cuda->copy != NULL ? op->ops->cuda->copy(op, k)
                                                       : CDDPI_COPY_NONE;

    return form == CDDPI_COPY_CAST && cuda->type == CDDP_F32 ? CDDPI_COPY_NONE : form;
}

/* Ops that share a parameter agree on the form. */
static void keep_copy(const struct cddpi_model *model, const struct cddpi_op *op, int k)
{
    struct cddpi_param_copy *copy = &model->cuda->copies[op->params[k]];
    size_t count = cddpi_tensor_elements(&model->params.items[op->params[k]]);

    if (op->ops == &cddpi_op_linear && k == 0) {
        count = cddpi_linear_outputs(model, op) * (size_t)op->in.channels;
    }
    copy->form = form_of(model->cuda, op, k);
    copy->count = count > copy->count ? count : copy->count;
}

static cddp_status create_copies(struct cddpi_model *model)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    const struct cddpi_graph *graph = &model->graph;
    size_t element = cddp_type_bytes(cuda->type);
    size_t bytes = 0;
    cddp_status status;

    cuda->copies = cddpi_zalloc_array(model->params.count, sizeof *cuda->copies);
    if (cuda->copies == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for %zu parameters",
                          model->params.count);
    }
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
            const struct cddpi_op *op = &graph->ops[i];

            if (op->params[k] >= 0) {
                keep_copy(model, op, k);
            }
        }
    }
    for (size_t i = 0; i < model->params.count; i++) {
        if (cuda->copies[i].form != CDDPI_COPY_NONE) {
            bytes += aligned(cuda->copies[i].count * element);
        }
    }
    if (bytes == 0) {
        return CDDP_OK;
    }
    status = cuda->device->ops->alloc(cuda->device, bytes, "copies of the parameters",
                                      &cuda->copy_block);
    if (status == CDDP_OK) {
        status = cuda->device->ops->clear(cuda->device, CDDPI_STREAM_COMPUTE, cuda->copy_block,
                                          bytes);
    }
    bytes = 0;
    for (size_t i = 0; status == CDDP_OK && i < model->params.count; i++) {
        if (cuda->copies[i].form != CDDPI_COPY_NONE) {
            cuda->copies[i].data = (char *)cuda->copy_block + bytes;
            cuda->copies[i].stale = true;
            bytes += aligned(cuda->copies[i].count * element);
        }
    }
    return status;
}

static cddp_status create_results(struct cddpi_model *model)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    struct cddpi_device *device = cuda->device;
    void *memory = NULL;
    cddp_status status = device->ops->alloc(device, 2 * sizeof *cuda->sums, "sums of losses",
                                            &memory);

    cuda->sums = memory;
    if (status == CDDP_OK) {
        status = device->ops->clear(device, CDDPI_STREAM_COMPUTE, memory, 2 * sizeof *cuda->sums);
    }
    for (int i = 0; status == CDDP_OK && i < CDDPI_MODEL_RESULTS; i++) {
        struct cddpi_collected *one = &model->collected[i];

        status = device->ops->pin(device, 2 * sizeof *one->sums, &memory);
        if (status == CDDP_OK) {
            one->sums = memory;
            status = device->ops->event_create(device, false, &one->event);
        }
    }
    return status == CDDP_OK ? device->ops->event_create(device, false, &cuda->read_event) : status;
}

static void count_draws(struct cddpi_model *model)
{
    for (int i = 0; i < model->graph.op_count; i++) {
        model->cuda->dropouts += model->graph.ops[i].ops == &cddpi_op_dropout ? 1 : 0;
    }
}

cddp_status cddpi_cuda_create(struct cddpi_model *model, const struct cddpi_model_spec *spec)
{
    static const cddp_type types[] = {CDDP_F32, CDDP_BF16, CDDP_F16};
    cddp_status status;

    model->cuda = cddpi_zalloc(sizeof *model->cuda);
    if (model->cuda == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for %zu bytes",
                          sizeof *model->cuda);
    }
    model->cuda->device = spec->device;
    model->cuda->kernels = spec->device->kernels;
    model->cuda->type = types[model->precision];
    model->cuda->any_order = spec->any_order;
    model->cuda->timeout_ms = model->group != NULL ? cddp_group_timeout_ms(model->group)
                                                   : cddpi_env_timeout_ms();
    count_draws(model);
    status = cddpi_cuda_sync_norm_create(model);
    if (status == CDDP_OK) {
        status = move(model, &model->params, "parameters", &model->cuda->params);
    }
    if (status == CDDP_OK) {
        status = move(model, &model->buffers, "running statistics", &model->cuda->buffers);
    }
    if (status == CDDP_OK) {
        status = create_copies(model);
    }
    return status == CDDP_OK ? create_results(model) : status;
}

static void forget(struct cddpi_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        tensors->items[i].data = NULL;
    }
}

void cddpi_cuda_destroy(struct cddpi_model *model)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    const struct cddpi_device_ops *ops;

    if (cuda == NULL) {
        return;
    }
    ops = cuda->device->ops;
    for (int i = 0; i < CDDPI_MODEL_RESULTS; i++) {
        ops->event_destroy(cuda->device, model->collected[i].event);
        ops->unpin(cuda->device, model->collected[i].sums);
    }
    ops->event_destroy(cuda->device, cuda->read_event);
    ops->unpin(cuda->device, cuda->read);
    if (cuda->params != NULL) {
        forget(&model->params);
    }
    if (cuda->buffers != NULL) {
        forget(&model->buffers);
    }
    ops->release(cuda->device, cuda->params);
    ops->release(cuda->device, cuda->buffers);
    ops->release(cuda->device, cuda->copy_block);
    ops->release(cuda->device, cuda->sums);
    ops->release(cuda->device, cuda->exchange);
    ops->release(cuda->device, model->arena);
    model->arena = NULL;
    cddpi_free(cuda->copies);
    cddpi_free(cuda);
    model->cuda = NULL;
}

static size_t channels_of(const cddp_param *param)
{
    return param->dims > 1 ? (size_t)param->shape[1] : 1;
}

static cddp_status make_copy(const struct cddpi_model *model, size_t index)
{
    const struct cddpi_model_cuda *cuda = model->cuda;
    const cddp_param *param = &model->params.items[index];
    size_t count = cddpi_tensor_elements(param);

    if (cuda->copies[index].form == CDDPI_COPY_CAST) {
        return cuda->kernels->cast(cuda->device, CDDP_F32, param->data, cuda->type,
                                   cuda->copies[index].data, count);
    }
    return cuda->kernels->to_channels_last(
        cuda->device, cuda->type, param->data, (size_t)param->shape[0], channels_of(param),
        count / (size_t)param->shape[0] / channels_of(param), cuda->copies[index].data);
}

static cddp_status refresh(const struct cddpi_model *model, size_t index)
{
    struct cddpi_param_copy *copy = &model->cuda->copies[index];
    cddp_status status = CDDP_OK;

    if (copy->stale) {
        status = make_copy(model, index);
        copy->stale = status != CDDP_OK;
    }
    return status;
}

cddp_status cddpi_cuda_refresh(const struct cddpi_run *run)
{
    cddp_status status = CDDP_OK;

    for (int k = 0; status == CDDP_OK && k < CDDPI_OP_PARAMS; k++) {
        if (run->op->params[k] >= 0) {
            status = refresh(run->model, (size_t)run->op->params[k]);
        }
    }
    return status;
}

cddp_status cddpi_model_refresh_copies(struct cddpi_model *model)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; model->cuda != NULL && status == CDDP_OK && i < model->params.count; i++) {
        if (model->cuda->copies[i].form == CDDPI_COPY_CAST) {
            status = refresh(model, i);
        }
    }
    return status;
}

void *cddpi_model_param_copy(const struct cddpi_model *model, size_t index)
{
    const struct cddpi_param_copy *copy;

    if (model->cuda == NULL) {
        return NULL;
    }
    copy = &model->cuda->copies[index];
    return copy->form == CDDPI_COPY_CAST ? copy->data : NULL;
}

cddp_type cddpi_model_copy_type(const struct cddpi_model *model)
{
    return model->cuda != NULL ? model->cuda->type : CDDP_F32;
}

/* An update that writes copies may have left some parameters as they were, so what was stale before
 * it still is. */
void cddpi_model_params_changed(struct cddpi_model *model, bool copies_written)
{
    for (size_t i = 0; model->cuda != NULL && i < model->params.count; i++) {
        struct cddpi_param_copy *copy = &model->cuda->copies[i];

        copy->stale = copy->stale || copy->form == CDDPI_COPY_CHANNELS_LAST ||
                      (copy->form == CDDPI_COPY_CAST && !copies_written);
    }
}

void cddpi_model_replayed(struct cddpi_model *model)
{
    for (size_t i = 0; i < model->params.count; i++) {
        model->cuda->copies[i].stale = false;
    }
    model->outputs = NULL; /* its activations lie there */
}

void cddpi_model_bind_loss_scale(struct cddpi_model *model, const float *scale)
{
    if (model->cuda != NULL) {
        model->cuda->loss_scale = scale;
    }
}
