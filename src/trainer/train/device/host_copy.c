/* host_copy.c - owns copies of a device's model in host memory, for files and for what ranks share
 * or compare. */
#include "train/device/host_copy.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/group_info.h"
#include "parallel/parallel_memory.h"

/* Parameters come first, then buffers. */
static const cddp_param *tensor_at(const struct cddpi_trainer *trainer, size_t i)
{
    return i < trainer->params.count ? &trainer->params.list[i]
                                     : &trainer->buffers.list[i - trainer->params.count];
}

static size_t tensor_count(const struct cddpi_trainer *trainer)
{
    return trainer->params.count + trainer->buffers.count;
}

static void destroy_copy(struct cddpi_trainer *trainer)
{
    for (size_t i = 0; trainer->models.host_copy != NULL && i < tensor_count(trainer); i++) {
        cddpi_free(trainer->models.host_copy[i]);
    }
    cddpi_free(trainer->models.host_copy);
    trainer->models.host_copy = NULL;
}

static cddp_status create_copy(struct cddpi_trainer *trainer)
{
    size_t count = tensor_count(trainer);

    if (!cddpi_device_is_async(trainer->device) || trainer->models.host_copy != NULL) {
        return CDDP_OK;
    }
    trainer->models.host_copy = cddpi_zalloc_array(count, sizeof *trainer->models.host_copy);
    for (size_t i = 0; trainer->models.host_copy != NULL && i < count; i++) {
        trainer->models.host_copy[i] = cddpi_alloc_aligned(
            cddpi_tensors_bytes(tensor_at(trainer, i), 1));
        if (trainer->models.host_copy[i] == NULL) {
            destroy_copy(trainer);
        }
    }
    return trainer->models.host_copy != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for a copy of %zu tensors",
                            count);
}

cddp_status cddpi_trainer_create_host_copy(struct cddpi_trainer *trainer)
{
    for (; trainer != NULL; trainer = trainer->next) {
        CDDPI_TRY(create_copy(trainer));
    }
    return CDDP_OK;
}

void cddpi_trainer_destroy_host_copy(struct cddpi_trainer *trainer)
{
    for (; trainer != NULL; trainer = trainer->next) {
        destroy_copy(trainer);
    }
}

static cddp_status copy_all(struct cddpi_trainer *trainer, bool fetch)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;
    uint32_t timeout_ms = cddpi_group_timeout_ms(trainer->group);

    CDDPI_TRY(create_copy(trainer));
    /* A copy to unpinned memory waits for all earlier work without a deadline, so wait here with
     * one. */
    CDDPI_TRY(ops->finish(trainer->device, timeout_ms));
    for (size_t i = 0; i < tensor_count(trainer); i++) {
        const cddp_param *tensor = tensor_at(trainer, i);

        CDDPI_TRY(ops->copy(trainer->device, CDDPI_STREAM_COMPUTE,
                            fetch ? trainer->models.host_copy[i] : tensor->data,
                            fetch ? tensor->data : trainer->models.host_copy[i],
                            cddpi_tensors_bytes(tensor, 1)));
    }
    return ops->finish(trainer->device, timeout_ms);
}

cddp_status cddpi_trainer_copy_to_host(struct cddpi_trainer *trainer)
{
    for (; trainer != NULL && cddpi_device_is_async(trainer->device); trainer = trainer->next) {
        CDDPI_TRY(copy_all(trainer, true));
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_copy_to_device(struct cddpi_trainer *trainer)
{
    for (; trainer != NULL && cddpi_device_is_async(trainer->device); trainer = trainer->next) {
        cddp_status status = copy_all(trainer, false);

        cddpi_trainer_params_changed(trainer, false);
        CDDPI_TRY(status);
    }
    return CDDP_OK;
}

size_t cddpi_trainer_model_tensor_count(const struct cddpi_trainer *trainer)
{
    size_t count = 0;

    for (; trainer != NULL; trainer = trainer->next) {
        count += tensor_count(trainer);
    }
    return count;
}

cddp_param *cddpi_trainer_model_tensors(const struct cddpi_trainer *trainer)
{
    cddp_param *all = cddpi_zalloc_array(cddpi_trainer_model_tensor_count(trainer), sizeof *all);
    cddp_param *next = all;

    for (; all != NULL && trainer != NULL; trainer = trainer->next) {
        for (size_t i = 0; i < tensor_count(trainer); i++, next++) {
            *next = *tensor_at(trainer, i);
            if (trainer->models.host_copy != NULL) {
                next->data = trainer->models.host_copy[i];
            }
        }
    }
    return all;
}
