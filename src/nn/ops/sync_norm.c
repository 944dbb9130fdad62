/* sync_norm.c - owns batch normalisation whose statistics are those of all ranks' batches together,
 * and that of one rank's batch where oneDNN has no kernel for it.
 *
 * Forward: every rank gathers every rank's (count, mean, sum of squared deviations) and merges them
 * in rank order (Chan, Golub and LeVeque), in float64: no difference of large sums, and the same
 * bits on every rank. Backward: the two sums over the whole batch that the derivative needs are
 * all-reduced. Each rank's gradients come scaled by a factor of its own (say 1 / its samples), so
 * these sums travel without it. A rank without samples takes part with zeros. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_elementwise.h"
#include "kernels/cpu/nn_norm.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm.h"

#include <math.h>
#include <string.h>

bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op)
{
    return op->layer.sync && model->group != NULL && cddp_group_world_size(model->group) > 1;
}

cddp_status cddpi_sync_norm_plan(struct cddpi_plan *plan, int index, bool alone,
                                 struct cddpi_sync_norm *norm)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t bytes = (size_t)op->in.channels * sizeof(float);
    cddp_status status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &norm->mean);

    norm->alone = alone;
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE |
                             (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD | CDDPI_SUMS_GRADS
                                       : 0u);
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &norm->variance);
    }
    return status == CDDP_OK
               ? cddpi_plan_buffer(plan, index, sizeof(double), CDDPI_IN_BOTH, &norm->count)
               : status;
}

static struct cddpi_nn_layout layout_of(const struct cddpi_run *run)
{
    const struct cddpi_shape *in = &run->op->in;

    return (struct cddpi_nn_layout){(size_t)run->plan->count, (size_t)in->channels,
                                    (size_t)in->height * (size_t)in->width,
                                    (size_t)run->plan->values[run->op->output].block};
}

/* Count, means, sums of squared deviations: what a rank says of its batch. */
static size_t record_doubles(const struct cddpi_op *op)
{
    return 1 + 2 * (size_t)op->in.channels;
}

static void merge(double *into, const double *from, size_t channels)
{
    double count = into[0] + from[0];

    if (from[0] == 0) {
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        double *mean = &into[1 + c];
        double *squares = &into[1 + channels + c];
        double difference = from[1 + c] - *mean;

        *mean += difference * (from[0] / count);
        *squares += from[1 + channels + c] + difference * difference * (into[0] * from[0] / count);
    }
    into[0] = count;
}

/* Exchange the record at the front of @p memory, which has room for one more from each rank behind
 * it; the merged one ends at the front. */
static cddp_status exchange(const struct cddpi_run *run, double *memory)
{
    cddp_group *group = run->model->group;
    size_t channels = (size_t)run->op->in.channels;
    size_t doubles = record_doubles(run->op);
    double *all = memory + doubles;
    cddp_status status = cddp_all_gather(group, memory, all, doubles, CDDP_F64, NULL);

    if (status != CDDP_OK) {
        return status;
    }
    memset(memory, 0, doubles * sizeof *memory);
    for (int rank = 0; rank < cddp_group_world_size(group); rank++) {
        merge(memory, all + (size_t)rank * doubles, channels);
    }
    return CDDP_OK;
}

static double *new_records(const struct cddpi_run *run, bool alone)
{
    size_t ranks = alone ? 1 : (size_t)cddp_group_world_size(run->model->group);

    return cddpi_zalloc_array((ranks + 1) * record_doubles(run->op), sizeof(double));
}

static cddp_status no_memory(const struct cddpi_run *run)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "batch_norm: no memory for statistics of %d channels",
                      run->op->in.channels);
}

/* The moments of this rank's batch. The mean is rounded once, before deviations are taken from it:
 * their sum of squares is then exact about that mean. */
