/* conv2d.c - owns convolutions, on oneDNN, with the relu behind them in the same pass.
 *
 * Activations stay in the layout that oneDNN likes best. The parameter itself is plain row-major:
 * forward packs it into oneDNN's layout, backward unpacks the gradient, both small. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_elementwise.h"
#include "kernels/cpu/nn_layout.h"
#include "nn/dnnl.h"
#include "nn/model_state.h"
#include "nn/ops/window.h"

#include <math.h>

/* A weight in one of oneDNN's layouts: where it lies, and the copy from or to the plain one. */
struct packed {
    struct cddpi_primitive copy; /* not made: oneDNN takes the plain one */
    int buffer;
};

struct state {
    struct cddpi_dnnl *dnnl;
    struct cddpi_primitive forward, data, weights;
    struct packed weight, data_weight, grad;
    struct cddpi_nn_layout in, inner; /* the input's layout, and that in which it is read */
    int inner_input, inner_grad;      /* buffers, where those differ */
    int plain_grad, bias_grad;        /* buffers, used when gradients are accumulated */
    int dst_block;
    /* of the op, for oneDNN */
    dnnl_memory_desc_t src, dst, plain_weight, any_weight, bias;
    dnnl_dims_t strides, before, after;
};

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    out->channels = op->layer.units;
    return cddpi_window_shape(op, out);
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int kernel = op->layer.kernel;
    int64_t dims[] = {op->out.channels, op->in.channels, kernel, kernel};
    double taps = (double)kernel * kernel;
    double bound = 1 / sqrt(op->in.channels * taps);
    struct cddpi_param_info info = {CDDPI_INIT_UNIFORM, bound, true};
    cddp_status status;

    if (model->list.he_normal) {
        info.init = CDDPI_INIT_NORMAL;
        info.spread = sqrt(2 / (op->out.channels * taps));
    }
    status = cddpi_model_add_param(model, op, 0, "weight", 4, dims, info);
    if (status == CDDP_OK && !op->layer.no_bias) {
        status = cddpi_model_add_param(model, op, 1, "bias", 1, dims,
                                       (struct cddpi_param_info){CDDPI_INIT_UNIFORM, bound, false});
    }
    return status;
}

static void unplan(void *opaque)
{
    struct state *state = opaque;

    cddpi_primitive_fini(&state->forward);
    cddpi_primitive_fini(&state->data);
    cddpi_primitive_fini(&state->weights);
    cddpi_primitive_fini(&state->weight.copy);
    cddpi_primitive_fini(&state->data_weight.copy);
    cddpi_primitive_fini(&state->grad.copy);
    cddpi_free(state);
}

static cddp_status describe_forward(struct state *state, const struct cddpi_plan *plan,
                                    const struct cddpi_op *op, const dnnl_memory_desc_t *src,
                                    const dnnl_memory_desc_t *dst, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    cddp_status status = cddpi_dnnl_check(
        dnnl_convolution_forward_desc_init(
            &desc, plan->training ? dnnl_forward_training : dnnl_forward_inference,
            dnnl_convolution_direct, src, &state->any_weight,
            op->layer.no_bias ? NULL : &state->bias, dst, state->strides, state->before,
            state->after),
        "convolution");

    return status == CDDP_OK
               ? cddpi_dnnl_describe(state->dnnl, &desc, op->relu, NULL, "convolution", out)
               : status;
}

/* Both layouts must be ours, and the kernel a compiled one where that is asked for. */
static bool acceptable(const_dnnl_primitive_desc_t desc, bool fast)
{
    return cddpi_dnnl_block(cddpi_dnnl_query(desc, dnnl_query_src_md)) > 0 &&
           cddpi_dnnl_block(cddpi_dnnl_query(desc, dnnl_query_dst_md)) > 0 &&
           (!fast || cddpi_dnnl_is_fast(desc));
}

