/* conv2d_plan.c - owns the choice of kernels and layouts for a convolution. */
#include "base/alloc.h"
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

static void fini_passes(struct cddpi_conv *state)
{
    fini_pass(&state->forward);
    fini_pass(&state->data);
    fini_pass(&state->weights);
    for (int i = 0; i < CDDPI_CONV_PARTS - 1; i++) {
        cddpi_primitive_fini(&state->others[i]);
    }
}

void cddpi_conv_unplan(void *opaque)
{
    if (opaque != NULL) {
        fini_passes(opaque);
        cddpi_free(opaque);
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

/* Both layouts must be ours; with @p fast, the kernel must be a compiled one. */
static bool acceptable(const_dnnl_primitive_desc_t desc, bool fast)
{
    return cddpi_md_block(cddpi_dnnl_query(desc, dnnl_query_src_md)) > 0 &&
           cddpi_md_block(cddpi_dnnl_query(desc, dnnl_query_dst_md)) > 0 &&
           (!fast || cddpi_dnnl_is_fast(desc));
}

/* A way for the convolution to read and write images; the list starts with the best. */
struct way {
    cddpi_md src, dst;
    bool fast;
};

/* Choose the first that works: the input in its present layout if there is a fast kernel, else in
 * the layout that oneDNN wants, else everything plain. AMX kernels read and write only N x H x W x
 * C, so the op before should write that as well. CDDP_ERR_UNAVAILABLE: oneDNN has at best a
 * reference implementation. */
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
    return status == CDDP_OK ? cddpi_plan_buffer(plan, index,
                                                 wanted != NULL ? dnnl_memory_desc_get_size(wanted)
                                                                : packed->own.bytes,
                                                 lifetime, &packed->buffer)
                             : status;
}

static cddp_status add_args(struct cddpi_primitive *primitive, const int *args,
                            const cddpi_md *layouts, int count)
{
    for (int i = 0; i < count; i++) {
        if (layouts[i] != NULL) {
            CDDPI_TRY(cddpi_primitive_arg(primitive, args[i], layouts[i]));
        }
    }
    return CDDP_OK;
}

/* Plan the input in the layout and type in which it is read. The filters' gradient, whose layout is
 * known, reads what forward read, or the input itself if that has the right layout. */
static cddp_status plan_inputs(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t elements = cddpi_plan_elements(plan, &op->in, (int)state->inner.block);
    bool factor = state->factors != CDDPI_FACTORS_F32;
    bool differs = state->inner.block != state->in.block;

    state->keeps_input = !factor && (!differs || (plan->training &&
                                                  state->weights.image.block == state->in.block));
    if (differs) {
        CDDPI_TRY(cddpi_plan_buffer(plan, index, elements * sizeof(float),
                                    factor || state->keeps_input ? CDDPI_IN_FORWARD
                                                                 : CDDPI_FORWARD_TO_WEIGHTS,
                                    &state->inner_input));
    }
    if (factor) {
        CDDPI_TRY(cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(state->src),
                                    CDDPI_FORWARD_TO_WEIGHTS, &state->input_factor));
    }
    if (state->factors == CDDPI_FACTORS_ROUNDED) {
        CDDPI_TRY(cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(state->plain_weight),
                                    CDDPI_IN_BOTH, &state->weight_factor));
    }
    return CDDP_OK;
}