static void measure(const struct cddpi_run *run, float *mean, double *record)
{
    struct cddpi_nn_layout layout = layout_of(run);
    size_t channels = layout.channels;
    double count = (double)layout.samples * (double)layout.spatial;

    record[0] = count;
    cddpi_nn_channel_sums(cddpi_run_input(run, 0), &layout, record + 1);
    for (size_t c = 0; c < channels; c++) {
        mean[c] = (float)(record[1 + c] / count);
        record[1 + c] = (double)mean[c];
    }
    cddpi_nn_channel_squares(cddpi_run_input(run, 0), &layout, mean, record + 1 + channels);
}

static void take(const struct cddpi_run *run, const double *record, float *mean, float *variance)
{
    size_t channels = (size_t)run->op->in.channels;

    for (size_t c = 0; c < channels && record[0] > 0; c++) {
        mean[c] = (float)record[1 + c];
        variance[c] = (float)(record[1 + channels + c] / record[0]);
    }
    if (record[0] > 0) {
        cddpi_batch_norm_update(run, mean, variance, record[0]);
    }
}

cddp_status cddpi_sync_norm_forward(struct cddpi_run *run, const struct cddpi_sync_norm *norm)
{
    struct cddpi_nn_layout layout = layout_of(run);
    float *mean = cddpi_run_buffer(run, norm->mean);
    float *variance = cddpi_run_buffer(run, norm->variance);
    double *records = new_records(run, norm->alone);
    float *factor;
    cddp_status status;

    if (records == NULL) {
        return no_memory(run);
    }
    measure(run, mean, records);
    status = norm->alone ? CDDP_OK : exchange(run, records);
    if (status == CDDP_OK) {
        take(run, records, mean, variance);
        *(double *)cddpi_run_buffer(run, norm->count) = records[0];
        factor = (float *)(void *)records; /* the records are done with */
        for (size_t c = 0; c < layout.channels; c++) {
            factor[c] = (float)((double)cddpi_run_param(run, 0)[c] /
                                sqrt((double)variance[c] + run->op->layer.epsilon));
        }
        cddpi_nn_normalize(cddpi_run_input(run, 0), &layout, mean, factor, cddpi_run_param(run, 1),
                           run->op->relu, cddpi_run_output(run));
    }
    cddpi_free(records);
    return status;
}

cddp_status cddpi_sync_norm_evaluate(struct cddpi_run *run)
{
    struct cddpi_nn_layout layout = layout_of(run);
    float *factor = cddpi_zalloc_array(layout.channels, sizeof *factor);

    if (factor == NULL) {
        return no_memory(run);
    }
    for (size_t c = 0; c < layout.channels; c++) {
        factor[c] = (float)((double)cddpi_run_param(run, 0)[c] /
                            sqrt((double)cddpi_run_running(run, 1)[c] + run->op->layer.epsilon));
    }
    cddpi_nn_normalize(cddpi_run_input(run, 0), &layout, cddpi_run_running(run, 0), factor,
                       cddpi_run_param(run, 1), run->op->relu, cddpi_run_output(run));
    cddpi_free(factor);
    return CDDP_OK;
}

cddp_status cddpi_sync_norm_idle_forward(struct cddpi_run *run)
{
    size_t channels = (size_t)run->op->in.channels;
    double *records = new_records(run, false);
    float *statistics = cddpi_zalloc_array(channels, 2 * sizeof *statistics);
    cddp_status status;

    if (records == NULL || statistics == NULL) {
        status = no_memory(run);
    } else {
        status = exchange(run, records);
    }
    if (status == CDDP_OK) {
        take(run, records, statistics, statistics + channels);
    }
    cddpi_free(statistics);
    cddpi_free(records);
    return status;
}