/* The input as it is if that is fast, else as oneDNN wants it, else all plain. */
static cddp_status choose_forward(struct state *state, const struct cddpi_plan *plan,
                                  const struct cddpi_op *op, int block, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t any_src = cddpi_dnnl_any_image(plan->count, &op->in);
    dnnl_memory_desc_t any_dst = cddpi_dnnl_any_image(plan->count, &op->out);
    dnnl_memory_desc_t as_is = cddpi_dnnl_image(plan->count, &op->in, block);
    dnnl_memory_desc_t plain = cddpi_dnnl_image(plan->count, &op->in, 1);
    dnnl_memory_desc_t plain_dst = cddpi_dnnl_image(plan->count, &op->out, 1);
    const dnnl_memory_desc_t *ways[][2] = {
        {&as_is, &any_dst}, {&any_src, &any_dst}, {&plain, &plain_dst}};
    cddp_status status = CDDP_OK;

    for (int i = 0; i < 3; i++) {
        status = describe_forward(state, plan, op, ways[i][0], ways[i][1], out);
        if (status == CDDP_OK && acceptable(*out, i == 0)) {
            return CDDP_OK;
        }
        if (status == CDDP_OK) {
            dnnl_primitive_desc_destroy(*out);
        }
    }
    return status != CDDP_OK
               ? status
               : cddpi_fail(CDDP_ERR_UNAVAILABLE, "convolution: oneDNN has no usable layout");
}

/* Plan the packed form of the weight that @p wanted describes. */
static cddp_status plan_packed(struct state *state, struct cddpi_plan *plan, int index,
                               const dnnl_memory_desc_t *wanted, enum cddpi_lifetime lifetime,
                               bool unpack, struct packed *packed)
{
    const dnnl_memory_desc_t *plain = &state->plain_weight;
    cddp_status status;

    if (dnnl_memory_desc_equal(wanted, plain)) {
        return CDDP_OK;
    }
    status = cddpi_primitive_reorder(&packed->copy, state->dnnl, unpack ? wanted : plain,
                                     unpack ? plain : wanted);
    return status == CDDP_OK ? cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(wanted),
                                                 lifetime, &packed->buffer)
                             : status;
}

static cddp_status add_args(struct cddpi_primitive *primitive, const int *args,
                            const dnnl_memory_desc_t *const *descs, int count)
{
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < count; i++) {
        if (descs[i] != NULL) {
            status = cddpi_primitive_arg(primitive, args[i], descs[i]);
        }
    }
    return status;
}

static cddp_status plan_forward(struct state *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    const dnnl_memory_desc_t *weight;
    dnnl_primitive_desc_t desc;
    cddp_status status = choose_forward(state, plan, op, block, &desc);
    size_t spatial = (size_t)op->in.height * (size_t)op->in.width;

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->forward, state->dnnl, desc, plan, index,
                                  CDDPI_IN_FORWARD);
    weight = cddpi_dnnl_query(desc, dnnl_query_weights_md);
    state->src = *cddpi_dnnl_query(desc, dnnl_query_src_md);
    state->dst = *cddpi_dnnl_query(desc, dnnl_query_dst_md);
    state->dst_block = cddpi_dnnl_block(&state->dst);
    state->in = (struct cddpi_nn_layout){(size_t)plan->count, (size_t)op->in.channels, spatial,
                                         (size_t)block};
    state->inner = state->in;
    state->inner.block = (size_t)cddpi_dnnl_block(&state->src);
    if (status == CDDP_OK) {
        status = add_args(&state->forward,
                          (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                          (const dnnl_memory_desc_t *[]){&state->src, weight, &state->dst,
                                                         op->layer.no_bias ? NULL : &state->bias},
                          4);
    }
    if (status == CDDP_OK) {
        status = plan_packed(state, plan, index, weight, CDDPI_IN_FORWARD, false, &state->weight);
    }
    if (status == CDDP_OK && state->inner.block != state->in.block) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(&state->src),
                                   CDDPI_IN_BOTH, &state->inner_input);
    }
    return status;
}

