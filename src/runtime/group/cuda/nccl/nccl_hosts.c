/* nccl_hosts.c - tells NCCL, if ranks are on several hosts, through which network interface they
 * reach each other, and which ranks share a host. Never overrides a variable that the user has set.
 */
#include "group/cuda/nccl/nccl_transport.h"

#include <stdlib.h>

void cddpi_nccl_tell_hosts(const struct cddpi_device_open_params *params)
{
    if (params->host_count < 2) {
        return;
    }
    if (params->interfaces != NULL) {
        setenv("NCCL_SOCKET_IFNAME", params->interfaces, 0); /* NCCL uses the same syntax */
    }
    if (params->host_id !=
        NULL) { /* ranks that must not share memory must not share it in NCCL, either */
        setenv("NCCL_HOSTID", params->host_id, 0);
    }
}