/* The parameters' gradients, of this rank's batch alone: ddp brings the ranks' together. */
static void add_param_grads(const struct cddpi_run *run, const double *sums, const float *variance)
{
    size_t channels = (size_t)run->op->in.channels;
    float *scale = cddpi_run_grad(run, 0);
    float *shift = cddpi_run_grad(run, 1);

    for (size_t c = 0; c < channels; c++) {
        double deviation = sqrt((double)variance[c] + run->op->layer.epsilon);
        float scale_part = (float)(sums[channels + c] / deviation);
        float shift_part = (float)sums[c];

        scale[c] = run->accumulate ? scale[c] + scale_part : scale_part;
        shift[c] = run->accumulate ? shift[c] + shift_part : shift_part;
    }
}

/* @p sums of all ranks, without their factors, to the gradient of the input. */
static void input_gradient(const struct cddpi_run *run, const struct cddpi_sync_norm *norm,
                           const float *grad, const double *sums, float *coefficients)
{
    struct cddpi_nn_layout layout = layout_of(run);
    const float *mean = cddpi_run_buffer(run, norm->mean);
    const float *variance = cddpi_run_buffer(run, norm->variance);
    double count = *(const double *)cddpi_run_buffer(run, norm->count);
    size_t channels = layout.channels;
    float *offset = coefficients + channels;
    float *slope = coefficients + 2 * channels;

    for (size_t c = 0; c < channels; c++) {
        double inverse = 1 / ((double)variance[c] + run->op->layer.epsilon);

        coefficients[c] = (float)((double)cddpi_run_param(run, 0)[c] * sqrt(inverse));
        offset[c] = (float)(run->scale * sums[c] / count);
        slope[c] = (float)(run->scale * sums[channels + c] * inverse / count);
    }
    cddpi_nn_normalize_backward(grad, cddpi_run_input(run, 0), &layout, mean, coefficients, offset,
                                slope, cddpi_run_grad_input(run, 0));
}

static cddp_status share_sums(const struct cddpi_run *run, bool alone, double *sums)
{
    size_t count = 2 * (size_t)run->op->in.channels;

    for (size_t i = 0; i < count; i++) {
        sums[i] = run->scale != 0 ? sums[i] / run->scale : 0;
    }
    return alone
               ? CDDP_OK
               : cddp_all_reduce(run->model->group, sums, sums, count, CDDP_F64, CDDP_OP_SUM, NULL);
}

static cddp_status report(struct cddpi_run *run)
{
    cddp_status status = cddpi_run_ready(run, 1);

    return status == CDDP_OK ? cddpi_run_ready(run, 0) : status;
}

cddp_status cddpi_sync_norm_backward(struct cddpi_run *run, const struct cddpi_sync_norm *norm)
{
    struct cddpi_nn_layout layout = layout_of(run);
    const float *grad = cddpi_run_mask_relu(run);
    const float *mean = cddpi_run_buffer(run, norm->mean);
    double *sums = cddpi_zalloc_array(layout.channels, 2 * sizeof *sums);
    float *coefficients = cddpi_zalloc_array(layout.channels, 3 * sizeof *coefficients);
    cddp_status status;

    if (sums == NULL || coefficients == NULL) {
        status = no_memory(run);
    } else {
        cddpi_nn_channel_sums(grad, &layout, sums);
        cddpi_nn_channel_products(grad, cddpi_run_input(run, 0), &layout, mean,
                                  sums + layout.channels);
        add_param_grads(run, sums, cddpi_run_buffer(run, norm->variance));
        status = share_sums(run, norm->alone, sums);
    }
    if (status == CDDP_OK && cddpi_run_grad_input(run, 0) != NULL) {
        input_gradient(run, norm, grad, sums, coefficients);
    }
    cddpi_free(coefficients);
    cddpi_free(sums);
    return status == CDDP_OK ? report(run) : status;
}

cddp_status cddpi_sync_norm_idle_backward(struct cddpi_run *run)
{
    double *sums = cddpi_zalloc_array((size_t)run->op->in.channels, 2 * sizeof *sums);
    cddp_status status = sums != NULL ? share_sums(run, false, sums) : no_memory(run);

    cddpi_free(sums);
    return status;
}
