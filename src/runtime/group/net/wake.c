/* wake.c - ends the sleep of a rank, which may wait for ranks of its host or for descriptors; and
 * owns the other calls that a carrier makes from its own thread. */
#include "group/net/wake.h"

#include <unistd.h>

void cddpi_net_wake(struct cddpi_backend *backend)
{
    struct net_backend *net = net_of(backend);
    uint64_t one = 1;

    net->inner->ops->wake(net->inner);
    if (atomic_load(&net->sleeps)) {
        (void)!write(net->wake_fd, &one, sizeof one);
    }
}

void cddpi_net_wake_by_carrier(void *context)
{
    struct net_backend *net = context;

    cddpi_net_wake(&net->base);
}

bool cddpi_net_host_failed(void *context, struct cddpi_failure *out)
{
    struct net_backend *net = context;

    if (net->inner->ops->broken(net->inner) == CDDP_OK || atomic_exchange(&net->is_told, true)) {
        return false;
    }
    *out = *cddpi_last_failure();
    return true;
}
