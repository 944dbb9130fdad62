/* pool.c - owns max_pool and avg_pool, on oneDNN where it has kernels, and global_avg_pool, whose
 * output is flat and plain whatever the layout of its input; on a device, images are channels last.
 */
#include "base/error.h"
#include "kernels/cpu/cpu_layout.h"
#include "nn/cpu/dnnl.h"
#include "nn/cuda/model_cuda.h"
#include "nn/ops/window_op.h"

struct pool_cuda_state {
    struct cddpi_cuda_pool shape;
    int places; /* buffer: the place of each maximum in its window; -1: not needed */
};

static cddp_status plan_pool_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct pool_cuda_state *state = plan->ops[index].state;
    const struct cddpi_cuda_kernels *kernels = plan->model->cuda->kernels;

    state->shape = (struct cddpi_cuda_pool){.type = plan->model->type,
                                            .count = plan->count,
                                            .channels = op->in.channels,
                                            .height = op->in.height,
                                            .width = op->in.width,
                                            .kernel = op->layer.kernel,
                                            .stride = op->layer.stride,
                                            .padding = op->layer.padding,
                                            .average = op->ops == &cddpi_op_avg_pool};
    state->places = -1;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    if (!state->shape.average && cddpi_plan_wants_grad(plan, index, 0)) {
        state->places = cddpi_plan_buffer(plan, index, kernels->pool_places_bytes(&state->shape),
                                          CDDPI_IN_BOTH);
    }
    return CDDP_OK;
}

