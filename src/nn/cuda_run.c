/* cuda_run.c - owns what plans and ops on a CUDA device share: the batch's images in the form that
 * ops read, the arena, and what an op asks of its run. */
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

#include <stdio.h>

/* Whether images go into flat layers only, which want them plain. */
static bool only_flattened(const struct cddpi_graph *graph)
{
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < graph->ops[i].input_count; k++) {
            if (graph->ops[i].inputs[k] == CDDPI_VALUE_INPUT &&
                graph->ops[i].ops != &cddpi_op_flatten) {
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

    plan->memory.alignment = CDDPI_CUDA_ALIGNMENT;
    plan->data = CDDPI_DATA_AS_IT_IS;
    if (model->tokens_in) {
        return;
    }
    if (!plain) {
        plan->data = CDDPI_DATA_CHANNELS_LAST;
        data->block = shape->channels;
    } else if (data->type != CDDP_F32) {
        plan->data = CDDPI_DATA_CAST;
    }
}

cddp_status cddpi_cuda_data(struct cddpi_run *run)
{
    const struct cddpi_model_cuda *cuda = run->model->cuda;
    const struct cddpi_shape *shape = &run->model->graph.values[CDDPI_VALUE_INPUT].shape;
    const struct cddpi_plan_value *data = &run->plan->values[CDDPI_VALUE_INPUT];
    void *out;

    if (run->plan->data == CDDPI_DATA_AS_IT_IS) {
        return CDDP_OK;
    }
    out = cddpi_run_buffer(run, data->activation);
    if (run->plan->data == CDDPI_DATA_CAST) {
        return cuda->kernels->cast(cuda->device, CDDP_F32, run->batch->input, cuda->type, out,
                                   data->elements);
    }
    return cuda->kernels->to_channels_last(cuda->device, cuda->type, run->batch->input,
                                           (size_t)run->plan->count, (size_t)shape->channels,
                                           (size_t)shape->height * (size_t)shape->width, out);
}

/* How many samples' arena @p bytes can hold, fewer than @p count. */
static int largest_that_fits(struct cddpi_model *model, size_t bytes, int count, bool training)
{
    int low = 0;
    int high = count - 1;

    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        struct cddpi_plan *plan = NULL;
        bool fits = cddpi_plan_create(model, middle, training, &plan) == CDDP_OK &&
                    plan->memory.bytes <= bytes;

        cddpi_plan_destroy(plan);
        low = fits ? middle : low;
        high = fits ? high : middle - 1;
    }
    return low;
}

/* Libraries and kernels will want more than they say beforehand, so what fits is told as "about".
 */
static cddp_status no_arena(struct cddpi_model *model, int count, bool training)
{
    struct cddpi_device *device = model->cuda->device;
    struct cddpi_device_memory memory = {0};
    char text[512];
    int fits = 0;

    snprintf(text, sizeof text, "%s", cddp_last_error());
    if (device->ops->memory(device, &memory) == CDDP_OK) {
        size_t taken = model->cuda->kernels->memory_to_come(device);

        fits = largest_that_fits(model, memory.free_bytes > taken ? memory.free_bytes - taken : 0,
                                 count, training);
    }
    if (fits == 0) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s (for %d samples at once)", text, count);
    }
    return cddpi_fail(CDDP_ERR_NO_MEMORY,
                      "%s (for %d samples at once; about %d would fit, so make micro-batches "
                      "smaller)",
                      text, count, fits);
}

cddp_status cddpi_cuda_grow_arena(struct cddpi_model *model, size_t bytes, int count, bool training)
{
    struct cddpi_device *device = model->cuda->device;
    void *arena = NULL;
    cddp_status status;

    device->ops->release(device, model->arena);
    model->arena = NULL;
    model->arena_bytes = 0;
    status = device->ops->alloc(device, bytes, "activations", &arena);
    if (status == CDDP_ERR_NO_MEMORY) {
        return no_arena(model, count, training);
    }
    if (status == CDDP_OK) {
        model->arena = arena;
        model->arena_bytes = bytes;
    }
    return status;
}

const struct cddpi_cuda_kernels *cddpi_run_kernels(const struct cddpi_run *run)
{
    return run->model->cuda->kernels;
}

struct cddpi_device *cddpi_run_device(const struct cddpi_run *run)
{
    return run->model->cuda->device;
}

cddp_type cddpi_run_type(const struct cddpi_run *run)
{
    return run->model->cuda->type;
}

const void *cddpi_run_copy(const struct cddpi_run *run, int k)
{
    int param = run->op->params[k];

    if (param < 0) {
        return NULL;
    }
    return run->model->cuda->copies[param].data != NULL ? run->model->cuda->copies[param].data
                                                        : run->model->params.items[param].data;
}

bool cddpi_run_is_later(const struct cddpi_run *run, int index)
{
    const struct cddpi_plan_op *op = &run->plan->ops[index];

    /* again, the two follow each other only within a segment */
    return (op->flags & CDDPI_FORWARD_LATER) != 0 &&
           (!run->again || (op->again >= 0 && op[1].again == op->again + 1));
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

cddp_status cddpi_run_ready_both(struct cddpi_run *run)
{
    cddp_status status = cddpi_run_ready(run, 1);

    return status == CDDP_OK ? cddpi_run_ready(run, 0) : status;
}

cddp_status cddpi_cuda_mask_relu(const struct cddpi_run *run, const void **out)
{
    cddp_status status = CDDP_OK;

    *out = cddpi_run_grad_output(run, 0);
    if (run->op->relu || run->op->ops == &cddpi_op_relu) {
        status = cddpi_run_kernels(run)->relu_grad(
            cddpi_run_device(run), cddpi_run_type(run), *out, cddpi_run_output(run),
            cddpi_run_output_elements(run), cddpi_run_masked(run));
        *out = cddpi_run_masked(run);
    }
    return status;
}

size_t cddpi_plan_rows(const struct cddpi_plan *plan, const struct cddpi_op *op)
{
    return (size_t)plan->count * cddpi_shape_rows(&op->in);
}
