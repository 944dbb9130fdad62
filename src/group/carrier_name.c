/* carrier_name.c - tells which carrier a group that spans hosts uses. */
#include "group/carrier_name.h"

#include "group/group.h"
#include "group/net/net.h"
#include "group/transports.h"

const char *cddpi_group_carrier_name(const cddp_group *group)
{
    if (group->transport != &cddpi_net_transport || group->backend->carrier_ops == NULL) {
        return NULL;
    }
    return group->backend->carrier_ops->name;
}
