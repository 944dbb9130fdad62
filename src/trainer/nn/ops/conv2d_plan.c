/* conv2d_plan.c - owns the choice of kernels and layouts for a convolution. */
#include "base/error.h"
#include "nn/cpu/threads.h"
#include "nn/model_state.h"
#include "nn/ops/conv2d.h"
#include "nn/ops/norm_passes.h"
#include "nn/ops/window_op.h"

static void fini_pass(struct cddpi_conv_pass *pass)
{
    cddpi_primitive_fini(&pass->primitive);
    cddpi_primitive_fini(&pass->weight.copy);
    cddpi_filters_fini(&pass->weight.own);
}

void cddpi_conv_unplan(void *opaque)
{
    struct cddpi_conv *state = opaque;

    fini_pass(&state->forward);
    fini_pass(&state->data);
    fini_pass(&state->weights);
    for (int i = 0; i < CDDPI_CONV_PARTS - 1; i++) {
        cddpi_primitive_fini(&state->others[i]);
    }
}

static dnnl_data_type_t factor_type(const struct cddpi_conv *state)
{
    return state->factors == CDDPI_FACTORS_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* The weight in the layout that oneDNN prefers. */
static cddpi_md any_weight(struct cddpi_plan *plan, const struct cddpi_op *op,
                           dnnl_data_type_t type)
{
    dnnl_dim_t sizes[CDDPI_FILTER_DIMS];
    const dnnl_dim_t *first;
    int dims = cddpi_conv_filter_dims(op, cddpi_conv_outputs(op), cddpi_conv_inputs(op), sizes,
                                      &first);

    return cddpi_md_tagged(&plan->layouts, dims, first, type, dnnl_format_tag_any);
}

static cddp_status describe_forward(struct cddpi_conv *state, const struct cddpi_plan *plan,
                                    const struct cddpi_op *op, cddpi_md src, cddpi_md dst,
                                    dnnl_primitive_desc_t *out)
{
    const struct cddpi_dnnl_request request = {.kind = CDDPI_DNNL_CONV,
                                               .training = plan->training,
                                               .src = src,
                                               .weight = state->any_weight,
                                               .bias = state->bias,
                                               .dst = dst,
                                               .window = state->steps,
                                               .post = op->relu ? CDDPI_POST_RELU : 0,
                                               .what = "convolution"};

    return cddpi_dnnl_describe(state->dnnl, &request, out);
}

/* A way for the convolution to read and write images; the list starts with the best. */
struct way {
    cddpi_md src, dst;
    bool fast;
};

/* Choose the first that works, whose layouts are ours: the input in its present layout if there is
 * a fast kernel, else in the layout that oneDNN wants, else everything plain. AMX kernels read and
 * write only N x H x W x C, so the op before should write that as well. CDDP_ERR_UNAVAILABLE:
 * oneDNN has at best a reference implementation. */
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
    int first = plan->model->bf16 == CDDPI_BF16_AMX ? 0 : 1;
    int last = state->factors == CDDPI_FACTORS_BF16 ? 0 : 3;
    cddp_status status = CDDP_OK;

    for (int i = first; i <= last; i++) {
        status = describe_forward(state, plan, op, ways[i].src, ways[i].dst, out);
        if (status != CDDP_OK) {
            continue;
        }
        if (cddpi_md_block(cddpi_dnnl_query(*out, dnnl_query_src_md)) > 0 &&
            cddpi_md_block(cddpi_dnnl_query(*out, dnnl_query_dst_md)) > 0 &&
            (!ways[i].fast || cddpi_dnnl_is_fast(*out))) {
            return CDDP_OK;
        }
        dnnl_primitive_desc_destroy(*out);
    }
    return status != CDDP_OK
               ? status
               : cddpi_fail(CDDP_ERR_UNAVAILABLE, "convolution: oneDNN has no usable layout");
}

/* Plan the packed weight in the layout @p wanted (NULL: channels last). For a gradient, it is
 * unpacked from there. */
