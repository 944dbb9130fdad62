/* graph.c - builds the graph from a list of layers: names, shapes, fused relus. */
#include "nn/graph/graph.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

enum { LAYER_DATA = -1, MAX_SIDE = 1 << 16, MAX_CHANNELS = 1 << 24 };
static const size_t max_elements = (size_t)1 << 28; /* of a value, for one sample */

/* One layer while the graph is built. */
struct link {
    int inputs[CDDPI_OP_INPUTS]; /* layers, or LAYER_DATA */
    int input_count;
    int uses;  /* number of layers that read its output */
    int value; /* the value that is its output */
};

struct graph_builder {
    const struct cddpi_model_spec *spec;
    struct cddpi_layer_list *list;
    struct link *links;
    struct cddpi_graph *graph;
};

static cddp_status find_layer(const struct graph_builder *builder, size_t before, const char *name,
                              int *out)
{
    if (strcmp(name, "input") == 0) {
        *out = LAYER_DATA;
        return CDDP_OK;
    }
    for (size_t i = 0; i < builder->list->count; i++) {
        if (strcmp(builder->list->layers[i].name, name) == 0) {
            if (i >= before) {
                return cddpi_fail(CDDP_ERR_CONFIG, "its input \"%s\" comes only after it", name);
            }
            *out = (int)i;
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_CONFIG, "no layer is called \"%s\"", name);
}

static cddp_status check_name(const struct graph_builder *builder, size_t i)
{
    const char *name = builder->list->layers[i].name;

    if (strcmp(name, "input") == 0) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "no layer may have this name, which stands for the data");
    }
    for (size_t j = 0; j < i; j++) {
        if (strcmp(builder->list->layers[j].name, name) == 0) {
            return cddpi_fail(CDDP_ERR_CONFIG, "layers %zu and %zu both have this name", j + 1,
                              i + 1);
        }
    }
    return CDDP_OK;
}

static cddp_status link_layer(struct graph_builder *builder, size_t i)
{
    struct cddpi_layer *layer = &builder->list->layers[i];
    struct link *link = &builder->links[i];

    CDDPI_TRY(check_name(builder, i));
    CDDPI_TRY(cddpi_layer_complete(layer));
    link->input_count = layer->type == CDDPI_LAYER_ADD ? 2 : 1;
    link->inputs[0] = (int)i - 1;
    if (layer->input != NULL) {
        CDDPI_TRY(find_layer(builder, i, layer->input, &link->inputs[0]));
    }
    if (layer->type == CDDPI_LAYER_ADD && layer->input2 == NULL) {
        return cddpi_fail(CDDP_ERR_CONFIG, "it needs a second summand: input2");
    }
    if (layer->type == CDDPI_LAYER_ADD) {
        CDDPI_TRY(find_layer(builder, i, layer->input2, &link->inputs[1]));
    }
    for (int k = 0; k < link->input_count; k++) {
        if (link->inputs[k] != LAYER_DATA) {
            builder->links[link->inputs[k]].uses++;
        }
    }
    return CDDP_OK;
}

static int value_of(const struct graph_builder *builder, int layer)
{
    return layer == LAYER_DATA ? CDDPI_VALUE_INPUT : builder->links[layer].value;
}

static bool same_shape(const struct cddpi_shape *a, const struct cddpi_shape *b)
{
    return a->channels == b->channels && a->height == b->height && a->width == b->width;
}

static cddp_status check_summands(const struct cddpi_shape *a, const struct cddpi_shape *b)
{
    if (!same_shape(a, b)) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "add takes equal shapes, but its inputs are %d x %d x %d and %d x %d x "
                          "%d (channels x height x width)",
                          a->channels, a->height, a->width, b->channels, b->height, b->width);
    }
    return CDDP_OK;
}

