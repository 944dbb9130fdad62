/* outputs.c - owns a model's results: outputs, and sums of losses, which on a device are fetched
 * without waiting. */
#include "base/error.h"
#include "nn/model_state.h"

#include <string.h>

enum { SUMS_BYTES = sizeof(struct cddpi_loss_totals) };

cddp_status cddpi_model_create_outputs(struct cddpi_model *model)
{
    struct cddpi_device *device = model->device;
    void *memory = NULL;

    CDDPI_TRY(device->ops->alloc(device, SUMS_BYTES, "sums of losses", &memory));
    model->sums.now = memory;
    CDDPI_TRY(cddpi_model_reset_sums(model));
    for (int i = 0; i < CDDPI_MODEL_COLLECTED; i++) {
        struct cddpi_collected *one = &model->sums.collected[i];

        CDDPI_TRY(device->ops->pin(device, SUMS_BYTES, &memory));
        one->sums = memory;
        CDDPI_TRY(device->ops->event_create(device, false, &one->event));
    }
    return CDDP_OK;
}

void cddpi_model_release_outputs(struct cddpi_model *model)
{
    struct cddpi_device *device = model->device;

    for (int i = 0; i < CDDPI_MODEL_COLLECTED; i++) {
        device->ops->event_destroy(device, model->sums.collected[i].event);
        device->ops->unpin(device, model->sums.collected[i].sums);
    }
    device->ops->release(device, model->sums.now);
}

cddp_status cddpi_model_reset_sums(struct cddpi_model *model)
{
    return model->device->ops->clear(model->device, CDDPI_STREAM_COMPUTE, model->sums.now,
                                     SUMS_BYTES);
}

cddp_status cddpi_model_collect(struct cddpi_model *model, int count)
{
    unsigned place = (model->sums.first + model->sums.count) % CDDPI_MODEL_COLLECTED;
    struct cddpi_collected *one = &model->sums.collected[place];
    struct cddpi_device *device = model->device;

    if (model->sums.count == CDDPI_MODEL_COLLECTED) {
        return cddpi_fail(CDDP_ERR_STATE, "model: %d results wait to be taken already",
                          CDDPI_MODEL_COLLECTED);
    }
    one->result = (struct cddpi_loss_result){.count = count};
    CDDPI_TRY(
        device->ops->copy(device, CDDPI_STREAM_COMPUTE, one->sums, model->sums.now, SUMS_BYTES));
    CDDPI_TRY(device->ops->record(device, one->event, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(cddpi_model_reset_sums(model));
    model->sums.count++;
    return CDDP_OK;
}

cddp_status cddpi_model_result(struct cddpi_model *model, struct cddpi_loss_result *out)
{
    struct cddpi_collected *one = &model->sums.collected[model->sums.first];

    if (model->sums.count == 0) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "model: there is no collected result that was not taken yet");
    }
    CDDPI_TRY(model->device->ops->wait(model->device, one->event, model->timeout_ms));
    one->result.loss_sum = cddpi_exact_value(&one->sums->losses);
    one->result.exact = &one->sums->losses;
    one->result.correct = (int)one->sums->correct;
    *out = one->result;
    model->sums.first = (model->sums.first + 1) % CDDPI_MODEL_COLLECTED;
    model->sums.count--;
    return CDDP_OK;
}

cddp_status cddpi_model_read_outputs(struct cddpi_model *model, size_t first, size_t rows,
                                     float *out)
{
    size_t columns = (size_t)model->classes;
    size_t stride = model->last.outputs_stride;
    size_t all = (size_t)model->last.batch.count * (size_t)model->predictions;
    const float *from = NULL;

    if (model->last.outputs == NULL) {
        return cddpi_fail(CDDP_ERR_STATE, "model: there are no outputs of a last forward to read");
    }
    if (first > all || rows > all - first) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model: rows %zu to %zu of the outputs of %zu", first,
                          first + rows, all);
    }
    if (rows == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(model->ops->read(model, first * stride, (rows - 1) * stride + columns, &from));
    if (stride == columns) {
        memcpy(out, from, rows * columns * sizeof *out);
        return CDDP_OK;
    }
    for (size_t i = 0; i < rows; i++) {
        memcpy(out + i * columns, from + i * stride, columns * sizeof *out);
    }
    return CDDP_OK;
}

cddp_status cddpi_model_send_outputs(struct cddpi_model *model, float *out)
{
    struct cddpi_exec exec = {
        .model = model, .plan = model->last.pending, .batch = &model->last.batch};
    size_t count = (size_t)model->last.batch.count * (size_t)model->classes;

    if (count == 0) {
        return CDDP_OK;
    }
    if (exec.plan == NULL || !cddpi_model_has_loss(model) || model->tokens_in) {
        return cddpi_fail(CDDP_ERR_STATE, "model: there are no outputs of a last forward to send");
    }
    exec.op = &model->graph.ops[model->graph.op_count - 1];
    return model->device->ops->copy(model->device, CDDPI_STREAM_COMPUTE, out,
                                    cddpi_exec_input(&exec, 0), count * sizeof *out);
}
