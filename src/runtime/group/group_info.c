/* group_info.c - owns what a group tells about itself. */
#include "group/group_info.h"

#include "base/error.h"
#include "base/types.h"
#include "group/device/group_device.h"
#include "group/transports.h"

uint32_t cddpi_group_timeout_ms(const cddp_group *group)
{
    return group->timeout_ms;
}

int cddpi_group_local_rank(const cddp_group *group)
{
    return group->local_rank;
}

int cddpi_group_local_world_size(const cddp_group *group)
{
    return group->local_world_size;
}

const char *cddpi_group_backend(const cddp_group *group)
{
    return cddpi_group_has_device(group) ? cddpi_group_device_transport_name(group)
                                         : group->transport->name;
}

static cddp_group_state state_of(const cddp_group *group)
{
    if (group->is_closed) {
        return CDDP_GROUP_CLOSED;
    }
    return group->broken || group->ended || (cddpi_group_has_device(group) && group->device->failed)
               ? CDDP_GROUP_BROKEN
               : CDDP_GROUP_OPEN;
}

cddp_status cddp_group_get_info(const cddp_group *group, cddp_group_info *out)
{
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    struct cddpi_device *device;

    CDDPI_TRY(cddpi_handle_check_life((const struct cddpi_handle *)group, CDDPI_HANDLE_GROUP,
                                      "group_get_info"));
    device = cddpi_group_on_device(group);
    info.generation = group->generation;
    info.state = state_of(group);
    info.rank = group->rank;
    info.world_size = group->world_size;
    info.local_rank = group->local_rank;
    info.local_world_size = group->local_world_size;
    info.host = group->host;
    info.device = cddpi_group_has_device(group) ? device->index : -1;
    info.timeout_ms = group->timeout_ms;
    info.backend = cddpi_group_backend(group);
    info.stream = device->ops->compute_stream(device);
    return cddpi_struct_fill("group info", "CDDP_GROUP_INFO_INIT", &info, sizeof info, out);
}
