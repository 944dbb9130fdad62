/* conv2d.c - owns convolutions, on oneDNN where it has kernels, with a fused relu.
 *
 * Activations stay in the layout that oneDNN prefers. The parameter itself is plain row-major:
 * forward packs it into oneDNN's layout, and backward unpacks the gradient; both are small. */
#include "nn/ops/conv2d.h"

#include "base/error.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/reduce.h"
#include "nn/cpu/threads.h"
#include "nn/cuda/model_cuda.h"
#include "nn/ops/norm_passes.h"
#include "nn/ops/window_op.h"

#include <math.h>

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    if (op->in.channels % op->layer.groups != 0 || op->layer.units % op->layer.groups != 0) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "%d input channels and %d output channels cannot be divided into %d "
                          "groups",
                          op->in.channels, op->layer.units, op->layer.groups);
    }
    out->channels = op->layer.units;
    return cddpi_window_shape(op, out);
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int kernel = op->layer.kernel;
    int64_t dims[] = {op->out.channels, cddpi_conv_inputs(op), kernel, kernel};
    double taps = (double)kernel * kernel;
    double bound = 1 / sqrt(cddpi_conv_inputs(op) * taps);
    struct cddpi_param_info info = {CDDPI_INIT_UNIFORM, bound, true};

    if (model->list.he_normal) {
        info.init = CDDPI_INIT_NORMAL;
        info.spread = sqrt(2 / (op->out.channels * taps));
    }
    if (op->layer.deviation > 0) {
        info.init = CDDPI_INIT_NORMAL;
        info.spread = op->layer.deviation;
    }
    CDDPI_TRY(cddpi_model_add_param(model, op, 0, "weight", 4, dims, info));
    if (!op->layer.no_bias) {
        const struct cddpi_param_info of_bias = {
            info.init == CDDPI_INIT_NORMAL ? CDDPI_INIT_ZERO : CDDPI_INIT_UNIFORM, bound, false};

        CDDPI_TRY(cddpi_model_add_param(model, op, 1, "bias", 1, dims, of_bias));
    }
    return CDDP_OK;
}

static double work(const struct cddpi_op *op)
{
    return (double)cddpi_shape_elements(&op->out) * (double)cddpi_conv_inputs(op) *
           (double)op->layer.kernel * (double)op->layer.kernel;
}

/* The converted factor for @p x; for float32 factors, @p x itself. */
static const void *factor(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                          const float *x, int buffer, size_t count)
{
    void *out;

    if (state->factors == CDDPI_FACTORS_F32) {
        return x;
    }
    out = cddpi_exec_buffer(exec, buffer);
    if (state->factors == CDDPI_FACTORS_ROUNDED) {
        cddpi_nn_round_bf16(x, out, count);
    } else {
        cddpi_cast(out, CDDP_BF16, x, CDDP_F32, count);
    }
    return out;
}

/* The weight in the layout of the pass: packed now, or the parameter itself. */
static cddp_status pack(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                        struct cddpi_conv_pass *pass, const void **out)
{
    struct cddpi_packed *packed = &pass->weight;
    const float *weight = state->factors == CDDPI_FACTORS_ROUNDED
                              ? cddpi_exec_buffer(exec, state->weight_factor)
                              : cddpi_exec_param(exec, 0);

    if (!packed->needed) {
        *out = weight;
        return CDDP_OK;
    }
    *out = cddpi_exec_buffer(exec, packed->buffer);
    if (packed->copy.handle == NULL) {
        cddpi_filters_pack(&packed->own, weight, cddpi_exec_buffer(exec, packed->buffer));
        return CDDP_OK;
    }
    return cddpi_primitive_run(exec, &packed->copy, (const void *[]){weight, *out});
}

static size_t elements(cddpi_md layout)
{
    size_t bytes = cddpi_md_type(layout) == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float);

    return dnnl_memory_desc_get_size(layout) / bytes;
}

/* The input in the layout that the filters' gradient reads. */
static const void *input_of_weights(const struct cddpi_exec *exec, const struct cddpi_conv *state)
{
    const void *input = state->factors != CDDPI_FACTORS_F32
                            ? cddpi_exec_buffer(exec, state->input_factor)
                        : state->keeps_input ? cddpi_exec_input(exec, 0)
                                             : cddpi_exec_buffer(exec, state->inner_input);

    return cddpi_exec_converted(exec, input, state->keeps_input ? &state->in : &state->inner,
                                &state->weights.image, state->weights.image_buffer);
}