/* Reject tokens for layers of features, and sequences for layers of images. */
static cddp_status check_kind(const struct cddpi_op *op)
{
    for (int k = 0; k < op->input_count; k++) {
        if (op->inputs[k] == CDDPI_VALUE_INPUT && op->in.sequence &&
            op->ops != &cddpi_op_embedding) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "%s cannot read the data, which are tokens: only embedding does",
                              op->ops->name);
        }
    }
    if (op->in.sequence && op->ops->images_only) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "%s takes images, but its input is a sequence of %d x %d (tokens x "
                          "features)",
                          op->ops->name, op->in.height, op->in.channels);
    }
    return CDDP_OK;
}

static cddp_status infer_shape(struct cddpi_graph *graph, struct cddpi_op *op,
                               struct cddpi_shape *out)
{
    op->in = graph->values[op->inputs[0]].shape;
    *out = op->in;
    CDDPI_TRY(check_kind(op));
    if (op->input_count > 1) {
        CDDPI_TRY(check_summands(&op->in, &graph->values[op->inputs[1]].shape));
    }
    if (op->ops->shape != NULL) {
        CDDPI_TRY(op->ops->shape(op, out));
    }
    if (out->channels > MAX_CHANNELS || cddpi_shape_elements(out) > max_elements) {
        return cddpi_fail(CDDP_ERR_CONFIG, "its output of %d x %d x %d is too large", out->channels,
                          out->height, out->width);
    }
    return CDDP_OK;
}

static const struct cddpi_op_kernels *kernels_of(const struct graph_builder *builder,
                                                 const struct cddpi_op_ops *ops)
{
    return ops->on[builder->spec->device->ops->kind];
}

static cddp_status add_op(struct graph_builder *builder, size_t i)
{
    struct cddpi_graph *graph = builder->graph;
    const struct cddpi_layer *layer = &builder->list->layers[i];
    struct link *link = &builder->links[i];
    struct cddpi_op *op = &graph->ops[graph->op_count];
    struct cddpi_graph_value *value = &graph->values[graph->value_count];

    *op = (struct cddpi_op){.ops = cddpi_layer_rows[layer->type].ops,
                            .kernels = kernels_of(builder, cddpi_layer_rows[layer->type].ops),
                            .layer = *layer,
                            .number = (uint32_t)i,
                            .input_count = link->input_count,
                            .output = graph->value_count,
                            .params = CDDPI_OP_NO_PARAMS,
                            .buffers = CDDPI_OP_NO_PARAMS};
    for (int k = 0; k < link->input_count; k++) {
        op->inputs[k] = value_of(builder, link->inputs[k]);
    }
    CDDPI_TRY(infer_shape(graph, op, &op->out));
    for (int k = 0; k < link->input_count; k++) {
        graph->values[op->inputs[k]].uses++;
    }
    *value = (struct cddpi_graph_value){.shape = op->out, .producer = graph->op_count};
    link->value = graph->value_count++;
    graph->op_count++;
    return CDDP_OK;
}

/* The op that computes layer @p i's first input, if only that layer reads it and nothing is fused
 * to it yet. */
static struct cddpi_op *fusible_producer(const struct graph_builder *builder, size_t i)
{
    int input = builder->links[i].inputs[0];
    const struct cddpi_graph *graph = builder->graph;
    struct cddpi_op *op;

    if (input == LAYER_DATA || builder->links[input].uses != 1) {
        return NULL;
    }
    op = &graph->ops[graph->values[builder->links[input].value].producer];
    return op->relu || op->gelu ? NULL : op;
}

/* Whether the add @p i can be fused into the batch_norm just before it, which computes one of its
 * summands, on this device. */
