/* exec_cuda.c - owns what plans and ops on a CUDA device share: the batch's images in the form that
 * ops read, the arena, and the functions of an op's execution context, with the copies of
 * parameters that ops read instead of the parameters. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"

#include <stdio.h>

/* Whether images are only read by flat layers, which need the plain layout. */
static bool only_flattened(const struct cddpi_graph *graph)
{
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < graph->ops[i].input_count; k++) {
            if (graph->ops[i].inputs[k] == CDDPI_VALUE_INPUT &&
                graph->ops[i].layer.type != CDDPI_LAYER_FLATTEN) {
                return false;
            }
        }
    }
    return true;
}

void cddpi_cuda_plan(struct cddpi_plan *plan)
{
    const struct cddpi_model *model = plan->model;
    const struct cddpi_shape *shape = &model->graph.values[CDDPI_VALUE_INPUT].shape;
    struct cddpi_plan_value *data = &plan->values[CDDPI_VALUE_INPUT];
    bool plain = shape->flat || shape->channels == 1 || only_flattened(&model->graph);

    plan->arena.alignment = CDDPI_CUDA_ALIGNMENT;
    plan->data = CDDPI_DATA_AS_IT_IS;
    if (model->tokens_in || model->graph.values[CDDPI_VALUE_INPUT].uses == 0) {
        return;
    }
    if (!plain) {
        plan->data = CDDPI_DATA_CHANNELS_LAST;
        data->block = shape->channels;
    } else if (data->type != CDDP_F32) {
        plan->data = CDDPI_DATA_CAST;
    }
}

cddp_status cddpi_cuda_data(struct cddpi_exec *exec)
{
    const struct cddpi_model_cuda *cuda = exec->model->cuda;
    const struct cddpi_shape *shape = &exec->model->graph.values[CDDPI_VALUE_INPUT].shape;
    const struct cddpi_plan_value *data = &exec->plan->values[CDDPI_VALUE_INPUT];
    void *out;

    if (exec->plan->data == CDDPI_DATA_AS_IT_IS) {
        return CDDP_OK;
    }
    out = cddpi_exec_buffer(exec, data->activation);
    if (exec->plan->data == CDDPI_DATA_CAST) {
        return cuda->kernels->cast(exec->model->device, CDDP_F32, exec->batch->input,
                                   exec->model->type, out, data->elements);
    }
    return cuda->kernels->to_channels_last(
        exec->model->device, exec->model->type, exec->batch->input, (size_t)exec->plan->count,
        (size_t)shape->channels, (size_t)shape->height * (size_t)shape->width, out);
}

/* How many samples, fewer than @p count, fit in an arena of @p bytes. */
static int largest_that_fits(struct cddpi_model *model, size_t bytes, int count, bool training)
{
    int low = 0;
    int high = count - 1;

    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        struct cddpi_plan *plan = NULL;
        bool fits = cddpi_plan_create(model, middle, training, &plan) == CDDP_OK &&
                    plan->arena.bytes[CDDPI_REGION_BATCH] <= bytes;

        cddpi_plan_destroy(plan);
        low = fits ? middle : low;
        high = fits ? high : middle - 1;
    }
    return low;
}

/* Libraries and kernels will need more memory than they report beforehand, so the message says
 * "about". */
static cddp_status no_arena(struct cddpi_model *model, int count, bool training)
{
    struct cddpi_device *device = model->device;
    struct cddpi_device_memory memory = {0};
    struct cddpi_failure failure = *cddpi_last_failure();
    int fits = 0;

    if (device->ops->memory(device, &memory) == CDDP_OK) {
        size_t taken = model->cuda->kernels->first_use_bytes(device, model->cuda->any_order);

        fits = largest_that_fits(model, memory.free_bytes > taken ? memory.free_bytes - taken : 0,
                                 count, training);
    }
    (void)cddpi_fail_again(CDDP_ERR_NO_MEMORY, &failure);
    if (fits == 0) {
        return cddpi_fail_suffix(CDDP_ERR_NO_MEMORY, " (for %d samples at once)", count);
    }
    return cddpi_fail_suffix(CDDP_ERR_NO_MEMORY,
                             " (for %d samples at once; about %d would fit, so make micro-batches "
                             "smaller)",
                             count, fits);
}

cddp_status cddpi_cuda_grow_arena(struct cddpi_model *model, size_t bytes, int count, bool training)
{
    struct cddpi_device *device = model->device;
    struct cddpi_region_memory *arena = &model->regions[CDDPI_REGION_BATCH];
    void *data = NULL;
    cddp_status status;

    cddpi_model_forget_forward(model);
    device->ops->release(device, arena->data);
    *arena = (struct cddpi_region_memory){NULL, 0};
    status = device->ops->alloc(device, bytes, "activations", &data);
    if (status == CDDP_ERR_NO_MEMORY) {
        return no_arena(model, count, training);
    }
    CDDPI_TRY(status);
    *arena = (struct cddpi_region_memory){data, bytes};
    return CDDP_OK;
}

cddp_status cddpi_cuda_sum(const struct cddpi_model *model, const void *a, const void *b,
                           size_t count, void *out)
{
    return model->cuda->kernels->add(model->device, model->type, a, b, false, count, out);
}