static void *places(const struct cddpi_exec *exec, const struct pool_cuda_state *state)
{
    return state->places >= 0 ? cddpi_exec_buffer(exec, state->places) : NULL;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    const struct pool_cuda_state *state = exec->state;

    return cddpi_exec_kernels(exec)->pool(exec->model->device, &state->shape,
                                          cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                                          places(exec, state));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const struct pool_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    return grad_input == NULL
               ? CDDP_OK
               : cddpi_exec_kernels(exec)->pool_grad(exec->model->device, &state->shape,
                                                     cddpi_exec_grad_output(exec, 0),
                                                     places(exec, state), grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_pool = {.state_bytes = sizeof(struct pool_cuda_state),
                                                 .plan = plan_pool_cuda,
                                                 .forward = forward_cuda,
                                                 .backward = backward_cuda};

static size_t area_of(const struct cddpi_exec *exec)
{
    return (size_t)exec->op->in.height * (size_t)exec->op->in.width;
}

static cddp_status global_forward_cuda(struct cddpi_exec *exec)
{
    return cddpi_exec_kernels(exec)->global_pool(
        exec->model->device, exec->model->type, cddpi_exec_input(exec, 0),
        (size_t)exec->plan->count, area_of(exec), (size_t)exec->op->in.channels,
        cddpi_exec_output(exec));
}

static cddp_status global_backward_cuda(struct cddpi_exec *exec)
{
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->global_pool_grad(
        exec->model->device, exec->model->type, cddpi_exec_grad_output(exec, 0),
        (size_t)exec->plan->count, area_of(exec), (size_t)exec->op->in.channels, grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_global_pool = {
    .plan = cddpi_plan_flat, .forward = global_forward_cuda, .backward = global_backward_cuda};

struct pool_state {
    bool own; /* oneDNN has only a reference implementation */
    struct cddpi_nn_window window;
    struct cddpi_primitive forward, backward; /* created unless `own` */
    int workspace; /* buffer: the position of each maximum; -1: not needed */
};

static cddp_status window_shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    return cddpi_window_shape(op, out);
}

static void unplan(void *opaque)
{
    struct pool_state *state = opaque;

    cddpi_primitive_fini(&state->forward);
    cddpi_primitive_fini(&state->backward);
}

static struct cddpi_shape whole_blocks(struct cddpi_shape shape, int block)
{
    shape.channels = (shape.channels + block - 1) / block * block;
    return shape;
}

static struct cddpi_dnnl_request describe_window(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    /* channels that pad the last block are zero and stay zero; if they are included, kernels need
     * no code for partial blocks, which takes several times longer */
    struct cddpi_shape in = whole_blocks(op->in, block);
    struct cddpi_shape result = whole_blocks(op->out, block);
    struct cddpi_dnnl_request request = {
        .kind = CDDPI_DNNL_POOL,
        .training = plan->training,
        .src = cddpi_md_image(&plan->layouts, plan->count, &in, block),
        .dst = cddpi_md_image(&plan->layouts, plan->count, &result, block),
        .window = {.strides = {op->layer.stride, op->layer.stride},
                   .kernel = {op->layer.kernel, op->layer.kernel},
                   .before = {op->layer.padding, op->layer.padding},
                   .after = {cddpi_window_padding_after(op, op->in.height, op->out.height),
                             cddpi_window_padding_after(op, op->in.width, op->out.width)}},
        .pooling = op->layer.type == CDDPI_LAYER_MAX_POOL ? dnnl_pooling_max
                                                          : dnnl_pooling_avg_include_padding,
        .what = "pooling"};

    return request;
}

static cddp_status plan_dnnl(struct pool_state *state, struct cddpi_plan *plan, int index)
{
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE};
    static const int gradient_args[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WORKSPACE};
    struct cddpi_dnnl_request request = describe_window(plan, index);
    struct cddpi_plan_part part = {.op = index, .what = request.what};
    struct cddpi_dnnl *dnnl = NULL;
    dnnl_primitive_desc_t desc;
    cddpi_md kept;

    CDDPI_TRY(cddpi_dnnl_get(plan->model, &dnnl));
    CDDPI_TRY(cddpi_dnnl_describe(dnnl, &request, &desc));
    CDDPI_TRY(cddpi_primitive_init(&state->forward, dnnl, desc, plan, &part, CDDPI_IN_FORWARD));
    state->workspace = cddpi_primitive_workspace(&state->forward, plan, index);
    kept = state->workspace >= 0 ? cddpi_dnnl_query(desc, dnnl_query_workspace_md) : NULL;
    CDDPI_TRY(cddpi_primitive_args(&state->forward, 3, args,
                                   (const cddpi_md[]){request.src, request.dst, kept}));
    if (!cddpi_plan_wants_grad(plan, index, 0)) {
        return CDDP_OK;
    }
    request.kind = CDDPI_DNNL_POOL_DATA;
    request.forward = desc;
    request.what = part.what = "gradient of pooling";
    CDDPI_TRY(cddpi_dnnl_describe(dnnl, &request, &desc));
    CDDPI_TRY(cddpi_primitive_init(&state->backward, dnnl, desc, plan, &part, CDDPI_IN_BACKWARD));
    return cddpi_primitive_args(&state->backward, 3, gradient_args,
                                (const cddpi_md[]){request.dst, request.src, kept});
}

static void plan_own(struct pool_state *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t block = (size_t)cddpi_plan_input(plan, index, 0)->block;
    size_t groups = ((size_t)op->in.channels + block - 1) / block;
    size_t outputs = cddpi_plan_elements(plan, &op->out, (int)block);
    struct cddpi_plan_part part = {.op = index, .what = "pooling"};

    cddpi_plan_part(plan, "own:window", &part);
    state->own = true;
    state->workspace = -1;
    state->window = cddpi_window_of(op, &op->in, &op->out, (size_t)plan->count * groups, block);
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        part.what = "gradient of pooling";
        cddpi_plan_part(plan, "own:window", &part);
    }
    if (op->layer.type == CDDPI_LAYER_MAX_POOL) {
        state->workspace = cddpi_plan_buffer(plan, index, outputs * sizeof(int32_t), CDDPI_IN_BOTH);
    }
}

static cddp_status plan_pool(struct cddpi_plan *plan, int index)
{
    struct pool_state *state = plan->ops[index].state;
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    cddp_status status;

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    status = plan->model->fallbacks == CDDPI_FALLBACKS_OWN ? CDDP_ERR_UNAVAILABLE
                                                           : plan_dnnl(state, plan, index);
    if (status == CDDP_ERR_UNAVAILABLE) {
        unplan(state);
        cddpi_plan_rollback(plan, mark);
        plan_own(state, plan, index);
        return CDDP_OK;
    }
    return status;
}

static void *workspace(const struct cddpi_exec *exec, const struct pool_state *state)
{
    return state->workspace >= 0 ? cddpi_exec_buffer(exec, state->workspace) : NULL;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    struct pool_state *state = exec->state;
    const float *x = cddpi_exec_input(exec, 0);
    float *y = cddpi_exec_output(exec);

    if (!state->own) {
        return cddpi_primitive_run(exec, &state->forward,
                                   (const void *[]){x, y, workspace(exec, state)});
    }
    if (exec->op->layer.type == CDDPI_LAYER_MAX_POOL) {
        cddpi_nn_max_pool(x, &state->window, y, workspace(exec, state));
    } else {
        cddpi_nn_avg_pool(x, &state->window, y);
    }
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    struct pool_state *state = exec->state;
    const float *dy = cddpi_exec_grad_output(exec, 0);
    float *dx = cddpi_exec_grad_input(exec, 0);

    if (!state->own) {
        return cddpi_primitive_run(exec, &state->backward,
                                   (const void *[]){dy, dx, workspace(exec, state)});
    }
    if (exec->op->layer.type == CDDPI_LAYER_MAX_POOL) {
        cddpi_nn_max_pool_backward(dy, workspace(exec, state), &state->window, dx);
    } else {
        cddpi_nn_avg_pool_backward(dy, &state->window, dx);
    }
    return CDDP_OK;
}

static const struct cddpi_op_kernels cpu_pool = {.state_bytes = sizeof(struct pool_state),
                                                 .plan = plan_pool,
                                                 .unplan = unplan,
                                                 .forward = forward,
                                                 .backward = backward};

const struct cddpi_op_ops cddpi_op_max_pool = {
    .name = "max_pool",
    .images_only = true,
    .shape = window_shape,
    .on = {[CDDPI_DEVICE_CPU] = &cpu_pool, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_pool}};

const struct cddpi_op_ops cddpi_op_avg_pool = {
    .name = "avg_pool",
    .images_only = true,
    .shape = window_shape,
    .on = {[CDDPI_DEVICE_CPU] = &cpu_pool, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_pool}};

static cddp_status global_shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    *out = cddpi_shape_flat(op->in.channels);
    return CDDP_OK;
}

static cddp_status global_forward(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);

    cddpi_nn_global_mean(cddpi_exec_input(exec, 0), &layout, cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status global_backward(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);

    cddpi_nn_global_mean_backward(cddpi_exec_grad_output(exec, 0), &layout,
                                  cddpi_exec_grad_input(exec, 0));
    return CDDP_OK;
}

static const struct cddpi_op_kernels cpu_global_avg_pool = {
    .plan = cddpi_plan_flat, .forward = global_forward, .backward = global_backward};

const struct cddpi_op_ops cddpi_op_global_avg_pool = {
    .name = "global_avg_pool",
    .images_only = true,
    .shape = global_shape,
    .on = {
        [CDDPI_DEVICE_CPU] = &cpu_global_avg_pool, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_global_pool}};
