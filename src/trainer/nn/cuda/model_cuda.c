/* model_cuda.c - owns what a model holds on a CUDA device: parameters and buffers, and copies of
 * parameters in the type of products. */
#include "nn/cuda/model_cuda.h"

#include "base/alloc.h"
#include "base/error.h"

static size_t aligned(size_t bytes)
{
    return cddpi_align_to(bytes, CDDPI_CUDA_ALIGNMENT);
}

/* Move @p tensors from CPU memory into one new block of device memory. */
static cddp_status move(const struct cddpi_model *model, struct cddpi_tensors *tensors,
                        const char *what, void **out)
{
    struct cddpi_device *device = model->device;
    size_t bytes = 0;
    char *at;
    void *block = NULL;
    cddp_status status;

    for (size_t i = 0; i < tensors->count; i++) {
        bytes += aligned(cddpi_tensor_elements(&tensors->items[i]) * sizeof(float));
    }
    if (bytes > 0) {
        CDDPI_TRY(device->ops->alloc(device, bytes, what, &block));
    }
    at = block;
    for (size_t i = 0; i < tensors->count; i++) {
        bytes = cddpi_tensor_elements(&tensors->items[i]) * sizeof(float);
        CDDPI_TRY_GOTO(
            fail, status,
            device->ops->copy(device, CDDPI_STREAM_COMPUTE, at, tensors->items[i].data, bytes));
        at += aligned(bytes);
    }
    /* wait for the copy before its source is freed */
    CDDPI_TRY_GOTO(fail, status, device->ops->finish(device, model->timeout_ms));
    at = block;
    for (size_t i = 0; i < tensors->count; i++) {
        cddpi_free(tensors->items[i].data);
        tensors->items[i].data = at;
        at += aligned(cddpi_tensor_elements(&tensors->items[i]) * sizeof(float));
    }
    *out = block;
    return CDDP_OK;

fail:
    device->ops->release(device, block);
    return status;
}

/* Ops that share a parameter use the same form. */
static void keep_copy(const struct cddpi_model *model, const struct cddpi_op *op, int k)
{
    struct cddpi_param_copy *copy = &model->copies[op->params[k]];
    size_t count = cddpi_tensor_elements(&model->params.items[op->params[k]]);

    if (op->ops == &cddpi_op_linear && k == 0) {
        count = cddpi_linear_outputs(model, op) * (size_t)op->in.channels;
    }
    copy->form = op->kernels->copy != NULL ? op->kernels->copy(op, k) : CDDPI_COPY_NONE;
    if (copy->form == CDDPI_COPY_CAST && model->type == CDDP_F32) {
        copy->form = CDDPI_COPY_NONE;
    }
    copy->count = count > copy->count ? count : copy->count;
}

static cddp_status create_copies(struct cddpi_model *model)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    const struct cddpi_graph *graph = &model->graph;
    size_t element = cddp_type_bytes(model->type);
    size_t bytes = 0;

    model->copies = cddpi_zalloc_array(model->params.count, sizeof *model->copies);
    if (model->copies == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for %zu parameters",
                          model->params.count);
    }
    model->copy_count = model->params.count;
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
            const struct cddpi_op *op = &graph->ops[i];

            if (op->params[k] >= 0) {
                keep_copy(model, op, k);
            }
        }
    }
    for (size_t i = 0; i < model->params.count; i++) {
        if (model->copies[i].form != CDDPI_COPY_NONE) {
            bytes += aligned(model->copies[i].count * element);
        }
    }
    if (bytes == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(model->device->ops->alloc(model->device, bytes, "copies of the parameters",
                                        &cuda->copy_block));
    CDDPI_TRY(
        model->device->ops->clear(model->device, CDDPI_STREAM_COMPUTE, cuda->copy_block, bytes));
    bytes = 0;
    for (size_t i = 0; i < model->params.count; i++) {
        if (model->copies[i].form != CDDPI_COPY_NONE) {
            model->copies[i].data = (char *)cuda->copy_block + bytes;
            model->copies[i].stale = true;
            bytes += aligned(model->copies[i].count * element);
        }
    }
    return CDDP_OK;
}

static cddp_status create(struct cddpi_model *model, const struct cddpi_model_spec *spec)
{
    static const cddp_type types[] = {[CDDPI_PRECISION_F32] = CDDP_F32,
                                      [CDDPI_PRECISION_BF16] = CDDP_BF16,
                                      [CDDPI_PRECISION_FP16] = CDDP_F16};

    model->cuda = cddpi_zalloc(sizeof *model->cuda);
    if (model->cuda == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for %zu bytes",
                          sizeof *model->cuda);
    }
    model->cuda->kernels = spec->device->kernels;
    model->cuda->any_order = spec->any_order;
    model->type = types[model->precision];
    for (int i = 0; i < model->graph.op_count; i++) {
        model->dropouts += model->graph.ops[i].ops == &cddpi_op_dropout ? 1 : 0;
    }
    CDDPI_TRY(cddpi_cuda_sync_norm_create(model));
    CDDPI_TRY(move(model, &model->params, "parameters", &model->cuda->params));
    CDDPI_TRY(move(model, &model->buffers, "running statistics", &model->cuda->buffers));
    CDDPI_TRY(create_copies(model));
    return spec->device->ops->event_create(spec->device, false, &model->cuda->read_event);
}

