/* pool.c - owns max_pool and avg_pool, on oneDNN where it has kernels, and global_avg_pool, which
 * ends flat and plain whatever the layout of its input. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_layout.h"
#include "kernels/cpu/nn_window.h"
#include "nn/cuda.h"
#include "nn/dnnl.h"
#include "nn/model_state.h"
#include "nn/ops/window.h"

struct state {
    bool own; /* oneDNN has nothing but a reference */
    struct cddpi_nn_window window;
    struct cddpi_primitive forward, backward; /* not own */
    int workspace;                            /* buffer: where each maximum came from; -1: none */
};

static cddp_status window_shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                                struct cddpi_shape *out)
{
    (void)in2;
    return cddpi_window_shape(op, out);
}

static void fini_primitives(struct state *state)
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

static struct cddpi_dnnl_wish describe_window(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    /* channels that fill the last block up are zero and stay so: with them, kernels need no code
     * for a block in parts, which takes several times longer */
    struct cddpi_shape in = whole_blocks(op->in, block);
    struct cddpi_shape result = whole_blocks(op->out, block);
    struct cddpi_dnnl_wish wish = {
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

    return wish;
}

static cddp_status plan_forward(struct state *state, struct cddpi_dnnl *dnnl,
                                struct cddpi_plan *plan, int index,
                                const struct cddpi_dnnl_wish *wish)
{
    dnnl_primitive_desc_t desc;
    cddp_status status = cddpi_dnnl_describe(dnnl, wish, &desc);

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->forward, dnnl, desc, plan,
                                  &(struct cddpi_plan_part){.op = index, .what = wish->what},
                                  CDDPI_IN_FORWARD);
    if (status == CDDP_OK) {
        status = cddpi_primitive_arg(&state->forward, DNNL_ARG_SRC, wish->src);
    }
    if (status == CDDP_OK) {
        status = cddpi_primitive_arg(&state->forward, DNNL_ARG_DST, wish->dst);
    }
    return status == CDDP_OK
               ? cddpi_primitive_workspace(&state->forward, plan, index, &state->workspace)
               : status;
}

static cddp_status plan_backward(struct state *state, struct cddpi_dnnl *dnnl,
                                 struct cddpi_plan *plan, int index, struct cddpi_dnnl_wish wish)
{
    dnnl_primitive_desc_t desc;
    cddp_status status;

    wish.kind = CDDPI_DNNL_POOL_DATA;
    wish.forward = state->forward.desc;
    wish.what = "gradient of pooling";
    status = cddpi_dnnl_describe(dnnl, &wish, &desc);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->backward, dnnl, desc, plan,
                                  &(struct cddpi_plan_part){.op = index, .what = wish.what},
                                  CDDPI_IN_BACKWARD);
    if (status == CDDP_OK) {
        status = cddpi_primitive_arg(&state->backward, DNNL_ARG_DIFF_DST, wish.dst);
    }
    if (status == CDDP_OK) {
        status = cddpi_primitive_arg(&state->backward, DNNL_ARG_DIFF_SRC, wish.src);
    }
    if (status == CDDP_OK && state->workspace >= 0) {
        status = cddpi_primitive_arg(
            &state->backward, DNNL_ARG_WORKSPACE,
            cddpi_dnnl_query(state->forward.desc, dnnl_query_workspace_md));
    }
    return status;
}

static cddp_status plan_dnnl(struct state *state, struct cddpi_plan *plan, int index)
{
    struct cddpi_dnnl_wish wish = describe_window(plan, index);
    struct cddpi_dnnl *dnnl = NULL;
    cddp_status status = cddpi_dnnl_get(plan->model, &dnnl);

    state->workspace = -1;
    if (status == CDDP_OK) {
        status = plan_forward(state, dnnl, plan, index, &wish);
    }
    if (status == CDDP_OK && cddpi_plan_wants_grad(plan, index, 0)) {
        status = plan_backward(state, dnnl, plan, index, wish);
    }
    return status;
}

