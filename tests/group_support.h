/* group_support.h - groups for tests and benchmarks, without a store: the shared block is made
 * before the ranks are forked. */
#ifndef CDDP_TESTS_GROUP_SUPPORT_H
#define CDDP_TESTS_GROUP_SUPPORT_H

#include "base/clock.h"
#include "group/group.h"
#include "group/host/host.h"

#include <unistd.h>

struct group_seed {
    int fd;
    uint64_t nonce;
};

/* In the parent, before the fork. Close seed->fd when the ranks are done. */
static inline cddp_status group_seed_create(int world_size, struct group_seed *out)
{
    return cddpi_host_block_create(world_size, &out->nonce, &out->fd);
}

/* In a rank. */
static inline cddp_status group_from_seed(const struct group_seed *seed, int rank, int world_size,
                                          uint32_t timeout_ms, cddp_group **out)
{
    struct cddpi_seat seat = {rank, world_size, timeout_ms};
    struct cddpi_backend *host;
    int cores;
    int own_cores;
    cddp_status status = cddpi_host_attach(&seat, seed->fd, seed->nonce, &host);

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_host_meet(host, cddpi_deadline_ns(timeout_ms), NULL, NULL);
    if (status != CDDP_OK) {
        cddpi_host_ops.close(host);
        return status;
    }
    cddpi_host_cores(host, &cores, &own_cores);
    return cddpi_group_build(&seat, &cddpi_host_ops, host, cores, own_cores, out);
}

#endif
