/* conv2d_choice.c - owns the choice of the implementation of a convolution's gradients, so that a
 * reference implementation, which takes a hundred times longer, is never used.
 *
 * The choice compares estimates of the cost, in multiplications, that follow from shapes and names.
 * Nothing is measured, so every run makes the same choice and gets the same bits. */
#include "nn/ops/conv2d.h"

#include "base/error.h"
#include "nn/model_state.h"

#include <math.h>
#include <string.h>

/* Costs, in multiplications of a good kernel: */
static const double PRODUCT_FACTOR = 1.6; /* of one multiplication in a product of columns */
static const double COLUMN_WORK = 12;     /* of writing or adding one element of the columns */
static const double COPY_WORK = 12; /* of converting one element of an image to another layout */
/* of starting an image, if images are processed one at a time */
static const double IMAGE_WORK = 20000;

enum { LANES = 8 }; /* of a vector, approximately */

/* Layouts in which a gradient may read and write images: block sizes, and channels including
 * padding. With one channel, plain and channels last are the same memory, but oneDNN chooses by the
 * name. */
struct candidate {
    int image_block, result_block;
    int inputs, outputs;
    bool image_last, result_last;
};

static int round_up(int channels, int block)
{
    return (channels + block - 1) / block * block;
}

void cddpi_conv_cost(const struct cddpi_plan *plan, const struct cddpi_op *op, const char *name,
                     const struct cddpi_conv_pass *pass, struct cddpi_plan_part *part)
{
    double taps = (double)op->layer.kernel * op->layer.kernel;
    double outputs = (double)plan->count * op->out.height * op->out.width;
    double columns = outputs * op->in.channels * op->layer.kernel * op->layer.kernel;
    int groups = op->layer.groups;

    if (strncmp(name, "jit", 3) == 0 || strncmp(name, "brg", 3) == 0) {
        bool blocked = pass->image.block == LANES || pass->image.block == 2 * LANES;

        part->work = outputs * taps * groups * round_up(pass->outputs / groups, LANES) *
                     (pass->inputs / groups >= LANES || blocked
                          ? round_up(pass->inputs / groups, LANES)
                          : pass->inputs / groups);
        return;
    }
    part->work = PRODUCT_FACTOR * columns * round_up(cddpi_conv_outputs(op), 2 * LANES) +
                 (op->layer.kernel > 1 || op->layer.stride > 1 ? COLUMN_WORK * columns : 0);
    if (strncmp(name, "own", 3) != 0) {
        part->work += IMAGE_WORK * plan->count;
    }
}

/* Elements that must be copied because the layouts differ from the present ones. */
static double copied_elements(const struct cddpi_conv *state, struct cddpi_plan *plan,
                              const struct cddpi_op *op, const struct candidate *way, bool weights)
{
    bool image_is_there = (size_t)way->image_block == state->in.block ||
                          (weights && (size_t)way->image_block == state->inner.block);
    double elements = 0;

    if (!image_is_there) {
        elements += (double)cddpi_plan_elements(plan, &op->in, way->image_block);
    }
    if ((size_t)way->result_block != state->out.block) {
        elements += (double)cddpi_plan_elements(plan, &op->out, way->result_block);
    }
    return elements;
}

/* oneDNN 2.6's AVX2 kernels write beyond their memory in gradients of strided 1 x 1 filters, if
 * images are channels last and channels do not fill the vector lanes. */
static bool is_broken(const struct cddpi_op *op, const char *name, cddpi_md src)
{
    return strstr(name, "avx2") != NULL && op->layer.kernel == 1 && op->layer.stride > 1 &&
           (op->in.channels % LANES != 0 || op->out.channels % LANES != 0) &&
           cddpi_md_block(src) != LANES;
}

static cddp_status describe(const struct cddpi_conv *state, const struct cddpi_op *op,
                            const struct cddpi_dnnl_request *request, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t desc;

    CDDPI_TRY(cddpi_dnnl_describe(state->dnnl, request, &desc));
    if (is_broken(op, cddpi_dnnl_name(desc), request->src)) {
        dnnl_primitive_desc_destroy(desc);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: this oneDNN's kernel is wrong", request->what);
    }
    *out = desc;
    return CDDP_OK;
}

