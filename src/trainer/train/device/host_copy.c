/* host_copy.c - owns copies in the processor's memory of what a model has on a device: for files,
 * and for what ranks share or compare of it. */
#include "train/device/host_copy.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"

#include <string.h>

/* Parameters first, then buffers. */
static const cddp_param *tensor_at(const struct cddpi_trainer *trainer, size_t i)
{
    return i < trainer->param_count ? &trainer->params[i]
                                    : &trainer->buffers[i - trainer->param_count];
}

static size_t tensor_count(const struct cddpi_trainer *trainer)
{
    return trainer->param_count + trainer->buffer_count;
}

static size_t bytes_of(const cddp_param *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * cddp_type_bytes(tensor->type);
}

/* Both do it, the trainer and its generator, if there is one. */
static cddp_status of_both(struct cddpi_trainer *trainer,
                           cddp_status (*work)(struct cddpi_trainer *trainer))
{
    cddp_status status = work(trainer);

    return status == CDDP_OK && trainer->generator != NULL ? work(trainer->generator) : status;
}

static void destroy_copy(struct cddpi_trainer *trainer)
{
    for (size_t i = 0; trainer->host_copy != NULL && i < tensor_count(trainer); i++) {
        cddpi_free(trainer->host_copy[i]);
    }
    cddpi_free(trainer->host_copy);
    trainer->host_copy = NULL;
}

static cddp_status create_copy(struct cddpi_trainer *trainer)
{
    size_t count = tensor_count(trainer);

    if (!cddpi_device_is_async(trainer->device) || trainer->host_copy != NULL) {
        return CDDP_OK;
    }
    trainer->host_copy = cddpi_zalloc_array(count, sizeof *trainer->host_copy);
    for (size_t i = 0; trainer->host_copy != NULL && i < count; i++) {
        trainer->host_copy[i] = cddpi_alloc_aligned(bytes_of(tensor_at(trainer, i)));
        if (trainer->host_copy[i] == NULL) {
            destroy_copy(trainer);
        }
    }
    return trainer->host_copy != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for a copy of %zu tensors",
                            count);
}

cddp_status cddpi_trainer_create_host_copy(struct cddpi_trainer *trainer)
{
    return of_both(trainer, create_copy);
}

void cddpi_trainer_destroy_host_copy(struct cddpi_trainer *trainer)
{
    destroy_copy(trainer);
    if (trainer->generator != NULL) {
        destroy_copy(trainer->generator);
    }
}

static cddp_status copy_all(struct cddpi_trainer *trainer, bool fetch)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;
    uint32_t timeout_ms = cddp_group_timeout_ms(trainer->group);
    cddp_status status = create_copy(trainer);

    /* a copy to memory that is not pinned waits for all work before it, and knows no deadline */
    if (status == CDDP_OK) {
        status = ops->finish(trainer->device, timeout_ms);
    }
    for (size_t i = 0; status == CDDP_OK && i < tensor_count(trainer); i++) {
        const cddp_param *tensor = tensor_at(trainer, i);

        status = ops->copy(trainer->device, CDDPI_STREAM_COMPUTE,
                           fetch ? trainer->host_copy[i] : tensor->data,
                           fetch ? tensor->data : trainer->host_copy[i], bytes_of(tensor));
    }
    return status == CDDP_OK ? ops->finish(trainer->device, timeout_ms) : status;
}

static cddp_status copy_to_host(struct cddpi_trainer *trainer)
{
    return cddpi_device_is_async(trainer->device) ? copy_all(trainer, true) : CDDP_OK;
}

cddp_status cddpi_trainer_copy_to_host(struct cddpi_trainer *trainer)
{
    return of_both(trainer, copy_to_host);
}

static cddp_status copy_to_device(struct cddpi_trainer *trainer)
{
    cddp_status status;

    if (!cddpi_device_is_async(trainer->device)) {
        return CDDP_OK;
    }
    status = copy_all(trainer, false);
    cddpi_model_params_changed(trainer->model, false);
    return status;
}

cddp_status cddpi_trainer_copy_to_device(struct cddpi_trainer *trainer)
{
    return of_both(trainer, copy_to_device);
}

size_t cddpi_trainer_model_tensor_count(const struct cddpi_trainer *trainer)
{
    return tensor_count(trainer) +
           (trainer->generator != NULL ? tensor_count(trainer->generator) : 0);
}

static void describe(const struct cddpi_trainer *trainer, cddp_tensor *tensors)
{
    for (size_t i = 0; i < tensor_count(trainer); i++) {
        const cddp_param *from = tensor_at(trainer, i);

        tensors[i].name = from->name;
        tensors[i].type = from->type;
        tensors[i].dims = from->dims;
        memcpy(tensors[i].shape, from->shape, sizeof tensors[i].shape);
        tensors[i].data = trainer->host_copy != NULL ? trainer->host_copy[i] : from->data;
    }
}

cddp_tensor *cddpi_trainer_model_tensors(const struct cddpi_trainer *trainer)
{
    size_t count = cddpi_trainer_model_tensor_count(trainer);
    cddp_tensor *tensors = cddpi_zalloc_array(count, sizeof *tensors);

    if (tensors != NULL) {
        describe(trainer, tensors);
    }
    if (tensors != NULL && trainer->generator != NULL) {
        describe(trainer->generator, tensors + tensor_count(trainer));
    }
    return tensors;
}
