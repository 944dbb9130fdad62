/* group.h - groups without a store, for tests and benchmarks: the shared block is created before
 * the ranks are forked. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_H
#define CDDP_TESTS_SUPPORT_GROUP_H

#include "base/clock.h"
#include "group/group.h"
#include "group/shm/shm.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct group_seed {
    int fd;
    uint64_t nonce;
};

/* Call in the parent, before the fork. Close seed->fd when the ranks have ended. */
cddp_status group_seed_create(int world_size, struct group_seed *out);

/* Call in a rank. */
cddp_status group_from_seed(const struct group_seed *seed, int rank, int world_size,
                            uint32_t timeout_ms, cddp_group **out);

/* cddp_group_get_info(); ends the process if that fails. */
cddp_group_info group_info(const cddp_group *group);

/* Call in a rank, before it joins: choose its host from $TEST_HOSTS, a list such as "0,0,1" that
 * repeats after its end. Returns false if the variable is unset. */
bool group_choose_host(int rank);

/* Call in a rank: join the others over TCP at the store @p url, as if on machine @p host. */
cddp_status group_join_on(int host, const char *url, int rank, int world_size, uint32_t timeout_ms,
                          cddp_group **out);

#endif