/* The gradient that @p as_is requests, but in the layouts of @p way, which are added to @p holder.
 */
static cddp_status describe_way(const struct cddpi_conv *state, const struct cddpi_plan *plan,
                                const struct cddpi_op *op, struct cddpi_mds *holder,
                                const struct cddpi_dnnl_request *as_is, const struct candidate *way,
                                dnnl_primitive_desc_t *out)
{
    struct cddpi_dnnl_request request = *as_is;
    struct cddpi_shape in = op->in;
    struct cddpi_shape result = op->out;
    int count = as_is->kind == CDDPI_DNNL_CONV_WEIGHTS ? plan->count / state->parts : plan->count;
    dnnl_dim_t sizes[CDDPI_FILTER_DIMS];
    const dnnl_dim_t *first;
    int dims = cddpi_conv_filter_dims(op, way->outputs / op->layer.groups,
                                      way->inputs / op->layer.groups, sizes, &first);

    in.channels = way->inputs;
    result.channels = way->outputs;
    request.src = way->image_last ? cddpi_md_channels_last(holder, count, &in)
                                  : cddpi_md_image(holder, count, &in, way->image_block);
    request.dst = way->result_last ? cddpi_md_channels_last(holder, count, &result)
                                   : cddpi_md_image(holder, count, &result, way->result_block);
    request.weight = cddpi_md_tagged(holder, dims, first, dnnl_f32, dnnl_format_tag_any);
    if (holder->failed) {
        return cddpi_plan_no_memory(plan);
    }
    return describe(state, op, &request, out);
}

static void take_way(const struct cddpi_conv *state, const struct candidate *way,
                     struct cddpi_conv_pass *pass)
{
    pass->image = state->in;
    pass->image.block = (size_t)way->image_block;
    pass->result = state->out;
    pass->result.block = (size_t)way->result_block;
    pass->inputs = way->inputs;
    pass->outputs = way->outputs;
}

/* The best so far. */
struct best {
    struct candidate way;
    struct cddpi_plan_part part;
    dnnl_primitive_desc_t desc; /* NULL: our own products */
};

static double total(const struct cddpi_plan_part *part)
{
    return part->work + COPY_WORK * part->copied / (2 * sizeof(float));
}

static cddp_status try_way(const struct cddpi_conv *state, struct cddpi_plan *plan,
                           const struct cddpi_op *op, const struct cddpi_dnnl_request *as_is,
                           const struct candidate *way, struct best *best)
{
    struct cddpi_conv_pass pass;
    struct cddpi_plan_part part = best->part;
    struct cddpi_mds layouts = {.last = NULL};
    dnnl_primitive_desc_t desc = NULL;
    cddp_status status = describe_way(state, plan, op, &layouts, as_is, way, &desc);

    cddpi_mds_drop(&layouts);
    if (status != CDDP_OK) {
        return status == CDDP_ERR_UNAVAILABLE ? CDDP_OK : status;
    }
    take_way(state, way, &pass);
    cddpi_conv_cost(plan, op, cddpi_dnnl_name(desc), &pass, &part);
    part.copied = 2 * sizeof(float) *
                  copied_elements(state, plan, op, way, as_is->kind == CDDPI_DNNL_CONV_WEIGHTS);
    if (total(&part) >= total(&best->part)) {
        dnnl_primitive_desc_destroy(desc);
        return CDDP_OK;
    }
    if (best->desc != NULL) {
        dnnl_primitive_desc_destroy(best->desc);
    }
    *best = (struct best){*way, part, desc};
    return CDDP_OK;
}

/* Try every pair of layouts. Blocked ones are also tried with padded channels, because some kernels
 * need whole blocks. */
