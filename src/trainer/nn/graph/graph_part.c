/* graph_part.c - cuts a graph. It copies the ops of some layers; each value that crosses a cut gets
 * an op that receives it at the part's beginning, or one that sends it at the part's end. A value
 * that only passes through is received and sent. */
#include "nn/graph/graph.h"

#include "base/alloc.h"
#include "base/error.h"

struct graph_part_cut {
    enum cddpi_device_kind kind;
    const struct cddpi_graph *whole;
    struct cddpi_graph *graph;
    struct cddpi_part *part;
    int *mapped;    /* for each of the whole graph's values the part's value; -1: the part does not
                       have it */
    int first, end; /* range of the whole graph's ops */
    cddp_type edge_type;
};

/* Whether the whole graph's op @p index or a later one reads @p value. */
static bool read_from(const struct cddpi_graph *whole, int value, int index)
{
    for (int i = index; i < whole->op_count; i++) {
        for (int k = 0; k < whole->ops[i].input_count; k++) {
            if (whole->ops[i].inputs[k] == value) {
                return true;
            }
        }
    }
    return false;
}

/* Whether @p value is computed before op @p index of the whole graph, and read by that op or later
 * ones. */
static bool crosses(const struct cddpi_graph *whole, int value, int index)
{
    return whole->values[value].producer < index && read_from(whole, value, index);
}

static const char *name_of(const struct cddpi_graph *whole, int value)
{
    int producer = whole->values[value].producer;

    return producer < 0 ? "input" : whole->ops[producer].layer.name;
}

static int add_value(struct graph_part_cut *cut, int origin, int producer)
{
    int value = cut->graph->value_count++;

    cut->graph->values[value] = cut->whole->values[origin];
    cut->graph->values[value].producer = producer;
    cut->graph->values[value].uses = 0;
    cut->part->origin[value] = origin;
    cut->mapped[origin] = value;
    return value;
}

static struct cddpi_op *add_op(struct graph_part_cut *cut, const struct cddpi_op_ops *ops,
                               int value)
{
    struct cddpi_op *op = &cut->graph->ops[cut->graph->op_count++];

    *op = (struct cddpi_op){.ops = ops,
                            .kernels = ops->on[cut->kind],
                            .layer = {.name = name_of(cut->whole, cut->part->origin[value])},
                            .output = -1,
                            .params = CDDPI_OP_NO_PARAMS,
                            .buffers = CDDPI_OP_NO_PARAMS,
                            .in = cut->graph->values[value].shape,
                            .out = cut->graph->values[value].shape};
    return op;
}

static void add_edge(struct graph_part_cut *cut, struct cddpi_edges *edges, int value)
{
    const struct cddpi_graph_value *from = &cut->graph->values[value];

    edges->items[edges->count] = (struct cddpi_edge){
        .layer = name_of(cut->whole, cut->part->origin[value]),
        .elements = cddpi_shape_elements(&from->shape),
        .type = value != CDDPI_VALUE_INPUT ? cut->edge_type : CDDP_F32,
        .has_grad = from->needs_grad};
    edges->values[edges->count++] = value;
}

/* If the part begins with the first layer, the data come from the batch. */
static cddp_status receive_all(struct graph_part_cut *cut)
{
    for (int v = 0; cut->first > 0 && v < cut->whole->value_count; v++) {
        int value;

        if (!crosses(cut->whole, v, cut->first)) {
            continue;
        }
        if (v == CDDPI_VALUE_INPUT && cut->whole->values[v].shape.sequence) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "model: layers behind the cut before \"%s\" read the data's tokens, "
                              "which cannot be handed from part to part",
                              cut->whole->ops[cut->first].layer.name);
        }
        value = add_value(cut, v, cut->graph->op_count);
        add_op(cut, &cddpi_op_receive, value)->output = value;
        add_edge(cut, &cut->part->in, value);
    }
    return CDDP_OK;
}

static void copy_ops(struct graph_part_cut *cut)
{
    for (int i = cut->first; i < cut->end; i++) {
        struct cddpi_op *op = &cut->graph->ops[cut->graph->op_count];

        *op = cut->whole->ops[i];
        for (int k = 0; k < op->input_count; k++) {
            op->inputs[k] = cut->mapped[op->inputs[k]];
            cut->graph->values[op->inputs[k]].uses++;
        }
        if (op->output >= 0) {
            op->output = add_value(cut, op->output, cut->graph->op_count);
        }
        cut->graph->op_count++;
    }
}

static void send_all(struct graph_part_cut *cut)
{
    for (int v = 0; v < cut->whole->value_count; v++) {
        if (crosses(cut->whole, v, cut->end)) {
            int value = cut->mapped[v];
            struct cddpi_op *op = add_op(cut, &cddpi_op_send, value);

            op->inputs[0] = value;
            op->input_count = 1;
            cut->graph->values[value].uses++;
            add_edge(cut, &cut->part->out, value);
        }
    }
}