static cddp_status grow_read(const struct cddpi_model *model, size_t bytes)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    void *memory = NULL;

    if (bytes <= cuda->read_bytes) {
        return CDDP_OK;
    }
    model->device->ops->unpin(model->device, cuda->read);
    cuda->read = NULL;
    cuda->read_bytes = 0;
    CDDPI_TRY(model->device->ops->pin(model->device, bytes, &memory));
    cuda->read = memory;
    cuda->read_bytes = bytes;
    return CDDP_OK;
}

cddp_status cddpi_cuda_read(struct cddpi_model *model, size_t index, size_t count,
                            const float **out)
{
    const void *from = (const char *)model->last.outputs + index * cddp_type_bytes(model->type);
    struct cddpi_model_cuda *cuda = model->cuda;
    struct cddpi_device *device = model->device;
    size_t bytes = count * sizeof(float);
    void *cast = NULL;
    cddp_status status;

    CDDPI_TRY(grow_read(model, bytes));
    if (model->type != CDDP_F32) {
        CDDPI_TRY(device->ops->alloc(device, bytes, "outputs to be read", &cast));
        CDDPI_TRY_GOTO(done, status,
                       cuda->kernels->cast(device, model->type, from, CDDP_F32, cast, count));
        from = cast;
    }
    CDDPI_TRY_GOTO(done, status,
                   device->ops->copy(device, CDDPI_STREAM_COMPUTE, cuda->read, from, bytes));
    status = device->ops->record(device, cuda->read_event, CDDPI_STREAM_COMPUTE);
done:
    device->ops->release(device, cast);
    CDDPI_TRY(status);
    *out = cuda->read;
    return device->ops->wait(device, cuda->read_event, model->timeout_ms);
}

const struct cddpi_cuda_kernels *cddpi_exec_kernels(const struct cddpi_exec *exec)
{
    return exec->model->cuda->kernels;
}

const void *cddpi_exec_copy(const struct cddpi_exec *exec, int k)
{
    int param = exec->op->params[k];

    if (param < 0) {
        return NULL;
    }
    return exec->model->copies[param].data != NULL ? exec->model->copies[param].data
                                                   : exec->model->params.items[param].data;
}

enum cddpi_copy cddpi_copy_cast(const struct cddpi_op *op, int k)
{
    (void)op;
    (void)k;
    return CDDPI_COPY_CAST;
}

bool cddpi_exec_is_deferred(const struct cddpi_exec *exec, int index)
{
    const struct cddpi_plan_op *op = &exec->plan->ops[index];

    /* when recomputed, both ops run one after the other only if they are in the same segment */
    return (op->flags & CDDPI_FORWARD_DEFERRED) != 0 &&
           (!exec->recomputed ||
            (op->recompute_time >= 0 && op[1].recompute_time == op->recompute_time + 1));
}

const struct cddpi_op *cddpi_sole_reader(const struct cddpi_graph *graph, int value)
{
    if (graph->values[value].uses != 1) {
        return NULL;
    }
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < graph->ops[i].input_count; k++) {
            if (graph->ops[i].inputs[k] == value) {
                return &graph->ops[i];
            }
        }
    }
    return NULL;
}

cddp_status cddpi_cuda_mask_relu(const struct cddpi_exec *exec, const void **out)
{
    cddp_status status = CDDP_OK;

    *out = cddpi_exec_grad_output(exec, 0);
    if (exec->op->relu || exec->op->layer.type == CDDPI_LAYER_RELU) {
        status = cddpi_exec_kernels(exec)->pointwise_grad(
            exec->model->device, exec->model->type, CDDPI_POINTWISE_RELU, 0, *out,
            cddpi_exec_output(exec), cddpi_exec_output_elements(exec),
            cddpi_exec_preact_grad(exec));
        *out = cddpi_exec_preact_grad(exec);
    }
    return status;
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

    if (model->copies[index].form == CDDPI_COPY_CAST) {
        return cuda->kernels->cast(model->device, CDDP_F32, param->data, model->type,
                                   model->copies[index].data, count);
    }
    return cuda->kernels->to_channels_last(
        model->device, model->type, param->data, (size_t)param->shape[0], channels_of(param),
        count / (size_t)param->shape[0] / channels_of(param), model->copies[index].data);
}

static cddp_status refresh(const struct cddpi_model *model, size_t index)
{
    struct cddpi_param_copy *copy = &model->copies[index];
    cddp_status status = CDDP_OK;

    if (copy->stale) {
        status = make_copy(model, index);
        copy->stale = status != CDDP_OK;
    }
    return status;
}

cddp_status cddpi_exec_refresh_copies(const struct cddpi_exec *exec)
{
    for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
        int param = exec->op->params[k];

        if (param >= 0 && (size_t)param < exec->model->copy_count) {
            CDDPI_TRY(refresh(exec->model, (size_t)param));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_model_refresh_copies(struct cddpi_model *model)
{
    for (size_t i = 0; i < model->copy_count; i++) {
        if (model->copies[i].form == CDDPI_COPY_CAST) {
            CDDPI_TRY(refresh(model, i));
        }
    }
    return CDDP_OK;
}
