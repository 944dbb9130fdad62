/* keep_state.c - owns what the state of a run consists of, in host memory: on a device, copies. */
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "group/device/group_device.h"
#include "parallel/parallel_memory.h"
#include "train/checkpoint.h"
#include "train/device/device_step.h"
#include "train/device/host_copy.h"
#include "train/recovery/keep_impl.h"

#include <string.h>

size_t cddpi_keep_moments(const struct cddpi_trainer *trainer)
{
    const struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(trainer->config);

    return cddpi_optim_moments_of(&spec);
}

static void append(struct cddpi_kept_tensors *to, const cddp_param *tensors, size_t count)
{
    memcpy(to->list + to->count, tensors, count * sizeof *tensors);
    to->count += count;
}

cddp_status cddpi_keep_list_tensors(struct cddpi_trainer *trainer, struct cddpi_kept_tensors *out)
{
    size_t counters;
    size_t scales = 0;
    const cddp_param *counter = cddpi_optim_tensors(trainer->step.optim, &counters);
    const cddp_param *scale = cddpi_loss_scale_tensors(&trainer->step.loss_scale, &scales);
    cddp_param *model;

    *out = (struct cddpi_kept_tensors){.list = NULL};
    counters = cddpi_optim_counters(trainer->step.optim);
    scales = cddpi_checkpoint_has_scale(trainer) ? scales : 0;
    CDDPI_TRY(cddpi_trainer_create_host_copy(trainer));
    out->model = model = cddpi_trainer_model_tensors(trainer);
    out->list = cddpi_zalloc_array(counters + scales + trainer->buffers.count + 1,
                                   sizeof *out->list);
    if (model == NULL || out->list == NULL) {
        cddpi_keep_release_tensors(out);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a list of tensors");
    }
    append(out, counter, counters);
    append(out, scale, scales);
    append(out, model + trainer->params.count, trainer->buffers.count);
    out->bytes = cddpi_tensors_bytes(out->list, out->count);
    return CDDP_OK;
}

void cddpi_keep_release_tensors(struct cddpi_kept_tensors *tensors)
{
    cddpi_free(tensors->model);
    cddpi_free(tensors->list);
    *tensors = (struct cddpi_kept_tensors){.list = NULL};
}

uint64_t cddpi_keep_head_bytes(const struct cddpi_kept_tensors *tensors, uint64_t pieces)
{
    return sizeof pieces + pieces * sizeof(struct cddpi_kept_piece) +
           sizeof(struct cddpi_kept_sums) + tensors->bytes;
}

cddp_status cddpi_keep_fetch(struct cddpi_trainer *trainer)
{
    if (!cddpi_device_is_async(trainer->device)) {
        return CDDP_OK;
    }
    if (trainer->config->ddp.shard_optimizer) {
        CDDPI_TRY(cddpi_ddp_params_whole(trainer->ddp));
    }
    CDDPI_TRY(cddpi_optim_fetch(trainer->step.optim));
    CDDPI_TRY(cddpi_trainer_copy_to_host(trainer));
    /* what a failed reduction has made must not be kept (cddpi_trainer_assemble()) */
    return cddpi_group_verify(trainer->group);
}

cddp_status cddpi_keep_send(struct cddpi_trainer *trainer)
{
    CDDPI_TRY(cddpi_optim_send(trainer->step.optim));
    if (cddpi_checkpoint_has_scale(trainer)) {
        CDDPI_TRY(cddpi_device_step_send_scale(trainer->step.device));
    }
    return cddpi_trainer_copy_to_device(trainer);
}
