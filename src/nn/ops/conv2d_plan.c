/* conv2d_plan.c - owns the choice of kernels and layouts for a convolution. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/model_state.h"
#include "nn/ops/conv2d.h"
#include "nn/ops/window.h"

static void fini_primitives(struct cddpi_conv *state)
{
    cddpi_primitive_fini(&state->forward);
    cddpi_primitive_fini(&state->data);
    cddpi_primitive_fini(&state->weights);
    cddpi_primitive_fini(&state->weight.copy);
    cddpi_primitive_fini(&state->data_weight.copy);
    cddpi_primitive_fini(&state->grad.copy);
}

void cddpi_conv_unplan(void *opaque)
{
    if (opaque != NULL) {
        fini_primitives(opaque);
        cddpi_free(opaque);
    }
}

static dnnl_data_type_t factor_type(const struct cddpi_conv *state)
{
    return state->factors == CDDPI_FACTORS_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* The weight in the layout that oneDNN likes best. */
static cddpi_md any_weight(struct cddpi_plan *plan, const struct cddpi_op *op,
                           dnnl_data_type_t type)
{
    const dnnl_dim_t sizes[] = {op->out.channels, op->in.channels, op->layer.kernel,
                                op->layer.kernel};

    return cddpi_md_tagged(&plan->layouts, 4, sizes, type, dnnl_format_tag_any);
}

static cddp_status describe_forward(struct cddpi_conv *state, const struct cddpi_plan *plan,
                                    const struct cddpi_op *op, cddpi_md src, cddpi_md dst,
                                    dnnl_primitive_desc_t *out)
{
    const struct cddpi_dnnl_wish wish = {.kind = CDDPI_DNNL_CONV,
                                         .training = plan->training,
                                         .src = src,
                                         .weight = state->any_weight,
                                         .bias = state->bias,
                                         .dst = dst,
                                         .window = state->window,
                                         .post = op->relu ? CDDPI_POST_RELU : 0,
                                         .what = "convolution"};

    return cddpi_dnnl_describe(state->dnnl, &wish, out);
}

/* Both layouts must be ours, and the kernel a compiled one where that is asked for. */
static bool acceptable(const_dnnl_primitive_desc_t desc, bool fast)
{
    return cddpi_md_block(cddpi_dnnl_query(desc, dnnl_query_src_md)) > 0 &&
           cddpi_md_block(cddpi_dnnl_query(desc, dnnl_query_dst_md)) > 0 &&
           (!fast || cddpi_dnnl_is_fast(desc));
}

/* How a convolution may read and write, best first. */
struct way {
    cddpi_md src, dst;
    bool fast;
};

/* The input as it is if that is fast, else as oneDNN wants it, else all plain. Kernels of AMX read
 * and write N x H x W x C alone, so what comes before them had better write that, too. */
static cddp_status choose_forward(struct cddpi_conv *state, struct cddpi_plan *plan,
                                  const struct cddpi_op *op, int block, dnnl_primitive_desc_t *out)
{
    struct cddpi_mds *holder = &plan->layouts;
    int count = plan->count;
    cddpi_md as_is = cddpi_md_image(holder, count, &op->in, block);
    cddpi_md last_in = cddpi_md_channels_last(holder, count, &op->in);
    cddpi_md last_out = cddpi_md_channels_last(holder, count, &op->out);
    const struct way ways[] = {
        {state->factors == CDDPI_FACTORS_BF16 ? cddpi_md_typed(holder, last_in, dnnl_bf16) : as_is,
         last_out, true},
        {as_is, cddpi_md_any_image(holder, count, &op->out), true},
        {cddpi_md_any_image(holder, count, &op->in), cddpi_md_any_image(holder, count, &op->out),
         false},
        {cddpi_md_image(holder, count, &op->in, 1), cddpi_md_image(holder, count, &op->out, 1),
         false},
    };
    int first = plan->model->bf16 == CDDPI_BF16_TILES ? 0 : 1;
    int last = state->factors == CDDPI_FACTORS_BF16 ? 0 : 3;
    cddp_status status = CDDP_OK;

    for (int i = first; i <= last; i++) {
        status = describe_forward(state, plan, op, ways[i].src, ways[i].dst, out);
        if (status == CDDP_OK && acceptable(*out, ways[i].fast)) {
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
static cddp_status plan_packed(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                               cddpi_md wanted, enum cddpi_lifetime lifetime, bool unpack,
                               struct cddpi_packed *packed)
{
    cddpi_md plain = state->plain_weight;
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
                            const cddpi_md *layouts, int count)
{
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < count; i++) {
        if (layouts[i] != NULL) {
            status = cddpi_primitive_arg(primitive, args[i], layouts[i]);
        }
    }
    return status;
}

/* The input in the layout and the type in which it is read. */
static cddp_status plan_inputs(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    cddpi_md wide = cddpi_md_typed(&plan->layouts, state->src, dnnl_f32);
    bool factor = state->factors != CDDPI_FACTORS_F32;
    cddp_status status = CDDP_OK;

    if (state->inner.block != state->in.block) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(wide),
                                   factor ? CDDPI_IN_FORWARD : CDDPI_IN_BOTH, &state->inner_input);
    }
    if (status == CDDP_OK && factor) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(state->src),
                                   CDDPI_IN_BOTH, &state->input_factor);
    }
    if (status == CDDP_OK && state->factors == CDDPI_FACTORS_ROUNDED) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(state->plain_weight),
                                   CDDPI_IN_BOTH, &state->weight_factor);
    }
    return status;
}

