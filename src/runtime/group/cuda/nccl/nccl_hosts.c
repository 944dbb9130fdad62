/* nccl_hosts.c - what NCCL is told where ranks are on several hosts: by which network interface
 * they reach each other, and which ranks share a host. Never against a variable that the user has
 * set.
 */
#include "group/cuda/nccl/nccl_transport.h"

#include <stdlib.h>

void cddpi_nccl_tell_hosts(const struct cddpi_device_open_params *params)
{
    if (params->host_count < 2) {
        return;
    }
    if (params->interfaces != NULL) {
        setenv("NCCL_SOCKET_IFNAME", params->interfaces, 0); /* of the same syntax */
    }
    if (params->host_id !=
        NULL) { /* ranks that are not to share memory share none in NCCL, either */
        setenv("NCCL_HOSTID", params->host_id, 0);
    }
}
