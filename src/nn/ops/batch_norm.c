/* batch_norm.c - owns batch normalisation, on oneDNN where it has a kernel, with the relu behind it
 * in the same pass.
 * Running statistics are PyTorch's: the variance in them is the unbiased one. */
#include "nn/ops/batch_norm.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cpu/dnnl.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"

struct state {
    bool own;                    /* not on oneDNN: over ranks, or it has no kernel */
    struct cddpi_sync_norm norm; /* own, in training */
    struct cddpi_primitive forward, backward;
    int mean, variance;         /* buffers: of the batch; in evaluation not used */
    int workspace;              /* buffer: the relu's mask; -1: none */
    int scale_grad, shift_grad; /* buffers, used when gradients are accumulated */
    int unwanted;               /* buffer: for the input's gradient where nobody wants it */
};

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    *out = op->in;
    return CDDP_OK;
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int64_t channels = op->in.channels;
    double deviation = op->layer.deviation;
    cddp_status status = cddpi_model_add_param(
        model, op, 0, "weight", 1, &channels,
        (struct cddpi_param_info){deviation > 0 ? CDDPI_INIT_NORMAL_AROUND_ONE : CDDPI_INIT_ONE,
                                  deviation, false});

    if (status == CDDP_OK) {
        status = cddpi_model_add_param(model, op, 1, "bias", 1, &channels,
                                       (struct cddpi_param_info){CDDPI_INIT_ZERO, 0, false});
    }
    if (status == CDDP_OK) {
        status = cddpi_model_add_buffer(model, op, 0, "running_mean", channels, 0);
    }
    return status == CDDP_OK ? cddpi_model_add_buffer(model, op, 1, "running_var", channels, 1)
                             : status;
}

static void unplan(void *opaque)
{
    struct state *state = opaque;

    if (state != NULL) {
        cddpi_primitive_fini(&state->forward);
        cddpi_primitive_fini(&state->backward);
        cddpi_free(state);
    }
}

static cddp_status add_args(struct cddpi_primitive *primitive, const int *args, int count,
                            cddpi_md layout)
{
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < count; i++) {
        status = cddpi_primitive_arg(primitive, args[i], layout);
    }
    return status;
}

static struct cddpi_dnnl_request describe(const struct cddpi_plan *plan, const struct cddpi_op *op,
                                          cddpi_md data)
{
    return (struct cddpi_dnnl_request){.kind = CDDPI_DNNL_NORM,
                                       .training = plan->training,
                                       .src = data,
                                       .epsilon = (float)op->layer.epsilon,
                                       .flags = dnnl_use_scale | dnnl_use_shift |
                                                (op->relu ? dnnl_fuse_norm_relu : 0u) |
                                                (plan->training ? 0u : dnnl_use_global_stats),
                                       .what = "batch normalisation"};
}

static cddp_status plan_forward(struct state *state, struct cddpi_dnnl *dnnl,
                                struct cddpi_plan *plan, int index, cddpi_md data)
{
    static const int data_args[] = {DNNL_ARG_SRC, DNNL_ARG_DST};
    static const int channel_args[] = {DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_MEAN,
                                       DNNL_ARG_VARIANCE};
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    cddpi_md channels = cddpi_md_plain(&plan->layouts, 1, (dnnl_dim_t[]){op->in.channels});
    struct cddpi_dnnl_request request = describe(plan, op, data);
    dnnl_primitive_desc_t desc;
    cddp_status status = cddpi_dnnl_describe(dnnl, &request, &desc);

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->forward, dnnl, desc, plan,
                                  &(struct cddpi_plan_part){.op = index, .what = request.what},
                                  CDDPI_IN_FORWARD);
    if (status == CDDP_OK) {
        status = add_args(&state->forward, data_args, 2, data);
    }
    if (status == CDDP_OK) {
        status = add_args(&state->forward, channel_args, 4, channels);
    }
    return status == CDDP_OK
               ? cddpi_primitive_workspace(&state->forward, plan, index, &state->workspace)
               : status;
}