static void forget(struct cddpi_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        tensors->items[i].data = NULL;
    }
}

static void destroy(struct cddpi_model *model)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    const struct cddpi_device_ops *ops = model->device->ops;

    if (cuda == NULL) { /* creation failed for lack of memory */
        return;
    }
    ops->event_destroy(model->device, cuda->read_event);
    ops->unpin(model->device, cuda->read);
    if (cuda->params != NULL) {
        forget(&model->params);
    }
    if (cuda->buffers != NULL) {
        forget(&model->buffers);
    }
    ops->release(model->device, cuda->params);
    ops->release(model->device, cuda->buffers);
    ops->release(model->device, cuda->copy_block);
    ops->release(model->device, cuda->exchange);
    cddpi_free(model->copies);
    cddpi_free(cuda);
}

static void release_params(struct cddpi_model *model)
{
    model->device->ops->release(model->device, model->cuda->params);
    model->cuda->params = NULL;
}

void *cddpi_model_param_copy(const struct cddpi_model *model, size_t index)
{
    return index < model->copy_count && model->copies[index].form == CDDPI_COPY_CAST
               ? model->copies[index].data
               : NULL;
}

size_t cddpi_model_param_copy_count(const struct cddpi_model *model, size_t index)
{
    return cddpi_model_param_copy(model, index) != NULL ? model->copies[index].count : 0;
}

void cddpi_model_bind_copies(struct cddpi_model *model, void *const *copies)
{
    bool moved = false;
    bool all = true;

    for (size_t i = 0; i < model->copy_count; i++) {
        if (copies[i] != NULL) {
            model->copies[i].data = copies[i];
            model->copies[i].stale = true;
            moved = true;
        } else {
            all = all && model->copies[i].data == NULL;
        }
    }
    if (moved && all) {
        model->device->ops->release(model->device, model->cuda->copy_block);
        model->cuda->copy_block = NULL;
    }
    model->memory_version += moved ? 1 : 0;
}

cddp_type cddpi_model_copy_type(const struct cddpi_model *model)
{
    return model->type;
}

/* An update that writes copies may have skipped some parameters, so copies that were stale before
 * stay stale. */
void cddpi_model_params_changed(struct cddpi_model *model, bool copies_written)
{
    for (size_t i = 0; i < model->copy_count; i++) {
        struct cddpi_param_copy *copy = &model->copies[i];

        copy->stale = copy->stale || copy->form == CDDPI_COPY_CHANNELS_LAST ||
                      (copy->form == CDDPI_COPY_CAST && !copies_written);
    }
}

void cddpi_model_replayed(struct cddpi_model *model)
{
    for (size_t i = 0; i < model->copy_count; i++) {
        model->copies[i].stale = false;
    }
    model->last.outputs = NULL; /* the replay has overwritten the activations */
}

void cddpi_model_bind_loss_scale(struct cddpi_model *model, const float *scale)
{
    model->loss_scale = scale;
}

static const char *matmul_note(const struct cddpi_model *model)
{
    static const char *const names[] = {[CDDPI_PRECISION_F32] = "f32 factors: cuBLASLt",
                                        [CDDPI_PRECISION_BF16] = "bf16 factors: cuBLASLt",
                                        [CDDPI_PRECISION_FP16] = "fp16 factors: cuBLASLt"};

    return names[model->precision];
}

static cddp_status describe_plan(struct cddpi_model *model, int count, FILE *file)
{
    (void)model;
    (void)count;
    fputs("implementations: cuDNN and cuBLASLt choose them on the device\n", file);
    return CDDP_OK;
}

const struct cddpi_model_ops cddpi_model_on_cuda = {
    .takes_fp16 = true,
    .create = create,
    .destroy = destroy,
    .release_params = release_params,
    .grow_arena = cddpi_cuda_grow_arena,
    /* the batch's contents are device memory, so check only its kind */
    .check_batch = cddpi_check_batch_kind,
    .plan_data = cddpi_cuda_plan,
    .data = cddpi_cuda_data,
    .add = cddpi_cuda_sum,
    .read = cddpi_cuda_read,
    .matmul_note = matmul_note,
    /* no precision_note: on a device, 16 bits are always faster */
    .describe_plan = describe_plan,
};