static cddp_status plan_packed(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                               cddpi_md wanted, enum cddpi_lifetime lifetime,
                               struct cddpi_conv_pass *pass)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const dnnl_dim_t sizes[] = {op->layer.groups, cddpi_conv_outputs(op), cddpi_conv_inputs(op),
                                op->layer.kernel, op->layer.kernel};
    bool padded = pass->outputs != op->out.channels || pass->inputs != op->in.channels;
    struct cddpi_packed *packed = &pass->weight;
    bool unpack = pass == &state->weights;
    cddpi_md plain = state->plain_weight;
    cddp_status status = CDDP_ERR_UNAVAILABLE;

    if (wanted != NULL && dnnl_memory_desc_equal(wanted, plain)) {
        return CDDP_OK;
    }
    packed->needed = true;
    if (wanted != NULL && !padded) {
        status = plan->model->fallbacks == CDDPI_FALLBACKS_OWN
                     ? CDDP_ERR_UNAVAILABLE
                     : cddpi_primitive_reorder(&packed->copy, state->dnnl, unpack ? wanted : plain,
                                               unpack ? plain : wanted);
    }
    if (status == CDDP_ERR_UNAVAILABLE) {
        status = wanted != NULL ? cddpi_filters_init(&packed->own, sizes, wanted)
                                : cddpi_filters_init_last(&packed->own, sizes);
    }
    CDDPI_TRY(status);
    packed->buffer = cddpi_plan_buffer(
        plan, index, wanted != NULL ? dnnl_memory_desc_get_size(wanted) : packed->own.bytes,
        lifetime);
    return CDDP_OK;
}

/* Plan the input in the layout and type in which it is read. The filters' gradient, whose layout is
 * known, reads what forward read, or the input itself if that has the right layout. */
static void plan_inputs(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t elements = cddpi_plan_elements(plan, &op->in, (int)state->inner.block);
    bool factor = state->factors != CDDPI_FACTORS_F32;
    bool differs = state->inner.block != state->in.block;

    state->keeps_input = !factor && (!differs || (plan->training &&
                                                  state->weights.image.block == state->in.block));
    if (differs) {
        state->inner_input = cddpi_plan_buffer(
            plan, index, elements * sizeof(float),
            factor || state->keeps_input ? CDDPI_IN_FORWARD : CDDPI_FORWARD_TO_WEIGHTS);
    }
    if (factor) {
        state->input_factor = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(state->src),
                                                CDDPI_FORWARD_TO_WEIGHTS);
    }
    if (state->factors == CDDPI_FACTORS_ROUNDED) {
        state->weight_factor = cddpi_plan_buffer(
            plan, index, dnnl_memory_desc_get_size(state->plain_weight), CDDPI_IN_BOTH);
    }
}

/* Set the layouts of the input and the output. */
static void set_layouts(struct cddpi_conv *state, const struct cddpi_plan *plan,
                        const struct cddpi_op *op, int block)
{
    struct cddpi_conv_pass *pass = &state->forward;

    state->in = cddpi_plan_layout(plan, &op->in, block);
    state->inner = cddpi_plan_layout(plan, &op->in, cddpi_md_block(state->src));
    state->out = cddpi_plan_layout(plan, &op->out, cddpi_md_block(state->dst));
    pass->image = state->inner;
    pass->result = state->out;
    pass->inputs = op->in.channels;
    pass->outputs = op->out.channels;
}

/* Use our own products, channels last, where oneDNN has only a reference implementation. */
static cddp_status plan_own_forward(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                                    int block)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_plan_part part = {
        .op = index, .what = "convolution", .reason = "oneDNN has no kernel for it"};

    state->src = cddpi_md_channels_last(&plan->layouts, plan->count, &op->in);
    state->dst = cddpi_md_channels_last(&plan->layouts, plan->count, &op->out);
    if (state->src == NULL || state->dst == NULL) {
        return cddpi_plan_no_memory(plan);
    }
    set_layouts(state, plan, op, block);
    cddpi_conv_cost(plan, op, "own:columns", &state->forward, &part);
    cddpi_plan_part(plan, "own:columns", &part);
    CDDPI_TRY(plan_packed(state, plan, index, NULL, CDDPI_IN_FORWARD, &state->forward));
    cddpi_conv_columns_plan(plan, index, state, CDDPI_IN_FORWARD, &state->forward);
    return CDDP_OK;
}

