/* edge_buffer.c - owns the memory of activations and gradients that pass between stages. */
#include "parallel/pipeline/edge_buffer.h"

cddp_status cddpi_message_finish(cddp_work **work)
{
    cddp_status status = CDDP_OK;

    if (*work != NULL) {
        status = cddp_work_wait(*work, 0);
        cddp_work_destroy(*work);
        *work = NULL;
    }
    return status;
}

void cddpi_edge_buffers_release(struct cddpi_device *device, struct cddpi_edge_buffer *buffers,
                                size_t count)
{
    for (size_t k = 0; buffers != NULL && k < count; k++) {
        cddp_work_destroy(buffers[k].data_work);
        cddp_work_destroy(buffers[k].grad_work);
        buffers[k].data_work = NULL;
        buffers[k].grad_work = NULL;
        device->ops->release(device, buffers[k].data);
        device->ops->release(device, buffers[k].grad);
        buffers[k].data = NULL;
        buffers[k].grad = NULL;
    }
}

size_t cddpi_edge_buffers_bytes(const struct cddpi_edge *edges, size_t count, int samples)
{
    size_t bytes = 0;

    for (size_t k = 0; k < count; k++) {
        bytes += (size_t)samples * edges[k].elements * sizeof(float) * (edges[k].has_grad ? 2 : 1);
    }
    return bytes;
}

cddp_status cddpi_edge_buffers_allocate(struct cddpi_device *device,
                                        struct cddpi_edge_buffer *buffers,
                                        const struct cddpi_edge *edges, size_t count, int samples)
{
    cddp_status status = CDDP_OK;

    for (size_t k = 0; status == CDDP_OK && k < count; k++) {
        size_t bytes = (size_t)samples * edges[k].elements * sizeof(float);
        void *memory = NULL;

        status = device->ops->alloc(device, bytes, "values between stages", &memory);
        buffers[k].data = memory;
        if (status == CDDP_OK && edges[k].has_grad) {
            memory = NULL;
            status = device->ops->alloc(device, bytes, "gradients between stages", &memory);
            buffers[k].grad = memory;
        }
    }
    return status;
}
