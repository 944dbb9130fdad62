/* pool.c - owns max_pool and avg_pool, on oneDNN, and global_avg_pool, which ends flat and plain
 * whatever the layout of its input. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_layout.h"
#include "nn/cuda.h"
#include "nn/dnnl.h"
#include "nn/ops/window.h"

struct state {
    struct cddpi_primitive forward, backward;
    int workspace; /* buffer: where each maximum came from; -1: none */
};

static cddp_status window_shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                                struct cddpi_shape *out)
{
    (void)in2;
    return cddpi_window_shape(op, out);
}

static void unplan(void *opaque)
{
    struct state *state = opaque;

    cddpi_primitive_fini(&state->forward);
    cddpi_primitive_fini(&state->backward);
    cddpi_free(state);
}

static struct cddpi_dnnl_wish describe_window(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    struct cddpi_dnnl_wish wish = {
        .kind = CDDPI_DNNL_POOL,
        .training = plan->training,
        .src = cddpi_md_image(&plan->layouts, plan->count, &op->in, block),
        .dst = cddpi_md_image(&plan->layouts, plan->count, &op->out, block),
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
    status = cddpi_primitive_init(&state->forward, dnnl, desc, plan, index, CDDPI_IN_FORWARD);
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
    status = cddpi_primitive_init(&state->backward, dnnl, desc, plan, index, CDDPI_IN_BACKWARD);
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

static cddp_status plan_pool(struct cddpi_plan *plan, int index, void **out)
{
    struct state *state = cddpi_zalloc(sizeof *state);
    struct cddpi_dnnl_wish wish = describe_window(plan, index);
    struct cddpi_dnnl *dnnl = NULL;
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pool: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->workspace = -1;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    status = cddpi_dnnl_get(plan->model, &dnnl);
    if (status == CDDP_OK) {
        status = plan_forward(state, dnnl, plan, index, &wish);
    }
    if (status == CDDP_OK && cddpi_plan_wants_grad(plan, index, 0)) {
        status = plan_backward(state, dnnl, plan, index, wish);
    }
    return status;
}

static void *workspace(const struct cddpi_run *run, const struct state *state)
{
    return state->workspace >= 0 ? cddpi_run_buffer(run, state->workspace) : NULL;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;

    return cddpi_primitive_run(
        run, &state->forward,
        (const void *[]){cddpi_run_input(run, 0), cddpi_run_output(run), workspace(run, state)});
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;

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