static const void *make_inner_input(const struct cddpi_exec *exec, const struct cddpi_conv *state)
{
    const void *input = cddpi_exec_converted(exec, cddpi_exec_input(exec, 0), &state->in,
                                             &state->inner, state->inner_input);

    return factor(exec, state, input, state->input_factor, elements(state->src));
}

static cddp_status forward(struct cddpi_exec *exec)
{
    struct cddpi_conv *state = exec->state;
    const void *weight = NULL;

    if (state->factors == CDDPI_FACTORS_ROUNDED) {
        cddpi_nn_round_bf16(cddpi_exec_param(exec, 0),
                            cddpi_exec_buffer(exec, state->weight_factor),
                            elements(state->plain_weight));
    }
    CDDPI_TRY(pack(exec, state, &state->forward, &weight));
    if (state->forward.primitive.handle == NULL) {
        return cddpi_conv_columns_forward(exec, state, make_inner_input(exec, state), weight,
                                          cddpi_exec_output(exec));
    }
    return cddpi_primitive_run(exec, &state->forward.primitive,
                               (const void *[]){make_inner_input(exec, state), weight,
                                                cddpi_exec_output(exec),
                                                cddpi_exec_param(exec, 1)});
}

/* What the threads that compute parts of the filters' gradient share. */
struct parts_run {
    const struct cddpi_exec *exec;
    struct cddpi_conv *state;
    const char *input, *grad;
    float *made;                          /* the first part writes here, and the others are added */
    char *more;                           /* the other parts write here */
    cddp_status status[CDDPI_CONV_PARTS]; /* for each lane */
};

static float *made_by(const struct parts_run *run, int part)
{
    size_t at = run->state->lanes > 1 ? (size_t)(part - 1) * run->state->made_bytes : 0;

    return part == 0 ? run->made : (float *)(void *)(run->more + at);
}

static void add_part(const struct parts_run *run, int part)
{
    cddpi_nn_add(run->made, made_by(run, part), run->made, run->state->made_bytes / sizeof(float));
}

static void run_lane(void *context, size_t lane)
{
    struct parts_run *run = context;
    struct cddpi_conv *state = run->state;
    struct cddpi_primitive *primitive = lane == 0 ? &state->weights.primitive
                                                  : &state->others[lane - 1];
    cddp_status status = CDDP_OK;

    for (int part = (int)lane; status == CDDP_OK && part < state->parts; part += state->lanes) {
        status = cddpi_primitive_run(
            run->exec, primitive,
            (const void *[]){run->input + (size_t)part * state->image_bytes,
                             run->grad + (size_t)part * state->result_bytes, made_by(run, part)});
        if (status == CDDP_OK && part > 0 && state->lanes == 1) {
            add_part(run, part);
        }
    }
    run->status[lane] = status;
}

static cddp_status run_parts(const struct cddpi_exec *exec, struct cddpi_conv *state,
                             const void *input, const void *grad, void *made)
{
    struct parts_run run = {.exec = exec,
                            .state = state,
                            .input = input,
                            .grad = grad,
                            .made = made,
                            .more = state->parts > 1 ? cddpi_exec_buffer(exec, state->part_made)
                                                     : NULL};

    cddpi_for_each_alone((size_t)state->lanes, run_lane, &run);
    for (int lane = 0; lane < state->lanes; lane++) {
        if (run.status[lane] != CDDP_OK) { /* another thread may have worded the error */
            return cddpi_fail(run.status[lane], "gradient of the filters: oneDNN fails");
        }
    }
    for (int part = 1; state->lanes > 1 && part < state->parts; part++) {
        add_part(&run, part);
    }
    return CDDP_OK;
}

static cddp_status make_weight_gradient(const struct cddpi_exec *exec, struct cddpi_conv *state,
                                        const void *grad, void *made)
{
    struct cddpi_conv_pass *pass = &state->weights;
    const void *input = input_of_weights(exec, state);

    grad = cddpi_exec_converted(exec, grad, &state->out, &pass->result, pass->result_buffer);
    if (pass->primitive.handle == NULL) {
        return cddpi_conv_columns_weights(exec, state, input, grad, made);
    }
    return run_parts(exec, state, input, grad, made);
}