static cddp_status plan_forward(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    cddpi_md weight;
    dnnl_primitive_desc_t desc;
    cddp_status status = choose_forward(state, plan, op, block, &desc);
    size_t spatial = (size_t)op->in.height * (size_t)op->in.width;

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->forward, state->dnnl, desc, plan, index,
                                  CDDPI_IN_FORWARD);
    weight = cddpi_dnnl_query(desc, dnnl_query_weights_md);
    state->src = cddpi_dnnl_query(desc, dnnl_query_src_md);
    state->dst = cddpi_dnnl_query(desc, dnnl_query_dst_md);
    state->dst_block = cddpi_md_block(state->dst);
    state->in = (struct cddpi_nn_layout){(size_t)plan->count, (size_t)op->in.channels, spatial,
                                         (size_t)block};
    state->inner = state->in;
    state->inner.block = (size_t)cddpi_md_block(state->src);
    if (status == CDDP_OK) {
        status = add_args(&state->forward,
                          (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                          (const cddpi_md[]){state->src, weight, state->dst, state->bias}, 4);
    }
    if (status == CDDP_OK) {
        status = plan_packed(state, plan, index, weight, CDDPI_IN_FORWARD, false, &state->weight);
    }
    return status == CDDP_OK ? plan_inputs(state, plan, index) : status;
}

static cddp_status describe_backward(const struct cddpi_conv *state,
                                     const struct cddpi_dnnl_wish *wish, dnnl_primitive_desc_t *out)
{
    cddp_status status = cddpi_dnnl_describe(state->dnnl, wish, out);

    if (status == CDDP_OK && state->factors == CDDPI_FACTORS_BF16 && !cddpi_dnnl_is_fast(*out)) {
        dnnl_primitive_desc_destroy(*out);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: oneDNN has no kernel for bf16", wish->what);
    }
    return status;
}

/* What the gradient of @op's weight or input begins with. */
static struct cddpi_dnnl_wish gradient(const struct cddpi_conv *state, struct cddpi_plan *plan,
                                       enum cddpi_dnnl_kind kind, const char *what)
{
    return (struct cddpi_dnnl_wish){
        .kind = kind,
        .training = true,
        .dst = cddpi_md_typed(&plan->layouts, state->dst, factor_type(state)),
        .window = state->window,
        .forward = state->forward.desc,
        .what = what};
}

static cddp_status plan_weights(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_dnnl_wish wish = gradient(state, plan, CDDPI_DNNL_CONV_WEIGHTS,
                                           "gradient of the filters");
    size_t weight_bytes = dnnl_memory_desc_get_size(state->plain_weight);
    dnnl_primitive_desc_t desc;
    cddpi_md packed;
    cddp_status status;

    wish.src = state->src;
    wish.weight = any_weight(plan, op, dnnl_f32);
    wish.bias = state->bias;
    status = describe_backward(state, &wish, &desc);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->weights, state->dnnl, desc, plan, index,
                                  CDDPI_IN_BACKWARD);
    packed = cddpi_dnnl_query(desc, dnnl_query_diff_weights_md);
    if (status == CDDP_OK) {
        status = add_args(
            &state->weights,
            (int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS},
            (const cddpi_md[]){wish.src, wish.dst, packed, wish.bias}, 4);
    }
    if (status == CDDP_OK) {
        status = plan_packed(state, plan, index, packed, CDDPI_IN_BACKWARD, true, &state->grad);
    }
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, weight_bytes, CDDPI_IN_BACKWARD,
                                   &state->plain_grad);
    }
    if (status == CDDP_OK && state->factors != CDDPI_FACTORS_F32) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(wish.dst),
                                   CDDPI_IN_BACKWARD, &state->grad_factor);
    }
    return status == CDDP_OK
               ? cddpi_plan_buffer(plan, index, (size_t)op->out.channels * sizeof(float),
                                   CDDPI_IN_BACKWARD, &state->bias_grad)
               : status;
}