static bool allocate_edges(struct cddpi_edges *edges, size_t most)
{
    edges->items = cddpi_zalloc_array(most, sizeof *edges->items);
    edges->values = cddpi_zalloc_array(most, sizeof *edges->values);
    edges->data = cddpi_zalloc_array(most, sizeof *edges->data);
    edges->grads = cddpi_zalloc_array(most, sizeof *edges->grads);
    return edges->items != NULL && edges->values != NULL && edges->data != NULL &&
           edges->grads != NULL;
}

static bool allocate(struct graph_part_cut *cut)
{
    size_t values = (size_t)cut->whole->value_count + 1;

    cut->mapped = cddpi_zalloc_array(values, sizeof *cut->mapped);
    cut->part->origin = cddpi_zalloc_array(values, sizeof *cut->part->origin);
    cut->graph->values = cddpi_zalloc_array(values, sizeof *cut->graph->values);
    /* besides the layers' ops, one to receive and one to send each value */
    cut->graph->ops = cddpi_zalloc_array((size_t)cut->whole->op_count + 2 * values,
                                         sizeof *cut->graph->ops);
    return cut->mapped != NULL && cut->part->origin != NULL && cut->graph->values != NULL &&
           cut->graph->ops != NULL && allocate_edges(&cut->part->in, values) &&
           allocate_edges(&cut->part->out, values);
}

/* The ops of layers [first, end); the loss belongs to the last layer. */
static cddp_status find_ops(struct graph_part_cut *cut, const struct cddpi_layer_list *list,
                            struct cddpi_layer_range range, enum cddpi_part_loss part_loss)
{
    const struct cddpi_graph *whole = cut->whole;
    int loss = whole->op_count - 1;

    if (part_loss == CDDPI_PART_LOSS_ALONE) {
        cut->first = loss;
        cut->end = loss + 1;
        return CDDP_OK;
    }
    if (range.first < 0 || range.end <= range.first || (size_t)range.end > list->count) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: layers %d to %d of %zu cannot be a part",
                          range.first + 1, range.end, list->count);
    }
    cut->first = 0;
    while (cut->first < loss && (int)whole->ops[cut->first].number < range.first) {
        cut->first++;
    }
    cut->end = cut->first;
    while (cut->end < loss && (int)whole->ops[cut->end].number < range.end) {
        cut->end++;
    }
    if (cut->end == cut->first) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "model: layers \"%s\" to \"%s\" cannot be a part: the layer before does "
                          "their work in its own pass",
                          list->layers[range.first].name, list->layers[range.end - 1].name);
    }
    cut->end += (size_t)range.end == list->count && part_loss == CDDPI_PART_WITH_LOSS ? 1 : 0;
    return CDDP_OK;
}

static bool has_own_edges(const struct cddpi_model_spec *spec)
{
    return spec->own_edges && spec->device->ops->kind != CDDPI_DEVICE_CPU;
}

cddp_status cddpi_part_cut(const struct cddpi_model_spec *spec, const struct cddpi_layer_list *list,
                           struct cddpi_graph *whole, struct cddpi_part *part,
                           struct cddpi_graph *out)
{
    struct cddpi_graph graph = {0};
    struct graph_part_cut cut = {
        .kind = spec->device->ops->kind, .whole = &part->whole, .graph = &graph, .part = part};
    static const cddp_type types[] = {[CDDPI_PRECISION_F32] = CDDP_F32,
                                      [CDDPI_PRECISION_BF16] = CDDP_BF16,
                                      [CDDPI_PRECISION_FP16] = CDDP_F16};
    cddp_status status;

    cut.edge_type = has_own_edges(spec) ? types[spec->precision] : CDDP_F32;
    part->own_edges = has_own_edges(spec);
    part->whole = *whole;
    *whole = (struct cddpi_graph){0};
    CDDPI_TRY(find_ops(&cut, list, spec->part, spec->part_loss));
    if (!allocate(&cut)) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for a part of %zu layers",
                            list->count);
        goto fail;
    }
    for (int v = 0; v < part->whole.value_count; v++) {
        cut.mapped[v] = -1;
    }
    graph.values[CDDPI_VALUE_INPUT] = part->whole.values[CDDPI_VALUE_INPUT];
    graph.values[CDDPI_VALUE_INPUT].uses = 0;
    graph.value_count = 1;
    cut.mapped[CDDPI_VALUE_INPUT] = CDDPI_VALUE_INPUT;
    CDDPI_TRY_GOTO(fail, status, receive_all(&cut));
    copy_ops(&cut);
    send_all(&cut);
    cddpi_free(cut.mapped);
    *out = graph;
    return CDDP_OK;

fail:
    cddpi_free(cut.mapped);
    cddpi_graph_fini(&graph);
    return status;
}

static void fini_edges(struct cddpi_edges *edges)
{
    cddpi_free(edges->items);
    cddpi_free(edges->values);
    cddpi_free(edges->data);
    cddpi_free(edges->grads);
}

void cddpi_part_fini(struct cddpi_part *part)
{
    fini_edges(&part->in);
    fini_edges(&part->out);
    cddpi_graph_fini(&part->whole);
    cddpi_free(part->origin);
    cddpi_free(part->param_numbers);
}