static cddp_status weight_gradient(struct cddpi_exec *exec, struct cddpi_conv *state,
                                   const void *grad)
{
    struct cddpi_packed *packed = &state->weights.weight;
    float *plain = exec->accumulate ? cddpi_exec_buffer(exec, state->plain_grad)
                                    : cddpi_exec_grad(exec, 0);
    void *made = packed->needed ? cddpi_exec_buffer(exec, packed->buffer) : plain;

    CDDPI_TRY(make_weight_gradient(exec, state, grad, made));
    if (packed->needed && packed->copy.handle != NULL) {
        CDDPI_TRY(cddpi_primitive_run(exec, &packed->copy, (const void *[]){made, plain}));
    } else if (packed->needed) {
        cddpi_filters_unpack(&packed->own, made, plain);
    }
    if (exec->accumulate) {
        cddpi_nn_add(cddpi_exec_grad(exec, 0), plain, cddpi_exec_grad(exec, 0),
                     elements(state->plain_weight));
    }
    return CDDP_OK;
}

static cddp_status input_gradient(struct cddpi_exec *exec, struct cddpi_conv *state,
                                  const void *grad)
{
    struct cddpi_conv_pass *pass = &state->data;
    bool differs = pass->image.block != state->in.block;
    float *wanted = cddpi_exec_grad_input(exec, 0);
    float *made = differs ? cddpi_exec_buffer(exec, pass->image_buffer) : wanted;
    const void *weight = NULL;

    CDDPI_TRY(pack(exec, state, pass, &weight));
    grad = cddpi_exec_converted(exec, grad, &state->out, &pass->result, pass->result_buffer);
    CDDPI_TRY(
        pass->primitive.handle == NULL
            ? cddpi_conv_columns_data(exec, state, grad, weight, made)
            : cddpi_primitive_run(exec, &pass->primitive, (const void *[]){made, grad, weight}));
    if (differs) {
        cddpi_nn_convert(made, &pass->image, wanted, &state->in);
    }
    return CDDP_OK;
}

static cddp_status weights(struct cddpi_exec *exec)
{
    struct cddpi_conv *state = exec->state;
    const void *grad = state->factors == CDDPI_FACTORS_F32
                           ? (const void *)cddpi_exec_masked(exec)
                           : cddpi_exec_buffer(exec, state->grad_factor);
    const double *sums = state->bias != NULL ? cddpi_exec_buffer(exec, state->bias_sums) : NULL;
    float *bias = cddpi_exec_grad(exec, 1);

    for (size_t c = 0; sums != NULL && c < state->out.channels; c++) {
        bias[c] = (float)(exec->accumulate ? (double)bias[c] + sums[c] : sums[c]);
    }
    CDDPI_TRY(cddpi_exec_ready(exec, 1));
    CDDPI_TRY(weight_gradient(exec, state, grad));
    return cddpi_exec_ready(exec, 0);
}

static cddp_status backward(struct cddpi_exec *exec)
{
    struct cddpi_conv *state = exec->state;
    const float *masked = cddpi_exec_mask_relu(exec);
    const void *grad = factor(exec, state, masked, state->grad_factor, elements(state->dst));

    if (state->bias != NULL) {
        /* oneDNN could compute it together with the filters' gradient, but it sums millions of
         * numbers in float32 */
        cddpi_norm_sums(masked, &state->out, cddpi_exec_buffer(exec, state->bias_partial),
                        cddpi_exec_buffer(exec, state->bias_sums));
    }
    if (!cddpi_exec_defers(exec)) {
        /* before the input's gradient, so that its allreduce can start */
        CDDPI_TRY(weights(exec));
    }
    return cddpi_exec_grad_input(exec, 0) != NULL ? input_gradient(exec, state, grad) : CDDP_OK;
}

static const struct cddpi_op_kernels cpu = {.threads = CDDPI_THREADS_KERNELS,
                                            .state_bytes = sizeof(struct cddpi_conv),
                                            .plan = cddpi_conv_plan,
                                            .unplan = cddpi_conv_unplan,
                                            .forward = forward,
                                            .backward = backward,
                                            .weights = weights};

const struct cddpi_op_ops cddpi_op_conv2d = {
    .name = "conv2d",
    .images_only = true,
    .fuses_relu = true,
    .shape = shape,
    .declare = declare,
    .work = work,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_conv2d}};
