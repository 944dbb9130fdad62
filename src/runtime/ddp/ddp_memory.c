/* ddp_memory.c - owns copying, clearing and checking memory of the device of a handle's group. */
#include "base/error.h"
#include "ddp/ddp.h"

cddp_status cddpi_ddp_copy(const cddp_ddp *ddp, void *to, const void *from, size_t bytes)
{
    return bytes == 0 ? CDDP_OK
                      : ddp->device->ops->copy(ddp->device, CDDPI_STREAM_COMPUTE, to, from, bytes);
}

cddp_status cddpi_ddp_clear(const cddp_ddp *ddp, void *memory, size_t bytes)
{
    return bytes == 0 ? CDDP_OK
                      : ddp->device->ops->clear(ddp->device, CDDPI_STREAM_COMPUTE, memory, bytes);
}

static cddp_status check_owner(const cddp_ddp *ddp, const struct cddpi_ddp_slot *slot,
                               const char *what, const void *memory)
{
    const struct cddpi_device *device = ddp->device;

    if (memory == NULL || slot->bytes == 0 || device->ops->owns(device, memory)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "ddp: the %s of parameter %u (%.200s) does not lie in the memory of device "
                      "%s %d, where its group is",
                      what, slot->param, ddp->params[slot->param].name, device->ops->name,
                      device->index);
}

cddp_status cddpi_ddp_check_memory(const cddp_ddp *ddp, bool sharded)
{
    if (!cddpi_device_is_async(ddp->device)) {
        return CDDP_OK; /* there is only the CPU's memory */
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        const struct cddpi_ddp_slot *slot = &ddp->slots[s];

        CDDPI_TRY(check_owner(ddp, slot, "gradient", slot->grad));
        if (sharded) {
            CDDPI_TRY(check_owner(ddp, slot, "data", ddp->params[slot->param].data));
        }
    }
    return CDDP_OK;
}
