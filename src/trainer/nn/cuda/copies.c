/* copies.c - refreshes the stale copies of parameters that ops on a device read instead of the
 * parameters. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"

static size_t channels_of(const cddp_param *param)
{
    return param->dims > 1 ? (size_t)param->shape[1] : 1;
}

static cddp_status make_copy(const struct cddpi_model *model, size_t index)
{
    const struct cddpi_model_cuda *cuda = model->cuda;
    const cddp_param *param = &model->params.items[index];
    size_t count = cddpi_tensor_elements(param);

    if (model->copies[index].form == CDDPI_COPY_CAST) {
        return cuda->kernels->cast(model->device, CDDP_F32, param->data, model->type,
                                   model->copies[index].data, count);
    }
    return cuda->kernels->to_channels_last(
        model->device, model->type, param->data, (size_t)param->shape[0], channels_of(param),
        count / (size_t)param->shape[0] / channels_of(param), model->copies[index].data);
}

static cddp_status refresh(const struct cddpi_model *model, size_t index)
{
    struct cddpi_param_copy *copy = &model->copies[index];
    cddp_status status = CDDP_OK;

    if (copy->stale) {
        status = make_copy(model, index);
        copy->stale = status != CDDP_OK;
    }
    return status;
}

cddp_status cddpi_exec_refresh_copies(const struct cddpi_exec *exec)
{
    for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
        int param = exec->op->params[k];

        if (param >= 0 && (size_t)param < exec->model->copy_count) {
            CDDPI_TRY(refresh(exec->model, (size_t)param));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_model_refresh_copies(struct cddpi_model *model)
{
    for (size_t i = 0; i < model->copy_count; i++) {
        if (model->copies[i].form == CDDPI_COPY_CAST) {
            CDDPI_TRY(refresh(model, i));
        }
    }
    return CDDP_OK;
}