static cddp_status plan_forward(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    struct cddpi_plan_part part = {.op = index, .what = "convolution"};
    cddpi_md weight;
    dnnl_primitive_desc_t desc;
    cddp_status status = plan->model->fallbacks == CDDPI_FALLBACKS_OWN
                             ? CDDP_ERR_UNAVAILABLE
                             : choose_forward(state, plan, op, block, &desc);

    if (status == CDDP_ERR_UNAVAILABLE && state->factors != CDDPI_FACTORS_BF16) {
        return plan_own_forward(state, plan, index, block);
    }
    CDDPI_TRY(status);
    weight = cddpi_dnnl_query(desc, dnnl_query_weights_md);
    state->src = cddpi_dnnl_query(desc, dnnl_query_src_md);
    state->dst = cddpi_dnnl_query(desc, dnnl_query_dst_md);
    set_layouts(state, plan, op, block);
    cddpi_conv_cost(plan, op, cddpi_dnnl_name(desc), &state->forward, &part);
    if (state->inner.block != state->in.block) {
        part.copied = 2.0 * sizeof(float) *
                      (double)cddpi_plan_elements(plan, &op->in, (int)state->inner.block);
    }
    CDDPI_TRY(cddpi_primitive_init(&state->forward.primitive, state->dnnl, desc, plan, &part,
                                   CDDPI_IN_FORWARD));
    CDDPI_TRY(cddpi_primitive_args(
        &state->forward.primitive, 4,
        (const int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        (const cddpi_md[]){state->src, weight, state->dst, state->bias}));
    return plan_packed(state, plan, index, weight, CDDPI_IN_FORWARD, &state->forward);
}

/* Buffers for images of gradients whose layouts differ from the present ones. */
static void plan_copies(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                        struct cddpi_conv_pass *pass)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t there = pass == &state->data || state->keeps_input ? state->in.block
                                                              : state->inner.block;
    enum cddpi_lifetime lifetime = pass == &state->weights ? CDDPI_IN_WEIGHTS : CDDPI_IN_BACKWARD;

    if (pass->image.block != there) {
        pass->image_buffer = cddpi_plan_buffer(
            plan, index, cddpi_plan_elements(plan, &op->in, (int)pass->image.block) * sizeof(float),
            lifetime);
    }
    if (pass->result.block != state->out.block) {
        pass->result_buffer = cddpi_plan_buffer(
            plan, index,
            cddpi_plan_elements(plan, &op->out, (int)pass->result.block) * sizeof(float), lifetime);
    }
}

/* The common fields of a request for the gradient of @p op's weight or input. */
static struct cddpi_dnnl_request gradient(const struct cddpi_conv *state, struct cddpi_plan *plan,
                                          enum cddpi_dnnl_kind kind, const char *what)
{
    return (struct cddpi_dnnl_request){
        .kind = kind,
        .training = true,
        .dst = cddpi_md_typed(&plan->layouts, state->dst, factor_type(state)),
        .window = state->steps,
        .forward = state->forward.primitive.desc,
        .what = what};
}