/* Set the layouts of the input and the output. */
static void set_layouts(struct cddpi_conv *state, const struct cddpi_plan *plan,
                        const struct cddpi_op *op, int block)
{
    struct cddpi_conv_pass *pass = &state->forward;

    state->in = (struct cddpi_nn_layout){(size_t)plan->count, (size_t)op->in.channels,
                                         (size_t)op->in.height * (size_t)op->in.width,
                                         (size_t)block};
    state->inner = state->in;
    state->inner.block = (size_t)cddpi_md_block(state->src);
    state->out = (struct cddpi_nn_layout){(size_t)plan->count, (size_t)op->out.channels,
                                          (size_t)op->out.height * (size_t)op->out.width,
                                          (size_t)cddpi_md_block(state->dst)};
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
    CDDPI_TRY(cddpi_plan_part(plan, "own:columns", &part));
    CDDPI_TRY(plan_packed(state, plan, index, NULL, CDDPI_IN_FORWARD, &state->forward));
    return cddpi_conv_columns_plan(plan, index, state, CDDPI_IN_FORWARD, &state->forward);
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
    if (status != CDDP_OK) {
        return status;
    }
    weight = cddpi_dnnl_query(desc, dnnl_query_weights_md);
    state->src = cddpi_dnnl_query(desc, dnnl_query_src_md);
    state->dst = cddpi_dnnl_query(desc, dnnl_query_dst_md);
    set_layouts(state, plan, op, block);
    cddpi_conv_cost(plan, op, cddpi_dnnl_name(desc), &state->forward, &part);
    if (state->inner.block != state->in.block) {
        part.copied = 2.0 * sizeof(float) *
                      (double)cddpi_plan_elements(plan, &op->in, (int)state->inner.block);
    }
    status = cddpi_primitive_init(&state->forward.primitive, state->dnnl, desc, plan, &part,
                                  CDDPI_IN_FORWARD);
    if (status == CDDP_OK) {
        status = add_args(&state->forward.primitive,
                          (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                          (const cddpi_md[]){state->src, weight, state->dst, state->bias}, 4);
    }
    return status == CDDP_OK
               ? plan_packed(state, plan, index, weight, CDDPI_IN_FORWARD, &state->forward)
               : status;
}

/* Like cddpi_conv_choose(), but for bf16, where float32 is the fallback, oneDNN's kernel for the
 * present layouts must be a fast one. */
static cddp_status choose(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                          const struct cddpi_dnnl_request *request, struct cddpi_conv_pass *pass,
                          struct cddpi_plan_part *part, dnnl_primitive_desc_t *out)
{
    CDDPI_TRY(cddpi_conv_choose(state, plan, index, request, pass, part, out));
    if (state->factors == CDDPI_FACTORS_BF16 && !cddpi_dnnl_is_fast(*out)) {
        dnnl_primitive_desc_destroy(*out);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: oneDNN has no kernel for bf16", request->what);
    }
    return CDDP_OK;
}

/* Buffers for images of gradients whose layouts differ from the present ones. */
static cddp_status plan_copies(struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                               struct cddpi_conv_pass *pass)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t there = pass == &state->data || state->keeps_input ? state->in.block
                                                              : state->inner.block;
    enum cddpi_lifetime lifetime = pass == &state->weights ? CDDPI_IN_WEIGHTS : CDDPI_IN_BACKWARD;

    if (pass->image.block != there) {
        CDDPI_TRY(cddpi_plan_buffer(
            plan, index, cddpi_plan_elements(plan, &op->in, (int)pass->image.block) * sizeof(float),
            lifetime, &pass->image_buffer));
    }
    if (pass->result.block != state->out.block) {
        CDDPI_TRY(cddpi_plan_buffer(plan, index,
                                    cddpi_plan_elements(plan, &op->out, (int)pass->result.block) *
                                        sizeof(float),
                                    lifetime, &pass->result_buffer));
    }
    return CDDP_OK;
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
    return add_args(out, weights ? weights_args : data_args, layouts, 3);
}

/* Plan what several threads need to compute parts of the filters' gradient at once: copies of the
 * present primitive. */
static cddp_status plan_parts(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    dnnl_primitive_desc_t first = state->weights.primitive.desc;
    struct cddpi_plan_part unnamed = {.op = index};
    cddp_status status = CDDP_OK;
    size_t team = cddpi_team_size();
    size_t more;

    state->lanes = team < (size_t)state->parts ? (int)team : state->parts;
    state->image_bytes = dnnl_memory_desc_get_size(cddpi_dnnl_query(first, dnnl_query_src_md));
    state->result_bytes = dnnl_memory_desc_get_size(
        cddpi_dnnl_query(first, dnnl_query_diff_dst_md));
    state->made_bytes = dnnl_memory_desc_get_size(
        cddpi_dnnl_query(first, dnnl_query_diff_weights_md));
    for (int i = 1; status == CDDP_OK && i < state->lanes; i++) {
        dnnl_primitive_desc_t copy = NULL;

        status = cddpi_dnnl_check(dnnl_primitive_desc_clone(&copy, first),
                                  "gradient of the filters");
        if (status == CDDP_OK) {
            status = init_gradient(state, plan, &unnamed, copy, true, &state->others[i - 1]);
        }
    }
    more = state->lanes > 1 ? (size_t)state->parts - 1 : state->parts > 1 ? 1 : 0;
    return status == CDDP_OK && more > 0 ? cddpi_plan_buffer(plan, index, more * state->made_bytes,
                                                             CDDPI_IN_WEIGHTS, &state->part_made)
                                         : status;
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

    CDDPI_TRY(choose(state, plan, index, request, pass, &part, &desc));
    if (desc == NULL) {
        CDDPI_TRY(cddpi_plan_part(plan, "own:columns", &part));
        CDDPI_TRY(cddpi_conv_columns_plan(plan, index, state, lifetime, pass));
        return plan_packed(state, plan, index, NULL, lifetime, pass);
    }
    CDDPI_TRY(init_gradient(state, plan, &part, desc, weights, &pass->primitive));
    return plan_packed(state, plan, index, cddpi_dnnl_query(desc, filters), lifetime, pass);
}