static cddp_status plan_weights(struct state *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    dnnl_memory_desc_t packed;
    const dnnl_memory_desc_t *bias = op->layer.no_bias ? NULL : &state->bias;
    size_t weight_bytes = dnnl_memory_desc_get_size(&state->plain_weight);
    dnnl_convolution_desc_t conv;
    dnnl_primitive_desc_t desc;
    cddp_status status;

    status = cddpi_dnnl_check(dnnl_convolution_backward_weights_desc_init(
                                  &conv, dnnl_convolution_direct, &state->src, &state->any_weight,
                                  bias, &state->dst, state->strides, state->before, state->after),
                              "gradient of the filters");
    if (status == CDDP_OK) {
        status = cddpi_dnnl_describe(state->dnnl, &conv, false, state->forward.desc,
                                     "gradient of the filters", &desc);
    }
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->weights, state->dnnl, desc, plan, index,
                                  CDDPI_IN_BACKWARD);
    packed = *cddpi_dnnl_query(desc, dnnl_query_diff_weights_md);
    if (status == CDDP_OK) {
        status = add_args(
            &state->weights,
            (int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS},
            (const dnnl_memory_desc_t *[]){&state->src, &state->dst, &packed, bias}, 4);
    }
    if (status == CDDP_OK) {
        status = plan_packed(state, plan, index, &packed, CDDPI_IN_BACKWARD, true, &state->grad);
    }
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, weight_bytes, CDDPI_IN_BACKWARD,
                                   &state->plain_grad);
    }
    return status == CDDP_OK
               ? cddpi_plan_buffer(plan, index, (size_t)op->out.channels * sizeof(float),
                                   CDDPI_IN_BACKWARD, &state->bias_grad)
               : status;
}

static cddp_status plan_data(struct state *state, struct cddpi_plan *plan, int index)
{
    dnnl_memory_desc_t weight;
    dnnl_convolution_desc_t conv;
    dnnl_primitive_desc_t desc;
    cddp_status status;

    status = cddpi_dnnl_check(dnnl_convolution_backward_data_desc_init(
                                  &conv, dnnl_convolution_direct, &state->src, &state->any_weight,
                                  &state->dst, state->strides, state->before, state->after),
                              "gradient of the input");
    if (status == CDDP_OK) {
        status = cddpi_dnnl_describe(state->dnnl, &conv, false, state->forward.desc,
                                     "gradient of the input", &desc);
    }
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->data, state->dnnl, desc, plan, index, CDDPI_IN_BACKWARD);
    weight = *cddpi_dnnl_query(desc, dnnl_query_weights_md);
    if (status == CDDP_OK) {
        status = add_args(&state->data,
                          (int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
                          (const dnnl_memory_desc_t *[]){&state->dst, &weight, &state->src}, 3);
    }
    if (status == CDDP_OK) {
        status = plan_packed(state, plan, index, &weight, CDDPI_IN_BACKWARD, false,
                             &state->data_weight);
    }
    if (status == CDDP_OK && state->inner.block != state->in.block) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(&state->src),
                                   CDDPI_IN_BACKWARD, &state->inner_grad);
    }
    return status;
}

static cddp_status describe_window(struct state *state, const struct cddpi_op *op)
{
    dnnl_dim_t weight[] = {op->out.channels, op->in.channels, op->layer.kernel, op->layer.kernel};

    state->plain_weight = cddpi_dnnl_plain(4, weight);
    state->bias = cddpi_dnnl_plain(1, weight);
    for (int i = 0; i < 2; i++) {
        state->strides[i] = op->layer.stride;
        state->before[i] = op->layer.padding;
    }
    state->after[0] = cddpi_window_padding_after(op, op->in.height, op->out.height);
    state->after[1] = cddpi_window_padding_after(op, op->in.width, op->out.width);
    return cddpi_dnnl_check(dnnl_memory_desc_init_by_tag(&state->any_weight, 4,
                                                         state->plain_weight.dims, dnnl_f32,
                                                         dnnl_format_tag_any),
                            "convolution");
}

static cddp_status plan_conv(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state = cddpi_zalloc(sizeof *state);
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "conv2d: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    status = describe_window(state, op);
    if (status == CDDP_OK) {
        status = cddpi_dnnl_get(plan->model, &state->dnnl);
    }
    if (status == CDDP_OK) {
        status = plan_forward(state, plan, index);
    }
    if (status == CDDP_OK && plan->training) {
        status = plan_weights(state, plan, index);
    }
    if (status == CDDP_OK && cddpi_plan_wants_grad(plan, index, 0)) {
        status = plan_data(state, plan, index);
    }
    if (status != CDDP_OK) {
        return status;
    }
    cddpi_plan_output(plan, index, state->dst_block);
    plan->ops[index].flags = (state->inner.block == state->in.block ? CDDPI_NEEDS_INPUT : 0u) |
                             (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD | CDDPI_SUMS_GRADS
                                       : 0u);
    return CDDP_OK;
}

