/* pool.c - owns max_pool and avg_pool, on oneDNN where it has kernels, and global_avg_pool, whose
 * output is flat and plain whatever the layout of its input. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/cpu_layout.h"
#include "nn/cpu/dnnl.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"
#include "nn/ops/window_op.h"

struct pool_state {
    bool own; /* oneDNN has only a reference implementation */
    struct cddpi_nn_window window;
    struct cddpi_primitive forward, backward; /* created unless `own` */
    int workspace; /* buffer: the position of each maximum; -1: not needed */
};

static cddp_status window_shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                                struct cddpi_shape *out)
{
    (void)in2;
    return cddpi_window_shape(op, out);
}

static void fini_primitives(struct pool_state *state)
{
    cddpi_primitive_fini(&state->forward);
    cddpi_primitive_fini(&state->backward);
}

static void unplan(void *opaque)
{
    if (opaque != NULL) {
        fini_primitives(opaque);
        cddpi_free(opaque);
    }
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

static cddp_status plan_forward(struct pool_state *state, struct cddpi_dnnl *dnnl,
                                struct cddpi_plan *plan, int index,
                                const struct cddpi_dnnl_request *request)
{
    dnnl_primitive_desc_t desc;

    CDDPI_TRY(cddpi_dnnl_describe(dnnl, request, &desc));
    CDDPI_TRY(cddpi_primitive_init(&state->forward, dnnl, desc, plan,
                                   &(struct cddpi_plan_part){.op = index, .what = request->what},
                                   CDDPI_IN_FORWARD));
    CDDPI_TRY(cddpi_primitive_arg(&state->forward, DNNL_ARG_SRC, request->src));
    CDDPI_TRY(cddpi_primitive_arg(&state->forward, DNNL_ARG_DST, request->dst));
    return cddpi_primitive_workspace(&state->forward, plan, index, &state->workspace);
}

static cddp_status plan_backward(struct pool_state *state, struct cddpi_dnnl *dnnl,
                                 struct cddpi_plan *plan, int index,
                                 struct cddpi_dnnl_request request)
{
    dnnl_primitive_desc_t desc;

    request.kind = CDDPI_DNNL_POOL_DATA;
    request.forward = state->forward.desc;
    request.what = "gradient of pooling";
    CDDPI_TRY(cddpi_dnnl_describe(dnnl, &request, &desc));
    CDDPI_TRY(cddpi_primitive_init(&state->backward, dnnl, desc, plan,
                                   &(struct cddpi_plan_part){.op = index, .what = request.what},
                                   CDDPI_IN_BACKWARD));
    CDDPI_TRY(cddpi_primitive_arg(&state->backward, DNNL_ARG_DIFF_DST, request.dst));
    CDDPI_TRY(cddpi_primitive_arg(&state->backward, DNNL_ARG_DIFF_SRC, request.src));
    if (state->workspace >= 0) {
        CDDPI_TRY(
            cddpi_primitive_arg(&state->backward, DNNL_ARG_WORKSPACE,
                                cddpi_dnnl_query(state->forward.desc, dnnl_query_workspace_md)));
    }
    return CDDP_OK;
}

static cddp_status plan_dnnl(struct pool_state *state, struct cddpi_plan *plan, int index)
{
    struct cddpi_dnnl_request request = describe_window(plan, index);
    struct cddpi_dnnl *dnnl = NULL;
    cddp_status status = cddpi_dnnl_get(plan->model, &dnnl);

    state->workspace = -1;
    if (status == CDDP_OK) {
        status = plan_forward(state, dnnl, plan, index, &request);
    }
    if (status == CDDP_OK && cddpi_plan_wants_grad(plan, index, 0)) {
        status = plan_backward(state, dnnl, plan, index, request);
    }
    return status;
}

static cddp_status plan_own(struct pool_state *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t block = (size_t)cddpi_plan_input(plan, index, 0)->block;
    size_t groups = ((size_t)op->in.channels + block - 1) / block;
    size_t outputs = cddpi_plan_elements(plan, &op->out, (int)block);
    struct cddpi_plan_part part = {.op = index, .what = "pooling"};
    cddp_status status = cddpi_plan_part(plan, "own:window", &part);

    state->own = true;
    state->workspace = -1;
    state->window = (struct cddpi_nn_window){.planes = (size_t)plan->count * groups,
                                             .lanes = block,
                                             .height = (size_t)op->in.height,
                                             .width = (size_t)op->in.width,
                                             .out_height = (size_t)op->out.height,
                                             .out_width = (size_t)op->out.width,
                                             .kernel = (size_t)op->layer.kernel,
                                             .stride = (size_t)op->layer.stride,
                                             .padding = (size_t)op->layer.padding};
    part.what = "gradient of pooling";
    if (status == CDDP_OK && cddpi_plan_wants_grad(plan, index, 0)) {
        status = cddpi_plan_part(plan, "own:window", &part);
    }
    return status == CDDP_OK && op->layer.type == CDDPI_LAYER_MAX_POOL
               ? cddpi_plan_buffer(plan, index, outputs * sizeof(int32_t),
                                   plan->training ? CDDPI_IN_BOTH : CDDPI_IN_FORWARD,
                                   &state->workspace)
               : status;
}

static cddp_status plan_pool(struct cddpi_plan *plan, int index, void **out)
{
    struct pool_state *state = cddpi_zalloc(sizeof *state);
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pool: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    status = plan->model->fallbacks == CDDPI_FALLBACKS_OWN ? CDDP_ERR_UNAVAILABLE
                                                           : plan_dnnl(state, plan, index);
    if (status == CDDP_ERR_UNAVAILABLE) {
        fini_primitives(state);
        cddpi_plan_rollback(plan, mark);
        status = plan_own(state, plan, index);
    }
    return status;
}

static void *workspace(const struct cddpi_exec *exec, const struct pool_state *state)
{
    return state->workspace >= 0 ? cddpi_exec_buffer(exec, state->workspace) : NULL;
}

static cddp_status own_forward(const struct cddpi_exec *exec, const struct pool_state *state)
{
    const float *x = cddpi_exec_input(exec, 0);

    if (exec->op->layer.type == CDDPI_LAYER_MAX_POOL) {
        cddpi_nn_max_pool(x, &state->window, cddpi_exec_output(exec), workspace(exec, state));
    } else {
        cddpi_nn_avg_pool(x, &state->window, cddpi_exec_output(exec));
    }
    return CDDP_OK;
}

static cddp_status own_backward(const struct cddpi_exec *exec, const struct pool_state *state)
{
    const float *grad = cddpi_exec_grad_output(exec, 0);
    float *out = cddpi_exec_grad_input(exec, 0);

    if (exec->op->layer.type == CDDPI_LAYER_MAX_POOL) {
        cddpi_nn_max_pool_backward(grad, workspace(exec, state), &state->window, out);
    } else {
        cddpi_nn_avg_pool_backward(grad, &state->window, out);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec, void *opaque)
{
    struct pool_state *state = opaque;

    if (state->own) {
        return own_forward(exec, state);
    }
    return cddpi_primitive_run(exec, &state->forward,
                               (const void *[]){cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                                                workspace(exec, state)});
}

static cddp_status backward(struct cddpi_exec *exec, void *opaque)
{
    struct pool_state *state = opaque;

    if (state->own) {
        return own_backward(exec, state);
    }
    return cddpi_primitive_run(exec, &state->backward,
                               (const void *[]){cddpi_exec_grad_output(exec, 0),
                                                cddpi_exec_grad_input(exec, 0),
                                                workspace(exec, state)});
}

static const struct cddpi_op_kernels cpu_pool = {
    .plan = plan_pool, .unplan = unplan, .forward = forward, .backward = backward};

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

static cddp_status global_shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                                struct cddpi_shape *out)
{
    (void)in2;
    *out = cddpi_shape_flat(op->in.channels);
    return CDDP_OK;
}

static cddp_status plan_global(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, 1);
    return CDDP_OK;
}

