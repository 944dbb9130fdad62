/* group_info.c - owns what a group tells about itself. */
#include "group/group_info.h"

#include "base/error.h"
#include "base/types.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/engine/group_state.h"
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

int cddp_group_translate(const cddp_group *part, int rank, const cddp_group *group)
{
    int of_job = rank;

    if ((part != NULL && !cddpi_group_may_ask(part, "group_translate")) ||
        (group != NULL && !cddpi_group_may_ask(group, "group_translate")) || rank < 0) {
        return -1;
    }
    if (part != NULL) {
        if (rank >= part->world_size || (group != NULL && part->job != group->job)) {
            return -1;
        }
        of_job = cddpi_group_rank_of_job(part, rank);
    }
    if (group == NULL) {
        return part != NULL ? of_job : -1;
    }
    for (int r = 0; r < group->world_size; r++) {
        if (cddpi_group_rank_of_job(group, r) == of_job) {
            return r;
        }
    }
    return -1;
}