static cddp_status plan_bias(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    CDDPI_TRY(cddpi_plan_buffer(plan, index, cddpi_norm_partial(&state->out) * sizeof(double),
                                CDDPI_IN_BACKWARD, &state->bias_partial));
    return cddpi_plan_buffer(plan, index, state->out.channels * sizeof(double),
                             CDDPI_BACKWARD_TO_WEIGHTS, &state->bias_sums);
}

/* The largest number of equal parts. */
static int parts_of(int count)
{
    int parts = CDDPI_CONV_PARTS;

    while (count % parts != 0) {
        parts--;
    }
    return parts;
}

static cddp_status plan_weights(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_conv_pass *pass = &state->weights;
    struct cddpi_dnnl_request request = gradient(state, plan, CDDPI_DNNL_CONV_WEIGHTS,
                                                 "gradient of the filters");
    size_t team = cddpi_team_size();
    cddp_status status;

    state->parts = parts_of(plan->count);
    request.src = cddpi_md_counted(&plan->layouts, state->src, plan->count / state->parts);
    request.dst = cddpi_md_counted(&plan->layouts, request.dst, plan->count / state->parts);
    request.weight = any_weight(plan, op, dnnl_f32);
    if (request.src == NULL || request.dst == NULL) {
        return cddpi_plan_no_memory(plan);
    }
    cddpi_team_resize(1); /* primitives remember the number of threads */
    status = plan_gradient(state, plan, index, &request, pass);
    cddpi_team_resize(team);
    if (status == CDDP_OK && pass->primitive.handle != NULL) {
        status = plan_parts(state, plan, index);
    }
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, dnnl_memory_desc_get_size(state->plain_weight),
                                   CDDPI_IN_WEIGHTS, &state->plain_grad);
    }
    if (status == CDDP_OK && state->factors != CDDPI_FACTORS_F32) {
        status = cddpi_plan_buffer(plan, index,
                                   dnnl_memory_desc_get_size(request.dst) * (size_t)state->parts,
                                   CDDPI_BACKWARD_TO_WEIGHTS, &state->grad_factor);
    }
    return status == CDDP_OK && state->bias != NULL ? plan_bias(state, plan, index) : status;
}

static cddp_status plan_data(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    struct cddpi_dnnl_request request = gradient(state, plan, CDDPI_DNNL_CONV_DATA,
                                                 "gradient of the input");

    request.src = cddpi_md_typed(&plan->layouts, state->src, dnnl_f32);
    request.weight = state->any_weight;
    CDDPI_TRY(plan_gradient(state, plan, index, &request, &state->data));
    return plan_copies(state, plan, index, &state->data);
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
    state->window = (struct cddpi_nn_window){.planes = (size_t)plan->count,
                                             .lanes = (size_t)cddpi_conv_inputs(op),
                                             .height = (size_t)op->in.height,
                                             .width = (size_t)op->in.width,
                                             .out_height = (size_t)op->out.height,
                                             .out_width = (size_t)op->out.width,
                                             .kernel = (size_t)op->layer.kernel,
                                             .stride = (size_t)op->layer.stride,
                                             .padding = (size_t)op->layer.padding};
}

static cddp_status plan_all(struct cddpi_conv *state, struct cddpi_plan *plan, int index)
{
    describe_window(state, plan, cddpi_plan_op_of(plan, index));
    CDDPI_TRY(plan_forward(state, plan, index));
    if (plan->training) {
        CDDPI_TRY(plan_weights(state, plan, index));
    }
    CDDPI_TRY(plan_inputs(state, plan, index));
    if (plan->training) {
        CDDPI_TRY(plan_copies(state, plan, index, &state->weights));
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

cddp_status cddpi_conv_plan(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_conv *state = cddpi_zalloc(sizeof *state);
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
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
        fini_passes(state);
        cddpi_plan_rollback(plan, mark);
        *state = (struct cddpi_conv){.dnnl = state->dnnl, .factors = CDDPI_FACTORS_ROUNDED};
        status = plan_all(state, plan, index);
    }
    if (status != CDDP_OK) {
        return status;
    }
    cddpi_plan_output(plan, index, (int)state->out.block);
    plan->ops[index].flags =
        (state->keeps_input ? CDDPI_WEIGHTS_INPUT : 0u) |
        (state->factors == CDDPI_FACTORS_F32 ? CDDPI_WEIGHTS_GRAD : 0u) |
        (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD | CDDPI_SUMS_GRADS : 0u);
    return CDDP_OK;
}
