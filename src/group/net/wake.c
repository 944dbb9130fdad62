/* wake.c - ends the sleep of a rank, which may be on its host's ranks or on descriptors. */
#include "group/net/net.h"

#include <unistd.h>

void cddpi_net_wake(struct cddpi_backend *net)
{
    uint64_t one = 1;

    net->inner_ops->wake(net->inner);
    if (atomic_load(&net->sleeps_on) == NET_ON_DESCRIPTOR) {
        (void)!write(net->wake_fd, &one, sizeof one);
    }
}

void cddpi_net_wake_by_carrier(void *context)
{
    cddpi_net_wake(context);
}
