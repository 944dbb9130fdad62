/* layer_bytes.c - owns the memory that each layer of a model takes, for code that divides layers
 * among ranks. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/model_state.h"

/* A parameter that several layers share counts for the first one. */
static void add_params(const struct cddpi_model *model, const struct cddpi_op *op, bool *counted,
                       struct cddpi_layer_bytes *out)
{
    for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
        int param = op->params[k];

        if (param >= 0 && !counted[param]) {
            counted[param] = true;
            out->parameters += cddpi_tensor_elements(&model->params.items[param]) * sizeof(float);
        }
    }
}

cddp_status cddpi_model_layer_bytes(const struct cddpi_model_spec *spec, int samples,
                                    struct cddpi_layer_bytes **out, int *out_count)
{
    struct cddpi_model_spec whole = *spec;
    struct cddpi_layer_bytes *bytes = NULL;
    struct cddpi_model *model = NULL;
    bool *counted = NULL;

    whole.part = (struct cddpi_layer_range){0, 0};
    CDDPI_TRY(cddpi_model_create(&whole, 1, NULL, &model));
    bytes = cddpi_zalloc_array(model->list.count, sizeof *bytes);
    counted = cddpi_zalloc_array(model->params.count + 1, sizeof *counted);
    if (bytes == NULL || counted == NULL) {
        cddpi_free(bytes);
        cddpi_free(counted);
        cddpi_model_destroy(model);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to count that of its layers");
    }
    for (int i = 0; i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->output >= 0) { /* the loss has no output */
            add_params(model, op, counted, &bytes[op->number]);
            bytes[op->number].activations += (size_t)samples * cddpi_shape_elements(&op->out) *
                                             sizeof(float);
            bytes[op->number].is_own = true;
        }
    }
    *out = bytes;
    *out_count = (int)model->list.count;
    cddpi_free(counted);
    cddpi_model_destroy(model);
    return CDDP_OK;
}
