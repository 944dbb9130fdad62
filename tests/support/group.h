/* group.h - groups for tests and benchmarks, without a store: the shared block is made
 * before the ranks are forked. */
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

/* In the parent, before the fork. Close seed->fd when the ranks are done. */
cddp_status group_seed_create(int world_size, struct group_seed *out);

/* In a rank. */
cddp_status group_from_seed(const struct group_seed *seed, int rank, int world_size,
                            uint32_t timeout_ms, cddp_group **out);

/* In a rank, before it joins: $TEST_HOSTS, a list like "0,0,1", says which host it is on; the list
 * begins again behind its end. False: there is none. */
bool group_choose_host(int rank);

#endif