static cddp_status plan_own(struct state *state, struct cddpi_plan *plan, int index)
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
    struct state *state = cddpi_zalloc(sizeof *state);
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pool: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    status = plan->model->substitutes == CDDPI_SUBSTITUTES_OWN ? CDDP_ERR_UNAVAILABLE
                                                               : plan_dnnl(state, plan, index);
    if (status == CDDP_ERR_UNAVAILABLE) {
        fini_primitives(state);
        cddpi_plan_take_back(plan, mark);
        status = plan_own(state, plan, index);
    }
    return status;
}

static void *workspace(const struct cddpi_run *run, const struct state *state)
{
    return state->workspace >= 0 ? cddpi_run_buffer(run, state->workspace) : NULL;
}

static cddp_status own_forward(const struct cddpi_run *run, const struct state *state)
{
    const float *x = cddpi_run_input(run, 0);

    if (run->op->layer.type == CDDPI_LAYER_MAX_POOL) {
        cddpi_nn_max_pool(x, &state->window, cddpi_run_output(run), workspace(run, state));
    } else {
        cddpi_nn_avg_pool(x, &state->window, cddpi_run_output(run));
    }
    return CDDP_OK;
}

static cddp_status own_backward(const struct cddpi_run *run, const struct state *state)
{
    const float *grad = cddpi_run_grad_output(run, 0);
    float *out = cddpi_run_grad_input(run, 0);

    if (run->op->layer.type == CDDPI_LAYER_MAX_POOL) {
        cddpi_nn_max_pool_backward(grad, workspace(run, state), &state->window, out);
    } else {
        cddpi_nn_avg_pool_backward(grad, &state->window, out);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;

    if (state->own) {
        return own_forward(run, state);
    }
    return cddpi_primitive_run(
        run, &state->forward,
        (const void *[]){cddpi_run_input(run, 0), cddpi_run_output(run), workspace(run, state)});
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;

    if (state->own) {
        return own_backward(run, state);
    }
    return cddpi_primitive_run(run, &state->backward,
                               (const void *[]){cddpi_run_grad_output(run, 0),
                                                cddpi_run_grad_input(run, 0),
                                                workspace(run, state)});
}

const struct cddpi_op_ops cddpi_op_max_pool = {.name = "max_pool",
                                               .images_only = true,
                                               .shape = window_shape,
                                               .plan = plan_pool,
                                               .unplan = unplan,
                                               .forward = forward,
                                               .backward = backward,
                                               .cuda = &cddpi_cuda_pool};

const struct cddpi_op_ops cddpi_op_avg_pool = {.name = "avg_pool",
                                               .images_only = true,
                                               .shape = window_shape,
                                               .plan = plan_pool,
                                               .unplan = unplan,
                                               .forward = forward,
                                               .backward = backward,
                                               .cuda = &cddpi_cuda_pool};

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

static struct cddpi_nn_layout input_layout(const struct cddpi_run *run)
{
    const struct cddpi_shape *in = &run->op->in;

    return (struct cddpi_nn_layout){(size_t)run->plan->count, (size_t)in->channels,
                                    (size_t)in->height * (size_t)in->width,
                                    (size_t)run->plan->values[run->op->inputs[0]].block};
}

static cddp_status global_forward(struct cddpi_run *run, void *state)
{
    struct cddpi_nn_layout layout = input_layout(run);

    (void)state;
    cddpi_nn_global_mean(cddpi_run_input(run, 0), &layout, cddpi_run_output(run));
    return CDDP_OK;
}

static cddp_status global_backward(struct cddpi_run *run, void *state)
{
    struct cddpi_nn_layout layout = input_layout(run);

    (void)state;
    cddpi_nn_global_mean_backward(cddpi_run_grad_output(run, 0), &layout,
                                  cddpi_run_grad_input(run, 0));
    return CDDP_OK;
}

const struct cddpi_op_ops cddpi_op_global_avg_pool = {.name = "global_avg_pool",
                                                      .images_only = true,
                                                      .shape = global_shape,
                                                      .plan = plan_global,
                                                      .forward = global_forward,
                                                      .backward = global_backward,
                                                      .cuda = &cddpi_cuda_global_pool};
