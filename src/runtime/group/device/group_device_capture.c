/* group_device_capture.c - owns captured graphs that contain operations of the group: how ranks
 * compare them, and their replays, which are operations of the group, too. */
#include "base/error.h"
#include "base/hash.h"
#include "group/device/group_device.h"
#include "group/join/group_agree.h"
#include "group/transports.h"

bool cddpi_group_is_capturing(const cddp_group *group)
{
    return cddpi_group_has_device(group) && group->device->capturing;
}

cddp_status cddpi_group_can_capture(const cddp_group *group)
{
    const struct cddpi_group_device *dev = group->device;

    if (!cddpi_group_has_device(group)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "nothing can be captured on the processor");
    }
    if (!dev->transport->ops->can_capture(dev->transport)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "operations of backend %s cannot be captured",
                          dev->row->name);
    }
    return CDDP_OK;
}

cddp_status cddpi_group_capture_begin(cddp_group *group)
{
    struct cddpi_group_device *dev = group->device;
    cddp_status status = cddpi_group_device_status(dev);

    if (status == CDDP_OK) {
        status = cddpi_group_can_capture(group);
    }
    if (status == CDDP_OK) {
        status = dev->device->ops->capture_begin(dev->device);
    }
    dev->capturing = status == CDDP_OK;
    dev->capture_hash = cddpi_hash_start;
    return status;
}

cddp_status cddpi_group_capture_end(cddp_group *group, struct cddpi_group_capture *out)
{
    struct cddpi_group_device *dev = group->device;

    dev->capturing = false;
    out->calls = dev->capture_hash;
    return dev->device->ops->capture_end(dev->device, &out->work);
}

cddp_status cddpi_group_capture_failed(cddp_group *group)
{
    struct cddpi_group_device *dev = group->device;
    cddp_status status = cddpi_group_device_status(dev);

    if (status != CDDP_OK || dev->transport->ops->recover == NULL) {
        return status;
    }
    return cddpi_agree(group, dev->transport->ops->recover(dev->transport));
}

cddp_status cddpi_group_replay(cddp_group *group, const struct cddpi_group_capture *captured)
{
    struct cddpi_group_device *dev = group->device;
    struct cddpi_group_op op = {.kind = CDDPI_REPLAY, .type = CDDP_U8, .count = captured->calls};
    struct cddpi_pending *pending;
    cddp_status status = cddpi_group_device_status(dev);

    if (status != CDDP_OK) {
        return status;
    }
    pending = cddpi_pending_take(dev, &op);
    if (pending == NULL) {
        return cddpi_group_device_fail_call(dev, CDDP_ERR_NO_MEMORY);
    }
    status = cddpi_calls_publish(dev, pending);
    if (status == CDDP_OK) {
        status = dev->device->ops->replay(dev->device, captured->work);
        if (status == CDDP_OK) {
            status = dev->device->ops->record(dev->device, pending->done, CDDPI_STREAM_COMPUTE);
        }
        if (status != CDDP_OK) {
            status = cddpi_pending_fail(dev, pending, status);
        }
    }
    if (status == CDDP_OK) {
        cddpi_pending_add(dev, pending);
    } else {
        atomic_store(&dev->reported, true);
        cddpi_pending_put(dev, pending);
    }
    return status;
}