static cddp_status try_all(const struct cddpi_conv *state, struct cddpi_plan *plan,
                           const struct cddpi_op *op, const struct cddpi_dnnl_request *as_is,
                           struct best *best)
{
    static const int blocks[] = {1, 8, 16, 0 /* block = channels */};
    enum { BLOCKS = sizeof blocks / sizeof *blocks };
    const enum cddpi_fallbacks only = plan->model->fallbacks;
    const int inputs = op->in.channels;
    const int outputs = op->out.channels;
    cddp_status status = CDDP_OK;

    for (int i = only == CDDPI_FALLBACKS_PADDED ? BLOCKS * BLOCKS : 0;
         status == CDDP_OK && i < BLOCKS * BLOCKS; i++) {
        int image = blocks[i / BLOCKS];
        int result = blocks[i % BLOCKS];
        const struct candidate way = {.image_block = image > 0 ? image : inputs,
                                      .result_block = result > 0 ? result : outputs,
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .image_last = image == 0,
                                      .result_last = result == 0};

        if (only != CDDPI_FALLBACKS_REORDERED || (size_t)way.image_block != state->inner.block ||
            (size_t)way.result_block != state->out.block) {
            status = try_way(state, plan, op, as_is, &way, best);
        }
    }
    /* padding channels would all belong to the last group */
    for (int i = only == CDDPI_FALLBACKS_REORDERED || op->layer.groups > 1 ? 3 : 1;
         status == CDDP_OK && i < 3; i++) {
        int block = blocks[i];
        const struct candidate way = {.image_block = block,
                                      .result_block = block,
                                      .inputs = round_up(inputs, block),
                                      .outputs = round_up(outputs, block)};

        if (way.inputs != inputs || way.outputs != outputs) {
            status = try_way(state, plan, op, as_is, &way, best);
        }
    }
    return status;
}

cddp_status cddpi_conv_choose(const struct cddpi_conv *state, struct cddpi_plan *plan, int index,
                              const struct cddpi_dnnl_request *as_is, struct cddpi_conv_pass *pass,
                              struct cddpi_plan_part *part, dnnl_primitive_desc_t *out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    bool weights = as_is->kind == CDDPI_DNNL_CONV_WEIGHTS;
    struct candidate inner = {.image_block = (int)state->inner.block,
                              .result_block = (int)state->out.block,
                              .inputs = op->in.channels,
                              .outputs = op->out.channels};
    struct best best = {.way = inner, .part = *part, .desc = NULL}; /* our own: channels last */
    enum cddpi_fallbacks fallbacks = plan->model->fallbacks;
    cddp_status status = CDDP_ERR_UNAVAILABLE;

    best.way.image_block = op->in.channels;
    best.way.result_block = op->out.channels;
    if (fallbacks == CDDPI_FALLBACKS_NEEDED || state->factors == CDDPI_FACTORS_BF16) {
        status = describe(state, op, as_is, out);
    }
    if (status == CDDP_OK) {
        take_way(state, &inner, pass);
        cddpi_conv_cost(plan, op, cddpi_dnnl_name(*out), pass, part);
        return CDDP_OK;
    }
    if (status != CDDP_ERR_UNAVAILABLE || state->factors == CDDPI_FACTORS_BF16) {
        return status;
    }
    take_way(state, &best.way, pass);
    cddpi_conv_cost(plan, op, "own", pass, &best.part);
    best.part.copied = 2 * sizeof(float) * copied_elements(state, plan, op, &best.way, weights);
    if (fallbacks == CDDPI_FALLBACKS_REORDERED || fallbacks == CDDPI_FALLBACKS_PADDED) {
        best.part.work = HUGE_VAL; /* own products only if nothing else works */
    }
    status = fallbacks == CDDPI_FALLBACKS_OWN ? CDDP_OK : try_all(state, plan, op, as_is, &best);
    if (status != CDDP_OK) {
        if (best.desc != NULL) {
            dnnl_primitive_desc_destroy(best.desc);
        }
        return status;
    }
    take_way(state, &best.way, pass);
    *part = best.part;
    part->reason = "oneDNN has no kernel for its channels in the layout of the layers around it";
    *out = best.desc;
    return CDDP_OK;
}
