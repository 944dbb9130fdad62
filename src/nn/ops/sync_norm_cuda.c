/* sync_norm_cuda.c - owns batch normalisation over all ranks' batches on a device: what a rank has
 * summed up goes to all others in stream order, and nobody waits for it but what comes behind.
 *
 * As on the processor (sync_norm.c), but that backward gathers the ranks' sums, too, instead of
 * reducing them: every rank then adds them in rank order, whatever carries them. */
#include "base/error.h"
#include "group/on_device.h"
#include "nn/cuda.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm.h"

/* What a rank says of a batch of so many channels, in forward; backward has one less to say. */
static size_t record_doubles(size_t channels)
{
    return 1 + 2 * channels;
}

/* cuda->exchange: this rank's record, all ranks' records, and what an idle rank has no plan for: a
 * count, means and deviations. */
static double *all_records(const struct cddpi_model *model)
{
    return model->cuda->exchange + model->cuda->exchange_record;
}

static double *idle_rows(const struct cddpi_model *model)
{
    return all_records(model) +
           (size_t)cddp_group_world_size(model->group) * model->cuda->exchange_record;
}

static cddp_status check(const struct cddpi_model *model, const struct cddpi_op *op)
{
    const struct cddpi_device *device = model->cuda->device;

    if (cddpi_group_on_device(model->group) == device) {
        return CDDP_OK;
    }
    return cddpi_fail(
        CDDP_ERR_CONFIG,
        "layer \"%s\": batch_norm with sync (statistics over all ranks) needs a group "
        "on the model's device, %s %d: this one's memory is elsewhere",
        op->layer.name, device->ops->name, device->index);
}

cddp_status cddpi_cuda_sync_norm_create(struct cddpi_model *model)
{
    struct cddpi_device *device = model->cuda->device;
    size_t most = 0;
    size_t doubles;
    void *memory = NULL;
    cddp_status status;

    for (int i = 0; i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->ops == &cddpi_op_batch_norm && cddpi_sync_norm_wanted(model, op)) {
            status = check(model, op);
            if (status != CDDP_OK) {
                return status;
            }
            most = (size_t)op->in.channels > most ? (size_t)op->in.channels : most;
        }
    }
    if (most == 0) {
        return CDDP_OK;
    }
    /* records begin at multiples of 64 bytes */
    model->cuda->exchange_record = (record_doubles(most) + 7) / 8 * 8;
    doubles = (1 + (size_t)cddp_group_world_size(model->group)) * model->cuda->exchange_record + 1 +
              most; /* two floats each */
    status = device->ops->alloc(device, doubles * sizeof(double), "statistics over ranks", &memory);
    model->cuda->exchange = memory;
    return status;
}

/* @p doubles of each rank, from the front of the exchange to behind it. */
static cddp_status gather(const struct cddpi_run *run, size_t doubles)
{
    struct cddpi_model *model = run->model;
    cddp_status status;

    cddpi_group_label(model->group, run->op->layer.name);
    status = cddp_all_gather(model->group, model->cuda->exchange, all_records(model), doubles,
                             CDDP_F64, NULL);
    cddpi_group_label(model->group, NULL);
    return status;
}

static cddp_status merge(const struct cddpi_run *run, const struct cddpi_cuda_norm *shape,
                         float *mean, float *inverse, double *rows)
{
    cddp_status status = gather(run, record_doubles((size_t)shape->channels));

    return status == CDDP_OK
               ? cddpi_run_kernels(run)->batch_norm_merge(
                     cddpi_run_device(run), shape, all_records(run->model),
                     cddp_group_world_size(run->model->group), cddpi_run_running(run, 0),
                     cddpi_run_running(run, 1), mean, inverse, rows)
               : status;
}

cddp_status cddpi_cuda_sync_norm_forward(struct cddpi_run *run,
                                         const struct cddpi_cuda_sync_norm *norm)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    struct cddpi_device *device = cddpi_run_device(run);
    float *mean = cddpi_run_buffer(run, norm->mean);
    float *inverse = cddpi_run_buffer(run, norm->inverse);
    cddp_status status = kernels->batch_norm_record(device, &norm->shape, cddpi_run_input(run, 0),
                                                    run->model->cuda->exchange);

    if (status == CDDP_OK) {
        status = merge(run, &norm->shape, mean, inverse, cddpi_run_buffer(run, norm->rows));
    }
    return status == CDDP_OK ? kernels->batch_norm_apply(
                                   device, &norm->shape, cddpi_run_input(run, 0),
                                   run->op->input_count > 1 ? cddpi_run_input(run, 1) : NULL,
                                   cddpi_run_param(run, 0), cddpi_run_param(run, 1), mean, inverse,
                                   cddpi_run_output(run))
                             : status;
}

cddp_status cddpi_cuda_sync_norm_backward(struct cddpi_run *run,
                                          const struct cddpi_cuda_sync_norm *norm, void *grad_input)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    struct cddpi_device *device = cddpi_run_device(run);
    const float *mean = cddpi_run_buffer(run, norm->mean);
    const float *inverse = cddpi_run_buffer(run, norm->inverse);
    cddp_status status = kernels->batch_norm_grad_record(
        device, &norm->shape, cddpi_run_grad_output(run, 0), cddpi_run_input(run, 0),
        cddpi_run_output(run), mean, inverse, cddpi_run_adds(run, 0), run->scale,
        cddpi_run_grad(run, 0), cddpi_run_grad(run, 1), run->model->cuda->exchange);

    if (status == CDDP_OK) {
        status = gather(run, 2 * (size_t)norm->shape.channels);
    }
    if (status == CDDP_OK) {
        status = kernels->batch_norm_grad_apply(
            device, &norm->shape, cddpi_run_grad_output(run, 0), cddpi_run_input(run, 0),
            cddpi_run_output(run), cddpi_run_param(run, 0), mean, inverse, all_records(run->model),
            cddp_group_world_size(run->model->group), cddpi_run_buffer(run, norm->rows), run->scale,
            grad_input, run->op->input_count > 1 ? cddpi_run_grad_input(run, 1) : NULL);
    }
    return status == CDDP_OK ? cddpi_run_ready_both(run) : status;
}

/* A record of no rows, and sums of none, are zeros. */
static cddp_status say_nothing(const struct cddpi_run *run, size_t doubles)
{
    struct cddpi_device *device = cddpi_run_device(run);

    return device->ops->clear(device, CDDPI_STREAM_COMPUTE, run->model->cuda->exchange,
                              doubles * sizeof(double));
}

cddp_status cddpi_cuda_sync_norm_idle_forward(struct cddpi_run *run)
{
    const struct cddpi_op *op = run->op;
    struct cddpi_cuda_norm shape = {.type = cddpi_run_type(run),
                                    .channels = op->in.channels,
                                    .epsilon = (float)op->layer.epsilon,
                                    .momentum = (float)op->layer.momentum};
    double *rows = idle_rows(run->model);
    float *mean = (float *)(void *)(rows + 1);
    cddp_status status = say_nothing(run, record_doubles((size_t)shape.channels));

    return status == CDDP_OK ? merge(run, &shape, mean, mean + shape.channels, rows) : status;
}

cddp_status cddpi_cuda_sync_norm_idle_backward(struct cddpi_run *run)
{
    size_t doubles = 2 * (size_t)run->op->in.channels;
    cddp_status status = say_nothing(run, doubles);

    return status == CDDP_OK ? gather(run, doubles) : status;
}
