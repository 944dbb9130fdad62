/* single_files.c - loads a whole model's weights, and puts it into checkpoints and loads it from
 * them. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/weights/weights.h"
#include "train/checkpoint.h"
#include "train/device/host_copy.h"
#include "train/engines/single/single.h"

/* Read cddp's own file, or, for gpt2, a file of other programs. */
static cddp_status read_weights(const struct cddpi_trainer *trainer)
{
    const char *path = trainer->config->model.weights;
    size_t count = cddpi_trainer_model_tensor_count(trainer);
    cddp_tensor *tensors = cddpi_trainer_model_tensors(trainer);
    cddp_status status;

    if (tensors == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory");
    }
    status = trainer->heads > 0 ? cddpi_weights_load(path, trainer->heads, tensors, count)
                                : cddp_safetensors_load(path, tensors, count);
    cddpi_free(tensors);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "model.weights");
}

cddp_status cddpi_single_load_weights(struct cddpi_trainer *trainer)
{
    if (trainer->rank != 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_trainer_copy_to_host(trainer));
    CDDPI_TRY(read_weights(trainer));
    return cddpi_trainer_copy_to_device(trainer);
}

cddp_status cddpi_single_list_tensors(struct cddpi_trainer *trainer, cddp_snapshot *out)
{
    size_t count = 0;
    const cddp_tensor *tensors = cddpi_optim_tensors(trainer->optim, &count);
    cddp_status status;

    *out = (cddp_snapshot)CDDP_SNAPSHOT_INIT;
    out->step = trainer->cursor.step;
    out->model = cddpi_trainer_model_tensors(trainer);
    out->model_count = cddpi_trainer_model_tensor_count(trainer);
    if (out->model == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
    }
    status = cddpi_checkpoint_add_optimizer(out, tensors, count);
    if (status == CDDP_OK && cddpi_checkpoint_has_scale(trainer)) {
        tensors = cddpi_loss_scale_tensors(&trainer->loss_scale, &count);
        status = cddpi_checkpoint_add_optimizer(out, tensors, count);
    }
    if (status != CDDP_OK) {
        cddpi_checkpoint_release(out);
    }
    return status;
}

cddp_status cddpi_single_prepare_save(struct cddpi_trainer *trainer,
                                      struct cddpi_snapshot_source *out)
{
    (void)trainer; /* all tensors have data */
    (void)out;
    return CDDP_OK;
}

cddp_status cddpi_single_load(struct cddpi_trainer *trainer, const char *path)
{
    cddp_snapshot snapshot;
    cddp_status status;

    CDDPI_TRY(trainer->engine->list_tensors(trainer, &snapshot));
    status = cddp_snapshot_load(path, &snapshot);
    cddpi_checkpoint_release(&snapshot);
    return status;
}