static cddp_status plan_data(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    struct cddpi_dnnl_wish wish = gradient(state, plan, CDDPI_DNNL_CONV_DATA,
                                           "gradient of the input");
    dnnl_primitive_desc_t desc;
    cddpi_md weight;
    cddp_status status;

    wish.src = cddpi_md_typed(&plan->layouts, state->src, dnnl_f32);
    wish.weight = state->any_weight;
    status = describe_backward(state, &wish, &desc);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_primitive_init(&state->data, state->dnnl, desc, plan, index, CDDPI_IN_BACKWARD);
    weight = cddpi_dnnl_query(desc, dnnl_query_weights_md);
    if (status == CDDP_OK) {
        status = add_args(&state->data,
                          (int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
                          (const cddpi_md[]){wish.dst, weight, wish.src}, 3);
    }
    if (status == CDDP_OK) {
        status = plan_packed(state, plan, index, weight, CDDPI_IN_BACKWARD, false,
                             &state->data_weight);
    }
    if (status == CDDP_OK && state->inner.block != state->in.block) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(wish.src),
                                   CDDPI_IN_BACKWARD, &state->inner_grad);
    }
    return status;
}

static void describe_window(struct cddpi_conv *state, struct cddpi_plan *plan,
                            const struct cddpi_op *op)
{
    const dnnl_dim_t weight[] = {op->out.channels, op->in.channels, op->layer.kernel,
                                 op->layer.kernel};

    state->plain_weight = cddpi_md_plain(&plan->layouts, 4, weight);
    state->any_weight = any_weight(plan, op, factor_type(state));
    state->bias = op->layer.no_bias ? NULL : cddpi_md_plain(&plan->layouts, 1, weight);
    for (int i = 0; i < 2; i++) {
        state->window.strides[i] = op->layer.stride;
        state->window.before[i] = op->layer.padding;
    }
    state->window.after[0] = cddpi_window_padding_after(op, op->in.height, op->out.height);
    state->window.after[1] = cddpi_window_padding_after(op, op->in.width, op->out.width);
}

static cddp_status plan_all(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    cddp_status status;

    describe_window(state, plan, cddpi_plan_op_of(plan, index));
    status = plan_forward(state, plan, index);
    if (status == CDDP_OK && plan->training) {
        status = plan_weights(state, plan, index);
    }
    if (status == CDDP_OK && cddpi_plan_wants_grad(plan, index, 0)) {
        status = plan_data(state, plan, index);
    }
    return status;
}

/* Images of few channels do not fill a tile: there, rounded factors are faster. */
static enum cddpi_factors choose_factors(const struct cddpi_model *model, const struct cddpi_op *op)
{
    enum { LEAST_CHANNELS = 16 };

    if (model->precision == CDDPI_PRECISION_F32) {
        return CDDPI_FACTORS_F32;
    }
    return model->bf16 == CDDPI_BF16_TILES && op->in.channels >= LEAST_CHANNELS
               ? CDDPI_FACTORS_BF16
               : CDDPI_FACTORS_ROUNDED;
}

cddp_status cddpi_conv_plan(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_conv *state = cddpi_zalloc(sizeof *state);
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "conv2d: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->factors = choose_factors(plan->model, op);
    status = cddpi_dnnl_get(plan->model, &state->dnnl);
    if (status == CDDP_OK) {
        status = plan_all(state, plan, index);
    }
    if (status == CDDP_ERR_UNAVAILABLE && state->factors == CDDPI_FACTORS_BF16) {
        fini_primitives(state);
        *state = (struct cddpi_conv){.dnnl = state->dnnl, .factors = CDDPI_FACTORS_ROUNDED};
        status = plan_all(state, plan, index);
    }
    if (status != CDDP_OK) {
        return status;
    }
    cddpi_plan_output(plan, index, state->dst_block);
    plan->ops[index].flags =
        (state->factors == CDDPI_FACTORS_F32 && state->inner.block == state->in.block
             ? CDDPI_NEEDS_INPUT
             : 0u) |
        (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD | CDDPI_SUMS_GRADS : 0u);
    return CDDP_OK;
}
