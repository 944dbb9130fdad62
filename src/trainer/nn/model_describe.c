/* model_describe.c - owns the readable table of a model. */
#include "base/alloc.h"
#include "base/env.h"
#include "nn/model_state.h"

#include <stdio.h>

/* Without the table that belongs to another layer. */
static size_t op_params(const struct cddpi_model *model, const struct cddpi_op *op)
{
    size_t count = 0;

    for (int k = op->layer.tied != NULL ? 1 : 0; k < CDDPI_OP_PARAMS; k++) {
        if (op->params[k] >= 0) {
            count += cddpi_tensor_elements(&model->params.items[op->params[k]]);
        }
    }
    return count;
}

static void write_shape(FILE *file, const struct cddpi_shape *shape)
{
    char text[64];

    if (shape->flat) {
        snprintf(text, sizeof text, "%d", shape->channels);
    } else if (shape->sequence) {
        snprintf(text, sizeof text, "%d x %d", shape->height, shape->channels);
    } else {
        snprintf(text, sizeof text, "%d x %d x %d", shape->channels, shape->height, shape->width);
    }
    fprintf(file, "  %-18s", text);
}

static void write_table(FILE *file, const struct cddpi_model *model)
{
    const struct cddpi_graph *graph = &model->graph;
    size_t total = 0;

    fprintf(file, "%-24s  %-20s  %-18s  %10s  %s\n", "layer", "type", "output", "parameters",
            "from");
    for (int i = 0; i < graph->op_count; i++) {
        const struct cddpi_op *op = &graph->ops[i];
        struct cddpi_shape shape = op->output >= 0 ? op->out : cddpi_shape_flat(1);
        char type[64];

        if (op->layer.tied != NULL) {
            snprintf(type, sizeof type, "%s (%s)", op->ops->name, op->layer.tied);
        } else {
            snprintf(type, sizeof type, "%s%s%s", op->ops->name,
                     op->ops == &cddpi_op_batch_norm && op->input_count > 1 ? " + add" : "",
                     op->relu   ? " + relu"
                     : op->gelu ? " + gelu"
                                : "");
        }
        fprintf(file, "%-24s  %-20s", op->layer.name, type);
        write_shape(file, &shape);
        fprintf(file, "  %10zu  ", op_params(model, op));
        for (int k = 0; k < op->input_count; k++) {
            int producer = graph->values[op->inputs[k]].producer;

            fprintf(file, "%s%s", k > 0 ? ", " : "",
                    producer < 0 ? "input" : graph->ops[producer].layer.name);
        }
        fputc('\n', file);
        total += op_params(model, op);
    }
    fprintf(file, "%s: %zu parameters in %zu tensors, data ", model->title, total,
            model->params.count);
    if (model->tokens_in) {
        fprintf(file, "%d tokens of %d\n", model->predictions, model->classes);
    } else {
        fprintf(file, "%d x %d x %d, %d classes\n", graph->values[0].shape.channels,
                graph->values[0].shape.height, graph->values[0].shape.width, model->classes);
    }
    fprintf(file, "products of %s\n", cddpi_model_matmul_note(model));
}

const char *cddpi_model_matmul_note(const struct cddpi_model *model)
{
    return model->ops->matmul_note(model);
}

void cddpi_model_arithmetic(const struct cddpi_model *model, char *out, size_t bytes)
{
    if (model->ops->arithmetic != NULL) {
        model->ops->arithmetic(model, out, bytes);
    } else {
        const char *products = cddpi_env(CDDPI_ENV_PRODUCTS);
        const char *tf32 = cddpi_env(CDDPI_ENV_TF32);

        snprintf(out, bytes, "%s, %s, CDDP_PRODUCTS=%s, CDDP_TF32=%s", model->device->title,
                 model->ops->matmul_note(model), products != NULL ? products : "",
                 tf32 != NULL ? tf32 : "0");
    }
}

const char *cddpi_model_precision_note(const struct cddpi_model *model)
{
    return model->ops->precision_note != NULL ? model->ops->precision_note(model) : NULL;
}

const char *cddpi_model_lone_norm(const struct cddpi_model *model)
{
    const struct cddpi_graph *graph = &model->graph;

    for (int i = 0; i < graph->op_count; i++) {
        const struct cddpi_op *op = &graph->ops[i];

        if (op->ops == &cddpi_op_batch_norm && op->in.height * op->in.width == 1 &&
            !cddpi_sync_norm_wanted(model, op)) {
            return op->layer.name;
        }
    }
    return NULL;
}

cddp_status cddpi_model_describe_plan(struct cddpi_model *model, int count, FILE *file)
{
    return model->ops->describe_plan(model, count, file);
}

char *cddpi_model_describe(const struct cddpi_model *model)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (file == NULL) {
        return NULL;
    }
    write_table(file, model);
    if (fclose(file) != 0) {
        cddpi_free(text);
        return NULL;
    }
    return text;
}