static bool fuse_add(struct graph_builder *builder, size_t i)
{
    struct link *link = &builder->links[i];
    struct cddpi_graph *graph = builder->graph;
    struct cddpi_op *norm = graph->op_count > 0 ? &graph->ops[graph->op_count - 1] : NULL;

    if (norm == NULL || !norm->kernels->fuses_add || norm->relu || norm->input_count > 1) {
        return false;
    }
    for (int k = 0; k < CDDPI_OP_INPUTS; k++) {
        int other = value_of(builder, link->inputs[1 - k]);

        if (value_of(builder, link->inputs[k]) == norm->output && other != CDDPI_VALUE_INPUT &&
            builder->links[link->inputs[k]].uses == 1 &&
            same_shape(&norm->out, &graph->values[other].shape)) {
            norm->inputs[norm->input_count++] = other;
            graph->values[other].uses++;
            link->value = norm->output;
            return true;
        }
    }
    return false;
}

/* Whether layer @p i can be fused into the op before it. */
static bool fuse(struct graph_builder *builder, size_t i)
{
    const struct cddpi_layer *layer = &builder->list->layers[i];
    struct cddpi_op *op = fusible_producer(builder, i);

    if (layer->type == CDDPI_LAYER_ADD) {
        return fuse_add(builder, i);
    }
    if (op != NULL && layer->type == CDDPI_LAYER_RELU && op->ops->fuses_relu) {
        op->relu = true;
    } else if (op != NULL && layer->type == CDDPI_LAYER_GELU && !layer->exact &&
               op->kernels->fuses_gelu) {
        op->gelu = true;
    } else {
        return false;
    }
    builder->links[i].value = op->output;
    return true;
}

static cddp_status check_last(const struct cddpi_model_spec *spec, const char *name,
                              const struct cddpi_shape *shape)
{
    bool fits = shape->channels == spec->classes;

    if (spec->vocab > 0 && !(shape->sequence && fits)) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "layer \"%s\": the last layer's output has %d features, but there are %d "
                          "tokens to predict",
                          name, shape->channels, spec->classes);
    }
    if (spec->vocab == 0 && !(shape->flat && fits)) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "layer \"%s\": the last layer's output is %d x %d x %d, but there are %d "
                          "%s: end with a linear layer of units = %d",
                          name, shape->channels, shape->height, shape->width, spec->classes,
                          spec->real_targets ? "real targets" : "classes", spec->classes);
    }
    return CDDP_OK;
}

static cddp_status check_outputs(const struct graph_builder *builder)
{
    size_t count = builder->list->count;
    const struct cddpi_layer *last = &builder->list->layers[count - 1];
    const struct cddpi_shape *shape =
        &builder->graph->values[builder->links[count - 1].value].shape;

    for (size_t i = 0; i + 1 < count; i++) {
        if (builder->links[i].uses == 0) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "layer \"%s\": no other layer reads its output, and only the last "
                              "layer's is the model's",
                              builder->list->layers[i].name);
        }
    }
    return check_last(builder->spec, last->name, shape);
}

static void add_loss(struct graph_builder *builder)
{
    struct cddpi_graph *graph = builder->graph;
    int value = builder->links[builder->list->count - 1].value;
    struct cddpi_op *op = &graph->ops[graph->op_count++];

    *op = (struct cddpi_op){.ops = &cddpi_op_loss,
                            .kernels = kernels_of(builder, &cddpi_op_loss),
                            .layer = {.name = "loss"},
                            .inputs = {value},
                            .input_count = 1,
                            .output = -1,
                            .params = CDDPI_OP_NO_PARAMS,
                            .buffers = CDDPI_OP_NO_PARAMS,
                            .in = graph->values[value].shape};
    graph->values[value].uses++;
}

static struct cddpi_shape data_shape(const struct cddpi_model_spec *spec)
{
    if (spec->vocab > 0) {
        return (struct cddpi_shape){
            .channels = 1, .height = spec->context, .width = 1, .sequence = true};
    }
    return (struct cddpi_shape){.channels = spec->channels,
                                .height = spec->height,
                                .width = spec->width,
                                .flat = spec->height == 1 && spec->width == 1};
}

/* A failure names its layer. */
static cddp_status with_name(const struct graph_builder *builder, size_t i, cddp_status status)
{
    return status == CDDP_OK
               ? CDDP_OK
               : cddpi_fail_prefix(status, "layer \"%s\"", builder->list->layers[i].name);
}