static cddp_status init_gradient(const struct cddpi_conv *state, struct cddpi_plan *plan,
                                 const struct cddpi_plan_part *part, dnnl_primitive_desc_t desc,
                                 bool weights, struct cddpi_primitive *out)
{
    static const int weights_args[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
    static const int data_args[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS};
    const cddpi_md layouts[] = {
        cddpi_dnnl_query(desc, weights ? dnnl_query_src_md : dnnl_query_diff_src_md),
        cddpi_dnnl_query(desc, dnnl_query_diff_dst_md),
        cddpi_dnnl_query(desc, weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md)};

    CDDPI_TRY(cddpi_primitive_init(out, state->dnnl, desc, plan, part,
                                   weights ? CDDPI_IN_WEIGHTS : CDDPI_IN_BACKWARD));
    return cddpi_primitive_args(out, 3, weights ? weights_args : data_args, layouts);
}

/* Plan what several threads need to compute parts of the filters' gradient at once: copies of the
 * present primitive. */
static cddp_status plan_parts(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    dnnl_primitive_desc_t first = state->weights.primitive.desc;
    struct cddpi_plan_part unnamed = {.op = index};
    size_t team = cddpi_team_size();
    size_t more;

    state->lanes = team < (size_t)state->parts ? (int)team : state->parts;
    state->image_bytes = dnnl_memory_desc_get_size(cddpi_dnnl_query(first, dnnl_query_src_md));
    state->result_bytes = dnnl_memory_desc_get_size(
        cddpi_dnnl_query(first, dnnl_query_diff_dst_md));
    state->made_bytes = dnnl_memory_desc_get_size(
        cddpi_dnnl_query(first, dnnl_query_diff_weights_md));
    for (int i = 1; i < state->lanes; i++) {
        dnnl_primitive_desc_t copy = NULL;

        CDDPI_TRY(
            cddpi_dnnl_check(dnnl_primitive_desc_clone(&copy, first), "gradient of the filters"));
        CDDPI_TRY(init_gradient(state, plan, &unnamed, copy, true, &state->others[i - 1]));
    }
    more = state->lanes > 1 ? (size_t)state->parts - 1 : state->parts > 1 ? 1 : 0;
    if (more > 0) {
        state->part_made = cddpi_plan_buffer(plan, index, more * state->made_bytes,
                                             CDDPI_IN_WEIGHTS);
    }
    return CDDP_OK;
}

/* Plan a gradient: its primitive with arguments, or our own products with their columns; and its
 * form of the weight. */
static cddp_status plan_gradient(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                                 const struct cddpi_dnnl_request *request,
                                 struct cddpi_conv_pass *pass)
{
    bool weights = pass == &state->weights;
    enum cddpi_lifetime lifetime = weights ? CDDPI_IN_WEIGHTS : CDDPI_IN_BACKWARD;
    dnnl_query_t filters = weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    struct cddpi_plan_part part = {.op = index, .what = request->what};
    dnnl_primitive_desc_t desc = NULL;

    CDDPI_TRY(cddpi_conv_choose(state, plan, index, request, pass, &part, &desc));
    /* for bf16, where float32 is the fallback, the kernel must be a fast one */
    if (state->factors == CDDPI_FACTORS_BF16 && !cddpi_dnnl_is_fast(desc)) {
        dnnl_primitive_desc_destroy(desc);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: oneDNN has no kernel for bf16", request->what);
    }
    if (desc == NULL) {
        cddpi_plan_part(plan, "own:columns", &part);
        cddpi_conv_columns_plan(plan, index, state, lifetime, pass);
        return plan_packed(state, plan, index, NULL, lifetime, pass);
    }
    CDDPI_TRY(init_gradient(state, plan, &part, desc, weights, &pass->primitive));
    return plan_packed(state, plan, index, cddpi_dnnl_query(desc, filters), lifetime, pass);
}

static cddp_status plan_weights(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_conv_pass *pass = &state->weights;
    struct cddpi_dnnl_request request = gradient(state, plan, CDDPI_DNNL_CONV_WEIGHTS,
                                                 "gradient of the filters");
    size_t plain_bytes = dnnl_memory_desc_get_size(state->plain_weight);
    size_t team = cddpi_team_size();
    cddp_status status;

    state->parts = CDDPI_CONV_PARTS;
    while (plan->count % state->parts != 0) { /* parts are equal */
        state->parts--;
    }
    request.src = cddpi_md_counted(&plan->layouts, state->src, plan->count / state->parts);
    request.dst = cddpi_md_counted(&plan->layouts, request.dst, plan->count / state->parts);
    request.weight = any_weight(plan, op, dnnl_f32);
    if (request.src == NULL || request.dst == NULL) {
        return cddpi_plan_no_memory(plan);
    }
    cddpi_team_resize(1); /* primitives remember the number of threads */
    status = plan_gradient(state, plan, index, &request, pass);
    cddpi_team_resize(team);
    CDDPI_TRY(status);
    if (pass->primitive.handle != NULL) {
        CDDPI_TRY(plan_parts(state, plan, index));
    }
    state->plain_grad = cddpi_plan_buffer(plan, index, plain_bytes, CDDPI_IN_WEIGHTS);
    if (state->factors != CDDPI_FACTORS_F32) {
        state->grad_factor = cddpi_plan_buffer(
            plan, index, dnnl_memory_desc_get_size(request.dst) * (size_t)state->parts,
            CDDPI_BACKWARD_TO_WEIGHTS);
    }
    if (state->bias != NULL) {
        state->bias_partial = cddpi_plan_buffer(
            plan, index, cddpi_norm_partial(&state->out) * sizeof(double), CDDPI_IN_BACKWARD);
        state->bias_sums = cddpi_plan_buffer(plan, index, state->out.channels * sizeof(double),
                                             CDDPI_BACKWARD_TO_WEIGHTS);
    }
    return CDDP_OK;
}

static cddp_status plan_data(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    struct cddpi_dnnl_request request = gradient(state, plan, CDDPI_DNNL_CONV_DATA,
                                                 "gradient of the input");

    request.src = cddpi_md_typed(&plan->layouts, state->src, dnnl_f32);
    request.weight = state->any_weight;
    CDDPI_TRY(plan_gradient(state, plan, index, &request, &state->data));
    plan_copies(state, plan, index, &state->data);
    return CDDP_OK;
}

static void describe_window(struct cddpi_conv *state, struct cddpi_plan *plan,
                            const struct cddpi_op *op)
{
    const dnnl_dim_t bias[] = {op->out.channels};
    dnnl_dim_t sizes[CDDPI_FILTER_DIMS];
    const dnnl_dim_t *first;
    int dims = cddpi_conv_filter_dims(op, cddpi_conv_outputs(op), cddpi_conv_inputs(op), sizes,
                                      &first);

    state->plain_weight = cddpi_md_plain(&plan->layouts, dims, first);
    state->any_weight = any_weight(plan, op, factor_type(state));
    state->bias = op->layer.no_bias ? NULL : cddpi_md_plain(&plan->layouts, 1, bias);
    for (int i = 0; i < 2; i++) {
        state->steps.strides[i] = op->layer.stride;
        state->steps.before[i] = op->layer.padding;
    }
    state->steps.after[0] = cddpi_window_padding_after(op, op->in.height, op->out.height);
    state->steps.after[1] = cddpi_window_padding_after(op, op->in.width, op->out.width);
    state->window = cddpi_window_of(op, &op->in, &op->out, (size_t)plan->count,
                                    (size_t)cddpi_conv_inputs(op));
}

static cddp_status plan_all(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    describe_window(state, plan, cddpi_plan_op_of(plan, index));
    CDDPI_TRY(plan_forward(state, plan, index));
    if (plan->training) {
        CDDPI_TRY(plan_weights(state, plan, index));
    }
    plan_inputs(state, plan, index);
    if (plan->training) {
        plan_copies(state, plan, index, &state->weights);
    }
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        CDDPI_TRY(plan_data(state, plan, index));
    }
    return CDDP_OK;
}