/* The weight as the primitive wants it: packed now, or the parameter itself. */
static cddp_status pack(const struct cddpi_run *run, struct packed *packed, const void **out)
{
    const float *weight = cddpi_run_param(run, 0);

    if (packed->copy.handle == NULL) {
        *out = weight;
        return CDDP_OK;
    }
    *out = cddpi_run_buffer(run, packed->buffer);
    return cddpi_primitive_run(run, &packed->copy, (const void *[]){weight, *out});
}

static const float *inner_input(const struct cddpi_run *run, const struct state *state)
{
    return state->inner.block != state->in.block ? cddpi_run_buffer(run, state->inner_input)
                                                 : cddpi_run_input(run, 0);
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    const void *weight = NULL;
    cddp_status status = pack(run, &state->weight, &weight);

    if (status != CDDP_OK) {
        return status;
    }
    if (state->inner.block != state->in.block) {
        cddpi_nn_convert(cddpi_run_input(run, 0), &state->in,
                         cddpi_run_buffer(run, state->inner_input), &state->inner);
    }
    return cddpi_primitive_run(run, &state->forward,
                               (const void *[]){inner_input(run, state), weight,
                                                cddpi_run_output(run), cddpi_run_param(run, 1)});
}

static cddp_status weight_gradient(struct cddpi_run *run, struct state *state, const float *grad)
{
    bool packed = state->grad.copy.handle != NULL;
    float *plain = run->accumulate ? cddpi_run_buffer(run, state->plain_grad)
                                   : cddpi_run_grad(run, 0);
    float *bias = cddpi_run_grad(run, 1);
    float *bias_part = bias != NULL && run->accumulate ? cddpi_run_buffer(run, state->bias_grad)
                                                       : bias;
    void *made = packed ? cddpi_run_buffer(run, state->grad.buffer) : plain;
    cddp_status status = cddpi_primitive_run(
        run, &state->weights, (const void *[]){inner_input(run, state), grad, made, bias_part});

    if (status == CDDP_OK && packed) {
        status = cddpi_primitive_run(run, &state->grad.copy, (const void *[]){made, plain});
    }
    if (status == CDDP_OK && run->accumulate) {
        size_t count = dnnl_memory_desc_get_size(&state->plain_weight) / sizeof(float);

        cddpi_nn_add(cddpi_run_grad(run, 0), plain, cddpi_run_grad(run, 0), count);
        if (bias != NULL) {
            cddpi_nn_add(bias, bias_part, bias, (size_t)run->op->out.channels);
        }
    }
    return status;
}

static cddp_status input_gradient(struct cddpi_run *run, struct state *state, const float *grad)
{
    bool differs = state->inner.block != state->in.block;
    float *wanted = cddpi_run_grad_input(run, 0);
    float *made = differs ? cddpi_run_buffer(run, state->inner_grad) : wanted;
    const void *weight = NULL;
    cddp_status status = pack(run, &state->data_weight, &weight);

    if (status == CDDP_OK) {
        status = cddpi_primitive_run(run, &state->data, (const void *[]){grad, weight, made});
    }
    if (status == CDDP_OK && differs) {
        cddpi_nn_convert(made, &state->inner, wanted, &state->in);
    }
    return status;
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    const float *grad = cddpi_run_mask_relu(run);
    cddp_status status = weight_gradient(run, state, grad);

    if (status == CDDP_OK) {
        status = cddpi_run_ready(run, 1);
    }
    if (status == CDDP_OK) {
        status = cddpi_run_ready(run, 0); /* before more work: its reduction can start */
    }
    return status == CDDP_OK && state->data.handle != NULL ? input_gradient(run, state, grad)
                                                           : status;
}

const struct cddpi_op_ops cddpi_op_conv2d = {.name = "conv2d",
                                             .images_only = true,
                                             .fuses_relu = true,
                                             .shape = shape,
                                             .declare = declare,
                                             .plan = plan_conv,
                                             .unplan = unplan,
                                             .forward = forward,
                                             .backward = backward};
