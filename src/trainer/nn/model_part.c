/* model_part.c - owns what a part of a model has in addition to a whole one: the numbers of its
 * parameters in the whole model, and its edges. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/model_state.h"

/* Returns the numbers of an op's parameters, or of its buffers. */
typedef int *(*numbers_fn)(struct cddpi_op *op);

static int *params_of(struct cddpi_op *op)
{
    return op->params;
}

static int *buffers_of(struct cddpi_op *op)
{
    return op->buffers;
}

static void renumber(struct cddpi_graph *graph, numbers_fn of, int from, int to)
{
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
            int *number = &of(&graph->ops[i])[k];

            *number = *number == from ? to : *number;
        }
    }
}

static bool reads(struct cddpi_graph *graph, numbers_fn of, int number)
{
    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
            if (of(&graph->ops[i])[k] == number) {
                return true;
            }
        }
    }
    return false;
}

/* Drop the tensors that no op of the graph uses. *@p from receives the old number of each remaining
 * tensor. */
static void keep_read(struct cddpi_graph *graph, struct cddpi_tensors *tensors, numbers_fn of,
                      uint32_t *from)
{
    size_t kept = 0;

    for (size_t i = 0; i < tensors->count; i++) {
        if (!reads(graph, of, (int)i)) {
            cddpi_free((char *)tensors->items[i].name);
            continue;
        }
        /* kept <= i, so no tensor still to come has the number `kept` */
        renumber(graph, of, (int)i, (int)kept);
        tensors->items[kept] = tensors->items[i];
        from[kept++] = (uint32_t)i;
    }
    tensors->count = kept;
}

cddp_status cddpi_model_cut(struct cddpi_model *model, const struct cddpi_model_spec *spec)
{
    uint32_t *numbers;

    model->part = cddpi_zalloc(sizeof *model->part);
    CDDPI_TRY_MEMORY(model->part != NULL, "model: no memory for %zu bytes", sizeof *model->part);
    CDDPI_TRY(cddpi_part_cut(spec, &model->list, &model->graph, model->part, &model->graph));
    model->part->param_numbers = cddpi_zalloc_array(model->params.count + model->buffers.count,
                                                    sizeof *model->part->param_numbers);
    CDDPI_TRY_MEMORY(model->part->param_numbers != NULL, "model: no memory for %zu parameters",
                     model->params.count);
    numbers = model->part->param_numbers;
    keep_read(&model->graph, &model->buffers, buffers_of, numbers);
    for (size_t i = 0; i < model->buffers.count; i++) {
        model->first_values[i] = model->first_values[numbers[i]];
    }
    keep_read(&model->graph, &model->params, params_of, numbers); /* it overwrites them */
    for (size_t i = 0; i < model->params.count; i++) {
        model->param_states[i] = model->param_states[numbers[i]];
    }
    return CDDP_OK;
}

bool cddpi_model_has_loss(const struct cddpi_model *model)
{
    return model->graph.ops[model->graph.op_count - 1].ops == &cddpi_op_loss;
}

bool cddpi_model_reads_data(const struct cddpi_model *model)
{
    return model->graph.values[CDDPI_VALUE_INPUT].uses > 0;
}

const struct cddpi_edge *cddpi_model_edges(const struct cddpi_model *model,
                                           enum cddpi_edge_side side, size_t *out_count)
{
    const struct cddpi_edges *edges;

    *out_count = 0;
    if (model->part == NULL) {
        return NULL;
    }
    edges = cddpi_part_edges(model->part, side);
    *out_count = edges->count;
    return edges->items;
}

void cddpi_model_bind_edge(struct cddpi_model *model, enum cddpi_edge_side side, size_t index,
                           void *data, void *grad)
{
    struct cddpi_edges *edges = cddpi_part_edges(model->part, side);

    edges->data[index] = data;
    edges->grads[index] = grad;
}

void cddpi_model_place_param(struct cddpi_model *model, size_t index, void *data)
{
    if (!model->param_states[index].is_shared) {
        cddpi_free(model->params.items[index].data);
    }
    model->params.items[index].data = data;
    model->param_states[index].is_shared = true;
}

void cddpi_model_begin_grad(struct cddpi_model *model, size_t index)
{
    struct cddpi_param_state *state = &model->param_states[index];

    if (!state->is_begun) {
        state->is_begun = true;
        state->grads_expected++;
    }
}

cddp_status cddpi_model_share_param(struct cddpi_model *model, size_t index,
                                    struct cddpi_model *owner, size_t owner_index, bool shares_grad)
{
    if (cddpi_device_is_async(model->device) || cddpi_device_is_async(owner->device)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "model: %s is read by two parts, which share it only on processors",
                          model->params.items[index].name);
    }
    cddpi_model_place_param(model, index, owner->params.items[owner_index].data);
    if (shares_grad) {
        cddpi_model_begin_grad(owner, owner_index);
    }
    return CDDP_OK;
}

void cddpi_model_release_part(struct cddpi_model *model)
{
    if (model->part != NULL) {
        cddpi_part_fini(model->part);
        cddpi_free(model->part);
    }
}