static cddp_status plan_backward(struct state *state, struct cddpi_dnnl *dnnl,
                                 struct cddpi_plan *plan, int index, cddpi_md data)
{
    static const int data_args[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC};
    static const int channel_args[] = {DNNL_ARG_SCALE, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE,
                                       DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    cddpi_md channels = cddpi_md_plain(&plan->layouts, 1, (dnnl_dim_t[]){op->in.channels});
    struct cddpi_dnnl_request request = describe(plan, op, data);
    dnnl_primitive_desc_t desc;
    cddp_status status;

    request.kind = CDDPI_DNNL_NORM_DATA;
    request.forward = state->forward.desc;
    request.what = "gradient of batch normalisation";
    status = cddpi_dnnl_describe(dnnl, &request, &desc);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->backward, dnnl, desc, plan,
                                  &(struct cddpi_plan_part){.op = index, .what = request.what},
                                  CDDPI_IN_BACKWARD);
    if (status == CDDP_OK) {
        status = add_args(&state->backward, data_args, 3, data);
    }
    if (status == CDDP_OK) {
        status = add_args(&state->backward, channel_args, 5, channels);
    }
    if (status == CDDP_OK && cddpi_dnnl_norm_data_takes_shift) {
        status = cddpi_primitive_arg(&state->backward, DNNL_ARG_SHIFT, channels);
    }
    if (status == CDDP_OK && state->workspace >= 0) {
        status = cddpi_primitive_arg(
            &state->backward, DNNL_ARG_WORKSPACE,
            cddpi_dnnl_query(state->forward.desc, dnnl_query_workspace_md));
    }
    return status;
}

static cddp_status plan_channels(struct state *state, struct cddpi_plan *plan, int index)
{
    size_t bytes = (size_t)cddpi_plan_op_of(plan, index)->in.channels * sizeof(float);
    cddp_status status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &state->mean);

    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &state->variance);
    }
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BACKWARD, &state->scale_grad);
    }
    return status == CDDP_OK
               ? cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BACKWARD, &state->shift_grad)
               : status;
}

static cddp_status plan_local(struct state *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    cddpi_md data = cddpi_md_image(&plan->layouts, plan->count, &op->in,
                                   cddpi_plan_input(plan, index, 0)->block);
    struct cddpi_dnnl *dnnl = NULL;
    cddp_status status = cddpi_dnnl_get(plan->model, &dnnl);

    state->workspace = -1;
    if (status == CDDP_OK) {
        status = plan_forward(state, dnnl, plan, index, data);
    }
    if (status == CDDP_OK && plan->training) {
        status = plan_channels(state, plan, index);
    }
    if (status == CDDP_OK && plan->training) {
        status = plan_backward(state, dnnl, plan, index, data);
    }
    if (status == CDDP_OK && plan->training && !cddpi_plan_wants_grad(plan, index, 0)) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(data), CDDPI_IN_BACKWARD,
                                   &state->unwanted);
    }
    plan->ops[index].flags = plan->training ? CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE
                                            : CDDPI_FORWARD_INPLACE;
    return status;
}

static cddp_status plan_own(struct state *state, struct cddpi_plan *plan, int index, bool alone)
{
    struct cddpi_plan_part part = {.op = index, .what = "batch normalisation"};
    cddp_status status = cddpi_plan_part(plan, "own:norm", &part);

    state->own = true;
    if (!plan->training) {
        plan->ops[index].flags = CDDPI_FORWARD_INPLACE;
        return status;
    }
    part.what = "gradient of batch normalisation";
    if (status == CDDP_OK) {
        status = cddpi_plan_part(plan, "own:norm", &part);
    }
    return status == CDDP_OK ? cddpi_sync_norm_plan(plan, index, alone, &state->norm) : status;
}

static cddp_status plan_batch_norm(struct cddpi_plan *plan, int index, void **out)
{
    struct state *state = cddpi_zalloc(sizeof *state);
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "batch_norm: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    if (plan->training && cddpi_sync_norm_wanted(plan->model, cddpi_plan_op_of(plan, index))) {
        return plan_own(state, plan, index, false);
    }
    status = plan->model->fallbacks == CDDPI_FALLBACKS_OWN ? CDDP_ERR_UNAVAILABLE
                                                           : plan_local(state, plan, index);
    if (status == CDDP_ERR_UNAVAILABLE) {
        cddpi_primitive_fini(&state->forward);
        cddpi_primitive_fini(&state->backward);
        cddpi_plan_rollback(plan, mark);
        status = plan_own(state, plan, index, true);
    }
    return status;
}