static cddp_status build(struct graph_builder *builder)
{
    struct cddpi_graph *graph = builder->graph;
    size_t count = builder->list->count;

    graph->values[CDDPI_VALUE_INPUT] = (struct cddpi_graph_value){
        .shape = data_shape(builder->spec), .producer = -1};
    graph->value_count = 1;
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(with_name(builder, i, link_layer(builder, i)));
    }
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(with_name(builder, i, fuse(builder, i) ? CDDP_OK : add_op(builder, i)));
    }
    CDDPI_TRY(check_outputs(builder));
    add_loss(builder);
    return CDDP_OK;
}

static cddp_status check_tokens(const struct cddpi_model_spec *spec)
{
    if (spec->vocab < 1 || spec->vocab > MAX_CHANNELS || spec->vocab != spec->classes) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "model: a vocabulary of %d tokens and %d classes is not possible: both "
                          "must be the same number",
                          spec->vocab, spec->classes);
    }
    if (spec->context < 1 || spec->context > MAX_SIDE) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "model: a context of %d tokens is not possible; 1 to %d are possible",
                          spec->context, MAX_SIDE);
    }
    if (spec->loss != CDDPI_LOSS_CROSS_ENTROPY) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: tokens are predicted with the loss "
                                           "cross_entropy only");
    }
    return CDDP_OK;
}

static cddp_status check_loss(const struct cddpi_model_spec *spec)
{
    if ((unsigned)spec->loss > CDDPI_LOSS_L1) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: there is no loss %d", (int)spec->loss);
    }
    if (!spec->real_targets) {
        return spec->loss != CDDPI_LOSS_L1
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_CONFIG,
                                "model.loss = \"l1\" is for data with real targets, but these data "
                                "have classes: use \"cross_entropy\"");
    }
    if (spec->loss != CDDPI_LOSS_MSE && spec->loss != CDDPI_LOSS_L1) {
        return cddpi_fail(CDDP_ERR_CONFIG, "the data have real targets, not classes: set "
                                           "model.loss to \"mse\" or \"l1\"");
    }
    return CDDP_OK;
}

static cddp_status check_images(const struct cddpi_model_spec *spec)
{
    if (spec->channels < 1 || spec->height < 1 || spec->width < 1 || spec->channels > MAX_SIDE ||
        spec->height > MAX_SIDE || spec->width > MAX_SIDE ||
        (size_t)spec->channels * (size_t)spec->height > max_elements / (size_t)spec->width) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: data of %d x %d x %d are not possible",
                          spec->channels, spec->height, spec->width);
    }
    if (spec->classes < 1 || spec->classes > MAX_CHANNELS) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: %d classes are not possible", spec->classes);
    }
    return check_loss(spec);
}

cddp_status cddpi_graph_build(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list,
                              struct cddpi_graph *out)
{
    struct cddpi_graph graph = {0};
    struct graph_builder builder = {spec, list, NULL, &graph};
    cddp_status status = spec->vocab != 0 ? check_tokens(spec) : check_images(spec);

    if (status != CDDP_OK) {
        return status;
    }
    builder.links = cddpi_zalloc_array(list->count, sizeof *builder.links);
    graph.ops = cddpi_zalloc_array(list->count + 1, sizeof *graph.ops);
    graph.values = cddpi_zalloc_array(list->count + 1, sizeof *graph.values);
    if (builder.links == NULL || graph.ops == NULL || graph.values == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for %zu layers", list->count);
    } else {
        status = build(&builder);
    }
    cddpi_free(builder.links);
    if (status != CDDP_OK) {
        cddpi_graph_fini(&graph);
        return status;
    }
    *out = graph;
    return CDDP_OK;
}

void cddpi_graph_fini(struct cddpi_graph *graph)
{
    cddpi_free(graph->ops);
    cddpi_free(graph->values);
    *graph = (struct cddpi_graph){0};
}