static struct cddpi_nn_layout input_layout(const struct cddpi_exec *exec)
{
    const struct cddpi_shape *in = &exec->op->in;

    return (struct cddpi_nn_layout){(size_t)exec->plan->count, (size_t)in->channels,
                                    (size_t)in->height * (size_t)in->width,
                                    (size_t)exec->plan->values[exec->op->inputs[0]].block};
}

static cddp_status global_forward(struct cddpi_exec *exec, void *state)
{
    struct cddpi_nn_layout layout = input_layout(exec);

    (void)state;
    cddpi_nn_global_mean(cddpi_exec_input(exec, 0), &layout, cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status global_backward(struct cddpi_exec *exec, void *state)
{
    struct cddpi_nn_layout layout = input_layout(exec);

    (void)state;
    cddpi_nn_global_mean_backward(cddpi_exec_grad_output(exec, 0), &layout,
                                  cddpi_exec_grad_input(exec, 0));
    return CDDP_OK;
}

static const struct cddpi_op_kernels cpu_global_avg_pool = {
    .plan = plan_global, .forward = global_forward, .backward = global_backward};

const struct cddpi_op_ops cddpi_op_global_avg_pool = {
    .name = "global_avg_pool",
    .images_only = true,
    .shape = global_shape,
    .on = {
        [CDDPI_DEVICE_CPU] = &cpu_global_avg_pool, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_global_pool}};