static cddp_status forward(struct cddpi_exec *exec, void *opaque)
{
    struct state *state = opaque;
    bool training = exec->plan->training;
    const float *mean;
    const float *variance;
    cddp_status status;

    if (state->own) {
        return training ? cddpi_sync_norm_forward(exec, &state->norm)
                        : cddpi_sync_norm_evaluate(exec);
    }
    mean = training ? cddpi_exec_buffer(exec, state->mean) : cddpi_exec_running(exec, 0);
    variance = training ? cddpi_exec_buffer(exec, state->variance) : cddpi_exec_running(exec, 1);
    status = cddpi_primitive_run(
        exec, &state->forward,
        (const void *[]){cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                         cddpi_exec_param(exec, 0), cddpi_exec_param(exec, 1), mean, variance,
                         state->workspace >= 0 ? cddpi_exec_buffer(exec, state->workspace) : NULL});
    if (status == CDDP_OK && training) {
        cddpi_batch_norm_update(exec, mean, variance,
                                (double)exec->plan->count * exec->op->in.height *
                                    exec->op->in.width);
    }
    return status;
}

static cddp_status backward(struct cddpi_exec *exec, void *opaque)
{
    struct state *state = opaque;
    size_t channels = (size_t)exec->op->in.channels;
    float *scale = cddpi_exec_grad(exec, 0);
    float *shift = cddpi_exec_grad(exec, 1);
    float *scale_part = scale;
    float *shift_part = shift;
    float *grad_input = cddpi_exec_grad_input(exec, 0);
    const void *arguments[CDDPI_PRIMITIVE_ARGS];
    int count = 8;
    cddp_status status;

    if (state->own) {
        return cddpi_sync_norm_backward(exec, &state->norm);
    }
    if (grad_input == NULL) {
        grad_input = cddpi_exec_buffer(exec, state->unwanted);
    }
    if (exec->accumulate) {
        scale_part = cddpi_exec_buffer(exec, state->scale_grad);
        shift_part = cddpi_exec_buffer(exec, state->shift_grad);
    }
    arguments[0] = cddpi_exec_input(exec, 0);
    arguments[1] = cddpi_exec_grad_output(exec, 0);
    arguments[2] = grad_input;
    arguments[3] = cddpi_exec_param(exec, 0);
    arguments[4] = cddpi_exec_buffer(exec, state->mean);
    arguments[5] = cddpi_exec_buffer(exec, state->variance);
    arguments[6] = scale_part;
    arguments[7] = shift_part;
    if (cddpi_dnnl_norm_data_takes_shift) {
        arguments[count++] = cddpi_exec_param(exec, 1);
    }
    if (state->workspace >= 0) {
        arguments[count] = cddpi_exec_buffer(exec, state->workspace);
    }
    status = cddpi_primitive_run(exec, &state->backward, arguments);
    if (status != CDDP_OK) {
        return status;
    }
    if (exec->accumulate) {
        cddpi_nn_add(scale, scale_part, scale, channels);
        cddpi_nn_add(shift, shift_part, shift, channels);
    }
    status = cddpi_exec_ready(exec, 1);
    return status == CDDP_OK ? cddpi_exec_ready(exec, 0) : status;
}

static cddp_status idle_forward(struct cddpi_exec *exec)
{
    return cddpi_sync_norm_wanted(exec->model, exec->op) ? cddpi_sync_norm_idle_forward(exec)
                                                         : CDDP_OK;
}

static cddp_status idle_backward(struct cddpi_exec *exec)
{
    return cddpi_sync_norm_wanted(exec->model, exec->op) ? cddpi_sync_norm_idle_backward(exec)
                                                         : CDDP_OK;
}

static const struct cddpi_op_kernels cpu = {.plan = plan_batch_norm,
                                            .unplan = unplan,
                                            .forward = forward,
                                            .backward = backward,
                                            .idle_forward = idle_forward,
                                            .idle_backward = idle_backward};

const struct cddpi_op_ops cddpi_op_batch_norm = {
    .name = "batch_norm",
    .images_only = true,
    .fuses_relu = true,
    .shape = shape,
    .declare = declare,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_batch_norm}};