/* Images of few channels do not fill an AMX tile, so rounded float32 factors are faster there. */
static enum cddpi_factors choose_factors(const struct cddpi_model *model, const struct cddpi_op *op)
{
    enum { LEAST_CHANNELS = 16 };

    if (model->precision == CDDPI_PRECISION_F32) {
        return CDDPI_FACTORS_F32;
    }
    return model->bf16 == CDDPI_BF16_AMX && cddpi_conv_inputs(op) >= LEAST_CHANNELS
               ? CDDPI_FACTORS_BF16
               : CDDPI_FACTORS_ROUNDED;
}

cddp_status cddpi_conv_plan(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_conv *state = plan->ops[index].state;
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    cddp_status status;

    state->factors = choose_factors(plan->model, op);
    CDDPI_TRY(cddpi_dnnl_get(plan->model, &state->dnnl));
    status = plan_all(state, plan, index);
    if (status == CDDP_ERR_UNAVAILABLE && state->factors == CDDPI_FACTORS_BF16) {
        cddpi_conv_unplan(state);
        cddpi_plan_rollback(plan, mark);
        *state = (struct cddpi_conv){.dnnl = state->dnnl, .factors = CDDPI_FACTORS_ROUNDED};
        status = plan_all(state, plan, index);
    }
    CDDPI_TRY(status);
    cddpi_plan_output(plan, index, (int)state->out.block);
    plan->ops[index].flags =
        (state->keeps_input ? CDDPI_WEIGHTS_INPUT : 0u) |
        (state->factors == CDDPI_FACTORS_F32 ? CDDPI_WEIGHTS_GRAD : 0u) |
        (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD | CDDPI_SUMS_GRADS : 0u);
    return CDDP_OK;
}
