/* results.c - owns what a model tells the host: sums of losses, which on a device are fetched
 * without waiting, and outputs; and what dropout on a device is told by the host. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"
#include "nn/ops/dropout.h"

#include <string.h>

cddp_status cddpi_model_drop_sums(struct cddpi_model *model)
{
    memset(model->sums, 0, sizeof model->sums);
    return model->cuda == NULL
               ? CDDP_OK
               : model->cuda->device->ops->clear(model->cuda->device, CDDPI_STREAM_COMPUTE,
                                                 model->cuda->sums, sizeof model->sums);
}

cddp_status cddpi_model_collect(struct cddpi_model *model, int count)
{
    unsigned place = (model->collected_first + model->collected_count) % CDDPI_MODEL_RESULTS;
    struct cddpi_collected *one = &model->collected[place];
    cddp_status status = CDDP_OK;

    if (model->collected_count == CDDPI_MODEL_RESULTS) {
        return cddpi_fail(CDDP_ERR_STATE, "model: %d results wait to be taken already",
                          CDDPI_MODEL_RESULTS);
    }
    one->result = (struct cddpi_result){.count = count};
    if (model->cuda != NULL) {
        struct cddpi_device *device = model->cuda->device;

        status = device->ops->copy(device, CDDPI_STREAM_COMPUTE, one->sums, model->cuda->sums,
                                   sizeof model->sums);
        if (status == CDDP_OK) {
            status = device->ops->record(device, one->event, CDDPI_STREAM_COMPUTE);
        }
    } else {
        one->result.loss_sum = model->sums[0];
        one->result.correct = (int)model->sums[1];
    }
    if (status == CDDP_OK) {
        status = cddpi_model_drop_sums(model);
    }
    model->collected_count += status == CDDP_OK ? 1 : 0;
    return status;
}

cddp_status cddpi_model_result(struct cddpi_model *model, struct cddpi_result *out)
{
    struct cddpi_collected *one = &model->collected[model->collected_first];

    if (model->collected_count == 0) {
        return cddpi_fail(CDDP_ERR_STATE, "model: no result was collected that is not taken yet");
    }
    if (model->cuda != NULL) {
        cddp_status status = cddpi_cuda_wait(model, one->event);

        if (status != CDDP_OK) {
            return status;
        }
        one->result.loss_sum = one->sums[0];
        one->result.correct = (int)one->sums[1];
    }
    *out = one->result;
    model->collected_first = (model->collected_first + 1) % CDDPI_MODEL_RESULTS;
    model->collected_count--;
    return CDDP_OK;
}

static cddp_status grow_read(struct cddpi_model_cuda *cuda, size_t bytes)
{
    void *memory = NULL;
    cddp_status status;

    if (bytes <= cuda->read_bytes) {
        return CDDP_OK;
    }
    cuda->device->ops->unpin(cuda->device, cuda->read);
    cuda->read = NULL;
    cuda->read_bytes = 0;
    status = cuda->device->ops->pin(cuda->device, bytes, &memory);
    if (status == CDDP_OK) {
        cuda->read = memory;
        cuda->read_bytes = bytes;
    }
    return status;
}

/* @p count outputs, of which the first lies at @p from, into cuda->read. */
static cddp_status fetch(const struct cddpi_model *model, const void *from, size_t count)
{
    struct cddpi_model_cuda *cuda = model->cuda;
    struct cddpi_device *device = cuda->device;
    size_t bytes = count * sizeof(float);
    void *cast = NULL;
    cddp_status status = grow_read(cuda, bytes);

    if (status == CDDP_OK && cuda->type != CDDP_F32) {
        status = device->ops->alloc(device, bytes, "outputs to be read", &cast);
        if (status == CDDP_OK) {
            status = cuda->kernels->cast(device, cuda->type, from, CDDP_F32, cast, count);
        }
        from = cast;
    }
    if (status == CDDP_OK) {
        status = device->ops->copy(device, CDDPI_STREAM_COMPUTE, cuda->read, from, bytes);
    }
    if (status == CDDP_OK) {
        status = device->ops->record(device, cuda->read_event, CDDPI_STREAM_COMPUTE);
    }
    device->ops->release(device, cast);
    return status == CDDP_OK ? cddpi_cuda_wait(model, cuda->read_event) : status;
}

cddp_status cddpi_model_read_outputs(struct cddpi_model *model, size_t first, size_t rows,
                                     float *out)
{
    size_t columns = (size_t)model->classes;
    size_t stride = model->outputs_stride;
    size_t all = (size_t)model->batch.count * (size_t)model->predictions;
    cddp_status status;

    if (model->outputs == NULL) {
        return cddpi_fail(CDDP_ERR_STATE, "model: there are no outputs of a last forward to read");
    }
    if (first > all || rows > all - first) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model: rows %zu to %zu of the outputs of %zu", first,
                          first + rows, all);
    }
    if (model->cuda == NULL) {
        memcpy(out, (const float *)model->outputs + first * columns, rows * columns * sizeof *out);
        return CDDP_OK;
    }
    if (rows == 0) {
        return CDDP_OK;
    }
    status = fetch(
        model, (const char *)model->outputs + first * stride * cddp_type_bytes(model->cuda->type),
        (rows - 1) * stride + columns);
    for (size_t i = 0; status == CDDP_OK && i < rows; i++) {
        memcpy(out + i * columns, model->cuda->read + i * stride, columns * sizeof *out);
    }
    return status;
}

size_t cddpi_model_draw_words(const struct cddpi_model *model, int count)
{
    return model->cuda != NULL ? (size_t)model->cuda->dropouts * (size_t)count * 4 : 0;
}

void cddpi_model_draws(const struct cddpi_model *model, uint64_t step, const uint64_t *sample_ids,
                       int count, uint32_t *out)
{
    for (int i = 0; model->cuda != NULL && i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->ops == &cddpi_op_dropout) {
            struct cddpi_philox stream = cddpi_dropout_stream(model, op, step);

            for (int n = 0; n < count; n++, out += 4) {
                cddpi_dropout_sample(&stream, sample_ids[n], out);
            }
        }
    }
}
